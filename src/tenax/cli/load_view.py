"""The load of a run in words: what a pass takes, how busy nodes are, which tasks cost most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tenax.cli import render
from tenax.control.instructions import Decided
from tenax.control.load import Load
from tenax.control.notices import RecoveryBegun
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task

SHOWN_NODES = 8
SHOWN_TASKS = 5
NOTICEABLE_SKEW = 1.5  # times the median


def load_facts(load: Load, graph: TaskGraph, busy_parts: Mapping[str, float] | None = None) -> list[tuple[str, str]]:
    """What was measured, by name; nothing before the first measured pass."""
    if not load.tasks:
        return []
    fixed_s = load.levels * load.fixed_s
    rate = load.arrival.rows_per_s
    facts = [
        (
            "pass",
            f"{render.seconds(load.pass_s)}: {render.seconds(fixed_s)} for {load.levels} levels, "
            f"{render.seconds(load.moving_s)} a batch of {load.rows:,.0f} rows",
        ),
        ("rows come", "as fast as they are read" if rate is None else f"{rate:,.0f}/s"),
    ]
    if busy_parts:
        parts = sorted(busy_parts.values(), reverse=True)
        more = f" and {len(parts) - SHOWN_NODES} more" if len(parts) > SHOWN_NODES else ""
        facts.append(("nodes busy", " ".join(render.percent(part) for part in parts[:SHOWN_NODES]) + more))
    costliest = sorted(range(len(graph)), key=lambda number: -load.tasks[number].busy_s)[:SHOWN_TASKS]
    facts.append(
        (
            "busiest tasks",
            ", ".join(f"{graph.task(number)} {render.seconds(load.tasks[number].busy_s)}" for number in costliest),
        )
    )
    skew = load.skew(graph)
    if skew is not None and skew.ratio >= NOTICEABLE_SKEW:
        facts.append(("skew", f"{skew.task} is busy {skew.ratio:.1f} times as long as the median of its operator"))
    return facts


def waiting_text(waiting: Sequence[Task], decided: Iterable[Decided], before: str) -> str:
    """Which lost tasks wait for room and why, as long as they do."""
    if not waiting:
        return ""
    reasons = [each.reason for each in decided if isinstance(each, RecoveryBegun)]
    if not reasons and before:
        return before
    return f"{render.short(waiting)} wait for room on a node: {' '.join(reasons)}"


def load_rows(load: Load, tasks: list[str]) -> list[tuple[str, ...]]:
    """Every task with what it does in a batch, for a table."""
    return [
        (
            name,
            f"{task.rows:,.0f}",
            f"{task.rows_out:,.0f}",
            render.seconds(task.busy_s),
            render.size(int(task.state_bytes)),
        )
        for name, task in zip(tasks, load.tasks, strict=True)
    ]
