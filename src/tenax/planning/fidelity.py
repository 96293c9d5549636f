"""How good outputs stay when tasks have failed: information loss, output fidelity, completeness (Su, Zhou 2016)."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import Bools, Floats, TaskGraph


def losses(graph: TaskGraph, failed: Bools, *, correlated: bool = True) -> Floats:
    """The information loss of every task's output, between 0 and 1. O(tasks) per scenario.

    `failed` holds one boolean per task on its last axis; further axes are scenarios, scored together. A failed task
    loses all, a live source nothing. An input stream loses the rate-weighted mean of its producers (equation 1);
    a correlated operator multiplies what its streams keep (2), any other takes the rate-weighted mean (3).
    `correlated=False` uses (3) everywhere, as completeness does.
    """
    loss = failed.astype(np.float64)
    for operator, streams in enumerate(graph.streams):
        if not streams:
            continue
        span = graph.span(operator)
        inputs = [stream.mean(loss[..., graph.span(stream.producer)]) for stream in streams]
        if len(inputs) == 1:
            combined = inputs[0]
        elif correlated and graph.operators[operator].correlated:
            combined = 1.0 - np.prod([1.0 - lost for lost in inputs], axis=0)
        else:
            rates = np.array([stream.rate for stream in streams])
            rates[:, rates.sum(axis=0) == 0] = 1.0
            weighted = [lost * rate for lost, rate in zip(inputs, rates, strict=True)]
            combined = np.sum(weighted, axis=0) / np.sum(rates, axis=0)
        loss[..., span] = np.where(failed[..., span], 1.0, combined)
    return loss


def fidelity(graph: TaskGraph, failed: Bools) -> Floats:
    """Output fidelity (equation 4) per scenario: 1 − mean loss of the output tasks, weighted by rate × priority."""
    outputs = np.flatnonzero(graph.is_output)
    weights = output_weights(graph)[outputs]
    lost = losses(graph, failed)[..., outputs]
    return np.asarray(1.0 - (lost * weights).sum(axis=-1) / weights.sum())


def completeness(graph: TaskGraph, failed: Bools) -> Floats:
    """The part of all tuples that live tasks still process, per scenario (their IC): joins are not told apart."""
    loss = losses(graph, failed, correlated=False)
    rates = completeness_weights(graph)
    return np.asarray(((1.0 - loss) * rates).sum(axis=-1) / rates.sum())


def output_weights(graph: TaskGraph) -> Floats:
    """What each task's own loss counts for in fidelity: rate × priority of outputs, or alike if all of that is 0."""
    weights = np.where(graph.is_output, graph.output_rate * graph.priority, 0.0)
    return weights if weights.sum() > 0 else graph.is_output.astype(np.float64)


def completeness_weights(graph: TaskGraph) -> Floats:
    """What each task's own loss counts for in completeness: the rate of all its inputs, or alike if that is 0.

    With (3) everywhere, the loss of a live task is the rate-weighted mean of its streams, so the sum over its
    streams is its input rate times what it keeps.
    """
    return graph.input_rate if graph.input_rate.sum() > 0 else np.ones(len(graph))
