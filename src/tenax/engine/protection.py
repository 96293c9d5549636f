"""What an application's protection means for a run: who runs twice, who retains outputs, how losses are met."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tenax.control.run import need_outputs
from tenax.errors import InvalidRequest
from tenax.model import topology as model
from tenax.model.graph import TaskGraph
from tenax.model.options import ALL
from tenax.model.protection import Backups, Protection, Standby, Strategy
from tenax.model.tasks import Task, in_groups
from tenax.model.topology import suggestion
from tenax.planning.backups import plan_backups
from tenax.planning.fidelity import fidelity
from tenax.planning.measured import Measures, with_measures
from tenax.planning.node_losses import NodeLoss, Rounds, node_losses
from tenax.planning.promises import Promise, followed, promised
from tenax.planning.rates import Rows, with_rates
from tenax.planning.replicas import plan_replicas

PLANNING_LIMIT_S = 5.0  # a run begins soon, with the best plan that was found until then


@dataclass(frozen=True, slots=True)
class Replanned:
    """The best replicas by measured rates; what outputs keep with the present ones and with these if all else fails."""

    replicas: tuple[Task, ...]
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Followed:
    """The tasks that should retain their outputs by what was measured, and what they promise."""

    backups: tuple[Task, ...]
    promise: Promise


@dataclass(frozen=True, slots=True)
class Protected:
    """A protection, planned for one topology: which tasks run twice, which retain their outputs.

    - `fidelity` is what outputs keep if every task without a replica is lost; sources go on anywhere.
    - `latency_s` is the longest that a single lost task is away, by what the topology declares; None if no backups
      were planned.
    """

    topology: model.Topology
    protection: Protection
    replicas: tuple[Task, ...]
    retain: tuple[Task, ...]
    fidelity: float
    latency_s: float | None = None

    @property
    def line(self) -> str:
        """The plan for people, in one line."""
        asked = self.protection
        said = ["no replicas"]
        if self.replicas:
            count = f"{len(self.replicas)} replica{'s' * (len(self.replicas) > 1)}"
            said = [f"{count}: {in_groups(self.replicas)}, fidelity if all else fails {self.fidelity:.2f}"]
            if self.active_active:
                said.append(f"active-active: {in_groups(self.active_active)}")
        match asked.backups_or_default:
            case Backups.SOURCE:
                queued = need_outputs(asked.all_strategies)
                said.append("lost tasks replay from the sources" + " or their producers' queues" * queued)
            case Backups.ALL:
                said.append("all tasks retain their outputs")
            case kind:
                also = ", after a correlated failure all" if kind is not Backups.PLANNED else ""
                said.append(f"outputs retained by {in_groups(self.retain) or 'none'}{self._bound}{also}")
        single = [f"{name} {how}" for name, how in asked.strategies.items()]
        if asked.checkpoint != Strategy.ALIGNED or single:
            said.append(f"checkpoints {', '.join([asked.checkpoint, *single])}")
        return "; ".join(said)

    @property
    def _bound(self) -> str:
        """What planned backups promise before anything is measured."""
        if self.latency_s is None:
            return ""
        reckoned = "the times declared" if _declared(self.topology) else "a second per task"
        return f" (a lost task is back within {self.latency_s:g} s, reckoned with {reckoned} until it is measured)"

    @property
    def active_active(self) -> tuple[Task, ...]:
        """The tasks whose replicas send as well."""
        return tuple(
            task for task in self.replicas if self.protection.standby.get(task.operator) == Standby.ACTIVE_ACTIVE
        )

    def replanned(self, rows: Rows, present: Collection[Task]) -> Replanned:
        """The best replicas by the rows that were counted, with as many as the protection asks for."""
        measured = with_rates(with_safe_sources(self.topology), rows)
        graph, replicas = TaskGraph(measured), _replicas(measured, self.protection)
        return Replanned(replicas, _kept(graph, present), _kept(graph, replicas))

    def followed(
        self,
        measures: Measures,
        present: Collection[Task],
        homes: Mapping[Task, str],
        covered: Collection[Task] = (),
        *,
        detection_s: float,
    ) -> Followed:
        """The backups by what was measured, or the present ones if these shall stay; a loss is known in detection_s."""
        bound_s = self.protection.recovery_latency_s
        assert bound_s is not None, "only a latency that was asked for is promised"
        graph = TaskGraph(with_measures(with_safe_sources(self.topology), measures))
        scheduling_s, backups = measures.scheduling_s + detection_s, _retaining(graph, present)
        of_numbers = {graph.number(task): home for task, home in homes.items()}
        rounds = Rounds(measures.rounds, measures.level_s, detection_s)

        def losses(retained: Collection[Task]) -> tuple[NodeLoss, ...]:
            return node_losses(graph, of_numbers, graph.mask(covered), graph.mask(retained), rounds)

        if self.protection.backups_follow:
            margin = self.protection.follow_load
            backups = followed(graph, backups, bound_s, scheduling_s, margin, PLANNING_LIMIT_S, losses)
        backups = _retaining(graph, backups)
        return Followed(backups, replace(promised(graph, backups, bound_s, scheduling_s), losses=losses(backups)))


def planned(topology: model.Topology, asked: Protection) -> Protected:
    """Plan what a protection asks for. Sources are left out: they are logged, and go on anywhere at once."""
    with_safe = with_safe_sources(topology)
    graph = TaskGraph(with_safe)
    names = [operator.name for operator in topology.operators if not operator.is_source]
    _check_operators("checkpoints", asked.checkpoints, names)
    _check_operators("standbys", asked.standby, names)
    replicas = _replicas(with_safe, asked)
    retain: tuple[Task, ...] = ()
    latency_s = None
    if asked.recovery_latency_s is not None:
        bound_s = asked.recovery_latency_s
        if not _declared(topology):  # a second per task is no reason to refuse what may well be kept
            bound_s = max(bound_s, float(graph.reprocess.max()))
        plan = plan_backups(graph, bound_s, time_limit_s=PLANNING_LIMIT_S)
        retain, latency_s = _retaining(graph, plan.backups), plan.recovery_latency_s
    elif isinstance(asked.backups, tuple):
        retain = _retaining(graph, _named(graph, asked.backups, "retain nothing: they have their log"))
    return Protected(topology, asked, replicas, retain, _kept(graph, replicas), latency_s)


def _declared(topology: model.Topology) -> bool:
    """Whether a topology says of some task how long it takes to reprocess it."""
    return any(operator.reprocess != 1.0 for operator in topology.operators if not operator.is_source)


def _retaining(graph: TaskGraph, tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Those that have outputs to retain, in task order: no sources, and none without consumers."""
    numbers = sorted(graph.numbers(tasks))
    return graph.tasks(number for number in numbers if graph.consumers_of(number) and graph.producers_of(number))


