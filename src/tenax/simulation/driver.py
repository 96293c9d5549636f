"""A driver in virtual time: carries instructions out on a virtual store, and may die at any moment."""

from __future__ import annotations

from collections.abc import Sequence

from tenax.control.coordinator import Coordinator
from tenax.control.copies import Role
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
    Started,
    StopRequested,
    TaskReport,
    Woken,
)
from tenax.control.instructions import (
    Decided,
    Instruction,
    LogBatches,
    PlanBackups,
    PlanReplicas,
    Publish,
    RequestNodes,
    RunPass,
    Step,
    Stop,
    StoreCheckpoint,
    Trim,
    Wake,
)
from tenax.control.notices import Notice, RolledBack
from tenax.control.recovery.failures import (
    DeadlinePassed,
    JobFailed,
    NodeGone,
    OperatorRaised,
    PassFailure,
    Refused,
    StorageRefused,
)
from tenax.control.state import Phase
from tenax.control.versions import NO_PASS, PassId, RebuildPoint, Span, Version
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.simulation.chances import Fault, Killed
from tenax.simulation.kernel import Group, Steps
from tenax.simulation.loads import judge_room
from tenax.simulation.nodes import VirtualNode
from tenax.simulation.plans import backups_planned, replicas_planned
from tenax.simulation.steps import Stepping
from tenax.simulation.store import EpochRefused, StoreMisused
from tenax.simulation.toy import INITIAL, Digest
from tenax.simulation.world import World

GARBAGE: Digest = b"garbage"  # what a failed pass leaves under its name
LATE_REPORT = 0.5  # the part of failed passes whose workers go on and report all the same
REPEATED_EVENT = 0.03


