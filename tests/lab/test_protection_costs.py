"""Experiments on checkpoints, standbys and recovery: what their tables say of recorded runs.

node 1        node 2        node 3        node 4
pe1 ─▶ pe2 ─▶ pe3 ─▶ pe4 ─▶ pe5 ─▶ pe6 ─▶ pe7 ─▶ pe8
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from observing import claimed, rows_of, written

from tenax.chaos.record import Moment, What
from tenax.control.placement.spreading import place_tasks
from tenax.engine.protection import planned
from tenax.errors import ClusterFailed
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.protection import Strategy
from tenax_lab import checkpoint_costs, checkpoint_throughput, recovery_delay, standby_costs
from tenax_lab.findings import Findings
from tenax_lab.lab import Plan, Row, Trial, frame
from tenax_lab.loads.chain import CUTS, NODES, PROTECTED, Load, chain, chain_plan, chain_settings
from tenax_lab.recorder import Kind

LOAD = Load(4, 100)


def test_the_chain_lies_on_four_nodes_with_two_elements_each() -> None:
    graph = TaskGraph(chain(1, LOAD).topology)
    homes = place_tasks(graph, [Node(f"n{number}") for number in range(NODES)], {}, CUTS).primaries
    assert [homes[task] for task in graph.tasks(range(len(graph)))] == [f"n{number // 2}" for number in range(8)]


def test_a_pass_of_the_chain_has_one_batch() -> None:
    application = chain(1, LOAD)
    asked = standby_costs.protection(standby_costs.PASSIVE, 8)
    settings = chain_settings(asked, LOAD)
    assert (settings.max_batches_per_pass, settings.protection.checkpoint_every) == (1, 8)
    assert settings.protection.checkpoint is Strategy.SWEEPING
    assert chain_plan(application, asked).retain == CUTS


@pytest.mark.parametrize(("side", "copies", "active_active"), [("none", 0, 0), ("active, output off", 7, 0)])
def test_standbys_are_asked_for_as_a_user_does(side: str, copies: int, active_active: int) -> None:
    application = chain(1, LOAD)
    plan = chain_plan(application, standby_costs.protection(side, 8))
    assert (len(plan.replicas), len(plan.active_active)) == (copies, active_active)
    both = standby_costs.protection(standby_costs.BOTH_SIDES, 8)
    assert len(chain_plan(application, both).active_active) == len(PROTECTED)
    assert not planned(application.topology, standby_costs.protection("none", 8)).replicas


def observed(plan: Plan[Any], rows: Callable[[Trial[Any]], Iterable[Row]]) -> pl.DataFrame:
    """The frame of trials whose rows are made up."""
    return frame({**trial.columns, **row} for trial in plan.trials() for row in rows(trial))


def run_rows(stored: Sequence[Row], batches: int, sent_bytes: int = 0) -> list[Row]:
    """Checkpoints, and a pass for each batch."""
    passes: list[Row] = [
        {"what": Kind.PASS.value, "last": batch, "seconds": 0.2, "messages": 3, "sent_bytes": sent_bytes}
        for batch in range(1, batches + 1)
    ]
    return [*passes, *stored]


def checkpoint(batch: int, state_bytes: int, queue_bytes: int, seconds: float) -> Row:
    """A checkpoint of two tasks."""
    return {
        "what": Kind.CHECKPOINT.value,
        "batch": batch,
        "tasks": 2,
        "state_bytes": state_bytes,
        "queue_bytes": queue_bytes,
        "seconds": seconds,
        "writing_s": seconds,
    }


def checkpoint_rows(trial: Trial[checkpoint_costs.Case]) -> list[Row]:
    """Checkpoints at every batch: sweeping with queues of 10 bytes, the others with 1,000; states of 90."""
    queue = {"sweeping": 10, "aligned": 0}.get(trial.side, 1_000)
    seconds = 0.1 if trial.side == "sweeping" else 0.2
    batches = trial.case.load.batches
    return run_rows([checkpoint(batch, 90, queue, seconds) for batch in range(1, batches + 1)], batches)


@pytest.mark.parametrize("quick", [False, True])
def test_bytes_of_checkpoints_are_counted_from_the_second_interval_to_the_end(quick: bool, tmp_path: Path) -> None:
    plan = checkpoint_costs.EXPERIMENT.plan(quick=quick)
    findings = checkpoint_costs.report(plan, observed(plan, checkpoint_rows))
    first = rows_of(findings, "What checkpoints write")[0]
    interval, count = plan.cases[0].interval, plan.cases[0].intervals
    assert (first["strategy"], first["interval"]) == ("synchronous", interval)
    assert first["checkpoints"] == interval * count - interval
    assert first["average KB"] == pytest.approx(1.09)
    assert first["bytes an element"] == pytest.approx(1_090 / 500)
    assert claimed(findings, "bytes of an average checkpoint") == pytest.approx(10.9)
    assert claimed(findings, "time of a checkpoint") == pytest.approx(2.0)
    assert claimed(findings, "bytes of all checkpoints", "we aim at") == pytest.approx(10.9)
    text = written(findings, tmp_path)
    assert "synchronous 92 %" in text
    assert "sweeping 10 %" in text


@pytest.mark.parametrize("quick", [False, True])
def test_bytes_of_standbys_are_compared_with_those_of_none(quick: bool, tmp_path: Path) -> None:
    plan = standby_costs.EXPERIMENT.plan(quick=quick)
    times = dict(zip(standby_costs.SIDES, (1, 2, 4, 1), strict=True))

    def rows(trial: Trial[standby_costs.Case]) -> list[Row]:
        load = plan.load(trial)
        stored = [checkpoint(batch, 5 * load.batch_rows, 0, 0.1) for batch in range(1, load.batches + 1)]
        made = run_rows(stored, load.batches, 100 * times[trial.side] * load.batch_rows)
        return [{**row, "batches": load.batches, "batch_rows": load.batch_rows} for row in made]

    findings = standby_costs.report(plan, observed(plan, rows))
    assert [row["times none"] for row in rows_of(findings, "What is sent")[:4]] == pytest.approx([1, 2, 4, 1.05])
    assert claimed(findings, "bytes that passive") == pytest.approx(5.0)
    assert "the most of" in " ".join(written(findings, tmp_path).split())


# Batches of 1 s; a checkpoint every 10 batches rides in the second after it is due and is committed beside the next.
CARRIED = checkpoint_throughput.Case(1_000, 10, 10, 30)


def carried(more_s: dict[int, float], stored: list[int], seconds: float = 0.2) -> pl.DataFrame:
    """What is observed of a run whose passes take 1 s each, some of them more."""
    at_s = accumulate(1.0 + more_s.get(batch, 0.0) for batch in range(1, CARRIED.load.batches + 1))
    rows = [checkpoint(batch, 100, 0, seconds) for batch in stored]
    rows += [{"what": Kind.FINAL.value, "at_s": at, "last": batch} for batch, at in enumerate(at_s, 1)]
    return frame(checkpoint_throughput.observations(CARRIED, frame(rows), 0.0))


def test_the_pass_that_carries_a_checkpoint_and_the_next_are_compared_with_calm_ones_around_them() -> None:
    seen = carried({12: 0.3, 13: 0.1, 14: 2.0, 22: 0.5}, [2, 12, 22, 40])
    calm_s = (1.0 + 3.0 + 1.0 + 1.0 + 1.0) / 5  # of batches 11 and 14 to 17; those before belong to the warm-up
    assert seen["extra_s"].drop_nulls().to_list() == pytest.approx([2.4 - 2 * calm_s, 0.5])
    assert seen["stored_s"].count() == 2  # not those of the warm-up, and not the last one, at the end of the run
    assert seen["pass_s"].sum() == pytest.approx(32.9)


def test_checkpoints_one_after_the_other_are_compared_with_the_passes_between_them() -> None:
    pass_s = {batch: 1.5 if batch % 3 < 2 else 1.0 for batch in range(2, 12)}
    assert checkpoint_throughput.extra(pass_s, [3, 6, 9]) == pytest.approx([1.0] * 3)
    assert checkpoint_throughput.extra(pass_s, [2, 4, 6, 8, 10]) == []  # there is nothing to compare them with


def test_what_checkpoints_take_is_told_as_a_part_of_the_time(tmp_path: Path) -> None:
    def reckoned(every: int) -> Findings:
        plan = Plan((replace(CARRIED, every=every),), checkpoint_throughput.SIDES, rounds=3)
        longer_s = {"none": 0.0, "aligned": 0.2, "sweeping": 3.0}

        def rows(trial: Trial[checkpoint_throughput.Case]) -> list[Row]:
            stored = [12, 22, 32] if trial.side != "none" else []
            return list(carried(dict.fromkeys((12, 22, 32), longer_s[trial.side]), stored).iter_rows(named=True))

        return checkpoint_throughput.report(plan, observed(plan, rows))

    findings = reckoned(10)
    assert claimed(findings, "throughput that aligned", "we aim at") == pytest.approx(100 * 0.6 / 30.6)
    assert claimed(findings, "throughput that sweeping", "we aim at") == pytest.approx(100 * 9.0 / 39.0)
    counted = {row["checkpoints"]: row for row in rows_of(findings, "What was stored")}
    assert counted["aligned"]["% of the time, every 10 batches"] == pytest.approx(100 * 0.6 / 30.6)
    assert counted["none"]["s each"] is None
    seldom = reckoned(20)  # half as often as it is reckoned for
    assert claimed(seldom, "throughput that aligned", "we aim at") == pytest.approx(100 * 1.2 / 30.6)
    text = " ".join(written(findings, tmp_path).split())
    assert "likely 2 to 2 % by 9 checkpoints; met" in text
    assert "likely 23 to 23 % by 9 checkpoints; not met" in text
    assert "differ from those around them by 0 % of the time" in text


def test_a_likely_range_leaves_out_what_a_coin_would_rarely_do() -> None:
    # of 15 tosses, 3 or fewer fall on one side in 1.8 % of all cases, 4 or fewer in 5.9 %
    assert checkpoint_throughput.likely([float(each) for each in range(15)]) == (3.0, 11.0)
    assert checkpoint_throughput.likely([1.0, 2.0, 3.0]) == (1.0, 3.0)


def test_a_goal_within_the_likely_range_is_neither_met_nor_missed() -> None:
    verdicts = [checkpoint_throughput.verdict(low, high, 9) for low, high in ((1.0, 4.0), (6.0, 9.0), (1.0, 9.0))]
    assert verdicts == ["met", "not met", "neither shown nor refuted"]
    assert checkpoint_throughput.verdict(1.0, 2.0, 3) == "3 checkpoints are too few to tell"


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
        "what": "delay",
        "detection_s": 3.0,
        "redeployment_s": 0.25,
        "replay_s": 1.0,
        "new_pass_s": 0.75,
        "replayed": 3,
    }


def test_a_loss_after_which_nothing_new_came_is_refused() -> None:
    with pytest.raises(ClusterFailed, match="results come again"):
        recovery_delay.delay(LOSS[:-1])


def test_what_the_output_shows_is_told_by_the_sequence_numbers_of_its_files(tmp_path: Path) -> None:
    for batch, last in ((6, 599), (8, 799)):
        pl.DataFrame({"sequence": [last - 1, last]}).write_parquet(tmp_path / f"part-0-b{batch}-r0.parquet")
    newest = recovery_delay.sequences(tmp_path)
    assert newest == {6: 599, 8: 799}
    rows = list(recovery_delay.shown(LOSS, newest))
    assert [(row["after_s"], row["sequence"]) for row in rows] == [(-0.5, 599), (5.0, 799)]


def test_a_node_fails_late_in_its_interval() -> None:
    case = recovery_delay.Case("hang", 0.5, 8)
    assert case.fails_at == 15
    assert recovery_delay.protection(case, recovery_delay.PASSIVE).checkpoint == "sweeping"
    assert recovery_delay.protection(case, recovery_delay.ACTIVE).replicas == "all"


@pytest.mark.parametrize("quick", [False, True])
def test_every_loss_is_judged_and_shown_by_its_parts(quick: bool, tmp_path: Path) -> None:
    plan = recovery_delay.EXPERIMENT.plan(quick=quick)

    def rows(trial: Trial[recovery_delay.Case]) -> list[Row]:
        case = trial.case
        parts = (3 * case.heartbeat_s if case.fault == "hang" else 0.1, 0.1, case.interval / 10, 0.7)
        delay: Row = {**dict(zip(recovery_delay.PARTS, parts, strict=True)), "replayed": case.interval, "exact": True}
        shown: list[Row] = [
            {"what": "shown", "after_s": after_s, "sequence": sequence}
            for after_s, sequence in ((-1.0, 100), (2.0, 300))
        ]
        return [{"what": "delay", **delay}, *shown]

    result = recovery_delay.report(plan, observed(plan, rows))
    table = rows_of(result, "From the loss")
    assert len(table) == len(plan.trials())
    assert len(plan.trials()) == (3 if quick else 3 * 7)
    assert {row["exact"] for row in table} == {"yes"}
    assert claimed(result, "redeployment") == pytest.approx(100.0)
    assert claimed(result, "runs whose final results", "we aim at") == 100.0
    written(result, tmp_path)
