"""What follows when a pass fails: another attempt, a pause, an older checkpoint, or the end of the run."""

from __future__ import annotations

from dataclasses import replace

from tenax.control.copies import Copy, TaskState
from tenax.control.events import NodesLost
from tenax.control.instructions import Outcome, Stop
from tenax.control.learned import Ignored, Learned, failed
from tenax.control.notices import RolledBack
from tenax.control.recovery.failures import (
    NodeGone,
    OperatorRaised,
    PassFailure,
    RowsLate,
    SourceUnreadable,
    StorageRefused,
)
from tenax.control.recovery.outages import cancelled, nodes_lost, settle
from tenax.control.recovery.pauses import given_up, has_patience
from tenax.control.run import Run
from tenax.control.state import RunState
from tenax.control.versions import PassId


def pass_failed(run: Run, state: RunState, pass_id: PassId, failure: PassFailure) -> Learned:
    """A pass is over without a result."""
    live = state.passes.live is not None and state.passes.live.pass_id == pass_id
    running = state.passes.live if live else state.passes.round
    if running is None or running.pass_id != pass_id:
        return Ignored("this pass does not run")
    kind = running.kind
    attempt, faults = state.passes.tries(kind)
    over = settle(run, replace(state, passes=state.passes.with_running(kind, None)))
    match failure:
        case OperatorRaised() if live and failure.batch > running.first:
            # what comes before it can pass
            return replace(over, passes=replace(over.passes, live_attempt=1, raises_at=failure.batch))
        case OperatorRaised():
            # with a last checkpoint: corrected code begins right behind what is published, and replays nothing
            reason = f"{failure}; correct the operator and start again"
            return replace(over, wrap_up=Stop(Outcome.FAILED, reason, resumable=True))
        case SourceUnreadable():
            return failed(over, f"{failure}; correct the source and start again")
        case RowsLate():
            return failed(over, str(failure))
        case NodeGone() if any(node.name == failure.node for node in state.nodes):
            return nodes_lost(run, over, NodesLost((failure.node,)))
        case StorageRefused():
            if not has_patience(run, faults + 1):
                return failed(
                    over, given_up(run, f"batches {running.first} to {running.last} did not pass", str(failure))
                )
            return replace(over, passes=over.passes.with_faults(kind, faults + 1))
    if attempt < run.protection.max_attempts:
        return replace(over, passes=over.passes.with_attempt(kind, attempt + 1))
    return _rolled_back(
        run, over, f"batches {running.first} to {running.last} did not pass in {attempt} attempts: {failure}"
    )


def _rolled_back(run: Run, state: RunState, reason: str) -> RunState:
    """All tasks at the newest checkpoint, then at the one before it; after that the run ends."""
    if state.failures.rollbacks >= len(state.checkpoints.kept):
        return failed(state, f"{reason}; starting from older checkpoints did not help")
    checkpoint = state.checkpoints.kept[-1 - state.failures.rollbacks]
    tasks = tuple(
        task
        if source
        else TaskState(
            point,
            None if task.primary is None else Copy(task.primary.node, point, stored=True),
            rebuild_points=task.rebuild_points,
        )
        for task, point, source in zip(state.tasks, checkpoint.points, run.is_source.tolist(), strict=True)
    )
    state = cancelled(
        replace(
            state,
            tasks=tasks,
            pending=(*state.pending, RolledBack(checkpoint.number, reason)),
            failures=replace(state.failures, rollbacks=state.failures.rollbacks + 1),
        )
    )
    return settle(run, state)
