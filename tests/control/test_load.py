from __future__ import annotations

from dataclasses import replace

import pytest

from tenax.control.events import BatchesLogged, PassFinished, TaskReport
from tenax.control.load import LEFT_OUT, MEMORY, TRUSTED, Arrival, Load, TaskLoad, measured
from tenax.control.versions import PassId, Version
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology

# s[0] n1 ──▶ w[0] n1, w[1] n2 (output)
GRAPH = TaskGraph(Topology("skewed", (Operator("s"), Operator("w", 2, (Input("s", Partitioning.SPLIT),)))))
S, W0, W1 = Task("s", 0), Task("w", 0), Task("w", 1)
HOMES = ("n1", "n1", "n2")
BUSY = {S: 0.1, W0: 0.2, W1: 0.6}
PASS = PassId(1, 1)


def through(batches: int = 1, times: float = 1.0, seconds: float = 2.0, **others: float) -> PassFinished:
    """A pass in which every batch had 100 rows and took the usual time, times something."""
    reports = tuple(
        TaskReport(
            Version(task, 1, PASS),
            node,
            rows=100 * batches,
            rows_out=50 * batches,
            busy_s=busy_s * times * batches,
            level=int(task != S),
            state_bytes=1_000,
            restore_s=others.get("restore_s", 0.0),
        )
        for (task, busy_s), node in zip(BUSY.items(), HOMES, strict=True)
    )
    return PassFinished(PASS, reports, seconds=seconds)


def after(passes: list[PassFinished], batches: int = 1, load: Load | None = None) -> Load:
    load = load or Load(left_out=0)
    for event in passes:
        load = measured(load, GRAPH, HOMES, event, batches)
    return load


def test_the_first_passes_after_a_start_are_left_out() -> None:
    assert after([through()] * LEFT_OUT, load=Load()).tasks == ()
    assert after([through()] * (LEFT_OUT + 1), load=Load()).batches == 1


def test_a_pass_has_a_fixed_part_for_each_level_and_a_moving_one_for_each_batch() -> None:
    load = after([through(batches=2, seconds=2.0)], batches=2)
    # levels wait for their slowest node: 0.1 for s, then 0.6 for w[1], of each batch
    assert load.levels == 2
    assert load.moving_s == pytest.approx(0.7)
    assert load.fixed_s == pytest.approx((2.0 - 2 * 0.7) / 2)
    assert load.predicted_s(2) == pytest.approx(2.0)
    assert load.rows == 100
    assert load.rows_per_s() == pytest.approx(100 / 0.7)


def test_at_first_all_batches_count_alike_and_later_old_ones_are_forgotten() -> None:
    load = after([through(times=1.0), through(times=3.0)])
    assert load.tasks[1].busy_s == pytest.approx(0.4)
    load = after([through(times=1.0)] * 50)
    load = after([through(times=3.0)] * MEMORY, load=load)
    assert 0.2 + 0.4 * 0.6 < load.tasks[1].busy_s < 0.2 + 0.4 * 0.7
    assert after([through(times=3.0)] * 100, load=load).tasks[1].busy_s == pytest.approx(0.6, rel=1e-3)


def test_the_first_batch_of_another_version_takes_the_place_of_what_was_expected_of_it() -> None:
    before = after([through(times=4.0)] * 20)
    assert (before.batches, before.of_version, before.is_settled) == (20, 20, True)
    switched = replace(before, of_version=0)
    assert (switched.is_measured, switched.is_settled) == (True, False)
    first = after([through()], load=switched)
    assert (first.batches, first.of_version) == (21, 1)
    assert first.moving_s == pytest.approx(0.7)
    assert [task.busy_s for task in first.tasks] == pytest.approx([task.busy_s for task in after([through()]).tasks])
    assert after([through()] * TRUSTED, load=switched).is_settled


def test_a_pass_of_many_batches_counts_as_much_as_they_do_one_by_one() -> None:
    before = after([through()] * 30)
    together = after([through(batches=8, times=2.0)], batches=8, load=before)
    single = after([through(times=2.0)] * 8, load=before)
    assert together.tasks[2].busy_s == pytest.approx(single.tasks[2].busy_s)


def test_only_the_primary_of_a_task_counts() -> None:
    event = through()
    replica = replace(event.reports[1], node="n2", busy_s=9.0)
    for reports in ((*event.reports, replica), (replica, *event.reports)):
        assert after([replace(event, reports=reports)]).tasks[1].busy_s == pytest.approx(0.2)