class Driver:
    """One driver of a run, from its claim of an epoch to its stop or death.

    - Every effect on the store and every event is a moment at which it may be killed or paused.
    - States, results and retained outputs live on its nodes and die with them; a failed pass leaves garbage there.
    - Versions and outputs that the coordinator lets go of are gone at once: citing them later is an error.
    - Events may come twice, and failed passes may report late that they finished.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.group = Group()
        self.epoch = 0
        self.toy = world.toy
        self.coordinator = Coordinator(world.toy.graph, world.settings, world.retain, world.replicas)
        self.stop: Stop | None = None
        self.nodes: dict[str, VirtualNode] = {}
        self.tentative = 0
        self._results: dict[PassId, dict[tuple[Task, int], Digest]] = {}
        self._named = 0
        self._rounds: set[tuple[int, int, frozenset[tuple[Task, Role, RebuildPoint | None]]]] = set()

    def start(self, delay_s: float) -> None:
        """Claim the next epoch and begin, after a delay."""
        self.world.kernel.start(self.group, self._guarded(self._start()), delay_s)

    def ask_to_stop(self) -> None:
        """As a person would."""
        if self.epoch:
            self._begin(self._report(StopRequested()))

    def lose(self, count: int) -> int:
        """Some nodes die together; how many did. Before the start is known no event would say so."""
        if self.coordinator.state.phase is Phase.WAITING:
            return 0
        dying = self.world.random.sample(sorted(self.nodes), min(count, len(self.nodes)))
        for name in dying:
            self.nodes.pop(name).alive = False
        if dying:
            self._begin(self._noticed(NodesLost(tuple(dying))))
        return len(dying)

    def gain(self, count: int) -> None:
        """Some nodes come."""
        if self.epoch:
            self._begin(self._noticed(NodesJoined(self._new_nodes(count))))

    def _come(self, total: int) -> Steps:
        """Nodes that were asked for come one by one, each late."""
        while len(self.nodes) < total:
            yield self.world.plans.random() * 10.0
            self.gain(1)

    def _noticed(self, event: Event) -> Steps:
        yield self._wait()
        yield from self._report(event)

    def _new_nodes(self, count: int) -> tuple[Node, ...]:
        made = []
        for _ in range(count):
            self._named += 1
            name = f"e{self.epoch}n{self._named}"
            self.nodes[name] = VirtualNode(name)
            made.append(Node(name, rack=f"r{self._named % 2}", slots=self.world.slots))
        return tuple(made)

    def _start(self) -> Steps:
        yield from self._moment()
        self.epoch = self.world.store.claim()
        yield self._wait()
        yield from self._report(self._started())

    def _started(self) -> Started:
        """What the store holds, and new nodes."""
        world, store = self.world, self.world.store
        logged, published = store.logged, store.published
        number = self._newest(0.15)
        checkpoint = store.checkpoints[number][0] if number else None
        store.set_aside(self.epoch, number)
        nodes = self._new_nodes(world.nodes)
        return Started(self.epoch, nodes, checkpoint, logged, published, store.loads.get(number))

    def _newest(self, damaged: float) -> int:
        """The newest checkpoint; sometimes it turns out to be damaged, and it is the one before."""
        store = self.world.store
        is_damaged = self.world.random.random() < damaged and store.leads_on(store.kept[0])
        return store.kept[0 if is_damaged else -1]

    def _carry_out(self, decided: Sequence[Decided]) -> None:
        """Do what is instructed; notices are for the record."""
        for each in decided:
            if not isinstance(each, Notice):
                self._execute(each)
            elif isinstance(each, RolledBack):
                self._rounds.clear()

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case LogBatches():
                self._begin(self._log(instruction))
            case RunPass():
                self._begin(self._pass(instruction))
            case Publish():
                self._begin(self._publish(instruction))
            case StoreCheckpoint():
                self._begin(self._store(instruction))
            case Trim():
                self._begin(self._trim(instruction))
            case Wake():
                self.world.kernel.start(
                    self.group, self._guarded(self._report(Woken(instruction.outage))), instruction.after_s
                )
            case PlanReplicas():
                self._begin(self._plan(instruction))
            case RequestNodes() if self.world.load is not None:
                self._begin(self._come(instruction.total))
            case PlanBackups():
                self._begin(self._plan_backups(instruction))
            case Stop():
                self.stop = instruction
                self.world.on_stop(self, instruction)
            case _:
                pass  # the workers of a cancelled pass may go on for a while, and nodes come by themselves

    def _begin(self, steps: Steps) -> None:
        self.world.kernel.start(self.group, self._guarded(steps))

    def _paused(self, pause_s: float) -> Steps:
        """Wait before something is tried again; sometimes no time at all, so that things happen at the same moment."""
        if pause_s and self.world.refusals.random() < 0.5:
            yield pause_s

    def _refused(self) -> bool:
        return self.world.refusals.random() < 0.5

    def _log(self, order: LogBatches) -> Steps:
        world, store = self.world, self.world.store
        yield from self._paused(order.pause_s)
        yield self._wait()
        if self._fails():
            yield from self._report(LoggingFailed(order.first, order.attempt, "unlucky", self._refused()))
            return
        last = min(order.first + world.random.randrange(order.count), world.batches)
        for batch in range(order.first, last + 1):
            yield from self._moment()
            begin = store.history[batch - 1][1] if batch > 1 else 0
            store.log(self.epoch, batch, (begin, begin + world.random.randrange(100)))
            yield self._wait()
        logged = BatchesLogged(order.first, last, ended=last == world.batches)
        yield from self._report(logged if world.load is None else world.load.logged(logged))

    def _pass(self, order: RunPass) -> Steps:
        world, work = self.world, Stepping(self.world, self.epoch, self.nodes, self.toy)
        yield from self._paused(order.pause_s)
        work.check_room(order)
        for node in self.nodes.values():
            node.drop_versions(order.keep)
        states = {step: work.start_of(step) for step in order.steps}
        if any(state is None for state in states.values()):
            return  # its node is gone: that is reported soon
        failure = self._failure(order)
        results: dict[tuple[Task, int], Digest] = {}
        for batch in range(order.first, order.last + 1):
            yield self._wait()
            yield from self._moment()
            chunks = work.read(order, batch)
            if chunks is None or not self._all_alive(order.steps):
                yield from self._hang_or_fail(order)
                return
            for step in sorted(order.steps, key=lambda step: work.toy.number[step.task]):
                state = states[step]
                assert state is not None
                if step.rebuilding is not None and step.start.pass_id == NO_PASS and 1 < batch == order.first:
                    continue  # of the batch before the oldest that counts there is nothing to remember
                states[step], chunk = work.step(step, state, batch, chunks)
                if step.rebuilding is not None:
                    continue
                if step.role is not Role.REPLICA:
                    chunks[work.toy.number[step.task]] = chunk
                if step.role is Role.PRIMARY and step.task in work.toy.outputs:
                    results[step.task, batch] = chunk
                if step.task in order.retain and not step.tentative:
                    self.nodes[step.node].outputs[step.task, batch, order.pass_id] = chunk
        made = {step: Version(step.task, order.last, order.pass_id) for step in order.steps}
        reports = tuple(
            TaskReport(version, step.node, rows=1, rows_out=1, rebuild_from=work.rebuild_from(version.task, order.last))
            for step, version in made.items()
        )
        for step, version in made.items():
            state = states[step]
            assert state is not None
            self.nodes[step.node].versions[version] = GARBAGE if failure is not None else state
        if failure is not None:
            yield from self._report(PassFailed(order.pass_id, failure))
            if world.random.random() < LATE_REPORT:
                yield self._wait()
                yield from self._report(PassFinished(order.pass_id, reports))
            return
        self._results[order.pass_id] = results
        yield from self._report(self._through(order, PassFinished(order.pass_id, reports)))

    def _through(self, _order: RunPass, event: PassFinished) -> PassFinished:
        """The same with what is known of the time that it took."""
        return event if self.world.load is None else self.world.load.finished(self.toy, _order, event)

    def _all_alive(self, steps: Sequence[Step]) -> bool:
        return all(step.node in self.nodes for step in steps)

    def _hang_or_fail(self, order: RunPass) -> Steps:
        """A pass that has lost a node: it may fail by itself, and say why or not, or hang until it is cancelled."""
        random = self.world.random
        gone = [step.node for step in order.steps if step.node not in self.nodes]
        drawn = random.random()
        if drawn < 0.3 and gone:
            yield from self._report(PassFailed(order.pass_id, NodeGone(gone[0])))
        elif drawn < 0.6:
            yield from self._report(PassFailed(order.pass_id, JobFailed("a node is gone")))

    def _failure(self, order: RunPass) -> PassFailure | None:
        random, chances = self.world.random, self.world.chances
        drawn = random.random()
        task = random.choice(order.steps).task
        if drawn < chances.operator_raises:
            return OperatorRaised(task.operator, task, order.first, "ZeroDivisionError: division by zero")
        if drawn < chances.operator_raises + chances.pass_fails:
            passing: tuple[PassFailure, ...] = (
                DeadlinePassed(order.deadline_s),
                Refused(task, "wrong node"),
                JobFailed("unlucky"),
            )
            chosen = random.choice(passing)
            return StorageRefused(f"output of {task}", "unlucky") if self._refused() else chosen
        return None

    def _publish(self, order: Publish) -> Steps:
        store = self.world.store
        yield from self._paused(order.pause_s)
        for part in order.parts:
            for batch in range(part.first, part.last + 1):
                yield from self._moment()
                content = self._results.get(order.pass_id, {}).get((part.task, batch))
                if content is None:
                    raise StoreMisused(f"results are kept until they are published, found those of {batch} missing")
                if order.tentative:
                    self.tentative += 1
                    store.show(self.epoch, part.task, batch, content)
                else:
                    store.commit(self.epoch, part.task, batch, content)
            yield self._wait()
            if self._fails():
                failed = PublishFailed(order.pass_id, order.tentative, order.attempt, "unlucky", self._refused())
                yield from self._report(failed)
                return
        yield from self._report(Published(order.pass_id, order.tentative))

    def _store(self, order: StoreCheckpoint) -> Steps:
        store, toy, number = self.world.store, self.toy, order.cut.number
        yield from self._paused(order.pause_s)
        for version, name in zip(order.versions, order.nodes, strict=True):
            yield self._wait()
            yield from self._moment()
            node = self.nodes.get(name)
            place = toy.number[version.task]
            nothing = not toy.inputs[place] or version.pass_id == NO_PASS  # that is all there is of its state
            if node is None:
                yield from self._report(CheckpointFailed(number, order.attempt, f"{name} is gone"))
                return
            if not nothing and version not in node.versions:
                raise StoreMisused(f"a checkpoint is made of versions that are there, found {version} missing")
            store.upload(self.epoch, number, version, INITIAL if nothing else node.versions[version])
            for span in order.cut.outputs_of(place):
                self._upload_outputs(number, version.task, span, node)
        yield from self._moment()
        if self._fails():
            yield from self._report(CheckpointFailed(number, order.attempt, "unlucky"))
            return
        store.seal(self.epoch, order.cut)
        store.loads[number] = order.load
        yield self._wait()
        yield from self._report(CheckpointStored(number, order.attempt))

    def _upload_outputs(self, number: int, task: Task, span: Span, node: VirtualNode) -> None:
        store = self.world.store
        for batch in range(span.first, span.last + 1):
            key = task, batch, span.pass_id
            if store.has_outputs(key):
                continue
            if key not in node.outputs:
                raise StoreMisused(f"a checkpoint is made of outputs that are there, found {key} missing")
            store.upload_outputs(self.epoch, number, key, node.outputs[key])

    def _plan(self, order: PlanReplicas) -> Steps:
        yield self._wait()
        answer = replicas_planned(order, self.toy.tasks, self.world.plans, fails=self._fails())
        yield from self._report(answer)

    def _plan_backups(self, order: PlanBackups) -> Steps:
        yield self.world.promises.random()
        yield from self._report(backups_planned(order, self.toy.tasks, self.world.promises))

    def _trim(self, order: Trim) -> Steps:
        yield self._wait()
        yield from self._moment()
        self.world.store.trim(self.epoch, order.checkpoints_before, order.source_log_before)
        for node in self.nodes.values():
            node.drop_outputs(order.retained_before, order.retained_before_of)

    def _report(self, event: Event) -> Steps:
        """Hand an event to the coordinator, and begin what it says."""
        for _ in range(2 if self.world.random.random() < REPEATED_EVENT else 1):
            yield from self._moment()
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self._judge_progress(event)
        decided = self.coordinator.handle(event)
        self.coordinator.check_invariants()
        if self.world.load is not None:
            costs = self.world.load.costs(self.coordinator.state.load)
            judge_room(self.coordinator, self.toy, costs, event, decided)
        self.world.on_entry(self, event, decided)
        self._judge(event, decided)
        self._carry_out(decided)

    def _judge(self, _event: Event, decided: list[Decided]) -> None:
        """Look at what follows from an event, for those who know more of it."""

    def _judge_progress(self, event: Event) -> None:
        """No round is made twice, unless what it made was lost: else a task would never catch up."""
        running, outage = self.coordinator.state.passes.round, self.coordinator.state.outage
        lost = isinstance(event, NodesLost) or (isinstance(event, PassFailed) and isinstance(event.failure, NodeGone))
        if lost or outage is None:
            self._rounds.clear()
        if not isinstance(event, PassFinished) or running is None or running.pass_id != event.pass_id:
            return
        made = running.first, running.last, frozenset((step.task, step.role, step.rebuilding) for step in running.steps)
        if made in self._rounds:
            raise StoreMisused(f"rounds bring tasks closer, found one that was made before: {running}")
        self._rounds.add(made)

    def _guarded(self, steps: Steps) -> Steps:
        try:
            yield from steps
        except Killed:
            return
        except EpochRefused as refused:
            # No moment here: that a driver dies while it learns that it is dead needs no test.
            self._carry_out(self.coordinator.handle(EpochLost(refused.newer)))

    def _moment(self) -> Steps:
        """A point between two effects."""
        fault = self.world.next_fault()
        if fault is not None and self.group.alive:
            self.world.on_fault(self, fault)
            if fault is Fault.KILL:
                raise Killed
            yield 0.0

    def _wait(self) -> float:
        random, chances = self.world.random, self.world.chances
        return 0.0 if random.random() < chances.no_wait else random.random() * chances.max_wait_s

    def _fails(self) -> bool:
        return self.world.random.random() < self.world.chances.other_fails
