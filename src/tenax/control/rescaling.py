"""Rescaling: how a run goes over to the next version of its topology, between two batches and without a restart.

    stage      what goes on                                    it ends when
    ---------  ----------------------------------------------  ------------------------------------------------------
    waiting    everything; nodes are asked for, if it takes    all tasks are up to date, nothing moves, the nodes are
               more                                            there or did not come in time
    paused     what runs ends, results are committed, then     the checkpoint is there: Rescale is instructed
               one checkpoint of all tasks at one batch
    switching  nothing                                         the next version is recorded, and its coordinator goes
                                                               on from that checkpoint; or RescaleFailed: waiting

- Nodes that are lost while it waits or pauses put it off: recovery comes first, in the version that there is. Once the
  version is recorded the next coordinator meets the loss, from a checkpoint that has everything.
- A run that went back before the beginning of a version that is recorded already comes to that batch again and does
  the same switch once more; it never steps a batch in a version that the batch does not belong to.
- The end of a run, asked for or come by itself, is not held up: what is not recorded by then is not done.
"""

from __future__ import annotations

from dataclasses import replace

from tenax.control.checkpoints.strategies import next_number
from tenax.control.events import RescaleAsked, RescaleFailed
from tenax.control.instructions import Decided, RequestNodes, Rescale, StoreCheckpoint
from tenax.control.learned import Ignored, Learned, failed
from tenax.control.notices import RescaleGivenUp, RescalePlanned, RescalePostponed
from tenax.control.recovery.pauses import given_up, has_patience, pause_s
from tenax.control.recovery.standing import standing
from tenax.control.run import Run
from tenax.control.state import Phase, Rescaling, RunState, Stage, Upload
from tenax.control.versions import Cut, RebuildPoint, Version

NODES_PATIENCE_S = 60.0  # until a rescale goes on with the nodes that have come


def rescale_asked(state: RunState, event: RescaleAsked) -> Learned:
    """A newer wish takes the place of one that waits."""
    known = state.rescaling
    if state.wrap_up is not None:
        return Ignored("the run is ending")
    if known is not None and (known.stage is not Stage.WAITING or known.target.version is not None):
        return Ignored("another rescale is under way")
    given: list[Decided] = [RescalePlanned(event.target)]
    if known is not None:
        given.insert(0, RescaleGivenUp(known.target, f"in its place is wanted: {event.target.words}"))
    rescaling = Rescaling(event.target, asked_s=state.checkpoints.seen_s)
    return replace(state, rescaling=rescaling, pending=(*state.pending, *given))


def rescale_failed(run: Run, state: RunState, event: RescaleFailed) -> Learned:
    """The version that there is goes on; the rescale is tried again some times."""
    known = state.rescaling
    if known is None or known.stage is not Stage.SWITCHING or known.attempt != event.attempt:
        return Ignored("this rescale is not under way")
    again = replace(known, stage=Stage.WAITING, attempt=known.attempt + 1, faults=known.faults + event.storage)
    spent = not has_patience(run, again.faults) if event.storage else event.attempt >= run.protection.max_attempts
    if not spent:
        return replace(state, rescaling=again)
    if known.target.version is not None:
        return failed(state, given_up(run, "the next version of the topology was not begun", event.cause))
    notice = RescaleGivenUp(known.target, event.cause)
    return replace(state, rescaling=None, pending=(*state.pending, notice))


def put_off(state: RunState) -> RunState:
    """Nodes are lost: what has not been recorded waits until all are back."""
    known = state.rescaling
    if known is None or known.stage is not Stage.PAUSED:
        return state
    return replace(state, rescaling=replace(known, stage=Stage.WAITING))


def is_switching(state: RunState) -> bool:
    """Whether nothing may be decided until the driver has answered."""
    return state.rescaling is not None and state.rescaling.stage is Stage.SWITCHING


def is_paused(state: RunState) -> bool:
    """Whether nothing new runs."""
    return state.rescaling is not None and state.rescaling.stage is not Stage.WAITING


def ended(state: RunState) -> tuple[RunState, list[Decided]]:
    """The run is over: what waited will not be done. Of a version that is being recorded nothing can be said."""
    known = state.rescaling
    if known is None or known.stage is Stage.SWITCHING or known.target.version is not None:
        return state, []
    return replace(state, rescaling=None), [RescaleGivenUp(known.target, "the run is ending")]


def last_batch(state: RunState) -> int | None:
    """The last batch of this version, if the next one is recorded."""
    known = state.rescaling
    return None if known is None or known.target.version is None else known.target.version.after


