"""A topology with the rates that were measured while it ran, in place of those that it declares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenax.model.graph import TaskGraph
from tenax.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that every task has taken in and given out, in task order."""

    taken: tuple[float, ...]
    given: tuple[float, ...]


def with_rates(topology: Topology, rows: Rows) -> Topology:
    """The same topology: sources at the rates they had, keys shared and rows thinned out as they were."""
    graph = TaskGraph(topology)
    spans = {operator.name: graph.span(number) for number, operator in enumerate(graph.operators)}
    given = {name: rows.given[span] for name, span in spans.items()}
    operators = []
    for operator in topology.operators:
        if operator.is_source:
            operators.append(replace(operator, rate=given[operator.name]))
            continue
        taken = rows.taken[spans[operator.name]]
        before = sum(sum(given[stream.operator]) for stream in operator.inputs)
        selectivity = sum(given[operator.name]) / before if before else 1.0
        operators.append(replace(operator, weights=taken if any(taken) else None, selectivity=selectivity))
    return Topology(topology.name, tuple(operators))


def with_costs(topology: Topology, costs: tuple[float, ...]) -> Topology:
    """The same topology with these costs of its tasks, in task order."""
    graph = TaskGraph(topology)
    spans = {operator.name: graph.span(number) for number, operator in enumerate(graph.operators)}
    operators = (replace(operator, cost=costs[spans[operator.name]]) for operator in topology.operators)
    return Topology(topology.name, tuple(operators))
