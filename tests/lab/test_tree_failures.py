"""The tree of windows and its losses: what comes when, what is lost, what the moments of a run tell.

sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results (1)
tasks 0..15      16..23     24..27     28, 29     30         31
"""

from __future__ import annotations

import os

import polars as pl
import pytest

from tenax.chaos.record import Moment, What
from tenax.chaos.schedule import Kind
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.control.records import Data
from tenax.engine.protection import planned as plan_protection
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph
from tenax.model.protection import Protection
from tenax.operators.computation import StepInput
from tenax.store.records import Json
from tenax_lab import tree_losses as losses
from tenax_lab.lab import Row
from tenax_lab.loads.tree import RESULTS, SOURCES, Arrival, Load, Readings, tree_topology, window_tree
from tenax_lab.processes import cpu_s

LOAD = Load(rate=4, window_s=3, batch_s=2)
LIMITS = Limits(1)


def planned(source: Readings, times_us: list[int]) -> list[Planned | NothingNew]:
    """What a source answers when it is asked at these times, one after the other."""
    position: Json = None
    answers = []
    for now_us in times_us:
        answer = source.plan(position, 16, LIMITS, now_us)
        answers.append(answer)
        if isinstance(answer, Planned):
            position = answer.position
    return answers


def test_the_first_batches_come_at_once_and_later_ones_by_the_clock() -> None:
    source = Readings(1, LOAD, Arrival(batches=4, at_once=2, interval_s=0.5))
    times = [100, 100, 100, 500_100, 1_000_099, 1_700_000, 1_700_000]
    answers = planned(source, times)
    assert [isinstance(answer, Planned) for answer in answers] == [True, True, False, True, False, True, False]
    assert not any(answer.ended for answer in answers)  # an end would close all windows


def test_a_batch_that_comes_late_does_not_delay_the_next() -> None:
    source = Readings(1, LOAD, Arrival(batches=4, at_once=1, interval_s=0.5))
    answers = planned(source, [100, 1_200_000, 1_200_000, 1_200_000, 1_500_100])
    assert [isinstance(answer, Planned) for answer in answers] == [True, True, True, False, True]


