"""Restores: how long the copies that are to catch up will take to read their states, before their first step.

The lag of a copy counts batches. A copy that is two batches behind may still have gigabytes to read: to wait for that,
or to let it slow down the first outputs after a loss, would make them as late as all is.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenax.control.recovery.rounds import LaggingCopy, lagging
from tenax.control.recovery.standing import Standing
from tenax.control.run import Run
from tenax.control.state import RunState

ASSUMED_S = 1 / 100_000_000  # for a byte, until a run has measured it


def takes_long(run: Run, state: RunState, now: Standing) -> bool:
    """Whether copies that lag have states to read for longer than a batch interval: readers would notice a wait."""
    return restore_s(state, lagging(state, now)) > max(run.settings.batches.batch_s, state.load.pass_s)


def restore_s(state: RunState, copies: Iterable[LaggingCopy]) -> float:
    """How long the node that has most to read will take, by what was measured; none before states are known."""
    if not state.load.tasks:
        return 0.0
    of_nodes: dict[str, float] = {}
    for each in copies:
        if each.copy.stored:
            read = state.load.tasks[each.number].state_bytes
            of_nodes[each.copy.node] = of_nodes.get(each.copy.node, 0.0) + read
    return max(of_nodes.values(), default=0.0) * (state.load.restore_s or ASSUMED_S)
