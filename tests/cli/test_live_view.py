"""What a run shows while it goes on, from what it is told."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, Dialogue
from rich.console import Console

from tenax.api.streams import Topology
from tenax.cli.live import LiveView
from tenax.control.copies import Role
from tenax.control.events import CheckpointStored
from tenax.control.instructions import Outcome, Stop
from tenax.engine.sinks.delivery import console
from tenax.engine.sources.workloads import elements
from tenax.engine.worker.orders import Report, Sent


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
    primary = Report(0, 0, 10, 10, 0, 0, 0, 1.0, sent=sent, retained_bytes=5_000, cpu_s=0.5, retaining_cpu_s=0.1)
    view.passed(1, 4, [primary, Report(1, 1, 10, 10, 0, 0, 0, 1.0, role=Role.REPLICA, cpu_s=0.4)], 1.0)
    view.handled(
        Dialogue(TREE, HOMES, NODES, replace(SETTINGS, checkpoint_every=4)).coordinator,
        CheckpointStored(1, 1, 40_000, 0.25, 70_000, 0.1),
        [],
    )


COSTS = (
    "checkpoints 1 of 70 kB and 0.25 s on average, 40 kB written; now every 4 batches",
    "retained outputs 5 kB",
    "sent between nodes 6 messages, 9 kB, of these 2 and 3 kB for replicas",
    "protection 60 % of the processor time of steps and checkpoints",
)


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
