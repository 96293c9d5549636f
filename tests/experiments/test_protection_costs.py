"""Experiments on checkpoints, standbys and recovery: what their tables say of recorded runs.

node 1        node 2        node 3        node 4
pe1 ─▶ pe2 ─▶ pe3 ─▶ pe4 ─▶ pe5 ─▶ pe6 ─▶ pe7 ─▶ pe8
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tenax.control.placement import place_tasks
from tenax.control.state import Strategy
from tenax.engine.chaos.record import Moment, What
from tenax.engine.errors import ClusterFailed
from tenax.engine.peers.sides import Series
from tenax.engine.protection import planned
from tenax.experiments import checkpoint_costs, recovery_delay, standby_costs
from tenax.experiments.element_chain import CUTS, NODES, PROTECTED, Ledger, Load, Passed, Stored, chain, chain_settings
from tenax.experiments.recovery_delay_findings import ACTIVE, PASSIVE, Case
from tenax.experiments.recovery_delay_findings import Plan as DelayPlan
from tenax.experiments.recovery_delay_findings import findings as delay_findings
from tenax.experiments.results import Findings, Machine, Result
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph

LOAD = Load(4, 100)


def rows_of(found: Findings, title: str) -> list[dict[str, object]]:
    table = next(one for one in found.tables if one.title.startswith(title))
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def claimed(found: Findings, statement: str, whose: str = "paper says") -> float:
    return next(one.ours for one in found.claims if one.statement.startswith(statement) and one.whose == whose)


def written(found: Findings, folder: Path) -> str:
    Result("name", "summary", "figure", 1, True, Machine.here(), 1.0, found).write(folder)
    assert json.loads((folder / "result.json").read_text(encoding="utf-8"))["rows"]
    assert sorted(path.name for path in folder.iterdir()) == ["figure.png", "result.json", "table.txt"]
    return (folder / "table.txt").read_text(encoding="utf-8")


def test_the_chain_lies_on_four_nodes_with_two_elements_each(tmp_path: Path) -> None:
    graph = TaskGraph(chain(1, LOAD, tmp_path).topology)
    homes = place_tasks(graph, [Node(f"n{number}") for number in range(NODES)], CUTS).primaries
    assert [homes[task] for task in graph.tasks(range(len(graph)))] == [f"n{number // 2}" for number in range(8)]


def test_a_pass_of_the_chain_has_one_batch(tmp_path: Path) -> None:
    application = chain(1, LOAD, tmp_path)
    asked = standby_costs.protection(standby_costs.PASSIVE, 8)
    settings = chain_settings(application, asked, LOAD)
    assert (settings.control.max_batches_per_pass, settings.control.checkpoint_every) == (1, 8)
    assert (settings.control.strategy, settings.retain) == (Strategy.SWEEPING, CUTS)


@pytest.mark.parametrize(("side", "copies", "doubled"), [("none", 0, 0), ("active, output off", 7, 0)])
def test_standbys_are_asked_for_as_a_user_does(tmp_path: Path, side: str, copies: int, doubled: int) -> None:
    application = chain(1, LOAD, tmp_path)
    settings = chain_settings(application, standby_costs.protection(side, 8), LOAD)
    assert (len(settings.replicas), len(settings.doubled)) == (copies, doubled)
    both = standby_costs.protection(standby_costs.BOTH_SIDES, 8)
    assert len(chain_settings(application, both, LOAD).doubled) == len(PROTECTED)
    assert not planned(application.topology, standby_costs.protection("none", 8)).replicas


def ledger(stored: list[Stored], batches: int, sent_bytes: int = 0) -> Ledger:
    passes = [Passed(batch, 0.2, 3, sent_bytes, 0) for batch in range(1, batches + 1)]
    return Ledger(stored=stored, passes=passes)


def checkpoint_series(plan: checkpoint_costs.Plan) -> Series:
    """Checkpoints at every batch: sweeping with queues of 10 bytes, the others with 1,000; states of 90."""
    found: Series = {}
    for case in plan.cases():
        queue = 10 if case.strategy is Strategy.SWEEPING else 0 if case.strategy is Strategy.ALIGNED else 1_000
        seconds = 0.1 if case.strategy is Strategy.SWEEPING else 0.2
        stored = [Stored(batch, 2, 90, queue, seconds) for batch in range(1, case.load.batches + 1)]
        found |= ledger(stored, case.load.batches).series(case.name)
    return found


@pytest.mark.parametrize("plan", [checkpoint_costs.FULL, checkpoint_costs.QUICK])
def test_bytes_of_checkpoints_are_counted_from_the_second_interval_to_the_end(
    plan: checkpoint_costs.Plan, tmp_path: Path
) -> None:
    found = checkpoint_costs.findings(plan, checkpoint_series(plan))
    first = rows_of(found, "What checkpoints write")[0]
    interval, count = next(iter(plan.intervals.items()))
    assert (first["strategy"], first["interval"]) == ("synchronous", interval)
    assert first["checkpoints"] == interval * count - interval
    assert first["average KB"] == pytest.approx(1.09)
    assert first["bytes an element"] == pytest.approx(1_090 / 500)
    assert claimed(found, "bytes of an average checkpoint") == pytest.approx(10.9)
    assert claimed(found, "time of a checkpoint") == pytest.approx(2.0)
    assert claimed(found, "bytes of all checkpoints", "we aim at") == pytest.approx(10.9)
    text = written(found, tmp_path)
    assert "synchronous 92 %" in text
    assert "sweeping 10 %" in text


def standby_series(plan: standby_costs.Plan) -> Series:
    found: Series = {}
    times = dict(zip(standby_costs.SIDES, (1, 2, 4, 1), strict=True))
    for rate in plan.rates:
        for side in standby_costs.SIDES:
            load = plan.load(side, rate)
            stored = [Stored(batch, 2, 5 * load.batch_rows, 0, 0.1) for batch in range(1, load.batches + 1)]
            found |= ledger(stored, load.batches, 100 * times[side] * load.batch_rows).series(f"{side} {rate}")
    found |= {"no checkpoints rows/s": [90.0, 100.0], "no checkpoints, again rows/s": [112.5, 100.0]}
    found |= {"aligned rows/s": [98.0, 99.0], "sweeping rows/s": [80.0, 90.0]}
    found |= {
        "no checkpoints share": [0.0, 0.0],
        "no checkpoints, again share": [0.0, 0.0],
        "aligned share": [0.01, 0.03],
        "sweeping share": [0.04, 0.06],
    }
    return found


@pytest.mark.parametrize("plan", [standby_costs.FULL, standby_costs.QUICK])
def test_bytes_of_standbys_are_compared_with_those_of_none(plan: standby_costs.Plan, tmp_path: Path) -> None:
    found = standby_costs.findings(plan, standby_series(plan))
    assert [row["times none"] for row in rows_of(found, "What is sent")[:4]] == pytest.approx([1, 2, 4, 1.05])
    assert claimed(found, "bytes that passive") == pytest.approx(5.0)
    assert claimed(found, "throughput that aligned", "we aim at") == pytest.approx(1.5)
    assert claimed(found, "throughput that sweeping", "we aim at") == pytest.approx(15.0)
    shares = [row["processor time of protection %"] for row in rows_of(found, "Throughput")]
    assert shares == pytest.approx([0, 2, 5, 0])
    text = " ".join(written(found, tmp_path).split())
    assert "likely 10 to 20 % by 2 rounds; not met" in text
    assert "two equal sides, those without checkpoints, differ by -12 % (likely -25 to 0 %)" in text


def test_a_likely_range_leaves_out_what_a_coin_would_rarely_do() -> None:
    # of 15 tosses, 3 or fewer fall on one side in 1.8 % of all cases, 4 or fewer in 5.9 %
    assert standby_costs._likely([float(one) for one in range(15)]) == (3.0, 11.0)
    assert standby_costs._likely([1.0, 2.0, 3.0]) == (1.0, 3.0)


def test_a_goal_within_the_likely_range_is_neither_met_nor_missed() -> None:
    found = [standby_costs._verdict(values, 5.0) for values in ([1.0, 4.0], [6.0, 9.0], [1.0, 9.0])]
    assert found == ["met", "not met", "neither shown nor refuted"]


def test_a_round_begins_and_ends_without_checkpoints() -> None:
    assert standby_costs.in_turn(0) == ("no checkpoints", "aligned", "sweeping", "no checkpoints, again")
    assert standby_costs.in_turn(1) == ("no checkpoints", "sweeping", "aligned", "no checkpoints, again")


NODE = "host-1"
# A node hangs at 10 s and is known at 13 s; two rounds follow, and a live pass whose results are there at 15 s.
LOSS = (
    Moment(9.0, What.PASS_ENDED, {"kind": "live", "first": 5, "last": 6, "seconds": 0.2}),
    Moment(9.5, What.PUBLISHED, {"tentative": False, "first": 5, "last": 6}),
    Moment(10.0, What.FAULT, {"kind": "hang", "fault": "--hang pe5[0]@6b", "nodes": [NODE], "number": 0}),
    Moment(13.0, What.LOST, {"nodes": [NODE], "outage": True}),
    Moment(13.25, What.PASS_BEGUN, {"kind": "round", "first": 4, "last": 5}),
    Moment(13.5, What.PASS_BEGUN, {"kind": "round", "first": 6, "last": 6}),
    Moment(14.0, What.OUTAGE_ENDED, {}),
    Moment(14.25, What.PASS_BEGUN, {"kind": "live", "first": 7, "last": 8}),
    Moment(15.0, What.PUBLISHED, {"tentative": False, "first": 7, "last": 8}),
)


def test_the_delay_is_cut_into_what_follows_each_other() -> None:
    assert recovery_delay.delay(LOSS) == {
        "detection s": [3.0],
        "redeployment s": [0.25],
        "replay s": [1.0],
        "new pass s": [0.75],
        "replayed batches": [3.0],
    }


def test_a_loss_after_which_nothing_new_came_is_refused() -> None:
    with pytest.raises(ClusterFailed, match="results come again"):
        recovery_delay.delay(LOSS[:-1])


def test_what_the_output_shows_is_told_by_the_sequence_numbers_of_its_files(tmp_path: Path) -> None:
    for batch, last in ((6, 599), (8, 799)):
        pl.DataFrame({"sequence": [last - 1, last]}).write_parquet(tmp_path / f"part-0-b{batch}-r0.parquet")
    newest = recovery_delay.sequences(tmp_path)
    assert newest == {6: 599, 8: 799}
    assert recovery_delay.shown(LOSS, newest) == {"shown s": [-0.5, 5.0], "shown sequence": [599.0, 799.0]}


def test_a_case_is_told_to_another_process_and_strikes_late_in_its_interval() -> None:
    case = Case(PASSIVE, "hang", 0.5, 8, 1)
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case
    assert case.struck_at == 15
    assert recovery_delay.protection(case).checkpoint == "sweeping"
    assert recovery_delay.protection(Case(ACTIVE, "kill", 0.5, 8, 0)).replicas == "all"


@pytest.mark.parametrize("plan", [recovery_delay.FULL, recovery_delay.QUICK])
def test_every_loss_is_judged_and_shown_by_its_parts(plan: DelayPlan, tmp_path: Path) -> None:
    found: Series = {}
    for case in plan.cases():
        parts = (3 * case.heartbeat_s if case.fault == "hang" else 0.1, 0.1, case.interval / 10, 0.7)
        told = {
            **{name: [part] for name, part in zip(recovery_delay.delay(LOSS), parts, strict=False)},
            "replayed batches": [float(case.interval)],
            "exact": [1.0],
            "shown s": [-1.0, 2.0],
            "shown sequence": [100.0, 300.0],
        }
        found |= {f"{case.name} {name}": values for name, values in told.items()}
    result = delay_findings(plan, found)
    table = rows_of(result, "From the loss")
    assert len(table) == len(plan.cases())
    assert {row["exact"] for row in table} == {"yes"}
    assert claimed(result, "redeployment") == pytest.approx(100.0)
    assert claimed(result, "runs whose final results", "we aim at") == 100.0
    written(result, tmp_path)
