from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from judging import Judge

from tenax.control.coordinator import Coordinator
from tenax.control.events import (
    BackupsPlanned,
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
    PlanKind,
    PlanningFailed,
    Published,
    PublishFailed,
    RescaleAsked,
    RescaleFailed,
    Started,
    StopRequested,
    TaskReport,
    Woken,
)
from tenax.control.instructions import Outcome, RunPass
from tenax.control.load import TRUSTED, Load, TaskLoad
from tenax.control.recovery.failures import DeadlinePassed, JobFailed, NodeGone, OperatorRaised, PassFailure, Refused
from tenax.control.rescaling import handed_over
from tenax.control.versions import Cut, PassId, Version
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.protection import Backups, Outputs, Recovery
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.model.topology_versions import Target
from tenax.planning.promises import Promise

# a[0] ──▶ e[0] (output)
#   ├────▶ b[0] ──╲╱──▶ c[0] ──╲
#   ╰────▶ b[1] ──╱╲──▶ c[1] ───▶ d[0] (output)
ONE, SPLIT, MERGE = Partitioning.ONE_TO_ONE, Partitioning.SPLIT, Partitioning.MERGE
GRAPH = TaskGraph(
    Topology(
        "tree",
        (
            Operator("a"),
            Operator("e", 1, (Input("a", ONE),)),
            Operator("b", 2, (Input("a", SPLIT),)),
            Operator("c", 2, (Input("b"),)),
            Operator("d", 1, (Input("c", MERGE),)),
        ),
    )
)
TASKS = GRAPH.tasks(range(len(GRAPH)))
LOAD = Load((TaskLoad(),) * len(TASKS), TRUSTED)
START_NODES = 4
MOST_NODES = 6
LAST_EVENTS = 400  # how many a run may need to come to its end when nothing fails any more
RARELY = st.integers(0, 19).map(lambda drawn: drawn == 0)
OFTEN = st.integers(0, 3).map(lambda drawn: drawn > 0)
PASSING = st.sampled_from([DeadlinePassed(1.0), Refused(TASKS[0], "wrong node"), JobFailed("stage 2")])


def with_delay(**words: object) -> Settings:
    """Settings; a delay where anything is tentative, a latency where backups are planned."""
    if words["backups"] is not Backups.ALL and words["measure_every"] == 1:
        words["recovery_latency"] = "1s"
        words["backups"] = None if words["backups"] is Backups.SOURCE else words["backups"]
    if (words["recovery"], words["outputs"]) != (Recovery.INCREMENTAL, Outputs.TENTATIVE):
        del words["tentative_delay"]
    return Settings.of(**words)


SETTINGS = st.builds(
    lambda per_pass, more, **others: with_delay(
        max_batches_per_pass=per_pass, max_batches_ahead=per_pass + more, max_attempts=3, **others
    ),
    st.integers(1, 3),
    st.integers(1, 4),
    checkpoint_every=st.integers(1, 6),
    max_unpublished=st.integers(1, 5),
    recovery=st.sampled_from(Recovery),
    outputs=st.sampled_from(Outputs),
    backups=st.sampled_from([Backups.SOURCE, Backups.ADAPTIVE, Backups.ALL]),
    max_batches_per_round=st.integers(1, 3),
    cutover_lag=st.integers(1, 3),
    patience=st.integers(1, 3),
    tentative_delay=st.sampled_from(["0s", "1s"]),
    measure_every=st.sampled_from([1, 20]),
    max_rows=st.sampled_from([None, 1_000]),
)


