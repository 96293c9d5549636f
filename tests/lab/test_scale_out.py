"""What is said of the two methods to recover and scale out, from made-up runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from observing import claimed, rows_of

import tenax as tx
from tenax.application.handover import with_handover
from tenax.chaos.schedule import Kind, check_tasks
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax_lab.lab import Row, frame
from tenax_lab.loads.joined import FILTER, JOIN, Joined, Load, joined, places
from tenax_lab.loads.layered import Tap
from tenax_lab.scale_out import EXPERIMENT, HEAVY, LIGHT, NODES, Case

FULL = EXPERIMENT.full


def test_the_join_keeps_the_contract(tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap")
    tap.close()
    rows = pl.DataFrame({"ts": range(0, 40_000_000, 1_000_000)}).with_row_index("sequence")
    rows = rows.select(
        pl.col("ts").cast(pl.Datetime("us")),
        key=pl.col("sequence").cast(pl.Int64) // 2 % 3,
        is_first=pl.col("sequence") % 2 == 0,
        value=pl.col("sequence").cast(pl.Float64),
    )
    tx.testing.check_computation(Joined(Load(1, 40, 8, 0), tap), rows, time="ts", keys=["key"])


def test_only_the_lightweight_method_does_without_stored_states(tmp_path: Path) -> None:
    application = joined(1, Load(100, 10, 4, 0), Tap(tmp_path / "tap"))
    case = FULL.cases[0]
    stored = {
        side: with_handover(application, FULL.settings(case, side)).protection.checkpoints for side in (LIGHT, HEAVY)
    }
    assert stored[LIGHT] == {JOIN: "none"}
    assert stored[HEAVY] == {}


def test_one_node_filters_and_the_others_join(tmp_path: Path) -> None:
    graph = TaskGraph(joined(1, Load(100, 10, 4, 0), Tap(tmp_path / "tap")).topology)
    nodes = [Node(f"n{number}") for number in range(NODES)]
    homes = places(graph, nodes, {}).primaries
    by_node = {name: {task.operator for task, home in homes.items() if home == name} for name in ("n0", "n1", "n2")}
    assert FILTER in by_node["n0"]
    assert JOIN not in by_node["n0"]
    assert JOIN in by_node["n1"] & by_node["n2"]


@pytest.mark.parametrize("plan", [FULL, EXPERIMENT.quick])
def test_all_that_happens_happens_before_the_end(plan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for case in plan.cases:
        faults = plan.faults(case)
        assert sum(fault.kind is Kind.KILL for fault in faults) == case.faults
        assert sum(fault.kind is Kind.RESCALE for fault in faults) == case.scale_outs
        assert all(fault.when.amount < plan.seconds for fault in faults)
        check_tasks(faults, TaskGraph(joined(1, plan.load(case), Tap(tmp_path / "tap")).topology))


def test_the_report_compares_both_methods_as_the_paper_does() -> None:
    rows: list[Row] = []
    for trial in FULL.trials():
        case: Case = trial.case
        slower = 1.0 if trial.side == HEAVY else 0.8
        measures: Row = {
            "completion_s": slower * (20.0 + 2 * case.faults - 3 * case.scale_outs),
            "recovery_s": (2.0 if trial.side == HEAVY else case.rate / 400) if case.faults else None,
            "lost_tasks": case.faults,
            "replayed": 3,
            "switches": case.scale_outs,
            "written_bytes": 1_000,
            "queue_bytes": 2_000,
            "exact": True,
        }
        rows.append({**trial.columns, **measures})
    findings = EXPERIMENT.report(FULL, frame(rows))
    assert claimed(findings, "Figure 4: recovery at 100 tuples/s") == pytest.approx(0.125)
    assert claimed(findings, "Figure 4: recovery at 1,000 tuples/s") == pytest.approx(1.25)
    assert claimed(findings, "Figure 5") == pytest.approx(0.8)
    assert claimed(findings, "Figure 6: LSOM, completion with 3") == pytest.approx((20 - 9) / 20)
    assert claimed(findings, "Figure 7: below 5 faults") == pytest.approx(20.0)
    assert claimed(findings, "upstream and downstream lost together") == 100.0
    assert len(findings.panels) == 4
    assert len(rows_of(findings, "Completion")) == len(rows)