def test_a_batch_holds_its_span_of_time_and_every_sensor_of_every_source_once_a_second() -> None:
    source = Readings(1, LOAD, Arrival(3, 3))
    for batch, answer in enumerate(planned(source, [0, 0, 0])):
        assert isinstance(answer, Planned)
        assert answer.rows == LOAD.batch_rows == 16 * 4 * 2
        frames = [source.read(number, span) for number, span in enumerate(answer.ranges)]
        assert all(sorted(rows["sensor"].to_list()) == [0, 0, 1, 1, 2, 2, 3, 3] for rows in frames)
        times = pl.concat(frames)["ts"]
        assert {time.second // 2 for time in times.to_list()} == {batch}


def test_half_as_many_rows_leave_a_task_as_enter_it() -> None:
    application = window_tree(1, LOAD, Arrival(3, 3))
    source = application.sources[SOURCES]
    answer = source.plan(None, 16, LIMITS, 0)
    assert isinstance(answer, Planned)
    rows = pl.concat([source.read(number, answer.ranges[number]) for number in (0, 1)])
    end_us = int(rows["ts"].dt.epoch("us").to_list()[-1]) + 1_000_000
    first = application.computations["o1"].step({}, StepInput((rows,), end_us, 1))
    assert first.rows.height * 2 == rows.height
    assert first.rows["readings"].to_list()[:4] == [2, 2, 2, 2]
    both = pl.concat([first.rows, first.rows])
    above = application.computations["o2"].step({}, StepInput((both,), end_us, 1))
    assert above.rows.height * 2 == both.height


def test_rates_of_the_topology_are_those_of_the_readings() -> None:
    graph = TaskGraph(tree_topology(LOAD.rate))
    assert graph.output_rate.tolist() == [4.0] * len(graph)


def test_all_primaries_are_the_homes_of_all_tasks() -> None:
    fault = losses.all_primaries(LOAD, 7)
    assert (fault.kind, str(fault.when)) == (Kind.KILL, "7b")
    assert len(fault.what.split("+")) == 32
    assert losses.one_node(7).what == "o2[0]"


def test_a_run_takes_a_batch_a_pass_and_keeps_replicas_on_standby_nodes() -> None:
    settings = losses.run_settings(Protection(replicas="all", checkpoint_every=5))
    assert settings.max_batches_per_pass == 1
    assert settings.max_batches_per_round == losses.PER_ROUND
    assert (settings.cluster.standby_nodes, settings.batches.keep_batches) == (2, True)
    assert len(plan_protection(tree_topology(LOAD.rate), settings.protection).replicas) == 16


def live(at_s: float, first: int, last: int, seconds: float = 0.5) -> Moment:
    return Moment(at_s, What.PASS_ENDED, {"kind": "live", "first": first, "last": last, "seconds": seconds})


def published(at_s: float, batch: int, quality: float = 1.0) -> Moment:
    outputs: dict[str, Data] = {RESULTS: {"quality": quality, "partitions": 1}}
    detail: dict[str, Data] = {"tentative": quality < 1, "first": batch, "last": batch, "outputs": outputs}
    return Moment(at_s, What.PUBLISHED, detail)


def lost(at_s: float, node: str, outage: bool) -> Moment:
    return Moment(at_s, What.LOST, {"nodes": [node], "outage": outage})


KILL = Moment(10.0, What.FAULT, {"kind": "kill", "fault": "--kill all@4b", "nodes": ["a", "b"], "number": 0})
BEFORE = [live(1.0, 1, 1, 9.0), live(2.0, 2, 2, 9.0), live(3.0, 3, 3, 0.4), live(9.9, 4, 4, 0.6), KILL]


def met(moments: list[Moment], replayed: int, back_s: float, *, exact: bool) -> tuple[Row, list[Row]]:
    """The row of the loss of two tasks, and those of its publications."""
    loss, *publications = losses.loss_rows(moments, [16, 17], replayed, back_s, exact=exact)
    return loss, publications


def test_an_output_counts_if_it_is_of_a_batch_that_was_not_finished_when_the_last_node_was_missed() -> None:
    moments = [*BEFORE, published(10.05, 4), lost(10.1, "a", False), lost(10.2, "b", False), live(10.8, 5, 5)]
    loss, _ = met([*moments, published(10.9, 5)], 0, 0.0, exact=True)
    assert [loss["detection_s"], loss["final_s"]] == pytest.approx([0.2, 0.9])
    assert [loss[name] for name in ("batches", "replayed", "killed", "lost_tasks")] == [1, 0, 2, 2]
    assert loss["whole_s"] == pytest.approx(0.2)
    assert loss["batch_time_s"] == 0.5
    assert loss["tentative_s"] is None
    assert loss["output_s"] == loss["final_s"]


def test_tentative_outputs_come_before_final_ones() -> None:
    round_ended = Moment(12.0, What.PASS_ENDED, {"kind": "round", "first": 2, "last": 5, "seconds": 1.0})
    moments = [*BEFORE, lost(10.1, "a", True), lost(10.2, "b", True), published(11.0, 5, 0.375), round_ended]
    moments += [published(12.1, 5), Moment(12.5, What.OUTAGE_ENDED)]
    loss, publications = met(moments, 3, 1.5, exact=False)
    assert [loss["tentative_s"], loss["final_s"], loss["whole_s"]] == pytest.approx([1.0, 2.1, 2.5])
    assert loss["output_s"] == 1.0
    assert loss["recovered_s"] == loss["whole_s"]
    assert [loss[name] for name in ("batches", "rounds", "exact")] == [4, 1, False]
    assert [row["quality"] for row in publications] == [0.375, 1.0]


def test_a_loss_without_a_way_back_is_no_measurement() -> None:
    with pytest.raises(ClusterFailed, match="run it again"):
        met([*BEFORE, lost(10.1, "a", True), lost(10.2, "b", True)], 3, 1.5, exact=True)


def test_processor_time_only_grows_and_ended_processes_have_none() -> None:
    before = cpu_s([os.getpid()])
    assert 0 < before <= cpu_s([os.getpid()])
    assert cpu_s([2**30]) == 0
