from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tenax.control.coordinator import Coordinator
from tenax.control.events import (
    BatchesLogged,
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    LoggingFailed,
    PassFailed,
    PassFinished,
    PlanningFailed,
    Published,
    PublishFailed,
    Started,
    StopRequested,
    TaskReport,
)
from tenax.control.instructions import (
    CancelPass,
    Decided,
    LogBatches,
    Outcome,
    Part,
    PassKind,
    Publish,
    RunPass,
    Step,
    Stop,
    StoreCheckpoint,
    Trim,
)
from tenax.control.recovery.failures import (
    DeadlinePassed,
    JobFailed,
    OperatorRaised,
    PassFailure,
    Refused,
    SourceUnreadable,
    StorageRefused,
)
from tenax.control.versions import NO_PASS, Cut, PassId, Version
from tenax.errors import InvalidRequest, UnknownTask
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology

# a[0] ──▶ b[0] ──▶ (output)      one-to-one, so both on one node
A, B = Task("a", 0), Task("b", 0)
GRAPH = TaskGraph(Topology("line", (Operator("a"), Operator("b", inputs=(Input("a", Partitioning.ONE_TO_ONE),)))))
NODES = (Node("n1"), Node("n2"))
SETTINGS = Settings.of(
    checkpoint_every=4,
    max_batches_per_pass=3,
    max_batches_ahead=5,
    max_unpublished=6,
    max_attempts=2,
    pass_deadline="9s",
    max_rows=1_000,
)


def versions(batch: int, pass_id: PassId) -> tuple[Version, ...]:
    return Version(A, batch, pass_id), Version(B, batch, pass_id)


INITIAL = versions(0, NO_PASS)


def passing(
    number: int,
    first: int,
    last: int,
    starts: tuple[Version, ...],
    *,
    stored: bool = False,
    attempt: int = 1,
    epoch: int = 1,
    keep: int | None = None,
) -> RunPass:
    steps = tuple(Step(start.task, "n1", start, stored=stored or start in INITIAL) for start in starts)
    keep = first - 1 if keep is None else keep
    deadline_s = 9.0 * attempt
    pass_id = PassId(epoch, number)
    return RunPass(pass_id, PassKind.LIVE, first, last, steps, (), frozenset(), keep, deadline_s, attempt)


def finished(number: int, last: int, epoch: int = 1) -> PassFinished:
    pass_id = PassId(epoch, number)
    return PassFinished(pass_id, tuple(TaskReport(version, "n1") for version in versions(last, pass_id)))


def published(number: int) -> Published:
    return Published(PassId(1, number))


def publish(number: int, first: int, last: int, attempt: int = 1, epoch: int = 1) -> Publish:
    return Publish(PassId(epoch, number), (Part(B, first, last),), False, attempt)


def store(batch: int, number: int, attempt: int = 1) -> StoreCheckpoint:
    made = versions(batch, PassId(1, number))
    return StoreCheckpoint(Cut(batch, made), made, ("n1", "n1"), attempt)


def fresh(logged: int = 0, settings: Settings = SETTINGS) -> tuple[Coordinator, list[Decided]]:
    coordinator = Coordinator(GRAPH, settings)
    return coordinator, coordinator.handle(Started(1, NODES, None, logged, {}))


def running(logged: int = 3, settings: Settings = SETTINGS) -> tuple[Coordinator, RunPass]:
    """A run whose first pass, over batches 1 to 3, is live."""
    coordinator, _ = fresh(settings=settings)
    instructions = coordinator.handle(BatchesLogged(1, logged))
    order = instructions[0]
    assert isinstance(order, RunPass)
    return coordinator, order


def test_a_new_run_asks_for_batches_first() -> None:
    _, instructions = fresh()
    assert instructions == [LogBatches(1, 5, 1)]


def test_a_logged_batch_runs_at_once_while_the_next_are_logged() -> None:
    coordinator, _ = fresh()
    assert coordinator.handle(BatchesLogged(1, 1)) == [passing(1, 1, 1, INITIAL), LogBatches(2, 4, 1)]
    assert coordinator.handle(BatchesLogged(2, 3)) == [LogBatches(4, 2, 1)]
    assert coordinator.handle(BatchesLogged(4, 5)) == []  # five ahead of what is finished: enough


def test_batches_that_wait_run_in_one_pass() -> None:
    coordinator, first = running(5)
    assert first == passing(1, 1, 3, INITIAL)
    assert coordinator.handle(finished(1, 3)) == [
        publish(1, 1, 3),
        passing(2, 4, 5, versions(3, PassId(1, 1))),
        LogBatches(6, 3, 1),
    ]