def _kept(graph: TaskGraph, replicas: Collection[Task]) -> float:
    """What outputs keep if every task without a replica is lost."""
    failed = ~graph.safe
    failed[graph.numbers(replicas)] = False
    return float(fidelity(graph, failed))


def _check_operators(what: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            likely = suggestion(name, known)
            raise InvalidRequest(f"{what} are of operators that are no sources, found {name!r}{likely}")


def with_safe_sources(topology: model.Topology) -> model.Topology:
    """The topology as it is protected: what sources read is logged, so they go on anywhere."""
    operators = (
        replace(operator, safe=True, reprocess=0.0) if operator.is_source else operator
        for operator in topology.operators
    )
    return model.Topology(topology.name, tuple(operators))


def _replicas(topology: model.Topology, asked: Protection) -> tuple[Task, ...]:
    """The tasks that run twice, in task order; what is said for single operators wins, at no cost to the budget."""
    graph = TaskGraph(topology)
    chosen = set(graph.numbers(_asked_for(topology, graph, asked)))
    modes = [asked.standby.get(graph.operators[number].name) for number in graph.operator_of]
    return graph.tasks(
        number
        for number, mode in enumerate(modes)
        if mode in {Standby.ACTIVE, Standby.ACTIVE_ACTIVE} or (number in chosen and mode is None)
    )


def _asked_for(topology: model.Topology, graph: TaskGraph, asked: Protection) -> tuple[Task, ...]:
    """The replicas that a number, a word or a list of tasks asks for."""
    if isinstance(asked.replicas, int):
        if not asked.replicas:
            return ()
        operators = (
            replace(operator, safe=operator.safe or operator.name in asked.standby) for operator in topology.operators
        )
        others = TaskGraph(replace(topology, operators=tuple(operators)))
        return plan_replicas(others, asked.replicas, time_limit_s=PLANNING_LIMIT_S).replicas
    if asked.replicas == ALL:
        return graph.tasks(np.flatnonzero(~graph.safe))
    return _named(graph, asked.replicas, "need no replica")


def _named(graph: TaskGraph, words: Iterable[str], rule: str) -> tuple[Task, ...]:
    """The tasks that words name, in task order; `rule` says why there are no sources among them."""
    named = graph.mask(graph.parse(",".join(words)))
    wrong = np.flatnonzero(named & graph.safe)
    if wrong.size:
        raise InvalidRequest(f"sources {rule}, found {graph.task(int(wrong[0]))} among them: leave it out")
    return graph.tasks(np.flatnonzero(named))
