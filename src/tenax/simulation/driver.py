"""A driver in virtual time: carries instructions out on a virtual store, and may die at any moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from tenax.control.coordinator import Coordinator
from tenax.control.events import (
    BatchesLogged,
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    Event,
    LoggingFailed,
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
from tenax.model.tasks import Task
from tenax.simulation.kernel import Group, Kernel, Steps
from tenax.simulation.store import EpochRefused, Store, StoreMisused
from tenax.simulation.toy import INITIAL, Digest, Toy

GARBAGE: Digest = b"garbage"  # what a failed pass leaves under its name
LATE_REPORT = 0.5  # the part of failed passes whose workers go on and report all the same
REPEATED_EVENT = 0.03


class Fault(StrEnum):
    """What befalls a driver."""

    KILL = "kill"
    """It is gone, with all its nodes."""
    PAUSE = "pause"
    """It hangs, is replaced, and wakes up later without knowing."""


class Killed(Exception):
    """Ends the process that is in the middle of a step when its driver dies."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How often things fail for a passing cause, between 0 and 1, and how long they take."""

    pass_fails: float = 0.05
    operator_raises: float = 0.005
    other_fails: float = 0.05
    max_wait_s: float = 1.0
    no_wait: float = 0.3
    """The part of waits that take no time, so that things happen at the same moment."""


@dataclass(frozen=True, slots=True)
class World:
    """What all drivers of a simulation share."""

    kernel: Kernel
    store: Store
    toy: Toy
    random: Random
    settings: Settings
    retain: tuple[Task, ...]
    nodes: int
    batches: int
    chances: Chances
    next_fault: Callable[[], Fault | None]
    """Asked before every effect and every event."""
    on_fault: Callable[[Driver, Fault], None]
    on_stop: Callable[[Driver, Stop], None]
    on_entry: Callable[[Driver, Event, list[Instruction]], None]