def test_a_checkpoint_is_of_the_end_of_the_pass_that_makes_it_due_and_waits_for_the_results_before_it() -> None:
    coordinator, _ = running(5)
    coordinator.handle(finished(1, 3))
    assert coordinator.handle(finished(2, 5)) == []
    assert coordinator.handle(published(1)) == [publish(2, 4, 5)]
    assert coordinator.handle(published(2)) == [store(5, 2)]
    assert coordinator.handle(CheckpointStored(5, 1)) == [Trim(6, 0, 1)]


def test_the_two_newest_checkpoints_are_kept() -> None:
    coordinator, _ = fresh(8)
    trims: list[Decided] = []
    for number, last in enumerate((3, 6, 8), 1):
        coordinator.handle(finished(number, last))
        coordinator.handle(published(number))
        trims += coordinator.handle(CheckpointStored(last, 1))
    assert [trim for trim in trims if isinstance(trim, Trim)] == [Trim(7, 0, 1), Trim(9, 6, 7)]
    assert [checkpoint.oldest_batch for checkpoint in coordinator.state.checkpoints.kept] == [6, 8]


def test_passes_wait_when_too_many_results_are_unpublished() -> None:
    settings = SETTINGS.but(checkpoint_every=100, max_batches_per_pass=2, max_batches_ahead=9, max_unpublished=3)
    coordinator, _ = fresh(settings=settings)
    assert coordinator.handle(BatchesLogged(1, 9))[0].__class__ is RunPass
    after = coordinator.handle(finished(1, 2))
    assert [(order.first, order.last) for order in after if isinstance(order, RunPass)] == [(3, 3)]
    assert coordinator.handle(finished(2, 3)) == []
    assert coordinator.state.passes.live is None
    after = coordinator.handle(published(1))
    assert [(order.first, order.last) for order in after if isinstance(order, RunPass)] == [(4, 5)]


def test_a_restart_replays_from_the_checkpoint_and_publishes_only_what_is_new() -> None:
    coordinator = Coordinator(GRAPH, SETTINGS)
    checkpoint = Cut(4, versions(4, PassId(1, 2)))
    replay = passing(1, 5, 7, versions(4, PassId(1, 2)), stored=True, epoch=2)
    assert coordinator.handle(Started(2, NODES, checkpoint, 7, {B: 6})) == [replay, LogBatches(8, 2, 1)]
    assert coordinator.handle(finished(1, 7, epoch=2)) == [publish(1, 7, 7, epoch=2)]


def test_a_replay_of_published_batches_publishes_nothing() -> None:
    coordinator = Coordinator(GRAPH, SETTINGS)
    replay = passing(1, 1, 2, INITIAL, epoch=2)
    assert coordinator.handle(Started(2, NODES, None, 2, {B: 2})) == [replay, LogBatches(3, 3, 1)]
    assert coordinator.handle(finished(1, 2, epoch=2)) == []
    assert coordinator.state.logs.published == {B: 2}
    assert coordinator.state.finished == 2


def test_code_of_an_operator_that_raises_stops_the_run_at_once_if_nothing_is_done() -> None:
    coordinator, order = running()
    failure = OperatorRaised("b", B, 1, "KeyError: 'speed'")
    reason = "operator 'b' raised in task b[0], batch 1: KeyError: 'speed'; correct the operator and start again"
    assert coordinator.handle(PassFailed(order.pass_id, failure)) == [Stop(Outcome.FAILED, reason, resumable=True)]


def test_what_comes_before_a_batch_at_which_an_operator_raises_is_published_and_stored() -> None:
    coordinator, order = running()
    failure = OperatorRaised("b", B, 2, "KeyError: 'speed'")
    again = coordinator.handle(PassFailed(order.pass_id, failure))
    assert again == [passing(2, 1, 1, INITIAL)]
    (publish, third, *_) = coordinator.handle(finished(2, 1))
    assert isinstance(publish, Publish)
    assert isinstance(third, RunPass)
    assert third.first == 2
    assert coordinator.handle(PassFailed(third.pass_id, failure)) == []
    (store,) = coordinator.handle(Published(publish.pass_id))
    assert isinstance(store, StoreCheckpoint)
    assert {version.batch for version in store.cut.points} == {1}
    *_, stop = coordinator.handle(CheckpointStored(store.cut.number, store.attempt))
    assert isinstance(stop, Stop)
    assert (stop.outcome, stop.resumable) == (Outcome.FAILED, True)
    assert "operator 'b' raised in task b[0], batch 2" in stop.reason


