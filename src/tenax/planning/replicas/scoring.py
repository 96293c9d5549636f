"""Values of many replica plans at once, exact also where next to nothing is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.model.plans import Metric
from tenax.planning.fidelity import completeness_weights, output_weights

CELLS_PER_BATCH = 1_000_000  # scenarios × tasks held at once: some tens of megabytes
TIE = 1e-12
"""Values that differ by a smaller part of themselves are equal: sums in another order differ by less."""


def exceeds(value: float, other: float) -> bool:
    """Whether a value is higher by more than rounding."""
    return value * (1.0 - TIE) > other


def first_highest(values: Floats) -> int:
    """The first of the highest values, differences by rounding aside."""
    return int(np.argmax(values >= values.max() * (1.0 - TIE)))


def scores(graph: TaskGraph, metric: Metric, failed: Bools) -> Floats:
    """The value of every scenario, one per row of failed tasks. O(rows × tasks).

    The same as fidelity and completeness, but reckoned by what is kept instead of what is lost: through ten full
    operators that keep a hundredth each, 10^-20 is left, which 1 − loss cannot tell from nothing.
    """
    joins = metric is Metric.FIDELITY
    weights = output_weights(graph) if joins else completeness_weights(graph)
    weights = weights / weights.sum()
    rows = max(1, CELLS_PER_BATCH // len(graph))
    parts = [kept(graph, failed[start : start + rows], joins=joins) @ weights for start in range(0, len(failed), rows)]
    return np.concatenate(parts) if parts else np.zeros(0)


def kept(graph: TaskGraph, failed: Bools, *, joins: bool = True) -> Floats:
    """The part of every task's output that is left, per scenario (equations 1 to 3)."""
    left = np.where(failed, 0.0, 1.0)
    for operator, streams in enumerate(graph.streams):
        if not streams:
            continue
        inputs = [stream.mean(left[..., graph.span(stream.producer)]) for stream in streams]
        combined = inputs[0]
        if len(inputs) > 1 and joins and graph.operators[operator].correlated:
            combined = np.prod(inputs, axis=0)
        elif len(inputs) > 1:
            rates = np.array([stream.rate for stream in streams])
            rates[:, rates.sum(axis=0) == 0] = 1.0
            rates /= rates.sum(axis=0)
            combined = np.sum([received * rate for received, rate in zip(inputs, rates, strict=True)], axis=0)
        left[..., graph.span(operator)] *= combined
    return left


def plan_value(graph: TaskGraph, metric: Metric, plan: Iterable[int]) -> float:
    """The value when every task outside the plan that is not safe has failed."""
    return float(plan_values(graph, metric, [plan])[0])


def plan_values(graph: TaskGraph, metric: Metric, plans: Sequence[Iterable[int]]) -> Floats:
    """The values of plans, each as if alone."""
    return extended_values(graph, metric, ~graph.safe, plans)


def extended_values(graph: TaskGraph, metric: Metric, failed: Bools, additions: Sequence[Iterable[int]]) -> Floats:
    """The values of one scenario with each of several sets of its failed tasks alive."""
    rows = max(1, CELLS_PER_BATCH // len(graph))
    values = [np.zeros(0)]
    for start in range(0, len(additions), rows):
        chunk = additions[start : start + rows]
        table = np.tile(failed, (len(chunk), 1))
        for row, added in enumerate(chunk):
            table[row, list(added)] = False
        values.append(scores(graph, metric, table))
    return np.concatenate(values)
