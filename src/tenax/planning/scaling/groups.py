"""Which operators of a topology file can have more or fewer tasks, by what the file says of its streams."""

from __future__ import annotations

from tenax.model.topology import Operator, Partitioning, Topology
from tenax.planning.scaling.demand import Group
from tenax.planning.scaling.shares import KEY_GROUPS


def declared_groups(topology: Topology) -> tuple[Group, ...]:
    """The groups of a topology that says nothing of keys: full streams are shared by key, one-to-one ones by partners.

    What gets rows by a split or merge, from a source as its partner, or has more tasks than key groups, stays as it is.
    """
    named = {operator.name: operator for operator in topology.operators}
    head: dict[str, str] = {}
    fixed: set[str] = set()
    for name in topology.in_order:
        operator = named[name]
        partners = [each.operator for each in operator.inputs if each.partitioning is Partitioning.ONE_TO_ONE]
        heads = {head[partner] for partner in partners}
        head |= {other: name for other, first in head.items() if first in heads} | {name: name}
        if not _is_shared(operator) or fixed & {other for other, first in head.items() if first == name}:
            fixed.add(name)
    groups: dict[str, list[str]] = {}
    for name in topology.in_order:
        groups.setdefault(head[name], []).append(name)
    return tuple(Group(tuple(names), 1, KEY_GROUPS) for names in groups.values() if fixed.isdisjoint(names))


def _is_shared(operator: Operator) -> bool:
    """Whether its rows can go to any number of tasks."""
    kinds = {each.partitioning for each in operator.inputs}
    return bool(kinds) and kinds <= {Partitioning.FULL, Partitioning.ONE_TO_ONE} and operator.parallelism <= KEY_GROUPS