def test_a_source_that_cannot_be_read_stops_the_run_at_once() -> None:
    coordinator, order = running()
    failure = SourceUnreadable("a", 2, "in/b.csv, row 42: rows fit the columns, found 'many': correct the row")
    reason = f"source 'a' could not be read for batch 2: {failure.cause}; correct the source and start again"
    assert coordinator.handle(PassFailed(order.pass_id, failure)) == [Stop(Outcome.FAILED, reason, resumable=True)]


@pytest.mark.parametrize(
    "failure",
    [DeadlinePassed(9.0), Refused(A, "wrong node"), JobFailed("stage 3")],
)
def test_a_passing_cause_is_tried_again_from_the_same_heads_under_a_new_id(failure: PassFailure) -> None:
    coordinator, order = running()
    assert coordinator.handle(PassFailed(order.pass_id, failure)) == [passing(2, 1, 3, INITIAL, attempt=2)]


def test_attempts_are_counted_anew_after_a_success() -> None:
    coordinator, order = running(5)
    coordinator.handle(PassFailed(order.pass_id, JobFailed("x")))
    coordinator.handle(finished(2, 3))
    again = coordinator.handle(PassFailed(PassId(1, 3), JobFailed("x")))
    assert again == [passing(4, 4, 5, versions(3, PassId(1, 2)), attempt=2)]


def test_a_pass_without_the_report_of_a_task_has_failed() -> None:
    coordinator, order = running()
    short = PassFinished(order.pass_id, finished(1, 3).reports[:1])
    assert coordinator.handle(short) == [passing(2, 1, 3, INITIAL, attempt=2)]


def test_a_report_of_another_node_is_none() -> None:
    coordinator, order = running()
    elsewhere = (TaskReport(version, "n2") for version in versions(3, order.pass_id))
    assert coordinator.handle(PassFinished(order.pass_id, tuple(elsewhere))) == [passing(2, 1, 3, INITIAL, attempt=2)]


def test_reports_of_a_failed_pass_that_come_late_are_ignored() -> None:
    coordinator, order = running()
    coordinator.handle(PassFailed(order.pass_id, DeadlinePassed(9.0)))
    assert coordinator.handle(finished(1, 3)) == []
    assert coordinator.handle(PassFailed(order.pass_id, DeadlinePassed(9.0))) == []
    assert coordinator.log[-1].ignored == "this pass does not run"
    assert coordinator.state.finished == 0
    assert coordinator.handle(finished(2, 3))[0] == publish(2, 1, 3)


def test_answers_that_come_twice_are_ignored() -> None:
    coordinator, _ = running()
    assert coordinator.handle(BatchesLogged(1, 3)) == []
    coordinator.handle(finished(1, 3))
    assert coordinator.handle(finished(1, 3)) == []
    coordinator.handle(published(1))
    assert coordinator.handle(published(1)) == []
    assert coordinator.handle(Started(2, NODES, None, 0, {})) == []
    assert coordinator.handle(CheckpointStored(3, 1)) == []
    assert coordinator.handle(PlanningFailed(3, "not asked for")) == []


def test_logging_and_publishing_are_tried_again_a_bounded_number_of_times() -> None:
    coordinator, _ = running()
    coordinator.handle(finished(1, 3))
    assert coordinator.handle(LoggingFailed(4, 1, "down")) == [LogBatches(4, 5, 2)]
    assert coordinator.handle(PublishFailed(PassId(1, 1), False, 1, "full")) == [publish(1, 1, 3, attempt=2)]
    assert coordinator.handle(PublishFailed(PassId(1, 1), False, 1, "full")) == []
    assert coordinator.handle(PublishFailed(PassId(1, 1), False, 2, "full")) == [
        Stop(Outcome.FAILED, "results of batches 1 to 3 were not published in 2 attempts: full", resumable=True)
    ]


def test_a_checkpoint_that_cannot_be_stored_is_tried_again_after_pauses_until_patience_is_at_an_end() -> None:
    coordinator, _ = running(5, SETTINGS.but(storage_patience="800ms"))
    coordinator.handle(finished(1, 3))
    coordinator.handle(finished(2, 5))
    coordinator.handle(published(1))
    coordinator.handle(published(2))
    coordinator.handle(BatchesLogged(6, 6))
    for fault, pause_s in enumerate((0.25, 0.5), start=1):
        again = replace(store(5, 2, attempt=fault + 1), pause_s=pause_s)
        assert coordinator.handle(CheckpointFailed(5, fault, "no space")) == [again]
    assert coordinator.handle(CheckpointFailed(5, 3, "no space")) == [
        CancelPass(PassId(1, 3)),
        Stop(Outcome.FAILED, "checkpoint 5 was not stored after 0.8 s of waiting: no space", resumable=True),
    ]


