"""Clusters: nodes in racks in zones, which are the domains that fail together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tenax.errors import InvalidCluster
from tenax.model.tasks import Task
from tenax.model.topology import suggestion

SECONDS_PER_DAY = 86_400.0


class DomainKind(StrEnum):
    """How much fails at once, from the widest domain to the narrowest."""

    ZONE = "zone"
    RACK = "rack"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that runs tasks. A node without a rack is a rack of its own; likewise for the zone."""

    name: str
    rack: str | None = None
    zone: str | None = None
    slots: int | None = None
    """The most tasks and replicas it can hold; none means no limit."""
    standby: bool = False
    """Holds replicas only, as long as there are other nodes."""

    def domain(self, kind: DomainKind) -> str:
        """The name of the domain that it is in, of this kind."""
        rack = self.rack or self.name
        return {DomainKind.NODE: self.name, DomainKind.RACK: rack, DomainKind.ZONE: self.zone or rack}[kind]


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes that fail together."""

    name: str
    kind: DomainKind
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes at hand, and what is known of their failures.

    - A rack stands in one zone; nodes, racks and zones share one space of names.
    - `placement` says where primaries run, for all tasks of a topology or for none.
    - `failures_per_day` is given per domain; `checkpoint_s` is the time that one checkpoint takes.
    """

    nodes: tuple[Node, ...]
    placement: Mapping[Task, str] = field(default_factory=dict)
    failures_per_day: Mapping[str, float] = field(default_factory=dict)
    checkpoint_s: float | None = None

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidCluster("a cluster has at least one node, found none: add one")
        self._check_names()
        known = {node.name for node in self.nodes}
        for task, node in self.placement.items():
            if node not in known:
                raise InvalidCluster(f"placement of {task}: unknown node {node!r}{suggestion(node, sorted(known))}")
        domains = {domain.name for domain in self.domains}
        for name, rate in self.failures_per_day.items():
            if name not in domains:
                raise InvalidCluster(f"failures_per_day: unknown domain {name!r}{suggestion(name, sorted(domains))}")
            if not math.isfinite(rate) or rate < 0:
                raise InvalidCluster(f"failures_per_day of {name!r} is a finite number of at least 0, found {rate}")
        if self.checkpoint_s is not None and not (math.isfinite(self.checkpoint_s) and self.checkpoint_s > 0):
            raise InvalidCluster(f"checkpoint is a finite number of seconds above 0, found {self.checkpoint_s}")

    def node(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Every domain that can fail, wide ones first."""
        members: dict[tuple[DomainKind, str], list[str]] = {}
        for kind in DomainKind:
            for node in self.nodes:
                name = {DomainKind.ZONE: node.zone, DomainKind.RACK: node.rack, DomainKind.NODE: node.name}[kind]
                if name is not None:
                    members.setdefault((kind, name), []).append(node.name)
        return tuple(Domain(name, kind, tuple(nodes)) for (kind, name), nodes in members.items())

    @property
    def failures_per_s(self) -> float:
        """How often something fails, all domains together."""
        return sum(self.failures_per_day.values()) / SECONDS_PER_DAY

    def _check_names(self) -> None:
        kinds: dict[str, DomainKind] = {}
        zone_of: dict[str, str | None] = {}
        names: set[str] = set()
        for node in self.nodes:
            if node.name in names:
                raise InvalidCluster(f"node names are unique, found {node.name!r} twice: rename one")
            names.add(node.name)
            if node.slots is not None and node.slots < 1:
                raise InvalidCluster(f"node {node.name!r}: slots are at least 1, found {node.slots}: correct it")
            for name, kind in (
                (node.name, DomainKind.NODE),
                (node.rack, DomainKind.RACK),
                (node.zone, DomainKind.ZONE),
            ):
                if name is not None and kinds.setdefault(name, kind) is not kind:
                    raise InvalidCluster(f"a name stands for one domain, found {name!r} as {kinds[name]} and {kind}")
            if node.rack is not None and zone_of.setdefault(node.rack, node.zone) != node.zone:
                zones = f"{zone_of[node.rack]} and {node.zone}"
                raise InvalidCluster(f"a rack stands in one zone, found {node.rack!r} in {zones}: rename one")