def test_a_pass_that_lacks_tasks_tells_nothing() -> None:
    assert after([replace(through(), reports=through().reports[:2])]).tasks == ()


def test_the_slowest_task_of_an_operator_is_named_with_how_far_it_is_above_the_median() -> None:
    skew = after([through()]).skew(GRAPH)
    assert skew is not None
    assert skew.task == W1
    assert skew.ratio == pytest.approx(0.6 / 0.4)
    assert Load().skew(GRAPH) is None


def test_reading_states_from_the_store_is_measured_by_byte_in_every_pass() -> None:
    load = after([through(restore_s=0.5)], load=Load())
    assert load.restore_s == pytest.approx(0.5 / 1_000)


def arrived(*events: BatchesLogged) -> Arrival:
    arrival = Arrival()
    for event in events:
        arrival = arrival.logged(event, memory_s=10.0)
    return arrival


def test_how_fast_rows_come_is_known_after_two_batches_that_have_caught_up() -> None:
    first = BatchesLogged(1, 1, rows=500, at_s=1.0, caught_up=True)
    assert arrived(first).rows_per_s is None
    assert arrived(first, BatchesLogged(2, 2, rows=200, at_s=3.0, caught_up=True)).rows_per_s == 100


def test_a_backlog_tells_how_fast_rows_came_only_once_it_is_read() -> None:
    behind = [BatchesLogged(number, number, rows=1_000, at_s=10.0 + number / 10) for number in range(2, 6)]
    first = BatchesLogged(1, 1, rows=500, at_s=1.0, caught_up=True)
    assert arrived(first, *behind).rows_per_s is None
    last = BatchesLogged(6, 6, rows=1_000, at_s=11.0, caught_up=True)
    assert arrived(first, *behind, last).rows_per_s == 500  # 5,000 rows in 10 s, though they were read in one


def test_what_came_before_a_run_fell_behind_says_nothing_of_what_comes_now() -> None:
    kept_up = [BatchesLogged(number, number, rows=100, at_s=float(number), caught_up=True) for number in range(1, 4)]
    behind = [BatchesLogged(number, number, rows=100, at_s=float(number)) for number in range(4, 9)]
    arrival = arrived(*kept_up, *behind)
    assert (arrival.rows_per_s, arrival.known_since(2.0), arrival.known_since(4.0)) == (100, 100, None)
    again = arrived(*kept_up, *behind, BatchesLogged(9, 9, rows=100, at_s=9.0, caught_up=True))
    assert again.known_since(4.0) == again.rows_per_s
    assert Arrival().known_since(0.0) is None


def test_a_run_that_never_catches_up_knows_no_rate_and_no_cost() -> None:
    behind = [BatchesLogged(number, number, rows=1_000, at_s=float(number)) for number in range(1, 9)]
    load = replace(after([through()] * TRUSTED), arrival=arrived(*behind))
    assert load.busy_s(1.0) is None


def test_when_sources_have_ended_nothing_comes_any_more() -> None:
    first = BatchesLogged(1, 1, rows=500, at_s=1.0, caught_up=True)
    second = BatchesLogged(2, 2, rows=500, at_s=2.0, caught_up=True)
    assert arrived(first, second, BatchesLogged(3, 3, ended=True, rows=5, at_s=3.0)) == Arrival()


def test_costs_are_those_of_the_rate_at_which_rows_come_not_of_the_batches_that_were_measured() -> None:
    load = after([through()] * TRUSTED)  # 100 rows a batch
    assert replace(load, arrival=Arrival(50.0)).busy_s(1.0) == pytest.approx((0.05, 0.1, 0.3))
    assert replace(load, arrival=Arrival(50.0)).busy_s(4.0) == pytest.approx((0.2, 0.4, 1.2))
    assert replace(after([through()] * (TRUSTED - 1)), arrival=Arrival(50.0)).busy_s(1.0) is None


def test_a_checkpoint_keeps_the_load_and_the_next_driver_warms_up_first() -> None:
    load = replace(after([through()] * 7), arrival=Arrival(50.0, since_s=3.0, rows=7))
    read = Load.from_data(load.to_data())
    assert read == replace(load, arrival=Arrival(50.0), left_out=LEFT_OUT)
    assert replace(read.tasks[1], busy_s=0.2) == TaskLoad(100, 50, 0.2, 1_000, 1)
