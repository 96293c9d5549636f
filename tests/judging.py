"""A judge of coordinators: what the store and the nodes would hold, and the rules of the contract, written anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from tenax.control.copies import Role
from tenax.control.instructions import (
    CancelCheckpoint,
    CancelPass,
    Decided,
    LogBatches,
    Outcome,
    PassKind,
    PlanBackups,
    Publish,
    Reading,
    RequestNodes,
    Rescale,
    RunPass,
    Step,
    Stop,
    StoreCheckpoint,
    Trim,
    Wake,
)
from tenax.control.notices import Notice, RecoveryBegun, ReplicaPromoted, RolledBack, TasksMoved
from tenax.control.versions import NO_PASS, PassId, RestorePoint, Version
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task

_BESIDE = Notice | Wake | RequestNodes | Stop  # what an event calls for by itself


@dataclass(slots=True)
class Holdings:
    """What one node holds."""

    versions: set[Version] = field(default_factory=set)
    outputs: set[tuple[Task, int, PassId]] = field(default_factory=set)


class Judge:
    """Knows what was made where, and what is left of it; asks the coordinator nothing.

    - What a pass makes counts only if it finished; what a node held is gone with it.
    - A version is accurate if its step was, and the version before it.
    """

    def __init__(self, graph: TaskGraph, bounds: Settings) -> None:
        self.bounds = bounds
        self.tasks = graph.tasks(range(len(graph)))
        self.producers = {task: graph.tasks(graph.producers_of(graph.number(task))) for task in self.tasks}
        self.outputs = [task for number, task in enumerate(self.tasks) if graph.is_output[number]]
        self.logged = 0
        self.ended = False
        self.published = dict.fromkeys(self.outputs, 0)
        self.checkpoints = {0: tuple(Version(task, 0, NO_PASS) for task in self.tasks)}
        self.source_log_from = 1
        self.used: set[PassId] = set()
        self.begin(0, ())

    def begin(self, batch: int, nodes: Iterable[str]) -> None:
        """A new driver with new nodes starts from a checkpoint."""
        self.finished = batch
        self.nodes = {name: Holdings() for name in nodes}
        self.accurate = {version for versions in self.checkpoints.values() for version in versions}
        self.results: dict[PassId, dict[Task, tuple[int, int, bool]]] = {}
        self.live: RunPass | None = None
        self.round: RunPass | None = None
        self.over: list[RunPass] = []
        self.logging: LogBatches | None = None
        self.publishing: Publish | None = None
        self.storing: StoreCheckpoint | None = None
        self.planning: PlanBackups | None = None
        self.switching: Rescale | None = None
        self.wakes: list[Wake] = []
        self.stopped: Stop | None = None
        self.disturbed = False

    @property
    def running(self) -> list[RunPass]:
        """The passes that run."""
        return [order for order in (self.live, self.round) if order is not None]

    def take(self, decided: list[Decided]) -> None:
        """Judge instructions and notices, and note what they set going."""
        for each in decided:
            assert self.stopped is None, "nothing is instructed after a stop"
            assert self.switching is None or isinstance(each, _BESIDE), "nothing is decided while a rescale switches"
            match each:
                case RunPass():
                    self._run_pass(each)
                case CancelPass(pass_id):
                    self.end(self._named(pass_id))
                case Publish():
                    self._publish(each)
                case StoreCheckpoint():
                    self._store(each)
                case CancelCheckpoint(number):
                    assert self.storing is not None
                    assert self.storing.cut.number == number
                case LogBatches():
                    assert self.logging is None
                    assert each.first == self.logged + 1
                    assert 1 <= each.count <= self.finished + self.bounds.max_batches_ahead - self.logged
                    self.logging = each
                case Trim():
                    self._trim(each)
                case ReplicaPromoted():
                    assert each.node in self.nodes, "replicas on live nodes take over"
                case RecoveryBegun():
                    assert set(each.homes.values()) <= set(self.nodes), "lost tasks come back on live nodes"
                case TasksMoved():
                    assert set(each.homes.values()) <= set(self.nodes), "tasks move to live nodes"
                case RolledBack():
                    assert each.number in self.checkpoints
                    self.disturbed = True
                case PlanBackups():
                    assert self.planning is None, "backups are planned once at a time"
                    assert each.batch == self.finished
                    self.planning = each
                case Rescale():
                    self._rescale(each)
                case Wake():
                    self.wakes.append(each)
                case Stop():
                    self._stop(each)
        for running in self.running:
            assert {step.node for step in running.steps} <= set(self.nodes), "passes whose nodes are gone are cancelled"

    def _named(self, pass_id: PassId) -> RunPass:
        (order,) = (order for order in self.running if order.pass_id == pass_id)
        return order

    def end(self, order: RunPass) -> None:
        """A pass is over, whatever it made."""
        if order.kind is PassKind.LIVE:
            self.live = None
        else:
            self.round = None
        self.over.append(order)

    def _run_pass(self, order: RunPass) -> None:
        assert order.pass_id not in self.used, "every pass id is new"
        self.used.add(order.pass_id)
        assert self.source_log_from <= order.first <= order.last <= self.logged, "batches are read that are in the log"
        assert order.attempt <= self.bounds.protection.max_attempts
        if self.storing is not None:
            assert order.keep <= self.storing.cut.oldest_batch, "versions stay until they are uploaded"
        for holdings in self.nodes.values():
            holdings.versions = {version for version in holdings.versions if version.batch >= order.keep}
        senders = [step.task for step in order.steps if step.role is not Role.REPLICA]
        assert len(senders) == len(set(senders)), "a task sends once"
        places = [(step.task, step.node) for step in order.steps]
        assert len(places) == len(set(places)), "copies of a task are on different nodes"
        assert not {reading.task for reading in order.readings} & set(senders)
        for reading in order.readings:
            self._reading(order, reading)
        sending = {step.task: step for step in order.steps if step.role is not Role.REPLICA}
        for step in order.steps:
            self._start(order, step)
            self._inputs(order, step, sending)
        if order.kind is PassKind.LIVE:
            assert self.live is None, "at most order live pass"
            assert order.first == self.finished + 1
            assert order.last - order.first < self.bounds.max_batches_per_pass
            self.live = order
        else:
            assert self.round is None, "at most order round"
            assert order.last <= self.finished
            assert order.last - order.first < self.bounds.max_batches_per_round
            assert not any(step.tentative for step in order.steps)
            self.round = order

    def _start(self, order: RunPass, step: Step) -> None:
        assert step.node in self.nodes, "steps are on live nodes"
        assert step.start.task == step.task
        assert step.start.batch == order.first - 1
        if not self.producers[step.task]:
            return  # a source has nothing but its place in the log
        if step.stored:
            assert step.start in self.checkpoints[step.start.batch], "what is read from the store is there"
        else:
            assert step.start in self.nodes[step.node].versions, "a step starts from a version on its node"
        if not step.tentative:
            assert step.start in self.accurate, "accurate steps start from accurate versions"

    def _inputs(self, order: RunPass, step: Step, sending: Mapping[Task, Step]) -> None:
        if step.tentative:
            return
        batches = list(range(order.first, order.last + 1))
        for producer in self.producers[step.task]:
            read = [range(reading.first, reading.last + 1) for reading in order.readings if reading.task == producer]
            sender = sending.get(producer)
            assert [*chain(*read)] == batches or sender is not None, "accurate steps have all their inputs"
            assert sender is None or not sender.tentative, "and these are accurate"

    def _reading(self, order: RunPass, reading: Reading) -> None:
        held = self.nodes[reading.node].outputs
        assert order.first <= reading.first <= reading.last <= order.last
        for batch in range(reading.first, reading.last + 1):
            assert (reading.task, batch, reading.pass_id) in held, "what is read was retained, and is there"

    def finish(self, order: RunPass) -> None:
        """A pass is through: what it made is there."""
        self.end(order)
        self.over.pop()
        self.results[order.pass_id] = {}
        for step in order.steps:
            held = self.nodes[step.node]
            made = Version(step.task, order.last, order.pass_id)
            held.versions.add(made)
            if not step.tentative:
                self.accurate.add(made)
                if step.task in order.retain:
                    batches = range(order.first, order.last + 1)
                    held.outputs |= {(step.task, batch, order.pass_id) for batch in batches}
            if step.role is Role.PRIMARY and step.task in self.published:
                self.results[order.pass_id][step.task] = order.first, order.last, step.tentative
        if order.kind is PassKind.LIVE:
            self.finished = order.last

    def gain(self, names: Iterable[str]) -> None:
        """Nodes have come, empty."""
        self.nodes |= {name: Holdings() for name in names}

    def lose(self, names: Iterable[str]) -> None:
        """Nodes are gone."""
        for name in names:
            del self.nodes[name]
        self.disturbed = True

    def _publish(self, order: Publish) -> None:
        assert self.publishing is None
        made = self.results[order.pass_id]  # nothing is shown that a cancelled or failed pass made
        for part in order.parts:
            first, last, tentative = made[part.task]
            assert tentative is order.tentative
            assert first <= part.first <= part.last == last
            if order.tentative:
                assert part.first > self.published[part.task], "nothing tentative after final results"
                assert 0.0 <= part.quality <= 1.0
            else:
                assert part.first == self.published[part.task] + 1, "final results in order, once"
                assert part.quality == 1.0
        self.publishing = order

    def commit(self, order: Publish) -> None:
        """Results are committed."""
        self.publishing = None
        if not order.tentative:
            self.published |= {part.task: part.last for part in order.parts}

    def _store(self, order: StoreCheckpoint) -> None:
        assert self.storing is None
        points = order.cut.points
        assert tuple(point.task for point in points) == self.tasks
        stored = {version for versions in self.checkpoints.values() for version in versions}
        assert set(points) <= stored | set(order.versions), "what is not stored already is"
        assert set(order.versions) <= set(points)
        assert {point.batch for point in points} == {order.cut.newest_batch}
        assert order.cut.newest_batch <= min(self.finished, *self.published.values()), (
            "checkpoints are of published batches"
        )
        for version, node in zip(order.versions, order.nodes, strict=True):
            if self.producers[version.task]:
                assert version in self.nodes[node].versions, "checkpoints are of versions that are there"
                assert version in self.accurate, "nothing tentative is stored"
        self.storing = order

    def seal(self, order: StoreCheckpoint) -> None:
        """A checkpoint is stored."""
        self.storing = None
        self.checkpoints[order.cut.newest_batch] = tuple(map(_version, order.cut.points))

    def _rescale(self, order: Rescale) -> None:
        working = [*self.running, self.storing, self.publishing]
        assert working == [None, None], "nothing runs while a rescale switches"
        assert {point.batch for point in order.cut.points} == {self.finished}
        assert order.cut.points == self.checkpoints[self.finished], "a version begins where all tasks are stored"
        assert {*self.published.values()} == {self.finished}, "behind all results, and before all others"
        self.switching = order

    def switch(self, made_by: PassId) -> tuple[Version, ...]:
        """The next version of the topology has begun, of the same tasks, under new names."""
        batch, self.switching, self.planning = self.finished, None, None
        points = tuple(Version(task, batch, made_by) for task in self.tasks) if batch else self.checkpoints[0]
        self.checkpoints[batch] = points
        self.accurate |= set(points)
        return points

    def _trim(self, order: Trim) -> None:
        newest = sorted(self.checkpoints)[-2:]
        assert order.checkpoints_before <= newest[0], "two checkpoints are kept"
        assert order.source_log_before <= newest[0] + 1
        assert order.source_log_before <= min(self.published.values()) + 1
        assert order.retained_before <= newest[-1] + 1
        self.source_log_from = max(self.source_log_from, order.source_log_before)
        self.checkpoints = {
            batch: held for batch, held in self.checkpoints.items() if batch >= order.checkpoints_before
        }
        for holdings in self.nodes.values():
            holdings.outputs = {output for output in holdings.outputs if output[1] >= order.retained_before}

    def _stop(self, stop: Stop) -> None:
        assert not self.running
        assert "\n" not in stop.reason
        complete = stop.outcome is Outcome.STOPPED and not self.disturbed
        if complete or stop.outcome is Outcome.FINISHED:
            assert self.finished in self.checkpoints, "all work is stored"
            assert min(self.published.values()) >= self.finished, "and published"
        if stop.outcome is Outcome.FINISHED:
            assert self.ended
            assert self.finished == self.logged
        self.stopped = stop


def _version(point: RestorePoint) -> Version:
    assert isinstance(point, Version)
    return point
