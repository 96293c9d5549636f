"""Latency and availability of queries, from sequences of batches, results and losses."""

from __future__ import annotations

import pytest

from tenax.control.instructions import Part
from tenax.engine.queries import MAX_RECORDED, MAX_SETTLING, MAX_SILENT, QUERIES, Interval, Phase, Queries
from tenax.model.tasks import Task

A, B = Task("jams", 0), Task("jams", 1)
LATENCY_S = 0.4


class Clocked:
    """Queries of a run with a batch a second, whose results come so much later."""

    def __init__(self, *tasks: Task, batch_s: float = 1.0) -> None:
        self.tasks = tasks or (A,)
        self.queries = Queries(dict.fromkeys(self.tasks, 0), batch_s)
        self.batch = 0
        self.ended: list[Interval] = []

    def log(self) -> float:
        """Log the next batch, at the second of its number."""
        self.batch += 1
        self.queries.logged(self.batch, float(self.batch))
        return float(self.batch)

    def final(self, first: int, last: int, at_s: float, *tasks: Task) -> None:
        self.publish(first, last, at_s, tasks, tentative=False)

    def tentative(self, first: int, last: int, at_s: float, *tasks: Task) -> None:
        self.publish(first, last, at_s, tasks, tentative=True)

    def publish(self, first: int, last: int, at_s: float, tasks: tuple[Task, ...], *, tentative: bool) -> None:
        parts = [Part(task, first, last) for task in tasks or self.tasks]
        self.queries.published(parts, at_s, tentative=tentative)

    def usual(self, batches: int) -> None:
        """So many batches as they come when nothing is lost."""
        for _ in range(batches):
            at_s = self.log()
            self.final(self.batch, self.batch, at_s + LATENCY_S)

    def until(self, at_s: float) -> Interval:
        """The last interval that has ended by then."""
        self.ended += self.queries.ended(at_s)
        return self.ended[-1]


def test_what_is_usual_is_the_mean_of_the_last_results_and_forgets_the_first_ones() -> None:
    run = Clocked()
    run.queries.logged(1, 1.0)
    run.queries.published([Part(A, 1, 1)], 9.0, tentative=False)  # processes warm up
    run.batch = 9
    run.queries.logged(10, 10.0)
    run.queries.published([Part(A, 2, 10)], 14.0, tentative=False)
    assert run.until(16.0).queries[0].usual_s is None
    run.batch = 15
    run.usual(5)
    (query,) = run.until(22.0).queries
    assert query.usual_s == pytest.approx(LATENCY_S)
    assert query.relative is None or query.relative == pytest.approx(1.0)


def test_a_query_is_late_as_soon_as_its_oldest_batch_is_and_available_again_when_results_are_as_early() -> None:
    run = Clocked()
    run.usual(10)  # the last results came at 10.4
    run.until(11.0)
    run.queries.lost(11.0, finished=10)
    run.queries.missing(11.0, is_missing=True)
    for _ in range(11, 15):
        run.log()
    lasting = run.until(15.0)
    (query,) = lasting.queries
    assert lasting.phase is Phase.LASTS
    assert query.relative == pytest.approx((15.0 - 11.0) / LATENCY_S)  # the age of batch 11, which nobody has seen
    assert query.since_loss.by_final == 0.0
    assert query.waits_s == pytest.approx(4.0)
    run.final(11, 14, 15.5)
    run.queries.missing(15.5, is_missing=False)
    assert run.until(16.0).phase is Phase.LASTS  # back, and still late: 4.5 to 1.5 s
    run.batch = 15
    for _ in range(16, 20):
        at_s = run.log()
        run.final(run.batch, run.batch, at_s + LATENCY_S)
    assert run.until(20.0).phase is Phase.USUAL
    (end,) = [interval for interval in run.ended if interval.phase is Phase.ENDS]
    assert (end.at_s, end.is_recorded) == (17.0, True)
    (query,) = end.queries
    assert query.first_final_s == pytest.approx(4.5)
    assert query.waits_s is None
    assert query.since_loss.by_final is not None
    assert 0.0 < query.since_loss.by_final < 0.5


def test_tentative_results_make_a_query_available_by_what_is_shown_and_not_by_final_results() -> None:
    run = Clocked()
    run.usual(10)
    run.queries.lost(11.0, finished=10)
    run.queries.missing(11.0, is_missing=True)
    for _ in range(11, 21):
        at_s = run.log()
        run.tentative(run.batch, run.batch, at_s + LATENCY_S)
    (query,) = run.until(21.0).queries
    assert query.since_loss.by_shown == 1.0
    assert query.since_loss.by_final is not None
    assert query.since_loss.by_final < 0.2
    assert query.first_shown_s == pytest.approx(0.4)
    assert query.first_final_s is None
    run.final(11, 20, 21.4)
    (query,) = run.until(22.0).queries
    assert query.relative_shown is None  # what corrects is not shown for the first time
    assert query.first_final_s == pytest.approx(10.4)


