from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenax.control.coordinator import Coordinator
from tenax.control.events import (
    BatchesLogged,
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    Event,
    LoggingFailed,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
    Published,
    PublishFailed,
    Restored,
    RestoreFailed,
    Started,
    StopRequested,
    TaskReport,
)
from tenax.control.failures import DeadlinePassed, JobFailed, OperatorRaised, PassFailure, Refused
from tenax.control.instructions import (
    CancelPass,
    Instruction,
    LogBatches,
    Outcome,
    Publish,
    Restore,
    RunPass,
    Stop,
    StoreCheckpoint,
    Trim,
)
from tenax.control.state import Settings
from tenax.control.versions import NO_PASS, PassId, StoredCheckpoint, Version
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Topology

# a[0] ──╲╱── b[0]
# a[1] ──╱╲── b[1]
GRAPH = TaskGraph(Topology("full", (Operator("a", 2), Operator("b", 2, (Input("a"),)))))
TASKS = (Task("a", 0), Task("a", 1), Task("b", 0), Task("b", 1))
NODES = (Node("n1"), Node("n2"), Node("idle", slots=1))
RARELY = st.integers(0, 19).map(lambda drawn: drawn == 0)
PASSING = st.sampled_from([DeadlinePassed(1.0), Refused(TASKS[0], "wrong node"), JobFailed("stage 2")])