def rescale(run: Run, state: RunState) -> tuple[RunState, Decided | None]:
    """The next thing to be done for a rescale."""
    known = state.rescaling
    if known is None or state.phase is not Phase.RUNNING or is_switching(state):
        return state, None
    if state.wrap_up is not None:
        if known.target.version is not None:
            return replace(state, rescaling=replace(known, stage=Stage.WAITING)), None
        return replace(state, rescaling=None), RescaleGivenUp(known.target, "the run is ending")
    if known.stage is Stage.WAITING:
        state, following = _begin(run, state, known)
        if following is not None or not is_paused(state):
            return state, following
    return _go_on(state)


def _begin(run: Run, state: RunState, known: Rescaling) -> tuple[RunState, Decided | None]:
    """Pause the run, if nothing stands in the way."""
    request = _nodes_wanted(state, known)
    if request is not None:
        return replace(state, placement=replace(state.placement, requested=request.total)), request
    reason = _hindrance(run, state, known)
    if reason is None:
        return replace(state, rescaling=replace(known, stage=Stage.PAUSED, postponed="")), None
    if reason == known.postponed or known.target.version is not None:
        return state, None
    return replace(state, rescaling=replace(known, postponed=reason)), RescalePostponed(known.target, reason)


def _hindrance(run: Run, state: RunState, known: Rescaling) -> str | None:
    """Why a rescale has to wait; None if it has not."""
    version = known.target.version
    if version is not None and state.finished < version.after:
        return f"the next version begins behind batch {version.after}"
    if version is None and max(state.logs.published.values(), default=0) > state.finished:
        return "batches are run again whose results are committed"  # they belong to the version that there is
    if state.outage is not None or not standing(run, state).healthy or state.placement.waiting:
        return "tasks are missing"
    if any(_is_elsewhere(state, number) for number in range(len(state.tasks))):
        return "tasks have not stepped since they were restored from an older checkpoint"
    if state.placement.moving:
        return "tasks are moving to other nodes"
    wanted, there = known.target.nodes or 0, len(state.nodes)
    if there < wanted and version is None and state.checkpoints.seen_s < known.asked_s + NODES_PATIENCE_S:
        return f"{wanted} nodes are wanted, and {there} are there"
    return None


def _is_elsewhere(state: RunState, number: int) -> bool:
    """Whether the version of a task lies neither on its node nor on the newest checkpoint."""
    primary = state.tasks[number].primary
    return primary is not None and primary.stored and primary.head != state.newest.points[number]


def _nodes_wanted(state: RunState, known: Rescaling) -> RequestNodes | None:
    """Nodes are asked for before anything pauses, each number once."""
    wanted = known.target.nodes or 0
    if not state.nodes or wanted <= max(len(state.nodes), state.placement.requested):
        return None
    return RequestNodes(wanted - len(state.nodes), wanted)


def _go_on(state: RunState) -> tuple[RunState, Decided | None]:
    """When all is quiet: store all tasks at the batch that they are at, then let the next version begin."""
    known = state.rescaling
    passes, checkpoints = state.passes, state.checkpoints
    busy = passes.running or state.logs.unpublished or checkpoints.storing is not None
    if known is None or busy or state.final < state.finished:
        return state, None  # batches that are being logged belong to the next version
    versions = _versions(state)
    if state.newest.points == versions:
        switching = replace(state, rescaling=replace(known, stage=Stage.SWITCHING))
        return switching, Rescale(known.target, state.newest, passes.begun, known.attempt, pause_s(known.faults))
    upload = _whole(state, versions)
    order = StoreCheckpoint(
        upload.cut, upload.versions, upload.nodes, upload.attempt, load=state.load if state.load.batches else None
    )
    return replace(state, checkpoints=replace(checkpoints, due=None, sweeps=(), storing=upload)), order


def _versions(state: RunState) -> tuple[Version, ...]:
    """Where all tasks are; one that is rebuilt from nothing is where its rebuild point says, without any state."""
    found = []
    for task in state.tasks:
        assert task.primary is not None
        head = task.primary.head
        assert not isinstance(head, RebuildPoint) or task.primary.rebuilding is None
        found.append(task.primary.start)
    return tuple(found)


def _whole(state: RunState, versions: tuple[Version, ...]) -> Upload:
    """All tasks at one batch, whatever their strategy: what the newest checkpoint has is in the store already."""
    new = [
        number
        for number, (version, point) in enumerate(zip(versions, state.newest.points, strict=True))
        if version != point
    ]
    nodes = []
    for number in new:
        primary = state.tasks[number].primary
        assert primary is not None
        nodes.append(primary.node)
    cut = Cut(next_number(state), versions)
    return Upload(cut, tuple(versions[number] for number in new), tuple(nodes))
