"""What is said of nodes that are missed, from made-up latencies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax_lab.lab import Row, frame
from tenax_lab.loads.layered import Tap
from tenax_lab.lost_capacity import (
    EACH,
    EAGER,
    EXPERIMENT,
    LIMITED,
    NO_LIMIT,
    SIDES,
    STRUCTURED,
    application,
    outcome,
    places,
)
from tenax_lab.sides.waiting_structured import latencies

FULL = EXPERIMENT.full


def test_every_node_has_as_many_queries_and_room_for_a_few_more(tmp_path: Path) -> None:
    graph = TaskGraph(application(1, FULL, Tap(tmp_path / "tap")).topology)
    nodes = [Node(f"n{number}") for number in range(FULL.nodes)]
    homes = list(places(graph, nodes, {}).primaries.values())
    assert {name: homes.count(name) for name in homes} == dict.fromkeys(homes, 4)  # two queries and their sources
    left = (FULL.fits - EACH) * (FULL.nodes - 2)
    assert 0 < left < 2 * EACH  # of four lost queries some come back
    fullest = [-(-FULL.tasks // (FULL.nodes - killed)) * FULL.busy for killed in (1, 2)]
    assert fullest[0] < FULL.node_limit  # one lost node is no matter
    assert fullest[1] > 1.0  # what two lost nodes leave is too little for all


def test_only_the_limit_differs_between_the_sides_of_tenax() -> None:
    assert FULL.settings(LIMITED).but(node_limit=NO_LIMIT) == FULL.settings(EAGER)


def test_latency_that_grows_is_told_from_latency_that_is_high() -> None:
    before: list[Row] = [{"after_s": -float(second), "latency_s": 1.0, "partition": 0} for second in range(5)]
    high: list[Row] = [{"after_s": float(second), "latency_s": 3.0, "partition": 0} for second in range(1, 6)]
    grows: list[Row] = [{"after_s": float(at_s), "latency_s": float(at_s), "partition": 0} for at_s in range(1, 6)]
    steady, growing = outcome([*before, *high], 5.0), outcome([*before, *grows], 5.0)
    assert steady["growth"] == pytest.approx(0.0)
    assert growing["growth"] == pytest.approx(0.5)  # committed at twice the time
    assert (steady["usual_s"], steady["highest_s"], steady["on_time"]) == (1.0, 3.0, 0.0)
    assert growing["on_time"] == pytest.approx(0.2)
    of_two = outcome([*before, *high, {"after_s": 2.0, "latency_s": 1.0, "partition": 1}], 5.0)
    assert of_two["on_time"] == pytest.approx(1 / 6)


def test_seconds_of_a_generator_are_late_from_when_they_were_over() -> None:
    # triggered and committed after 10 s: seconds 0 and 1 at once, then two more that had to wait
    progress = [(12.0, 13.0, 0, 2), (16.0, 18.0, 2, 4), (18.0, 18.5, 4, 4)]
    assert latencies(progress) == [(11.0, 2.0), (12.0, 1.0), (13.0, 5.0), (14.0, 4.0)]


def test_the_report_has_a_claim_for_every_side_and_loss() -> None:
    rows: list[Row] = []
    for case in FULL.cases:
        for side in SIDES:
            about: Row = {"killed": case.killed, "side": side, "round": 1}
            rows.append({**about, "what": "second", "after_s": 1.0, "latency_s": 0.5, "partition": 0})
            growth = 0.4 if (side, case.killed) == (STRUCTURED, 2) else 0.0
            exact = None if side == STRUCTURED else True
            measures: Row = {"usual_s": 0.5, "highest_s": 3.0, "growth": growth, "on_time": 0.75, "exact": exact}
            rows.append({**about, "what": "outcome", **measures})
    findings = EXPERIMENT.report(FULL, frame(rows))
    assert len(findings.claims) == 6
    assert max(claim.ours for claim in findings.claims) == 0.4
    assert [row[-1] for row in findings.tables[0].rows].count("–") == 2
