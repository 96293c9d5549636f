"""What a run shows while it goes on, from what it is told."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, B, C, Dialogue, goes_on, tree_at
from rich.console import Console

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.cli.live import LiveView
from tenax.connectors.delivery import console
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.copies import Role
from tenax.control.events import BackupsPlanned, CheckpointStored
from tenax.control.instructions import Outcome, PassKind, RunPass, Step, Stop
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.engine.driver.latecomers import Latecomers
from tenax.engine.worker.orders import LateRows, Report, Sent
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.operators.computation import NO_WATERMARK_US
from tenax.operators.lateness import Overdue
from tenax.planning.promises import Promise


@pytest.fixture
def view(tmp_path: Path) -> LiveView:
    topology = Topology("one")
    topology.source("read", elements(rate=1.0)).output("rows", console())
    return LiveView(topology.build(), tmp_path)


def shown(view: LiveView) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(view.drawn())
    return " ".join(out.getvalue().split())


def protected(view: LiveView) -> None:
    """A pass with a replica and retained outputs, and a checkpoint."""
    sent = Sent(6, 9_000, 2, 3_000)
    primary = Report(
        task=0,
        node=0,
        rows_in=10,
        rows_out=10,
        seconds=1.0,
        sent=sent,
        retained_bytes=5_000,
        cpu_s=0.5,
        retaining_cpu_s=0.1,
    )
    replica = Report(task=1, node=1, rows_in=10, rows_out=10, seconds=1.0, role=Role.REPLICA, cpu_s=0.4)
    view.passed(1, 4, [primary, replica], 1.0)
    view.handled(
        Dialogue(TREE, HOMES, NODES, SETTINGS.but(checkpoint_every=4)).coordinator,
        CheckpointStored(1, 1, 40_000, 0.25, 70_000, 0.1),
        [],
    )


COSTS = (
    "checkpoints 1 of 70 kB and 0.25 s on average, 40 kB written; now every 4 batches",
    "retained outputs 5 kB",
    "sent between nodes 6 messages, 9 kB, of these 2 and 3 kB for replicas",
    "protection 60 % of the processor time of steps and checkpoints",
)


def test_a_promise_is_shown_once_it_is_measured_and_loudly_if_it_is_broken(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = tree_at(10, SETTINGS.but(checkpoint_every=4, measure_every=4, recovery_latency="3s"))
    view.handled(talk.coordinator, CheckpointStored(1, 1), [])
    assert "promise" not in shown(view)
    event = BackupsPlanned(10, (B,), Promise(3.0, 2.0, 0.25))
    view.handled(talk.coordinator, event, talk.coordinator.handle(event))
    kept = "a lost task is back within 2.25 s of 3 s allowed: 2 s of steps and 0.25 s of scheduling, as measured"
    assert f"promise {kept}" in shown(view)
    assert kept in " ".join(capsys.readouterr().err.split())
    goes_on(talk, 4)
    assert talk.coordinator.state.promises.request is not None
    event = BackupsPlanned(talk.coordinator.state.promises.request, (B,), Promise(3.0, 4.0, 0.25, (C,)))
    view.handled(talk.coordinator, event, talk.coordinator.handle(event))
    assert "promise a lost task is NOT back within 3 s but within 4.25 s, because of c[0]" in shown(view)
    assert "NOT back within 3 s" in " ".join(capsys.readouterr().err.split())


def test_only_what_was_spent_on_protection_is_shown(view: LiveView) -> None:
    assert "protection 0 %" in shown(view)
    assert "on average" not in shown(view)
    protected(view)
    for cost in COSTS:
        assert cost in shown(view)


def test_the_summary_tells_the_same_costs(view: LiveView, capsys: pytest.CaptureFixture[str]) -> None:
    protected(view)
    view.summary(Stop(Outcome.FINISHED, "all sources have ended", False))
    said = " ".join(capsys.readouterr().out.split())
    for cost in COSTS:
        assert cost in said


def test_in_a_pipe_a_line_per_pass_tells_the_share_of_protection(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    protected(view)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("batches 1 to 4: 10 rows in 1.00 s")
    assert line.endswith("protection 55.6 % of the processor time")


def times(folder: Path) -> Application:
    """s (2) --> w (1) --> out (1)"""
    topology = Topology("times")
    rows = topology.source("s", elements(rate=1.0), partitions=2)
    rows.window("10s").aggregate(pl.len().alias("n"), parallelism=1, name="w").output("out", parquet(folder))
    return topology.build()


def report(task: int, watermark_us: int, rows: int = 0, late: int = 0) -> Report:
    late_rows = (LateRows(1, late, Overdue.of(np.full(late, 1_700_000))),) if late else ()
    return Report(
        task=task,
        node=0,
        rows_in=rows,
        rows_out=rows,
        late=late,
        watermark_us=watermark_us,
        seconds=0.1,
        late_rows=late_rows,
    )


def test_who_holds_whom_is_said_while_it_runs_and_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(times(tmp_path / "out"), tmp_path)
    view.passed(1, 1, [report(0, 50_000_000), report(1, NO_WATERMARK_US), report(2, NO_WATERMARK_US)], 1.0)
    assert "w waits for s[1], which has no rows yet" in shown(view)
    assert "; w waits for s[1], which has no rows yet; " in capsys.readouterr().err
    view.passed(2, 2, [report(0, 50_000_000), report(1, 15_000_000)], 1.0)
    assert "w waits for s[1], 35 s behind s[0]" in shown(view)
    view.passed(3, 3, [report(0, 50_000_000), report(1, 49_000_000)], 1.0)
    assert "waits" not in shown(view)


def test_late_rows_are_loud_in_the_view_in_a_pipe_and_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = times(tmp_path / "out")
    view, latecomers = LiveView(of, tmp_path), Latecomers(of, TaskGraph(of.topology))
    view.follow(latecomers)
    steps = [Step(Task("s", index), "n", Version(Task("s", index), 0, NO_PASS), Role.PRIMARY) for index in (0, 1)]
    instruction = RunPass(PassId(1, 1), PassKind.LIVE, 1, 1, tuple(steps), (), frozenset(), 0, 60.0, 1)
    reports = [report(0, 0, rows=100), report(1, 0, rows=100, late=95)]
    for message in latecomers.add(instruction, reports):
        view.said(message)
    view.passed(1, 1, reports, 1.0)
    wanted = (
        "LATE s: 47.5 % of its rows came late (95 of 200; s[1] 95 %), up to 1.7 s, and were dropped; lateness='2s' "
        "would have kept all"
    )
    assert wanted in shown(view)
    said = capsys.readouterr().err
    assert wanted in said
    assert "; late rows s 47.5 %; " in said
    view.summary(Stop(Outcome.FINISHED, "all sources have ended", False))
    assert "late rows LATE s: 47.5 %" in " ".join(capsys.readouterr().out.split())