def test_what_a_sink_or_the_store_refuses_is_tried_again_after_longer_and_longer_pauses() -> None:
    coordinator, first = running(3)
    refused = StorageRefused("output 'b' in out/b", "No space left on device")
    for fault, pause_s in enumerate((0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0), start=1):
        again = replace(first, pass_id=PassId(1, fault + 1), pause_s=pause_s)
        assert coordinator.handle(PassFailed(PassId(1, fault), refused)) == [again]
    assert coordinator.handle(finished(9, 3)) == [publish(9, 1, 3)]
    assert coordinator.handle(LoggingFailed(4, 1, "full", storage=True)) == [LogBatches(4, 5, 2, 0.25)]
    assert coordinator.handle(LoggingFailed(4, 2, "full", storage=True)) == [LogBatches(4, 5, 3, 0.5)]
    for fault, pause_s in enumerate((0.25, 0.5, 1.0), start=1):
        answer = coordinator.handle(PublishFailed(PassId(1, 9), False, fault, "full", storage=True))
        assert answer == [replace(publish(9, 1, 3, attempt=fault + 1), pause_s=pause_s)]
    assert coordinator.handle(published(9)) == []
    assert coordinator.handle(BatchesLogged(4, 4))[0] == passing(10, 4, 4, versions(3, PassId(1, 9)))


def test_refusals_neither_use_up_attempts_nor_roll_anything_back() -> None:
    coordinator, first = running(3)
    for number in range(1, 9):
        coordinator.handle(PassFailed(PassId(1, number), StorageRefused("a disk", "full")))
    (again,) = coordinator.handle(PassFailed(PassId(1, 9), JobFailed("unlucky")))
    assert again == replace(first, pass_id=PassId(1, 10), attempt=2, deadline_s=18.0, pause_s=10.0)


def test_patience_with_a_sink_has_an_end_and_names_it() -> None:
    coordinator, _ = running(3, SETTINGS.but(storage_patience="200ms"))
    (stop,) = coordinator.handle(PassFailed(PassId(1, 1), StorageRefused("output 'b' in out/b", "Read-only")))
    assert stop == Stop(
        Outcome.FAILED,
        "batches 1 to 3 did not pass after 0.2 s of waiting: output 'b' in out/b: Read-only",
        resumable=True,
    )


def test_a_stop_finishes_the_pass_publishes_stores_a_checkpoint_and_ends() -> None:
    coordinator, _ = running(5)
    assert coordinator.handle(StopRequested("maintenance")) == []
    assert coordinator.handle(finished(1, 3)) == [publish(1, 1, 3)]
    assert coordinator.handle(StopRequested("again")) == []
    assert coordinator.handle(published(1)) == [store(3, 1)]
    assert coordinator.handle(CheckpointStored(3, 1)) == [
        Trim(4, 0, 1),
        Stop(Outcome.STOPPED, "maintenance", resumable=True),
    ]


def test_a_stop_before_anything_ran_ends_at_once() -> None:
    coordinator = Coordinator(GRAPH)
    assert coordinator.handle(StopRequested()) == [Stop(Outcome.STOPPED, "asked to", resumable=True)]
    coordinator, _ = fresh()
    assert coordinator.handle(StopRequested()) == [Stop(Outcome.STOPPED, "asked to", resumable=True)]


def test_a_failed_pass_is_not_tried_again_once_a_stop_is_asked_for() -> None:
    coordinator, order = running()
    coordinator.handle(StopRequested())
    assert coordinator.handle(PassFailed(order.pass_id, JobFailed("x"))) == [
        Stop(Outcome.STOPPED, "asked to", resumable=True)
    ]


def test_ended_sources_finish_the_run() -> None:
    coordinator, _ = running()
    assert coordinator.handle(BatchesLogged(4, 3, ended=True)) == []
    assert coordinator.handle(finished(1, 3)) == [publish(1, 1, 3)]
    assert coordinator.handle(published(1)) == [store(3, 1)]
    assert coordinator.handle(CheckpointStored(3, 1)) == [
        Trim(4, 0, 1),
        Stop(Outcome.FINISHED, "the sources have ended", resumable=False),
    ]