class Judge:
    """What a store and its nodes would hold, and the rules of the contract, written anew."""

    def __init__(self, bounds: Settings) -> None:
        self.bounds = bounds
        self.logged = self.published = 0
        self.ended = False
        self.checkpoints: dict[int, tuple[Version, ...]] = {0: tuple(Version(task, 0, NO_PASS) for task in TASKS)}
        self.source_log_from = 1
        self.made: set[Version] = set(self.checkpoints[0])
        self.used: set[PassId] = set()
        self.begin(0)

    def begin(self, batch: int) -> None:
        """A new driver, restarting from a checkpoint."""
        self.finished = batch
        self.restored = batch == 0
        self.results: dict[PassId, tuple[int, int]] = {}
        self.live: RunPass | None = None
        self.logging: LogBatches | None = None
        self.publishing: Publish | None = None
        self.storing: StoreCheckpoint | None = None
        self.restoring: Restore | None = None
        self.stopped: Stop | None = None
        self.trimmed_retained = 0

    def take(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            assert self.stopped is None, "nothing is instructed after a stop"
            match one:
                case RunPass():
                    self.run_pass(one)
                case Publish():
                    self.publish(one)
                case StoreCheckpoint():
                    self.store(one)
                case LogBatches():
                    assert self.logging is None
                    assert one.first == self.logged + 1
                    assert 1 <= one.count <= self.finished + self.bounds.max_batches_ahead - self.logged
                    self.logging = one
                case Restore():
                    assert not self.restored
                    assert self.restoring is None
                    assert one.versions == self.checkpoints[one.batch]
                    self.restoring = one
                case Trim():
                    self.trim(one)
                case CancelPass(pass_id):
                    assert self.live is not None
                    assert self.live.pass_id == pass_id
                    self.live = None
                case Stop():
                    self.stop(one)

    def run_pass(self, one: RunPass) -> None:
        assert self.live is None, "at most one live pass"
        assert one.pass_id not in self.used, "every pass id is new"
        self.used.add(one.pass_id)
        assert self.restored
        assert one.tasks == TASKS
        assert tuple(start.task for start in one.starts) == TASKS
        assert {start.batch for start in one.starts} == {one.first - 1} == {self.finished}
        assert set(one.starts) <= self.made, "only versions of finished passes are cited"
        assert one.first <= one.last <= self.logged
        assert one.last - one.first < self.bounds.max_batches_per_pass
        assert one.last <= self.published + self.bounds.max_unpublished
        assert one.first >= self.source_log_from, "what is read is not trimmed"
        assert one.attempt <= self.bounds.max_attempts
        self.live = one

    def publish(self, one: Publish) -> None:
        assert self.publishing is None
        first, last = self.results[one.pass_id]
        assert first <= one.first <= one.last == last
        assert one.first == self.published + 1, "in order, once"
        self.publishing = one

    def store(self, one: StoreCheckpoint) -> None:
        assert self.storing is None
        assert tuple(version.task for version in one.versions) == TASKS
        assert {version.batch for version in one.versions} == {one.batch}
        assert set(one.versions) <= self.made
        assert one.batch <= min(self.finished, self.published)
        self.storing = one

    def trim(self, one: Trim) -> None:
        newest = sorted(self.checkpoints)[-2:]
        assert one.checkpoints_before <= newest[0], "two checkpoints are kept"
        assert one.source_log_before <= newest[0] + 1
        assert one.source_log_before <= self.published + 1
        assert one.retained_before <= newest[-1] + 1
        assert one.retained_before >= self.trimmed_retained
        self.trimmed_retained = one.retained_before
        self.source_log_from = max(self.source_log_from, one.source_log_before)
        self.checkpoints = {batch: held for batch, held in self.checkpoints.items() if batch >= one.checkpoints_before}

    def stop(self, one: Stop) -> None:
        assert self.live is None
        assert "\n" not in one.reason
        if one.outcome in {Outcome.FINISHED, Outcome.STOPPED}:
            assert self.finished in self.checkpoints, "all work is stored"
            assert self.published >= self.finished, "and published"
        if one.outcome is Outcome.FINISHED:
            assert self.ended
            assert self.finished == self.logged == self.published
        self.stopped = one


class CoordinatorMachine(RuleBasedStateMachine):
    """Feeds answers, failures, repeated, late and unknown events, restarts; the judge watches every instruction."""

    @initialize(
        every=st.integers(1, 5), per_pass=st.integers(1, 4), more=st.integers(1, 4), unpublished=st.integers(1, 5)
    )
    def start(self, every: int, per_pass: int, more: int, unpublished: int) -> None:
        self.bounds = Settings(
            checkpoint_every=every,
            max_batches_per_pass=per_pass,
            max_batches_ahead=per_pass + more,
            max_unpublished=unpublished,
            max_attempts=3,
        )
        self.judge = Judge(self.bounds)
        self.epoch = 0
        self.answered: list[Event] = []
        self.restart(-1)

    def restart(self, which: int) -> None:
        self.epoch += 1
        kept = sorted(self.judge.checkpoints)[-2:]
        batch = kept[which]
        self.judge.begin(batch)
        self.coordinator = Coordinator(GRAPH, self.bounds)
        checkpoint = StoredCheckpoint(batch, self.judge.checkpoints[batch]) if batch else None
        self.answered.clear()
        self.tell(Started(self.epoch, NODES, checkpoint, self.judge.logged, self.judge.published))

    def tell(self, event: Event) -> None:
        self.answered.append(event)
        self.judge.take(self.coordinator.handle(event))

    @precondition(lambda self: self.judge.logging)
    @rule(count=st.integers(1, 8), ended=RARELY, nothing=st.booleans())
    def log(self, count: int, ended: bool, nothing: bool) -> None:
        asked = self.judge.logging
        assert asked is not None
        ended = ended or self.judge.ended
        last = asked.first + min(count, asked.count) - 1
        if self.judge.ended or (ended and nothing):
            last = asked.first - 1
        self.judge.logging = None
        self.judge.logged, self.judge.ended = last, ended
        self.tell(BatchesLogged(asked.first, last, ended))

    @precondition(lambda self: self.judge.logging)
    @rule()
    def fail_to_log(self) -> None:
        asked = self.judge.logging
        assert asked is not None
        self.judge.logging = None
        self.tell(LoggingFailed(asked.first, asked.attempt, "down"))

    @precondition(lambda self: self.judge.live)
    @rule()
    def finish_pass(self) -> None:
        live = self.judge.live
        assert live is not None
        versions = [Version(task, live.last, live.pass_id) for task in TASKS]
        self.judge.live = None
        self.judge.finished = live.last
        self.judge.made.update(versions)
        self.judge.results[live.pass_id] = live.first, live.last
        self.tell(PassFinished(live.pass_id, tuple(TaskReport(version) for version in versions)))

    @precondition(lambda self: self.judge.live)
    @rule(failure=PASSING, rarely=RARELY, short=st.booleans())
    def fail_pass(self, failure: PassFailure, rarely: bool, short: bool) -> None:
        live = self.judge.live
        assert live is not None
        self.judge.live = None
        if short:
            self.tell(PassFinished(live.pass_id, (TaskReport(Version(TASKS[0], live.last, live.pass_id)),)))
        else:
            raised = OperatorRaised("b", TASKS[2], live.first, "KeyError")
            self.tell(PassFailed(live.pass_id, raised if rarely else failure))

    @precondition(lambda self: self.judge.publishing)
    @rule(works=st.booleans())
    def publish(self, works: bool) -> None:
        asked = self.judge.publishing
        assert asked is not None
        self.judge.publishing = None
        if works or asked.attempt > 1:
            self.judge.published = asked.last
            self.tell(Published(asked.first, asked.last))
        else:
            self.tell(PublishFailed(asked.first, asked.last, asked.attempt, "full"))

    @precondition(lambda self: self.judge.storing)
    @rule(works=st.booleans())
    def store(self, works: bool) -> None:
        asked = self.judge.storing
        assert asked is not None
        self.judge.storing = None
        if works:
            self.judge.checkpoints[asked.batch] = asked.versions
            self.tell(CheckpointStored(asked.batch, asked.attempt))
        else:
            self.tell(CheckpointFailed(asked.batch, asked.attempt, "no space"))

    @precondition(lambda self: self.judge.restoring)
    @rule(works=st.booleans())
    def restore(self, works: bool) -> None:
        asked = self.judge.restoring
        assert asked is not None
        self.judge.restoring = None
        if works:
            self.judge.restored = True
            self.tell(Restored(asked.batch, asked.attempt))
        else:
            self.tell(RestoreFailed(asked.batch, asked.attempt, "torn"))

    @rule(data=st.data())
    def repeat_an_answer(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.answered))
        self.means_nothing(event)

    @rule(number=st.integers(0, 40), epoch=st.integers(0, 5), batch=st.integers(100, 110))
    def answer_what_was_never_asked(self, number: int, epoch: int, batch: int) -> None:
        pass_id = PassId(epoch + (100 if epoch == self.epoch else 0), number)
        reports = tuple(TaskReport(Version(task, batch, pass_id)) for task in TASKS)
        strange: tuple[Event, ...] = (
            PassFinished(pass_id, reports),
            PassFailed(pass_id, JobFailed("unknown")),
            PassFailed(pass_id, OperatorRaised("b", TASKS[2], batch, "unknown")),
            Published(batch, batch),
            PublishFailed(batch, batch, 1, "unknown"),
            CheckpointStored(batch, 9),
            CheckpointFailed(batch, 9, "unknown"),
            BatchesLogged(batch + 1000, batch + 1001),
            LoggingFailed(batch + 1000, 1, "unknown"),
            Restored(batch, 9),
            NodesLost(("unknown",)),
            NodesJoined(NODES[:1]),
        )
        for event in strange:
            self.means_nothing(event)

    def means_nothing(self, event: Event) -> None:
        before = self.coordinator.state
        assert self.coordinator.handle(event) == []
        assert self.coordinator.state == before
        assert self.coordinator.log[-1].ignored

    @rule(really=RARELY)
    def ask_to_stop(self, really: bool) -> None:
        if really:
            self.judge.take(self.coordinator.handle(StopRequested()))

    @rule(really=RARELY, which=st.integers(-2, -1))
    def lose_something(self, really: bool, which: int) -> None:
        if really:
            event = EpochLost(self.epoch + 1) if which == -1 else NodesLost(("n1",))
            self.judge.take(self.coordinator.handle(event))
            assert self.judge.stopped is not None

    @precondition(lambda self: self.judge.stopped)
    @rule(which=st.integers(-2, -1))
    def start_again(self, which: int) -> None:
        self.restart(max(which, -len(self.judge.checkpoints)))

    @rule(really=RARELY, which=st.integers(-2, -1))
    def crash(self, really: bool, which: int) -> None:
        if really:
            self.restart(max(which, -len(self.judge.checkpoints)))

    @invariant()
    def the_coordinator_does_not_contradict_itself(self) -> None:
        if hasattr(self, "coordinator"):
            self.coordinator.check_invariants()

    @invariant()
    def something_is_always_under_way(self) -> None:
        if hasattr(self, "judge") and self.judge.stopped is None:
            judge = self.judge
            assert judge.live or judge.logging or judge.publishing or judge.storing or judge.restoring


CoordinatorMachine.TestCase.settings = settings(deadline=None, max_examples=120, stateful_step_count=80)
TestCoordinator = CoordinatorMachine.TestCase
