"""Batches that size themselves: what a run of passes makes of their rows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tenax.control.batch_sizes import (
    GROWTH,
    IN_STEPS,
    LEAST,
    LEVEL_S,
    LONGER,
    OF_DEADLINE,
    WORTH,
    BatchSizes,
    for_rows_s,
    largest_source,
)
from tenax.control.coordinator import Coordinator
from tenax.control.events import BatchesLogged, NodesLost, PassFinished, Published, Started, TaskReport
from tenax.control.instructions import LogBatches, PassKind, RunPass
from tenax.control.versions import PassId, Version
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.settings import FIRST_ROWS, PER_PASS, Settings
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology

# few[0] ──▶
#             both[0] ──▶ (output)
# many[0..1] ▶
FEW, MANY, BOTH = Task("few", 0), (Task("many", 0), Task("many", 1)), Task("both", 0)
GRAPH = TaskGraph(
    Topology(
        "two",
        (
            Operator("few"),
            Operator("many", parallelism=2),
            Operator("both", inputs=(Input("few", Partitioning.FULL), Input("many", Partitioning.FULL))),
        ),
    )
)
DEFAULT = Settings.of()
PASS = PassId(1, 1)
BEHIND = BatchSizes(behind=True)


@dataclass(frozen=True)
class Machine:
    """Passes take `fixed_s` and so many seconds for a row; of these, steps see the part that is `busy`."""

    fixed_s: float
    row_s: float
    busy: float = 1.0

    def seconds(self, rows: float) -> float:
        return self.fixed_s + rows * self.row_s

    def passed(self, rows: int, few: int = 0, fixed_s: float | None = None) -> PassFinished:
        """A pass in which `many` had these rows, half in each task, on two nodes."""
        busy_s = rows * self.row_s * self.busy
        reports = (
            TaskReport(Version(FEW, 1, PASS), "n1", rows=few),
            TaskReport(Version(MANY[0], 1, PASS), "n1", rows=rows // 2, busy_s=busy_s / 2),
            TaskReport(Version(MANY[1], 1, PASS), "n2", rows=rows - rows // 2, busy_s=busy_s / 2),
            TaskReport(Version(BOTH, 1, PASS), "n1", rows=rows, busy_s=busy_s / 2, level=1),
        )
        fixed_s = self.fixed_s if fixed_s is None else fixed_s
        return PassFinished(PASS, reports, seconds=fixed_s + rows * self.row_s)


def after(
    sizes: BatchSizes,
    event: PassFinished,
    batches: int = PER_PASS,
    settings: Settings = DEFAULT,
    degraded: bool = False,
) -> BatchSizes:
    return sizes.passed(settings, GRAPH, event, batches, degraded=degraded)


def backlog(machine: Machine, passes: int, settings: Settings = DEFAULT) -> list[int]:
    """The rows of a batch in each of so many passes of a backlog, each logged after the last one."""
    sizes, rows, per_pass = BEHIND, FIRST_ROWS, settings.max_batches_per_pass
    sequence = []
    for _ in range(passes):
        sequence.append(rows)
        sizes = after(sizes, machine.passed(rows * per_pass), per_pass, settings)
        rows = sizes.limit(settings) or FIRST_ROWS
    return sequence


def test_in_a_backlog_batches_grow_until_a_full_pass_has_the_interval_for_its_rows() -> None:
    machine = Machine(fixed_s=0.1, row_s=1e-7)
    sequence = backlog(machine, 6)
    assert sequence[:3] == [100_000, GROWTH * 100_000, 1_250_000]
    assert machine.seconds(PER_PASS * sequence[-1]) == pytest.approx(1.1, rel=0.01)


def test_batches_grow_by_a_factor_at_most() -> None:
    sequence = backlog(Machine(fixed_s=0.1, row_s=1e-12), 5)
    assert sequence == [FIRST_ROWS * GROWTH**place for place in range(5)]


def test_operators_that_are_slow_get_small_batches_after_their_first_pass() -> None:
    machine = Machine(fixed_s=0.1, row_s=1e-4)  # a first pass of 80 s
    first, second, *_ = backlog(machine, 3)
    assert (first, second) == (100_000, 1_250)


def test_whoever_can_take_one_row_in_an_interval_gets_one_row() -> None:
    assert backlog(Machine(fixed_s=0.1, row_s=100.0), 3)[1:] == [1, 1]


@examples(deadline=None)
@given(
    fixed_s=st.floats(0.01, 2 * LEVEL_S),
    row_s=st.floats(1e-9, 1e-4),
    busy=st.floats(1 / IN_STEPS, 1.0),
    interval_ms=st.integers(0, 6000),
)
def test_whatever_part_of_the_time_steps_see_a_full_pass_comes_to_last_as_long_as_it_should(
    fixed_s: float, row_s: float, busy: float, interval_ms: int
) -> None:
    machine, settings = Machine(fixed_s, row_s, busy), Settings.of(batch=f"{interval_ms}ms")
    one_each = settings.max_batches_per_pass * row_s
    lasts_s = settings.max_batches_per_pass * backlog(machine, 16, settings)[-1] * row_s
    # of what a first pass took beside steps, some may be taken for scheduling that came with rows
    most_s = for_rows_s(settings, 2 * LEVEL_S) + 2 * LEVEL_S
    assert 0.9 * for_rows_s(settings, fixed_s) - one_each <= lasts_s <= 1.1 * most_s + one_each


@examples(deadline=None)
@given(fixed_s=st.floats(0.5, 50), row_s=st.floats(1e-9, 1e-4), interval_ms=st.integers(0, 6000))
def test_however_long_a_busy_machine_takes_for_scheduling_rows_get_a_fair_part(
    fixed_s: float, row_s: float, interval_ms: int
) -> None:
    machine, settings = Machine(fixed_s, row_s), Settings.of(batch=f"{interval_ms}ms")
    lasts_s = settings.max_batches_per_pass * backlog(machine, 16, settings)[-1] * row_s
    assert lasts_s >= 0.9 * for_rows_s(settings, 2 * LEVEL_S) / IN_STEPS - settings.max_batches_per_pass * row_s


def test_the_first_pass_of_processes_that_start_up_does_not_hold_batches_down() -> None:
    machine = Machine(fixed_s=0.1, row_s=1e-7)
    cold = after(BEHIND, machine.passed(PER_PASS * FIRST_ROWS, fixed_s=2.0))
    assert cold.rows is not None
    assert cold.rows > 5 * FIRST_ROWS
    assert after(cold, machine.passed(PER_PASS * cold.rows)).fixed_s == pytest.approx(0.1)


def test_a_pass_of_few_batches_is_reckoned_as_if_it_were_full() -> None:
    machine = Machine(fixed_s=0.1, row_s=1e-6)
    assert after(BEHIND, machine.passed(2 * FIRST_ROWS), 2).rows == 125_000
    assert after(BEHIND, machine.passed(PER_PASS * FIRST_ROWS), PER_PASS).rows == 125_000


def test_without_a_backlog_sizes_stay_as_they_are() -> None:
    known = BatchSizes(500_000, 0.1)
    for rows in (10, 10_000, 400_000):
        assert after(known, Machine(0.1, 1e-6).passed(rows), 1).rows == 500_000
    assert after(BatchSizes(), Machine(0.1, 1e-6).passed(10), 1).rows is None


def test_a_small_pass_before_a_backlog_says_nothing_of_what_follows() -> None:
    assert after(BatchSizes(500_000, 0.1, behind=True), Machine(0.1, 1e-4).passed(10), 1).rows == 500_000
    assert after(BEHIND, Machine(0.1, 1e-4).passed(10), 1).rows == FIRST_ROWS


def test_without_a_backlog_a_pass_that_takes_too_long_makes_batches_smaller() -> None:
    assert after(BatchSizes(500_000, 0.1), Machine(0.1, 1e-5).passed(400_000), 1).rows == 12_500
    assert after(BatchSizes(10_000, 0.1), Machine(0.1, 1e-5).passed(400_000), 1).rows == 10_000


def test_while_tasks_are_missing_sizes_only_fall() -> None:
    known = BatchSizes(500_000, 0.1, behind=True)
    assert after(known, Machine(0.1, 1e-8).passed(PER_PASS * 500_000), degraded=True).rows == 500_000
    assert after(known, Machine(0.1, 1e-6).passed(PER_PASS * 500_000), degraded=True).rows == 125_000


def test_the_source_with_most_rows_counts_and_a_task_that_is_stepped_twice_counts_once() -> None:
    event = Machine(0.1, 1e-6).passed(1_000, few=600)
    again = TaskReport(Version(FEW, 1, PASS), "n2", rows=600)
    assert largest_source(GRAPH, event.reports) == largest_source(GRAPH, (*event.reports, again)) == 1_000


def test_a_pass_without_rows_says_nothing_of_rows() -> None:
    assert after(BatchSizes(700, 0.1, behind=True), Machine(0.05, 1e-6).passed(0)) == BatchSizes(700, 0.05, behind=True)


@pytest.mark.parametrize(
    ("batch", "fixed_s", "expected_s"),
    [
        ("1s", 0.05, 1.0),
        ("1s", 0.2, 0.2 * WORTH),  # scheduling is a tenth of the pass, not a fifth of it
        ("1s", 0.5, 1.0 * LONGER),
        ("20ms", 0.05, 0.05 * WORTH),
        ("20ms", 0.5, 1.0),
        ("0s", 0.1, 1.0),
        ("10m", 0.1, 60 / OF_DEADLINE),  # a pass that meets its deadline, and rounds that do on fewer nodes
    ],
)
def test_rows_get_the_interval_within_what_scheduling_and_the_deadline_allow(
    batch: str, fixed_s: float, expected_s: float
) -> None:
    assert for_rows_s(Settings.of(batch=batch), fixed_s) == pytest.approx(expected_s)


NODES = (Node("n1"), Node("n2"))


def reported(order: RunPass, rows: int, seconds: float) -> PassFinished:
    reports = tuple(
        TaskReport(Version(step.task, order.last, order.pass_id), step.node, rows=rows // 2, busy_s=seconds / 4)
        for step in order.steps
    )
    return PassFinished(order.pass_id, reports, seconds=seconds)


def ordered(coordinator: Coordinator, event: object) -> tuple[list[LogBatches], list[RunPass]]:
    decided = coordinator.handle(event)  # type: ignore[arg-type]
    return [each for each in decided if isinstance(each, LogBatches)], [
        each for each in decided if isinstance(each, RunPass) and each.kind is PassKind.LIVE
    ]


def test_one_pass_is_logged_before_it_is_known_what_it_takes_and_the_next_batches_have_its_size() -> None:
    coordinator = Coordinator(GRAPH, DEFAULT)
    assert ordered(coordinator, Started(1, NODES, None, 0, {}))[0] == [LogBatches(1, 8, 1)]
    logs, (live,) = ordered(coordinator, BatchesLogged(1, 8, rows=800_000))
    assert logs == []
    logs, _ = ordered(coordinator, reported(live, 800_000, 0.3))
    assert logs == [LogBatches(9, 8, 1, rows=500_000)]
    logs, (live,) = ordered(coordinator, BatchesLogged(9, 16, rows=4_000_000))
    assert (live.first, live.last, logs) == (9, 16, [LogBatches(17, 8, 1, rows=500_000)])


def test_a_size_that_was_given_stays_whatever_is_measured() -> None:
    coordinator = Coordinator(GRAPH, DEFAULT.but(max_rows=5_000))
    assert ordered(coordinator, Started(1, NODES, None, 0, {}))[0] == [LogBatches(1, 17, 1)]
    (log,), (live,) = ordered(coordinator, BatchesLogged(1, 8, rows=800_000))
    assert log == LogBatches(9, 9, 1)
    ordered(coordinator, BatchesLogged(9, 17, rows=900_000))
    logs, _ = ordered(coordinator, reported(live, 800_000, 0.3))
    assert logs == [LogBatches(18, 8, 1)]


def test_after_a_loss_batches_keep_their_size_until_a_pass_tells_another() -> None:
    coordinator = Coordinator(GRAPH, DEFAULT)
    coordinator.handle(Started(1, NODES, None, 0, {}))
    _, (live,) = ordered(coordinator, BatchesLogged(1, 8, rows=800_000))
    coordinator.handle(reported(live, 800_000, 0.3))
    coordinator.handle(Published(live.pass_id))
    coordinator.handle(NodesLost(("n2",)))
    assert coordinator.state.sizes.limit(DEFAULT) == 500_000


def test_batches_that_take_long_whatever_their_rows_do_not_vanish() -> None:
    # a batch takes a quarter of a second for one row as for a thousand: smaller ones would look ever slower
    sizes = BatchSizes(rows=25, fixed_s=0.1, behind=True)
    for _ in range(10):
        rows = PER_PASS * (sizes.rows or 0)
        slow = Machine(fixed_s=0.1, row_s=PER_PASS * 0.25 / rows).passed(rows)
        sizes = sizes.passed(DEFAULT, GRAPH, slow, PER_PASS, degraded=False)
    assert sizes.rows is not None
    assert sizes.rows >= LEAST


def test_a_batch_may_always_have_the_rows_that_come_in_an_interval() -> None:
    slow = Machine(fixed_s=0.1, row_s=1e-4).passed(PER_PASS * 2_000)
    assert BEHIND.passed(DEFAULT, GRAPH, slow, PER_PASS, degraded=False).rows == 1_250
    coming = BEHIND.passed(DEFAULT, GRAPH, slow, PER_PASS, degraded=False, rows_per_s=3_000.0)
    assert coming.rows == 3_000
    # but not more than a pass may take
    many = BEHIND.passed(DEFAULT, GRAPH, slow, PER_PASS, degraded=False, rows_per_s=1e9)
    assert many.rows == 1_250 * 7.5