def test_queries_that_lost_nothing_stay_available_while_others_wait() -> None:
    run = Clocked(A, B)
    run.usual(10)
    run.queries.lost(11.0, finished=10)
    run.queries.missing(11.0, is_missing=True)
    for _ in range(11, 16):
        at_s = run.log()
        run.final(run.batch, run.batch, at_s + LATENCY_S, A)
    spared, hit = run.until(16.0).queries
    assert spared.since_loss.by_final == 1.0
    assert hit.since_loss.by_final == 0.0
    assert [query.task for query in run.until(16.0).late] == [B]
    assert run.until(16.0).text == "queries: 1 of 2 as early as before the loss; jams[1] takes 12.5 times as long"


def test_results_that_were_computed_before_a_loss_say_nothing_of_how_it_was_met() -> None:
    run = Clocked()
    run.usual(10)
    run.log()
    run.queries.lost(11.1, finished=11)
    run.queries.missing(11.1, is_missing=True)
    run.final(11, 11, 11.2)
    assert run.until(12.0).queries[0].first_final_s is None
    run.log()
    run.final(12, 12, 14.0)
    assert run.until(15.0).queries[0].first_final_s == pytest.approx(2.9)


def test_a_loss_during_another_one_counts_from_the_first() -> None:
    run = Clocked()
    run.usual(10)
    run.queries.lost(11.0, finished=10)
    run.queries.missing(11.0, is_missing=True)
    run.log()
    run.until(13.0)
    run.queries.lost(13.5, finished=10)
    again = run.until(13.6)
    assert (again.phase, again.is_recorded) == (Phase.LASTS, True)
    assert again.since_loss_s == pytest.approx(2.5)
    run.final(11, 11, 14.0)
    assert run.until(15.0).queries[0].first_final_s == pytest.approx(3.0)


def test_where_nothing_is_due_nobody_waits() -> None:
    run = Clocked()
    run.usual(10)
    (query,) = run.until(40.0).queries
    assert query.relative is None
    assert query.available.by_final == 1.0


def test_a_run_that_stays_slower_is_usual_after_a_while() -> None:
    run = Clocked()
    run.usual(10)
    run.queries.lost(11.0, finished=10)
    for _ in range(11, 13 + MAX_SETTLING):
        at_s = run.log()
        run.final(run.batch, run.batch, at_s + 2 * LATENCY_S)
        run.until(at_s + 0.9)
    phases = [interval.phase for interval in run.ended]
    assert phases.count(Phase.BEGINS) == phases.count(Phase.ENDS) == 1
    assert run.until(run.batch + 1.0).phase is Phase.USUAL
    (query,) = run.until(run.batch + 1.0).queries
    assert query.usual_s is not None
    assert query.usual_s > LATENCY_S


def test_a_long_outage_is_recorded_a_bounded_number_of_times() -> None:
    tasks = [Task("jams", index) for index in range(50)]
    run = Clocked(*tasks)
    run.usual(5)
    run.queries.lost(6.0, finished=5)
    run.queries.missing(6.0, is_missing=True)
    run.log()
    for at_s in range(7, 1_000, 100):
        run.until(float(at_s))
    recorded = [interval for interval in run.ended if interval.is_recorded]
    one_by_one = MAX_RECORDED / len(tasks)
    assert one_by_one < len(recorded) < one_by_one + 40  # 1.1 ** 40 times as long


def test_a_process_that_slept_reckons_a_bounded_number_of_intervals() -> None:
    run = Clocked()
    run.usual(5)
    run.until(6.0)
    before = len(run.ended)
    run.until(1e9)
    assert len(run.ended) - before <= MAX_SILENT + 1


def test_batches_of_an_earlier_driver_have_no_latency() -> None:
    queries = Queries({A: 3}, 1.0)
    queries.published([Part(A, 2, 6)], 2.5, tentative=False)
    queries.logged(7, 3.0)
    queries.published([Part(A, 7, 7)], 3.4, tentative=False)
    assert all(query.relative is None for interval in queries.ended(5.0) for query in interval.queries)


def test_intervals_are_as_long_as_batches_and_at_least_a_second() -> None:
    assert [interval.at_s for interval in Queries({A: 0}, 5.0).ended(11.0)] == [5.0, 10.0]
    assert len(Queries({A: 0}, 0.0).ended(3.0)) == 3


def test_what_events_have_is_plain_and_names_every_query() -> None:
    run = Clocked(A, B)
    run.usual(10)
    run.queries.lost(11.0, finished=10)
    (begun,) = [interval for interval in run.queries.ended(11.0) if interval.phase is Phase.BEGINS]
    data = begun.to_data()
    assert data["phase"] == "begins"
    queries = data[QUERIES]
    assert isinstance(queries, dict)
    assert list(queries) == ["jams[0]", "jams[1]"]
    numbers = queries["jams[0]"]
    assert isinstance(numbers, dict)
    assert numbers["latency_before_s"] == pytest.approx(LATENCY_S)
    assert numbers["run_availability"] == 1.0
