"""A run under failures in a terminal: tasks by operator, outputs, nodes by rack, and what happened last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenax.cli.outages import Kind, Outages
from tenax.cli.stopping import ASKED
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.engine.observer import Observer
from tenax.model.tasks import Task

SHOWN_HAPPENINGS = 8
SHOWN_TASKS = 64  # glyphs of one operator
GONE_SHOWN = 8  # lost nodes that stay in view
STATUS_EVERY_S = 5.0  # between two lines on outputs in a pipe


class Condition(StrEnum):
    """How a task does."""

    LIVE = "live"
    REPLICATED = "replicated"
    TENTATIVE = "tentative"
    RECOVERING = "recovering"
    LOST = "lost"


GLYPHS = {
    Condition.LIVE: ("●", "green", "runs"),
    Condition.REPLICATED: ("◉", "cyan", "runs, replica in step"),
    Condition.TENTATIVE: ("◐", "yellow", "does without what is missing"),
    Condition.RECOVERING: ("◔", "magenta", "catches up"),
    Condition.LOST: ("✗", "red", "lost, waits for a node"),
}
"""Sign, colour and meaning; the sign alone tells conditions apart."""


def conditions(coordinator: Coordinator) -> list[Condition]:
    """How every task does, in task order."""
    tasks = coordinator.state.tasks
    if not tasks:
        return []
    standing = coordinator.standing
    states = []
    for task, behind, degraded in zip(tasks, standing.behind, standing.degraded, strict=False):
        if task.primary is None:
            states.append(Condition.LOST)
        elif behind and task.primary.fork is None:
            states.append(Condition.RECOVERING)
        elif degraded:
            states.append(Condition.TENTATIVE)
        else:
            states.append(Condition.REPLICATED if task.in_step is not None else Condition.LIVE)
    return states


def output_text(outages: Outages, output: str) -> Text:
    """What an output shows now: final, partial or tentative with its quality, or held, and how fresh that is."""
    publication = outages.newest.get(output)
    if publication is None:
        return Text("no result yet", style="dim")
    fresh = f"batch {publication.batch:,}" + (
        "" if publication.latency_s is None else f" after {publication.latency_s:.1f} s"
    )
    silent_s = outages.clock() - publication.at_s
    if outages.outage_s is not None and publication.at_s < outages.outage_s and _is_degraded(outages, output):
        return Text.assemble(("held", "red"), f"  for {silent_s:.0f} s, {fresh}")
    if publication.kind in {Kind.TENTATIVE, Kind.PARTIAL}:
        return Text.assemble((publication.kind, "yellow"), f"  quality {publication.quality:.2f}, {fresh}")
    return Text.assemble(("final", "green"), f"  {fresh}")


def _is_degraded(outages: Outages, output: str) -> bool:
    coordinator = outages.coordinator
    if coordinator is None or not coordinator.state.tasks:
        return False
    numbers = outages.graph.numbers(Task(output, index) for index in range(outages.parallelism[output]))
    return bool(coordinator.standing.degraded[numbers].any())


def drawn(outages: Outages, title: str) -> RenderableType:
    """The whole view: tasks by operator, outputs, nodes by rack, what happened last."""
    if outages.coordinator is None or not outages.coordinator.state.tasks:
        return Text.assemble((title, "bold"), ("  starting the cluster", "dim"))
    last = list(outages.happenings)[-SHOWN_HAPPENINGS:]
    head = Text.assemble((title, "bold"), ("   ", ""), f"{outages.clock():.0f} s")
    if outages.outage_s is not None:
        head.append(f"   tasks are missing for {outages.clock() - outages.outage_s:.0f} s", style="bold red")
    return Group(
        head,
        Text(),
        _tasks_table(outages, outages.coordinator),
        legend(),
        Text(),
        _outputs_table(outages),
        Text(),
        _nodes_table(outages, outages.coordinator),
        Text(),
        *(Text.assemble((f"{at_s:6.1f} s  ", "dim"), _styled(text)) for at_s, text in last),
    )


def legend() -> Text:
    """What the signs of tasks mean."""
    said = Text()
    for sign, style, meaning in GLYPHS.values():
        said.append(f"{sign} ", style=style)
        said.append(f"{meaning}   ", style="dim")
    return said


def _tasks_table(outages: Outages, coordinator: Coordinator) -> Table:
    grid = Table.grid(padding=(0, 2))
    states = conditions(coordinator)
    for number, operator in enumerate(outages.graph.operators):
        signs = Text()
        for condition in states[outages.graph.span(number)][:SHOWN_TASKS]:
            signs.append(f"{GLYPHS[condition][0]} ", style=GLYPHS[condition][1])
        role = "source" if operator.is_source else "output" if operator.name in outages.parallelism else ""
        more = max(0, operator.parallelism - SHOWN_TASKS)
        grid.add_row(Text(operator.name), signs, Text(f"and {more} more" if more else role, style="dim"))
    return grid


def _outputs_table(outages: Outages) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name in outages.parallelism:
        grid.add_row(Text.assemble(("output ", "dim"), (name, "bold")), output_text(outages, name))
    return grid


def _nodes_table(outages: Outages, coordinator: Coordinator) -> Table:
    held: dict[str, list[int]] = {}
    for task in coordinator.state.tasks:
        for position, copy in enumerate((task.primary, task.replica)):
            if copy is not None:
                held.setdefault(copy.node, [0, 0])[position] += 1
    grid = Table.grid(padding=(0, 2))
    gone = [name for name, life in outages.nodes.items() if life.lost_s is not None]
    hidden = set(gone[:-GONE_SHOWN])
    for name, life in sorted(outages.nodes.items(), key=lambda node: node[1].rack or ""):
        if name in hidden:
            continue
        tasks, replicas = held.get(name, [0, 0])
        state = Text.assemble(("● up", "green"), f"  {tasks} tasks, {replicas} replicas")
        if life.lost_s is not None:
            state = Text.assemble(("✗ lost", "red"), (f"  {outages.clock() - life.lost_s:.0f} s ago", "dim"))
        grid.add_row(Text(life.rack or "", style="dim"), Text(life.label), state)
    return grid


def _styled(text: str) -> Text:
    style = "red" if text.startswith("LOST") else "green" if text.startswith("ALL BACK") else ""
    return Text(text, style=style)


class OutageView(Observer):
    """Shows a run under failures while it goes on; in a pipe, a line for what happens and for outputs now and then."""

    def __init__(self, outages: Outages, title: str, console: Console | None = None) -> None:
        self.outages = outages
        self.console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self.console,
            refresh_per_second=8,
            get_renderable=lambda: drawn(outages, title),
            vertical_overflow="crop",
        )
        self._due_s = time.monotonic() + STATUS_EVERY_S

    def __enter__(self) -> OutageView:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def said(self, message: str) -> None:
        """Something happened that a user should know."""
        self.outages.happenings.append((self.outages.clock(), message))
        self._line(message)

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """Learn from an event, and tell what is worth telling."""
        if isinstance(event, events.StopRequested):
            self.said(ASKED)
        for text in self.outages.handled(coordinator, event, then):
            self._line(text)
        if time.monotonic() >= self._due_s and self.outages.newest:
            self._due_s = time.monotonic() + STATUS_EVERY_S
            self._line("; ".join(f"{name} {output_text(self.outages, name).plain}" for name in self.outages.newest))

    def _line(self, text: str) -> None:
        if not self.console.is_terminal:
            self.console.print(f"{self.outages.clock():6.1f} s  {text}", soft_wrap=True, markup=False)
