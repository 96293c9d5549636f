"""What each event changes in what is known: one function per event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tenax.control.events import (
    BatchesLogged,
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    Event,
    LoadMeasured,
    LoggingFailed,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
    Published,
    PublishFailed,
    Restored,
    RestoreFailed,
    Started,
    StopRequested,
)
from tenax.control.failures import NodeGone, OperatorRaised, PassFailure, Refused, SourceUnreadable
from tenax.control.instructions import Outcome, Stop
from tenax.control.state import (
    KEPT_CHECKPOINTS,
    FailedPass,
    Phase,
    Restoration,
    Results,
    RunState,
    Settings,
    Upload,
)
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.errors import TenaxError
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task

Place = Callable[[TaskGraph, Sequence[Node]], Placement]


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that changes nothing, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """What stays the same from start to stop."""

    graph: TaskGraph
    tasks: tuple[Task, ...]
    retain: tuple[Task, ...]
    settings: Settings
    place: Place


Learned = RunState | Ignored


def learn(run: Run, state: RunState, event: Event) -> Learned:
    """The state after an event, or why the event means nothing now."""
    if state.phase is Phase.STOPPED:
        return Ignored("the run has stopped")
    if state.phase is Phase.WAITING and not isinstance(event, Started | StopRequested | EpochLost):
        return Ignored("the run has not started")
    match event:
        case Started():
            return _started(run, state, event)
        case Restored():
            return _restored(state, event)
        case RestoreFailed():
            return _restore_failed(run, state, event)
        case BatchesLogged():
            return _batches_logged(state, event)
        case LoggingFailed():
            return _logging_failed(run, state, event)
        case PassFinished():
            return _pass_finished(run, state, event)
        case PassFailed():
            return _pass_failed(run, state, event.pass_id, event.failure)
        case Published():
            return _published(state, event)
        case PublishFailed():
            return _publish_failed(run, state, event)
        case CheckpointStored():
            return _checkpoint_stored(state, event)
        case CheckpointFailed():
            return _checkpoint_failed(run, state, event)
        case NodesJoined():
            return _nodes_joined(state, event)
        case NodesLost():
            return _nodes_lost(state, event)
        case LoadMeasured():
            return Ignored("nothing is scaled by load yet")
        case StopRequested():
            return _stop_requested(state, event)
        case EpochLost():
            return _epoch_lost(state, event)


def failed(state: RunState, reason: str) -> RunState:
    """A run that ends at once, and can be started again."""
    return replace(state, stop=Stop(Outcome.FAILED, reason, resumable=True))


def _started(run: Run, state: RunState, event: Started) -> Learned:
    if state.phase is not Phase.WAITING:
        return Ignored("the run has started already")
    checkpoint = event.checkpoint
    batch = 0 if checkpoint is None else checkpoint.batch
    heads = tuple(Version(task, 0, NO_PASS) for task in run.tasks) if checkpoint is None else checkpoint.versions
    state = replace(
        state,
        phase=Phase.RUNNING if checkpoint is None else Phase.RESTORING,
        epoch=event.epoch,
        nodes=event.nodes,
        heads=heads,
        restoration=None if checkpoint is None else Restoration(batch),
        logged=event.logged,
        finished=batch,
        published=event.published,
        replayed_through=event.published,
        kept=(batch,),
    )
    wrong = _wrong_start(run, event, batch, heads)
    if wrong is not None:
        return failed(state, wrong)
    try:
        return replace(state, placement=run.place(run.graph, event.nodes))
    except TenaxError as error:
        return failed(state, str(error))


def _wrong_start(run: Run, event: Started, batch: int, heads: tuple[Version, ...]) -> str | None:
    """Why a run cannot start from what the store holds. Results before the checkpoint could never be made again."""
    if not event.nodes:
        return "a run needs at least one node, found none: add one"
    if event.epoch < 1:
        return f"epochs count from 1, found {event.epoch}: claim one on the store"
    if not batch <= event.published <= event.logged:
        return (
            f"a store holds checkpoint ≤ published ≤ logged, found {batch}, {event.published} and {event.logged}: "
            "start from an older checkpoint, or on a new store"
        )
    if tuple(head.task for head in heads) != run.tasks or any(head.batch != batch for head in heads):
        return (
            f"a checkpoint holds one version per task of the topology, found others in that of batch {batch}: "
            "run the topology that made it, or a new store"
        )
    return None


def _restored(state: RunState, event: Restored) -> Learned:
    waiting = state.restoration
    if waiting is None or (waiting.batch, waiting.attempt) != (event.batch, event.attempt):
        return Ignored("this restore was not asked for")
    return replace(state, phase=Phase.RUNNING, restoration=None)


def _restore_failed(run: Run, state: RunState, event: RestoreFailed) -> Learned:
    waiting = state.restoration
    if waiting is None or (waiting.batch, waiting.attempt) != (event.batch, event.attempt):
        return Ignored("this restore was not asked for")
    if waiting.attempt >= run.settings.max_attempts:
        return failed(state, f"checkpoint {event.batch} was not restored in {event.attempt} attempts: {event.cause}")
    return replace(state, restoration=Restoration(waiting.batch, waiting.attempt + 1))


def _batches_logged(state: RunState, event: BatchesLogged) -> Learned:
    asked = state.logging
    if asked is None or asked.first != event.first:
        return Ignored("these batches were not asked for, or are known")
    fewest = 0 if event.ended else 1
    if not fewest <= event.last - event.first + 1 <= asked.count:
        return failed(
            state,
            f"a driver logs {fewest} to {asked.count} batches from {asked.first} on, found through {event.last}: "
            "correct the driver",
        )
    return replace(state, logged=event.last, ended=event.ended, logging=None, log_attempt=1)


def _logging_failed(run: Run, state: RunState, event: LoggingFailed) -> Learned:
    asked = state.logging
    if asked is None or (asked.first, asked.attempt) != (event.first, event.attempt):
        return Ignored("these batches were not asked for, or are known")
    if asked.attempt >= run.settings.max_attempts:
        return failed(state, f"batch {event.first} was not logged in {event.attempt} attempts: {event.cause}")
    return replace(state, logging=None, log_attempt=asked.attempt + 1)


def _pass_finished(run: Run, state: RunState, event: PassFinished) -> Learned:
    live = state.live
    if live is None or live.pass_id != event.pass_id:
        return Ignored("this pass is not live")
    heads = tuple(Version(task, live.last, live.pass_id) for task in run.tasks)
    reported = {report.version for report in event.reports}
    missing = [head for head in heads if head not in reported]
    if missing:
        return _pass_failed(run, state, live.pass_id, Refused(missing[0].task, "its report is missing"))
    unpublished = state.unpublished
    if live.last > state.published:
        results = Results(live.pass_id, max(live.first, state.published + 1), live.last)
        unpublished = (*unpublished, results)
    due = state.due
    every = run.settings.checkpoint_every
    if due is None and live.last // every > state.finished // every:  # a pass may go beyond the multiple
        due = Upload(live.last, heads)
    return replace(state, heads=heads, finished=live.last, live=None, failed=None, unpublished=unpublished, due=due)


def _pass_failed(run: Run, state: RunState, pass_id: PassId, failure: PassFailure) -> Learned:
    live = state.live
    if live is None or live.pass_id != pass_id:
        return Ignored("this pass is not live")
    over = replace(state, live=None)
    match failure:
        case OperatorRaised():
            return failed(over, f"{failure}; correct the operator and start again")
        case SourceUnreadable():
            # Reading a logged range is as pure as a step: it fails again until somebody does what the cause asks for.
            return failed(over, f"{failure}; then start again")
        case NodeGone():
            return failed(
                over, f"{failure}, with the state of its tasks; start again to go on from the last checkpoint"
            )
    if live.attempt >= run.settings.max_attempts:
        return failed(
            over, f"batches {live.first} to {live.last} did not pass in {live.attempt} attempts; last cause: {failure}"
        )
    return replace(over, failed=FailedPass(live.last, live.attempt + 1))


def _published(state: RunState, event: Published) -> Learned:
    if state.publishing is None or (event.first, event.last) != _front(state):
        return Ignored("these results are not being published")
    return replace(state, published=event.last, unpublished=state.unpublished[1:], publishing=None, publish_attempt=1)


def _publish_failed(run: Run, state: RunState, event: PublishFailed) -> Learned:
    attempt = state.publishing
    if attempt is None or (event.first, event.last) != _front(state) or event.attempt != attempt:
        return Ignored("these results are not being published")
    if attempt >= run.settings.max_attempts:
        return failed(
            state,
            f"results of batches {event.first} to {event.last} were not published in {attempt} attempts: {event.cause}",
        )
    return replace(state, publishing=None, publish_attempt=attempt + 1)


def _front(state: RunState) -> tuple[int, int]:
    results = state.unpublished[0]
    return results.first, results.last


def _checkpoint_stored(state: RunState, event: CheckpointStored) -> Learned:
    storing = state.storing
    if storing is None or (storing.batch, storing.attempt) != (event.batch, event.attempt):
        return Ignored("this checkpoint is not being stored")
    kept = (*state.kept, event.batch)[-KEPT_CHECKPOINTS:]
    return replace(state, storing=None, kept=kept)


def _checkpoint_failed(run: Run, state: RunState, event: CheckpointFailed) -> Learned:
    storing = state.storing
    if storing is None or (storing.batch, storing.attempt) != (event.batch, event.attempt):
        return Ignored("this checkpoint is not being stored")
    if storing.attempt >= run.settings.max_attempts:
        return failed(state, f"checkpoint {event.batch} was not stored in {event.attempt} attempts: {event.cause}")
    # A newer one that is due by now takes its place, but not with fresh attempts: the store must answer at some time.
    again = replace(state.due or storing, attempt=storing.attempt + 1)
    return replace(state, storing=None, due=again)


def _nodes_joined(state: RunState, event: NodesJoined) -> Learned:
    known = {node.name for node in state.nodes}
    new = tuple(node for node in event.nodes if node.name not in known)
    return replace(state, nodes=state.nodes + new) if new else Ignored("these nodes are known")


def _nodes_lost(state: RunState, event: NodesLost) -> Learned:
    lost = [node.name for node in state.nodes if node.name in event.nodes]
    if not lost:
        return Ignored("these nodes are not known")
    state = replace(state, nodes=tuple(node for node in state.nodes if node.name not in lost))
    held = [task for task, node in state.placement.primaries.items() if node in lost]
    if not held:
        return state
    return failed(
        state,
        f"{', '.join(lost)} lost, with the state of {len(held)} tasks ({held[0]} first); "
        "start again to go on from the last checkpoint",
    )


def _stop_requested(state: RunState, event: StopRequested) -> Learned:
    stop = Stop(Outcome.STOPPED, event.cause, resumable=True)
    if state.phase is Phase.WAITING:
        return replace(state, stop=stop)
    if state.wrap_up is not None:
        return Ignored("the run is ending already")
    return replace(state, wrap_up=stop)


def _epoch_lost(state: RunState, event: EpochLost) -> Learned:
    reason = f"a newer driver (epoch {event.newer}) owns the store"
    return replace(state, stop=Stop(Outcome.SUPERSEDED, reason, resumable=False))