class CoordinatorMachine(RuleBasedStateMachine):
    """Feeds answers, failures, losses, repeated, late and unknown events, restarts; the judge watches every order."""

    @initialize(
        bounds=SETTINGS,
        slots=st.sampled_from([None, 2, 3]),
        retain=st.sets(st.sampled_from(TASKS)),
        replicas=st.sets(st.sampled_from(TASKS)),
        state_bytes=st.sampled_from([0, 1 << 40]),  # soon read, or so large that outputs go on without it
    )
    def start(
        self, bounds: Settings, slots: int | None, retain: set[Task], replicas: set[Task], state_bytes: int
    ) -> None:
        self.bounds, self.slots, self.retain, self.replicas = bounds, slots, sorted(retain), sorted(replicas)
        self.state_bytes = state_bytes
        self.judge = Judge(GRAPH, bounds)
        self.epoch = self.named = 0
        self.answered: list[Event] = []
        self.restart(-1)

    def restart(self, which: int) -> None:
        self.epoch += 1
        kept = sorted(self.judge.checkpoints)[-2:]
        batch = kept[max(which, -len(kept))]
        nodes = self.new_nodes(START_NODES)
        self.judge.begin(batch, (node.name for node in nodes))
        self.coordinator = Coordinator(GRAPH, self.bounds, self.retain, self.replicas)
        checkpoint = Cut(batch, self.judge.checkpoints[batch]) if batch else None
        self.answered.clear()
        self.tell(Started(self.epoch, nodes, checkpoint, self.judge.logged, dict(self.judge.published), LOAD))

    def new_nodes(self, count: int) -> tuple[Node, ...]:
        self.named += count
        return tuple(Node(f"n{number}", slots=self.slots) for number in range(self.named - count, self.named))

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

    @precondition(lambda self: self.judge.running)
    @rule(data=st.data())
    def finish_pass(self, data: st.DataObject) -> None:
        self.finish(data.draw(st.sampled_from(self.judge.running)))

    def finish(self, order: RunPass) -> None:
        self.judge.finish(order)
        self.tell(reported(order, self.state_bytes))

    @precondition(lambda self: self.judge.running)
    @rule(data=st.data(), failure=PASSING, rarely=RARELY, short=st.booleans())
    def fail_pass(self, data: st.DataObject, failure: PassFailure, rarely: bool, short: bool) -> None:
        order = data.draw(st.sampled_from(self.judge.running))
        self.judge.end(order)
        if short:
            self.tell(PassFinished(order.pass_id, reported(order, self.state_bytes).reports[1:]))
        else:
            raised = OperatorRaised("b", TASKS[2], order.first, "KeyError")
            self.tell(PassFailed(order.pass_id, raised if rarely else failure))

    @precondition(lambda self: self.judge.publishing)
    @rule(works=OFTEN)
    def publish(self, works: bool) -> None:
        asked = self.judge.publishing
        assert asked is not None
        if works or asked.attempt > 1:
            self.judge.commit(asked)
            self.tell(Published(asked.pass_id, asked.tentative))
        else:
            self.judge.publishing = None
            self.tell(PublishFailed(asked.pass_id, asked.tentative, asked.attempt, "full"))

    @precondition(lambda self: self.judge.storing)
    @rule(works=OFTEN)
    def store(self, works: bool) -> None:
        asked = self.judge.storing
        assert asked is not None
        if works:  # even if nodes are gone: the upload may have been over before
            self.judge.seal(asked)
            self.tell(CheckpointStored(asked.cut.number, asked.attempt))
        else:
            self.judge.storing = None
            self.tell(CheckpointFailed(asked.cut.number, asked.attempt, "no space"))

    @precondition(lambda self: self.judge.stopped is None and self.judge.nodes)
    @rule(data=st.data(), count=st.integers(1, 3), known_by_pass=st.booleans(), really=st.booleans())
    def lose_nodes(self, data: st.DataObject, count: int, known_by_pass: bool, really: bool) -> None:
        if not really:
            return
        drawn = data.draw(st.permutations(sorted(self.judge.nodes)))[:count]
        running = [order for order in self.judge.running if drawn[0] in {step.node for step in order.steps}]
        if known_by_pass and running:
            self.judge.end(running[0])
            self.judge.lose(drawn[:1])
            self.tell(PassFailed(running[0].pass_id, NodeGone(drawn[0])))
        else:
            self.judge.lose(drawn)
            self.tell(NodesLost(tuple(drawn)))

    @precondition(lambda self: self.judge.stopped is None and len(self.judge.nodes) < MOST_NODES)
    @rule(count=st.integers(1, 2))
    def gain_nodes(self, count: int) -> None:
        self.add_nodes(self.new_nodes(count))

    def add_nodes(self, nodes: tuple[Node, ...]) -> None:
        self.judge.gain(node.name for node in nodes)
        self.tell(NodesJoined(nodes))

    @precondition(lambda self: self.judge.planning)
    @rule(works=OFTEN, backups=st.sets(st.sampled_from(TASKS)))
    def plan_backups(self, works: bool, backups: set[Task]) -> None:
        asked, self.judge.planning = self.judge.planning, None
        assert asked is not None
        if works:
            self.tell(
                BackupsPlanned(asked.batch, tuple(sorted(backups)), Promise(1.0, 1.0, 1.0, asked.batch % 2 * TASKS))
            )
        else:
            self.tell(PlanningFailed(asked.batch, "no time", PlanKind.BACKUPS))

    @precondition(lambda self: self.judge.stopped is None)
    @rule(really=OFTEN, nodes=st.sampled_from([None, None, 1, MOST_NODES]))
    def ask_to_rescale(self, really: bool, nodes: int | None) -> None:
        if really:
            self.judge.take(self.coordinator.handle(RescaleAsked(Target(nodes=nodes))))

    @precondition(lambda self: self.judge.switching and self.judge.stopped is None)
    @rule(works=OFTEN, refused=st.booleans())
    def switch(self, works: bool, refused: bool) -> None:
        order, state = self.judge.switching, self.coordinator.state
        assert order is not None
        if not works:
            self.judge.switching = None
            self.tell(RescaleFailed(order.attempt, "no space", refused))
            return
        points = self.judge.switch(PassId(self.epoch, order.passes + 1))
        self.coordinator = Coordinator(GRAPH, self.bounds, self.retain, self.replicas)
        cut = Cut(order.cut.number, points)
        self.tell(handed_over(state, order, cut, state.nodes, dict(self.judge.published)))
        if state.wrap_up is not None:
            self.judge.take(self.coordinator.handle(StopRequested()))

    @precondition(lambda self: self.judge.wakes)
    @rule()
    def wake(self) -> None:
        self.tell(Woken(self.judge.wakes.pop().outage))

    @precondition(lambda self: self.judge.over)
    @rule(data=st.data())
    def report_late(self, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(self.judge.over))
        self.means_nothing(reported(order, self.state_bytes))
        self.means_nothing(PassFailed(order.pass_id, JobFailed("late")))

    @rule(data=st.data())
    def repeat_an_answer(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.answered))
        judge = self.judge
        next_attempts = (
            (CheckpointFailed, judge.storing),
            (RescaleFailed, judge.switching),
            (LoggingFailed, judge.logging),
        )
        if not any(isinstance(event, kind) and asked for kind, asked in next_attempts):  # it might answer these
            self.means_nothing(event)

    @rule(number=st.integers(0, 40), epoch=st.integers(0, 5), batch=st.integers(100, 110))
    def answer_what_was_never_asked(self, number: int, epoch: int, batch: int) -> None:
        pass_id = PassId(epoch + (100 if epoch == self.epoch else 0), number)
        reports = tuple(TaskReport(Version(task, batch, pass_id), "n0") for task in TASKS)
        strange: tuple[Event, ...] = (
            PassFinished(pass_id, reports),
            PassFailed(pass_id, NodeGone("n0")),
            PassFailed(pass_id, OperatorRaised("b", TASKS[2], batch, "unknown")),
            Published(pass_id),
            PublishFailed(pass_id, True, 1, "unknown"),
            CheckpointStored(batch, 9),
            CheckpointFailed(batch, 9, "unknown"),
            BatchesLogged(batch + 1000, batch + 1001),
            LoggingFailed(batch + 1000, 1, "unknown"),
            Woken(99),
            BackupsPlanned(batch, TASKS, Promise(1.0, 0.0, 0.0)),
            PlanningFailed(batch, "unknown", PlanKind.BACKUPS),
        )
        for event in strange:
            self.means_nothing(event)

    def means_nothing(self, event: Event) -> None:
        before = self.coordinator.state
        assert self.coordinator.handle(event) == []
        assert self.coordinator.state == before

    @rule(really=RARELY)
    def ask_to_stop(self, really: bool) -> None:
        if really:
            self.judge.take(self.coordinator.handle(StopRequested()))

    @precondition(lambda self: self.judge.stopped is None)
    @rule(really=RARELY)
    def lose_the_epoch(self, really: bool) -> None:
        if really:
            self.tell(EpochLost(self.epoch + 1))
            assert self.judge.stopped is not None

    @precondition(lambda self: self.judge.stopped)
    @rule(which=st.integers(-2, -1))
    def start_again(self, which: int) -> None:
        self.restart(which)

    @rule(really=RARELY, which=st.integers(-2, -1))
    def crash(self, really: bool, which: int) -> None:
        if really:
            self.restart(which)

    @invariant()
    def the_coordinator_does_not_contradict_itself(self) -> None:
        if hasattr(self, "coordinator"):
            self.coordinator.check_invariants()

    @invariant()
    def something_is_always_under_way(self) -> None:
        if not hasattr(self, "judge") or self.judge.stopped is not None:
            return
        judge = self.judge
        works = bool(judge.running or judge.publishing or judge.storing or judge.switching)
        if judge.logged > judge.finished and self.enough_room():
            assert works
        assert works or judge.logging or not self.enough_room()

    def enough_room(self) -> bool:
        """Whether the nodes have room for all tasks and replicas, so that no task waits for more of them."""
        copies = len(TASKS) + len(self.replicas)
        return bool(self.judge.nodes) and (self.slots is None or self.slots * len(self.judge.nodes) >= copies)

    def teardown(self) -> None:
        """When nothing fails any more and there is room, every run comes to its end."""
        if not hasattr(self, "judge"):
            return
        ending = self.coordinator.state.wrap_up
        if self.judge.stopped is None and ending is not None and ending.outcome is Outcome.FAILED:
            # an operator has raised: that run ends, and the next one goes on with corrected code
            assert self.comes_to_its_end() is Outcome.FAILED
        if self.judge.stopped is not None:
            self.restart(-1)
        assert self.comes_to_its_end() in {Outcome.FINISHED, Outcome.STOPPED}

    def comes_to_its_end(self) -> Outcome:
        while not self.enough_room():
            self.add_nodes(self.new_nodes(1))
        for _ in range(LAST_EVENTS):
            if self.judge.stopped is not None:
                break
            self.go_on()
            self.the_coordinator_does_not_contradict_itself()
        assert self.judge.stopped is not None, "a run comes to its end"
        return self.judge.stopped.outcome

    def go_on(self) -> None:
        judge = self.judge
        if judge.publishing is not None:
            self.publish(True)
        elif judge.storing is not None:
            self.store(True)
        elif judge.switching is not None:
            self.switch(True, False)
        elif judge.logging is not None:
            self.log(8, True, False)
        else:
            self.finish(judge.running[-1])


def reported(order: RunPass, state_bytes: int) -> PassFinished:
    made = ((Version(step.task, order.last, order.pass_id), step.node) for step in order.steps)
    reports = (TaskReport(version, node, rows_out=1, state_bytes=state_bytes) for version, node in made)
    return PassFinished(order.pass_id, tuple(reports))


CoordinatorMachine.TestCase.settings = settings(deadline=None, max_examples=130, stateful_step_count=60)
TestCoordinator = CoordinatorMachine.TestCase