class Driver:
    """One driver of a run, from its claim of an epoch to its stop or death.

    - Every effect on the store and every event is a moment at which it may be killed or paused.
    - States, results and retained outputs live on its nodes and die with it; a failed pass leaves garbage there.
    - Events may come twice, and failed passes may report late that they finished.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.group = Group()
        self.epoch = 0
        self.coordinator = Coordinator(world.toy.graph, world.settings, world.retain)
        self.stop: Stop | None = None
        self._versions: dict[Version, Digest] = {}
        self._results: dict[PassId, dict[int, Mapping[Task, Digest]]] = {}
        self._retained: set[tuple[Task, int]] = set()

    def start(self, delay_s: float) -> None:
        """Claim the next epoch and begin, after a delay."""
        self.world.kernel.start(self.group, self._guarded(self._start()), delay_s)

    def ask_to_stop(self) -> None:
        """As a person would."""
        if self.epoch:
            self.world.kernel.start(self.group, self._guarded(self._report(StopRequested())))

    def _start(self) -> Steps:
        world, store = self.world, self.world.store
        yield from self._moment()
        self.epoch = store.claim()
        yield self._wait()
        logged, published = store.logged, store.published
        # Sometimes the newest checkpoint turns out to be damaged.
        batch = store.kept[0 if world.random.random() < 0.15 else -1]
        checkpoint = StoredCheckpoint(batch, tuple(store.checkpoints[batch])) if batch else None
        for task in world.toy.tasks:
            self._versions[Version(task, 0, NO_PASS)] = INITIAL
        nodes = tuple(Node(f"n{number}") for number in range(world.nodes))
        yield from self._report(Started(self.epoch, nodes, checkpoint, logged, published))

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case Restore():
                steps = self._restore(instruction)
            case LogBatches():
                steps = self._log(instruction)
            case RunPass():
                steps = self._pass(instruction)
            case CancelPass():
                return  # its workers may go on for a while; what they report means nothing
            case Publish():
                steps = self._publish(instruction)
            case StoreCheckpoint():
                steps = self._store(instruction)
            case Trim():
                steps = self._trim(instruction)
            case Stop():
                self.stop = instruction
                self.world.on_stop(self, instruction)
                return
        self.world.kernel.start(self.group, self._guarded(steps))

    def _restore(self, order: Restore) -> Steps:
        for version in order.versions:
            yield self._wait()
            yield from self._moment()
            if self._fails():
                yield from self._report(RestoreFailed(order.batch, order.attempt, "unlucky"))
                return
            self._versions[version] = self.world.store.fetch(self.epoch, version)
        yield from self._report(Restored(order.batch, order.attempt))

    def _log(self, order: LogBatches) -> Steps:
        world, store = self.world, self.world.store
        yield self._wait()
        if self._fails():
            yield from self._report(LoggingFailed(order.first, order.attempt, "unlucky"))
            return
        last = min(order.first + world.random.randrange(order.count), world.batches)
        for batch in range(order.first, last + 1):
            yield from self._moment()
            begin = store.history[batch - 1][1] if batch > 1 else 0
            store.log(self.epoch, batch, (begin, begin + world.random.randrange(100)))
            yield self._wait()
        yield from self._report(BatchesLogged(order.first, last, ended=last == world.batches))

    def _pass(self, order: RunPass) -> Steps:
        world = self.world
        missing = [version for version in order.starts if version not in self._versions]
        if missing:
            raise StoreMisused(f"a pass starts from versions that are there, found {missing[0]} missing")
        states = [self._versions[version] for version in order.starts]
        failure = self._failure(order)
        results: dict[int, Mapping[Task, Digest]] = {}
        for batch in range(order.first, order.last + 1):
            yield self._wait()
            yield from self._moment()
            states, results[batch] = world.toy.batch(states, world.store.read(self.epoch, batch))
            self._retained.update((task, batch) for task in order.retain)
        made = [Version(task, order.last, order.pass_id) for task in order.tasks]
        finished = PassFinished(order.pass_id, tuple(TaskReport(version) for version in made))
        if failure is not None:
            self._versions.update(dict.fromkeys(made, GARBAGE))
            yield from self._report(PassFailed(order.pass_id, failure))
            if world.random.random() < LATE_REPORT:
                yield self._wait()
                yield from self._report(finished)
            return
        self._versions.update(zip(made, states, strict=True))
        self._results[order.pass_id] = results
        yield from self._report(finished)

    def _failure(self, order: RunPass) -> PassFailure | None:
        random, chances = self.world.random, self.world.chances
        drawn = random.random()
        task = random.choice(order.tasks)
        if drawn < chances.operator_raises:
            return OperatorRaised(task.operator, task, order.first, "ZeroDivisionError: division by zero")
        if drawn < chances.operator_raises + chances.pass_fails:
            passing: tuple[PassFailure, ...] = (
                DeadlinePassed(order.deadline_s),
                Refused(task, "wrong node"),
                JobFailed("unlucky"),
            )
            return random.choice(passing)
        return None

    def _publish(self, order: Publish) -> Steps:
        store = self.world.store
        if order.attempt == 1 and order.first <= store.published and self.epoch == store.epoch:
            raise StoreMisused(f"results are published once, found batch {order.first} again")
        for batch in range(order.first, order.last + 1):
            if batch not in self._results.get(order.pass_id, {}):
                raise StoreMisused(f"results are kept until they are published, found those of {batch} missing")
            for task in self.world.toy.outputs:
                yield from self._moment()
                store.commit(self.epoch, task, batch, self._results[order.pass_id][batch][task])
            yield self._wait()
            if self._fails():
                yield from self._report(PublishFailed(order.first, order.last, order.attempt, "unlucky"))
                return
        del self._results[order.pass_id]
        yield from self._report(Published(order.first, order.last))

    def _store(self, order: StoreCheckpoint) -> Steps:
        store = self.world.store
        for version in order.versions:
            yield self._wait()
            yield from self._moment()
            if version not in self._versions:
                raise StoreMisused(f"a checkpoint is made of versions that are there, found {version} missing")
            store.upload(self.epoch, order.batch, version, self._versions[version])
        yield from self._moment()
        if self._fails():
            yield from self._report(CheckpointFailed(order.batch, order.attempt, "unlucky"))
            return
        store.seal(self.epoch, StoredCheckpoint(order.batch, order.versions))
        yield self._wait()
        yield from self._report(CheckpointStored(order.batch, order.attempt))

    def _trim(self, order: Trim) -> Steps:
        yield self._wait()
        yield from self._moment()
        self.world.store.trim(self.epoch, order.checkpoints_before, order.source_log_before)
        before = order.checkpoints_before
        self._versions = {version: one for version, one in self._versions.items() if version.batch >= before}
        self._retained = {(task, batch) for task, batch in self._retained if batch >= order.retained_before}
        for batch in range(self.world.store.kept[-1] + 1, self.coordinator.state.finished + 1):
            if not all((task, batch) in self._retained for task in self.world.retain):
                raise StoreMisused(f"outputs after the newest checkpoint are retained, found batch {batch} trimmed")

    def _report(self, event: Event) -> Steps:
        """Hand an event to the coordinator, and begin what it says."""
        for _ in range(2 if self.world.random.random() < REPEATED_EVENT else 1):
            yield from self._moment()
            instructions = self.coordinator.handle(event)
            self.coordinator.check_invariants()
            self.world.on_entry(self, event, instructions)
            for instruction in instructions:
                self._execute(instruction)

    def _guarded(self, steps: Steps) -> Steps:
        try:
            yield from steps
        except Killed:
            return
        except EpochRefused as refused:
            # No moment here: that a driver dies while it learns that it is dead needs no test.
            for instruction in self.coordinator.handle(EpochLost(refused.newer)):
                self._execute(instruction)

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
