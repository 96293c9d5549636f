"""A driver in virtual time whose run goes over to other versions of its topology."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tenax.control.coordinator import Coordinator
from tenax.control.events import (
    Event,
    PassFinished,
    RescaleAsked,
    RescaleFailed,
    Started,
    StopRequested,
)
from tenax.control.instructions import Decided, Instruction, Outcome, RequestNodes, Rescale, RunPass, Stop, Wake
from tenax.control.notices import RescaleGivenUp, RescalePlanned
from tenax.control.rescaling import handed_over, is_switching
from tenax.control.versions import NO_PASS, Cut, PassId, RestorePoint, Version
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.simulation.driver import Driver
from tenax.simulation.kernel import Steps
from tenax.simulation.keyed import KeyedToy, moved, recut
from tenax.simulation.store import StoreMisused
from tenax.simulation.toy import INITIAL, Digest
from tenax.simulation.versions import VersionedStore
from tenax.simulation.world import World

DAMAGED = 0.3  # the part of starts that find the newest checkpoint damaged
NEVER = 0.3  # the part of nodes that are asked for and do not come
REFUSED, HALF_WAY = 0.15, 0.1  # the parts of records that fail; that fail and are there all the same


class RescalingDriver(Driver):
    """One driver of a run that is rescaled.

    - A switch makes a new coordinator in the same epoch; what is under way for the old one reaches the new one.
    - A new driver goes on in the version of its checkpoint; one that is wholly where the next begins is re-cut.
    - It watches that every rescale that is wanted is done or given up, and that no pass has the name of another.
    """

    def __init__(self, world: World, *, pace: float) -> None:
        super().__init__(world)
        assert isinstance(world.toy, KeyedToy)
        assert isinstance(world.store, VersionedStore)
        self.keyed: KeyedToy = world.toy
        self.versions: VersionedStore = world.store
        self.version = world.store.versions[0]
        self.switches = 0
        self.given_up = 0
        self.random: Random = world.rescales
        self._pace = pace
        self._began_s = 0.0
        self._wanted: Target | None = None
        self._passes: set[PassId] = set()
        self._outages: dict[int, Coordinator] = {}

    def ask(self, target: Target) -> None:
        """As a person would, or the run itself."""
        if self.epoch:
            self._begin(self._report(RescaleAsked(target)))

    def _started(self) -> Started:
        world, store = self.world, self.versions
        self._began_s = world.kernel.now_s
        number = self._newest(DAMAGED)
        store.set_aside(self.epoch, number)
        logged, load = store.logged, store.loads.get(number)
        self._go_to(store.of_checkpoint(number))
        cut = store.checkpoints[number][0] if number else initial(self.keyed)
        passes, following = 0, store.following(self.version.number)
        while following is not None and is_whole(cut, following.after):
            passes += 1
            cut = self._re_cut(cut, following, PassId(self.epoch, passes))
            following, load = store.following(self.version.number), None
        checkpoint = cut if number or passes else None
        store.begin(self.epoch, self.version, self.keyed.outputs)
        self.coordinator = self._new_coordinator()
        nodes = self._new_nodes(store.versions[-1].nodes or world.nodes)
        return Started(
            *(self.epoch, nodes, checkpoint, logged, store.published, load),
            passes=passes,
            shown=max((commit.batch for commit in store.commits), default=0),
            next_version=self._recorded(),
        )

    def _recorded(self) -> Target | None:
        """What the run has to go over to, if it went back before the beginning of a version: maybe of several."""
        following = self.versions.following(self.version.number)
        return None if following is None else Target(following.parallelism, following.nodes, version=following)

    def _go_to(self, version: TopologyVersion) -> None:
        self.version = version
        self.toy = self.keyed = self.keyed.of_version(version)

    def _new_coordinator(self) -> Coordinator:
        """What is retained and runs twice is planned anew for every version."""
        retained, replicated = self.random.choice([0.0, 0.0, 0.5, 1.0]), self.random.choice([0.0, 0.3, 1.0])
        retain, replicas = (
            tuple(task for task in self.toy.tasks if self.random.random() < part) for part in (retained, replicated)
        )
        return Coordinator(self.toy.graph, self.world.settings, retain, replicas)

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case Rescale():
                self._begin(self._rescale(instruction))
            case RequestNodes():
                self._begin(self._come_late(instruction.total))
            case RunPass() if instruction.pass_id in self._passes:
                raise StoreMisused(f"every pass has a name of its own, found {instruction.pass_id} twice")
            case RunPass():
                self._passes.add(instruction.pass_id)
                super()._execute(instruction)
            case Wake():
                if self._outages.setdefault(instruction.outage, self.coordinator) is not self.coordinator:
                    raise StoreMisused(f"every outage has a number of its own, found {instruction.outage} twice")
                super()._execute(instruction)
            case _:
                super()._execute(instruction)

    def _come_late(self, total: int) -> Steps:
        """Of the nodes that were asked for some come, one by one."""
        for _ in range(total - len(self.nodes)):
            yield self.random.random() * 5.0
            if self.random.random() >= NEVER and len(self.nodes) < total:
                self.gain(1)

    def _through(self, _order: RunPass, event: PassFinished) -> PassFinished:
        return replace(event, at_s=self._pace * (self.world.kernel.now_s - self._began_s))

    def _rescale(self, order: Rescale) -> Steps:
        """Record the next version, and let its coordinator begin; both at once for all events."""
        store, target = self.versions, order.target
        yield from self._paused(order.pause_s)
        yield self._wait()
        yield from self._moment()
        version = target.version
        if version is None:
            version = self._next_version(order)
            toy = self.keyed.of_version(version)
            if not self._has_room(toy, version.nodes):
                yield from self._report(RescaleFailed(order.attempt, "there is not room for all tasks"))
                return
            store.check(self.epoch)
            yield from self._moment()
            drawn = self.random.random()
            if drawn < REFUSED:
                yield from self._report(RescaleFailed(order.attempt, "unlucky", self.random.random() < 0.5))
                return
            store.record(self.epoch, version)
            if drawn < REFUSED + HALF_WAY:
                yield self._wait()  # it seemed to have failed: the driver has looked, and it is there
            yield from self._moment()
        self._switch(order, version)

    def _next_version(self, order: Rescale) -> TopologyVersion:
        target, parallelism, tables = order.target, dict(self.version.parallelism), dict(self.version.tables)
        for chain in self.keyed.scalable:
            named = [target.parallelism[name] for name in chain if name in target.parallelism]
            if named:
                table = moved(self.random, tables[chain[0]], named[0])
                parallelism |= dict.fromkeys(chain, named[0])
                tables |= dict.fromkeys(chain, table)
        after = order.cut.newest_batch
        return TopologyVersion(
            self.version.number + 1, after, parallelism, tables, target.nodes or self.version.nodes, target.cause
        )

    def _has_room(self, toy: KeyedToy, wanted: int | None) -> bool:
        """Whether all tasks find room on the nodes there are, and on those that a new driver would have."""
        nodes = min(len(self.coordinator.state.nodes), wanted or self.world.nodes)
        return self.world.slots is None or len(toy.tasks) <= self.world.slots * nodes

    def _switch(self, order: Rescale, version: TopologyVersion) -> None:
        before, passes = self.coordinator.state, order.passes + 1
        cut = self._re_cut(order.cut, version, PassId(self.epoch, passes))
        self._passes.add(PassId(self.epoch, passes))
        self.versions.begin(self.epoch, version, self.keyed.outputs)
        nodes = before.nodes
        if order.target.nodes is not None and len(nodes) > order.target.nodes:
            nodes = tuple(self.random.sample(nodes, order.target.nodes))
            for gone in {node.name for node in before.nodes} - {node.name for node in nodes}:
                if gone in self.nodes:
                    self.nodes.pop(gone).alive = False
        self.coordinator = self._new_coordinator()
        self.switches += 1
        self._wanted = None
        self._rounds.clear()
        self._tell(handed_over(before, order, cut, nodes, self.versions.published, self._recorded()))
        if before.wrap_up is not None:
            self._begin(self._report(StopRequested()))

    def _re_cut(self, cut: Cut, version: TopologyVersion, pass_id: PassId) -> Cut:
        """The same cut for the tasks of the next version; the driver is at that version then."""
        before = self.keyed
        states = [self._content(point) for point in cut.points]
        self._go_to(version)
        contents = recut(before, states, self.keyed)
        made_by = pass_id if version.after else NO_PASS
        points = tuple(Version(task, version.after, made_by) for task in self.keyed.tasks)
        self.versions.re_cut(self.epoch, cut.number, dict(zip(points, contents, strict=True)))
        return Cut(cut.number, points)

    def _content(self, point: RestorePoint) -> Digest:
        if not isinstance(point, Version):
            raise StoreMisused(f"a cut that is split has the states of all tasks, found {point}")
        if point.pass_id == NO_PASS or not self.keyed.inputs[self.keyed.number[point.task]]:
            return INITIAL
        return self.versions.fetch(self.epoch, point)

    def _judge(self, _event: Event, decided: list[Decided]) -> None:
        """Every rescale that was begun is done, or people are told that it will not be.

        Of one that is being recorded when the run ends nobody can tell: the next driver finds the version, or not. A
        driver that was replaced has nothing to say.
        """
        state = self.coordinator.state
        for each in decided:
            match each:
                case RescalePlanned():
                    if self._wanted is not None:
                        raise StoreMisused(f"a rescale is done or given up, found neither of {self._wanted}")
                    self._wanted = each.target
                case RescaleGivenUp():
                    if self._wanted != each.target:
                        raise StoreMisused(f"what is given up was wanted, found {each.target} for {self._wanted}")
                    self._wanted = None
                    self.given_up += 1
                case Stop(outcome=Outcome.SUPERSEDED):
                    pass
                case Stop() if self._wanted is not None and not is_switching(state):
                    raise StoreMisused(f"a rescale is done or given up before the end, found neither of {self._wanted}")


def initial(toy: KeyedToy) -> Cut:
    """Before the first batch."""
    return Cut(0, tuple(Version(task, 0, NO_PASS) for task in toy.tasks))


def is_whole(cut: Cut, batch: int) -> bool:
    """Whether a cut has the states of all tasks after one batch."""
    return all(isinstance(point, Version) and point.batch == batch for point in cut.points)
