"""What follows from what is known: instructions, each given once, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tenax.control.instructions import (
    CancelPass,
    Instruction,
    LogBatches,
    Outcome,
    Publish,
    Restore,
    RunPass,
    Stop,
    StoreCheckpoint,
    Trim,
)
from tenax.control.state import KEPT_CHECKPOINTS, LivePass, LogRequest, Phase, RunState, Upload
from tenax.control.transitions import Run
from tenax.control.versions import PassId

Decision = tuple[RunState, Instruction | None]


def decide(run: Run, state: RunState) -> tuple[RunState, list[Instruction]]:
    """All that is to be done now. Each instruction is noted in the state, so the next call does not repeat it."""
    if state.phase is Phase.STOPPED:
        return state, []
    if state.stop is not None:
        return _end(state, state.stop)
    instructions: list[Instruction] = []
    for step in _STEPS:
        state, instruction = step(run, state)
        if instruction is not None:
            instructions.append(instruction)
    if state.phase is not Phase.WAITING and _is_over(state):
        state, last = _end(state, state.wrap_up or Stop(Outcome.FINISHED, "the sources have ended", resumable=False))
        instructions += last
    return state, instructions


def _end(state: RunState, stop: Stop) -> tuple[RunState, list[Instruction]]:
    cancelled: list[Instruction] = [] if state.live is None else [CancelPass(state.live.pass_id)]
    return replace(state, phase=Phase.STOPPED, stop=stop, live=None), [*cancelled, stop]


def _restore(_run: Run, state: RunState) -> Decision:
    wanted = state.restoration
    if wanted is None or wanted.asked or state.wraps_up:
        return state, None
    asked = replace(state, restoration=replace(wanted, asked=True))
    return asked, Restore(wanted.batch, state.heads, state.placement, wanted.attempt)


def _publish(_run: Run, state: RunState) -> Decision:
    """One at a time, oldest first: so results appear in the order of their batches."""
    if state.publishing is not None or not state.unpublished:
        return state, None
    results, attempt = state.unpublished[0], state.publish_attempt
    return (
        replace(state, publishing=attempt),
        Publish(results.pass_id, results.first, results.last, attempt),
    )


def _run_pass(run: Run, state: RunState) -> Decision:
    """The logged batches that wait, up to a bound."""
    if state.phase is not Phase.RUNNING or state.live is not None or state.wrap_up is not None:
        return state, None
    settings, first = run.settings, state.finished + 1
    if state.failed is not None:
        last, attempt = state.failed.last, state.failed.attempt
    else:
        may_wait = state.published + settings.max_unpublished
        last = min(state.logged, state.finished + settings.max_batches_per_pass, may_wait)
        attempt = 1
    if last < first:
        return state, None
    live = LivePass(PassId(state.epoch, state.passes + 1), first, last, attempt)
    instruction = RunPass(
        live.pass_id,
        first,
        last,
        run.tasks,
        state.heads,
        state.placement,
        run.retain,
        settings.pass_deadline_s * attempt,
        attempt,
    )
    return replace(state, passes=state.passes + 1, live=live, failed=None), instruction


def _log(run: Run, state: RunState) -> Decision:
    """Ahead of the passes, by a bounded number."""
    count = state.finished + run.settings.max_batches_ahead - state.logged
    if state.phase is Phase.WAITING or state.logging is not None or state.ended or state.wrap_up or count < 1:
        return state, None
    request = LogRequest(state.logged + 1, count, state.log_attempt)
    return replace(state, logging=request), LogBatches(request.first, request.count, request.attempt)


def _store_checkpoint(_run: Run, state: RunState) -> Decision:
    """One at a time, and only of published batches: a run restored from it could not make earlier results again."""
    if state.storing is not None:
        return state, None
    due = state.due
    if state.wraps_up and (due is None or due.batch < state.finished):
        due = Upload(state.finished, state.heads) if state.finished > state.kept[-1] else None
    state = replace(state, due=due)
    if due is None or due.batch > state.published:
        return state, None
    return replace(state, due=None, storing=due), StoreCheckpoint(due.batch, due.versions, due.attempt)


def _trim(_run: Run, state: RunState) -> Decision:
    """Behind the newest checkpoint what recovery reads, behind the oldest kept one what a restart reads."""
    oldest, newest = state.kept[0], state.kept[-1]
    trim = Trim(newest + 1, oldest, oldest + 1)
    if len(state.kept) < KEPT_CHECKPOINTS or trim == state.trimmed:
        return state, None
    return replace(state, trimmed=trim), trim


def _is_over(state: RunState) -> bool:
    idle = not state.unpublished and state.storing is None and state.due is None
    return state.wraps_up and idle and state.kept[-1] == state.finished


_STEPS: tuple[Callable[[Run, RunState], Decision], ...] = (
    _restore,
    _publish,  # before the next pass: results are what people wait for
    _run_pass,
    _log,
    _store_checkpoint,
    _trim,
)
