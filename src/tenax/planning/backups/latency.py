"""How long recovery takes: the latency of every task, for the loss of one task or of many together."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.planning.ticks import Ticks

Number = TypeVar("Number", np.int64, np.float64)


def recovery_latencies(graph: TaskGraph, backups: Bools, lost: Bools | None = None) -> Floats:
    """The seconds until each task is back, if it fails alone. O(tasks + operators), full streams included.

    L(v) = T(v) + the longest L(u) of the producers u that are not backups, 0 if there is none (equation 4): a backup
    hands out what it retained, any other producer must first reprocess. Sources read a replayable log.

    With `lost`, all those tasks fail together, and a lost backup has lost what it retained:
    L_F(v) = T(v) + the longest L_F(u) of the producers u that are not backups or are lost.
    """
    live = ~backups if lost is None else ~backups | lost
    ticks = Ticks.of(graph.reprocess)
    whole = ticks.up(graph.reprocess)
    if np.array_equal(whole, ticks.down(graph.reprocess)):  # decimals: sums stay exact, three times 0.1 is 0.3
        return np.asarray(propagate(graph, whole, live) / ticks.per_unit)
    return propagate(graph, graph.reprocess, live)


def propagate(graph: TaskGraph, reprocess: npt.NDArray[Number], reprocessing: Bools) -> npt.NDArray[Number]:
    """The latency of every task, given which tasks must reprocess before they can send. The last axis counts tasks."""
    latency: npt.NDArray[Number] = np.broadcast_to(reprocess, reprocessing.shape).copy()
    sent: npt.NDArray[Number] = np.zeros_like(latency)
    for operator, streams in enumerate(graph.streams):
        span = graph.span(operator)
        here = latency[..., span]
        if streams:
            wait = streams[0].highest(sent[..., graph.span(streams[0].producer)])
            for stream in streams[1:]:
                wait = np.maximum(wait, stream.highest(sent[..., graph.span(stream.producer)]))
            np.add(here, wait, out=here)
        np.multiply(here, reprocessing[..., span], out=sent[..., span])
    return latency
