"""Prediction: how long lost tasks take until they are level again, by the measured load."""

from __future__ import annotations

from dataclasses import replace

from tenax.control.recovery.rounds import lag
from tenax.control.recovery.standing import standing
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.model.protection import Recovery


def with_blocking(run: Run, state: RunState) -> RunState:
    """Whether live passes pause for lost tasks, where the run is to decide that by itself (Su, Zhou 2021, section 4.4).

    They do for few losses that are predicted to be made up for within a batch interval: nobody would notice. When many
    nodes are lost, or tasks wait for room, outputs go on with what is left.
    """
    if state.outage is None or run.protection.recovery is not Recovery.AUTO:
        return state
    few = state.failures.losses < run.protection.correlated_losses and not state.placement.waiting
    predicted_s = recovery_s(run, state) if few else None
    blocks = predicted_s is not None and predicted_s <= run.settings.batches.batch_s
    return state.with_outage(replace(state.outage, blocks=blocks))


def recovery_s(run: Run, state: RunState) -> float | None:
    """How long it takes if nothing runs beside it; None if it is not measured.

    Rounds cost what passes cost, at most: not all tasks step in them. Before that, states are read from the store.
    """
    load, batches = state.load, lag(state, standing(run, state))
    if not load.is_measured or batches is None:
        return None
    rounds = -(-batches // run.settings.max_batches_per_round)
    read_bytes: dict[str, float] = {}
    for task, measured in zip(state.tasks, load.tasks, strict=True):
        if task.primary is not None and task.primary.stored:
            read_bytes[task.primary.node] = read_bytes.get(task.primary.node, 0.0) + measured.state_bytes
    restore_s = load.restore_s * max(read_bytes.values(), default=0.0)
    return rounds * load.levels * load.fixed_s + batches * load.moving_s + restore_s