def test_a_finished_run_that_is_started_again_finishes_again() -> None:
    coordinator = Coordinator(GRAPH, SETTINGS)
    coordinator.handle(Started(2, NODES, Cut(3, versions(3, PassId(1, 1))), 3, {B: 3}))
    assert coordinator.handle(BatchesLogged(4, 3, ended=True)) == [
        Stop(Outcome.FINISHED, "the sources have ended", resumable=False)
    ]


def test_a_driver_that_lost_its_epoch_stops_by_itself() -> None:
    coordinator, order = running()
    assert coordinator.handle(EpochLost(2)) == [
        CancelPass(order.pass_id),
        Stop(Outcome.SUPERSEDED, "a newer driver (epoch 2) owns the store", resumable=False),
    ]
    assert coordinator.handle(finished(1, 3)) == []


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Started(1, (), None, 0, {}), "at least one node"),
        (Started(0, NODES, None, 0, {}), "epochs count from 1"),
        (Started(1, NODES, Cut(4, versions(4, PassId(1, 1))), 9, {B: 3}), "found 4, 3 to 3 and 9"),
        (Started(1, NODES, None, 3, {B: 4}), "found 0, 4 to 4 and 3"),
        (Started(1, NODES, Cut(4, versions(4, PassId(1, 1))[:1]), 9, {B: 9}), "one version per task"),
        (Started(1, (Node("n1", slots=1),), None, 0, {}), "slots"),
    ],
)
def test_a_start_that_cannot_go_well_is_refused_with_the_reason(event: Started, text: str) -> None:
    (stop,) = Coordinator(GRAPH).handle(event)
    assert isinstance(stop, Stop)
    assert stop.outcome is Outcome.FAILED
    assert text in stop.reason
    assert "\n" not in stop.reason


def test_a_driver_that_logs_more_than_it_was_asked_to_is_stopped() -> None:
    coordinator, _ = fresh()
    (stop,) = coordinator.handle(BatchesLogged(1, 6))
    assert stop == Stop(
        Outcome.FAILED, "a driver logs 1 to 5 batches from 1 on, found through 6: correct the driver", resumable=True
    )


def test_a_story_says_what_happened_to_a_task_and_why() -> None:
    coordinator, order = running()
    coordinator.handle(PassFailed(order.pass_id, JobFailed("stage 3")))
    coordinator.handle(finished(1, 3))
    assert [(line.number, line.text) for line in coordinator.story(B)] == [
        (2, "live pass 1.1: as primary through batches 1 to 3 on n1 from b[0]@0/0.0, attempt 1"),
        (3, "pass 1.1 failed: the job failed: stage 3"),
        (3, "live pass 1.2: as primary through batches 1 to 3 on n1 from b[0]@0/0.0, attempt 2"),
        (4, "pass 1.1 finished: b[0]@3/1.1, 0 rows, on n1 (ignored: this pass does not run)"),
    ]
    with pytest.raises(UnknownTask):
        coordinator.story(Task("c", 0))


def test_the_log_is_bounded() -> None:
    coordinator = Coordinator(GRAPH, Settings.of(log_length=3))
    for _ in range(5):
        coordinator.handle(PlanningFailed(3, "not asked for"))
    assert [entry.number for entry in coordinator.log] == [3, 4, 5]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: Settings.of(max_attempts=0), "max_attempts is a whole number of at least 1, found 0"),
        (
            lambda: Settings.of(max_batches_per_pass=4, max_batches_ahead=4),
            "max_batches_ahead is above max_batches_per_pass",
        ),
        (lambda: Settings.of(checkpoint_every=0), "checkpoint_every is a number of batches of at least 1"),
        (lambda: Settings.of(cutover_lag=0), "cutover_lag is a whole number of at least 1"),
    ],
)
def test_settings_without_sense_are_refused(build: Callable[[], Settings], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        build()


def test_times_are_spans_that_are_not_negative() -> None:
    with pytest.raises(InvalidRequest, match="pass_deadline is a time above 0, found '0s'"):
        Settings.of(pass_deadline="0s")
    with pytest.raises(InvalidRequest, match="pass_deadline is a time above 0, found inf"):
        Settings.of(pass_deadline=float("inf"))
    with pytest.raises(InvalidRequest, match=r"tentative_delay is a time of at least 0, found datetime\.timedelta"):
        Settings.of(tentative_delay=timedelta(seconds=-1))
