"""Plans: what the planners decide, as frozen values; `to_data` is each of them as plain data for other programs.

Keys of plain data are for programs that exist: durations are in seconds and their names do not say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenax.model.cluster import Domain
from tenax.model.tasks import Task


class Metric(StrEnum):
    """What a replica plan maximises."""

    FIDELITY = "fidelity"
    COMPLETENESS = "completeness"


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """Tasks that retain their outputs, so that no single lost task takes longer than the bound to recover.

    - `recovery_latency_s` is the longest over all tasks, for the loss of one task whose retainers live.
    - No plan for the same bound has fewer than `bound` backups; `optimal` says that this one has no more.
    """

    algorithm: str
    backups: tuple[Task, ...]
    recovery_latency_s: float
    optimal: bool
    bound: int

    @property
    def gap(self) -> float:
        """How far the plan may be from the fewest backups, as a part of its own count."""
        return (len(self.backups) - self.bound) / len(self.backups) if self.backups else 0.0

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "algorithm": self.algorithm,
            "backups": _names(self.backups),
            "count": len(self.backups),
            "recovery_latency": self.recovery_latency_s,
            "optimal": self.optimal,
        }


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """Tasks that run a second time elsewhere, valued by what outputs keep when all other tasks have failed.

    No plan of the same budget is worth more than `bound` by the plan's metric; `optimal` says that this one reaches it.
    """

    algorithm: str
    metric: Metric
    replicas: tuple[Task, ...]
    fidelity: float
    completeness: float
    optimal: bool
    bound: float

    @property
    def value(self) -> float:
        """The plan's worth by its metric."""
        return self.fidelity if self.metric is Metric.FIDELITY else self.completeness

    @property
    def gap(self) -> float:
        """How far the plan may be below the best one, as a part of the bound."""
        return max(0.0, (self.bound - self.value) / self.bound) if self.bound > 0 else 0.0

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "algorithm": self.algorithm,
            "replicas": _names(self.replicas),
            "count": len(self.replicas),
            "fidelity": self.fidelity,
            "completeness": self.completeness,
            "optimal": self.optimal,
        }


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Failed tasks to recover with the capacity at hand, and the queries that this brings back.

    - `queries` are output tasks that were cut off and are complete again; `priority` is their sum.
    - `recover` may hold more: what is left of the capacity goes towards the next query.
    - No plan of the same capacity brings back more than `bound`.
    """

    algorithm: str
    recover: tuple[Task, ...]
    queries: tuple[Task, ...]
    priority: float
    cost: float
    optimal: bool
    bound: float

    @property
    def gap(self) -> float:
        """How far the plan may be below the best one, as a part of the bound."""
        return max(0.0, (self.bound - self.priority) / self.bound) if self.bound > 0 else 0.0

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "algorithm": self.algorithm,
            "recover": _names(self.recover),
            "queries": _names(self.queries),
            "priority": self.priority,
            "cost": self.cost,
            "optimal": self.optimal,
        }


@dataclass(frozen=True, slots=True)
class Arrival:
    """What happens when a node arrives during an incremental recovery."""

    node: str
    placed: Mapping[Task, str]
    """The tasks that start now, and the node of each: nodes that came earlier may still have room."""
    completed: tuple[Task, ...]
    """The queries that are back from now on."""

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {"node": self.node, "placed": _by_name(self.placed), "completed": _names(self.completed)}


@dataclass(frozen=True, slots=True)
class RecoverySchedule:
    """An incremental recovery: one arrival after the other."""

    algorithm: str
    arrivals: tuple[Arrival, ...]
    waiting: tuple[Task, ...]
    """Failed tasks that the nodes have no room for."""

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "algorithm": self.algorithm,
            "arrivals": [arrival.to_data() for arrival in self.arrivals],
            "waiting": _names(self.waiting),
        }


@dataclass(frozen=True, slots=True)
class Placement:
    """The node of every task, and of every replica."""

    primaries: Mapping[Task, str]
    replicas: Mapping[Task, str]

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {"primaries": _by_name(self.primaries), "replicas": _by_name(self.replicas)}


@dataclass(frozen=True, slots=True)
class DomainPromise:
    """What is expected when one failure domain is lost, replicas elsewhere taking over at once."""

    domain: Domain
    lost: tuple[Task, ...]
    """Tasks that fail without a live replica."""
    recovery_latency_s: float
    fidelity: float

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "name": self.domain.name,
            "kind": str(self.domain.kind),
            "lost": _names(self.lost),
            "recovery_latency": self.recovery_latency_s,
            "fidelity": self.fidelity,
        }


@dataclass(frozen=True, slots=True)
class ProtectionCost:
    """What the protection asks for while nothing fails."""

    backups: int
    retained_per_s: float
    """Tuples per second that the backups keep."""
    replicas: int
    replicated_per_s: float
    """Tuples per second that the replicas process a second time."""
    checkpoint_share: float | None
    """The part of the time that goes into checkpoints, where their cost and the failure rates are known."""

    def to_data(self) -> dict[str, object]:
        """As plain data."""
        return {
            "backups": self.backups,
            "retained_per_s": self.retained_per_s,
            "replicas": self.replicas,
            "replicated_per_s": self.replicated_per_s,
            "checkpoint_share": self.checkpoint_share,
        }


@dataclass(frozen=True, slots=True)
class ProtectionPlan:
    """Everything that protects a topology, and what that promises.

    - `recovery_latency_s` is per task, for its loss alone: 0 if its replica takes over.
    - The bound `latency_s` holds for the loss of one task; `domains` says what holds when a whole domain is lost.
    - `replicas.fidelity` is the worst case: every task without a replica has failed.
    """

    topology: str
    latency_s: float
    budget: int
    backups: BackupPlan
    replicas: ReplicaPlan
    recovery_latency_s: Mapping[Task, float]
    cost: ProtectionCost
    placement: Placement | None = None
    domains: tuple[DomainPromise, ...] = ()
    checkpoint_interval_s: float | None = None

    def to_data(self) -> dict[str, object]:
        """As plain data; backups and replicas as their own plans give them."""
        domains = [
            {**promise.to_data(), "within_bound": promise.recovery_latency_s <= self.latency_s}
            for promise in self.domains
        ]
        backups, replicas = self.backups, self.replicas
        return {
            "topology": self.topology,
            "latency": self.latency_s,
            "budget": self.budget,
            "backups": backups.to_data(),
            "replicas": replicas.to_data(),
            "proofs": {
                "backups": {"bound": backups.bound, "gap": backups.gap},
                "replicas": {"metric": str(replicas.metric), "bound": replicas.bound, "gap": replicas.gap},
            },
            "placement": None if self.placement is None else self.placement.to_data(),
            "checkpoint_interval": self.checkpoint_interval_s,
            "promises": {
                "recovery_latency": _by_name(self.recovery_latency_s),
                "worst_case_fidelity": replicas.fidelity,
                "domains": domains,
            },
            "cost": self.cost.to_data(),
        }


def _names(tasks: Iterable[Task]) -> list[str]:
    """Tasks as they are written in files and arguments."""
    return [str(task) for task in tasks]


def _by_name(values: Mapping[Task, str] | Mapping[Task, float]) -> dict[str, object]:
    return {str(task): value for task, value in values.items()}
