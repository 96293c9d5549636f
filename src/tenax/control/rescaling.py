"""Rescaling: how a run goes over to the next version of its topology, between two batches and without a restart.

    stage      what goes on                                    it ends when
    ---------  ----------------------------------------------  ------------------------------------------------------
    waiting    everything; nodes are asked for, if it takes    all tasks are up to date, nothing moves, the nodes are
               more                                            there or did not come in time
    paused     what runs ends, results are committed, then     the checkpoint is there: Rescale is instructed; or
               one checkpoint of all tasks at one batch        tasks are missing or have gone back: waiting
    switching  nothing                                         the next version is recorded, and its coordinator goes
                                                               on from that checkpoint; or RescaleFailed: waiting

- Nodes that are lost while it waits or pauses put it off: recovery comes first, in the version that there is. Once the
  version is recorded the next coordinator meets the loss, from a checkpoint that has everything.
- A new version begins behind all results that are committed. A run that went back in its version, to an older
  checkpoint, first comes to where it was: those batches have their version already.
- A run that went back before the beginning of a version that is recorded already comes to that batch again and does
  the same switch once more; it never steps a batch in a version that the batch does not belong to.
- The end of a run, asked for or come by itself, is not held up: what is not recorded by then is not done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenax.control.checkpoints.strategies import next_number
from tenax.control.copies import TaskState
from tenax.control.events import RescaleAsked, RescaleFailed, Started
from tenax.control.instructions import Decided, Outcome, RequestNodes, Rescale, Stop, StoreCheckpoint
from tenax.control.learned import Ignored, Learned, failed
from tenax.control.notices import RescaleGivenUp, RescalePlanned, RescalePostponed
from tenax.control.recovery.pauses import given_up, has_patience, pause_s
from tenax.control.recovery.standing import standing
from tenax.control.run import Run
from tenax.control.state import Phase, Rescaling, RunState, Stage, Upload
from tenax.control.versions import Cut, RebuildPoint, RestorePoint, Version
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target

NODES_PATIENCE_S = 60.0  # until a rescale goes on with the nodes that have come


def handed_over(
    state: RunState,
    order: Rescale,
    cut: Cut,
    nodes: Sequence[Node],
    published: Mapping[Task, int],
    next_version: Target | None = None,
) -> Started:
    """How the coordinator of the next version begins, by what the one that gave the order knows when it ends.

    - `cut` is the cut of the order made anew for the tasks of the next version; the pass that it names as its maker has
      the number after those of the order.
    - `nodes` are those that stay; `published` is of the tasks with results of the next version.
    - `next_version` is the one after it, if that is recorded as well.

    What has been lost, asked for and counted goes with it: answers that are under way reach the next coordinator.
    """
    logs = state.logs
    return Started(
        *(state.epoch, tuple(nodes), cut, logs.logged, published),
        passes=order.passes + 1,
        logging=logs.logging,
        ended=logs.ended,
        sizes=state.sizes,
        gone=state.failures.gone,
        outages=state.failures.outages,
        next_version=next_version,
    )


def rescale_asked(state: RunState, event: RescaleAsked) -> Learned:
    """A newer wish takes the place of one that waits."""
    known = state.rescaling
    if ends(state):
        return Ignored("the run is ending")
    if known is not None and (known.stage is not Stage.WAITING or known.target.version is not None):
        return Ignored("another rescale is under way")
    given: list[Decided] = [RescalePlanned(event.target)]
    if known is not None:
        given.insert(0, RescaleGivenUp(known.target, f"in its place is wanted: {event.target.words}"))
    rescaling = Rescaling(event.target, asked_s=state.checkpoints.seen_s or None)
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
        what = "the next version of the topology was not begun"
        tried = f"{what} in {event.attempt} attempts: {event.cause}"
        return failed(state, given_up(run, what, event.cause) if event.storage else tried)
    notice = RescaleGivenUp(known.target, event.cause)
    return replace(state, rescaling=None, pending=(*state.pending, notice))


def put_off(state: RunState) -> RunState:
    """Nodes are lost, or all went back to a checkpoint: what is not being recorded waits until all tasks are back."""
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


def ends(state: RunState) -> bool:
    """Whether no batch will follow: the end was asked for, or the sources have ended and all is finished."""
    return state.wrap_up is not None or (state.logs.ended and state.finished == state.logs.logged)


def ended(state: RunState, stop: Stop) -> list[Decided]:
    """The run is over: what waited will not be done.

    Of a version that is being recorded nothing can be said, and for a driver that was replaced another one speaks.
    """
    known = state.rescaling
    if known is None or known.stage is Stage.SWITCHING or known.target.version is not None:
        return []
    return [] if stop.outcome is Outcome.SUPERSEDED else [RescaleGivenUp(known.target, "the run is ending")]


def last_batch(state: RunState) -> int | None:
    """The last batch of this version, if the next one is recorded."""
    known = state.rescaling
    return None if known is None or known.target.version is None else known.target.version.after


def request_for_rescale(run: Run, state: RunState) -> tuple[RunState, RequestNodes | None]:
    """Nodes are asked for before anything pauses, each number once."""
    known = state.rescaling
    wanted = 0 if known is None or known.stage is not Stage.WAITING else _wanted(run, known)
    if not state.nodes or ends(state) or wanted <= max(len(state.nodes), state.placement.requested):
        return state, None
    order = RequestNodes(wanted - len(state.nodes), wanted)
    return replace(state, placement=replace(state.placement, requested=wanted)), order


def rescale(run: Run, state: RunState) -> tuple[RunState, Decided | None]:
    """The next thing to be done for a rescale."""
    known = state.rescaling
    if known is None or state.phase is not Phase.RUNNING or is_switching(state):
        return state, None
    if known.asked_s is None and state.checkpoints.seen_s:
        known = replace(known, asked_s=state.checkpoints.seen_s)
        state = replace(state, rescaling=known)
    if ends(state):
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
    reason = _hindrance(run, state, known)
    if reason is None:
        paused = replace(known, stage=Stage.PAUSED, postponed="", begun=state.passes.begun)
        return replace(state, rescaling=paused), None
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
    ill = _is_ill(run, state)
    if ill is not None:
        return ill
    if state.placement.moving:
        return "tasks are moving to other nodes"
    wanted, there = _wanted(run, known), len(state.nodes)
    if there < wanted and version is None and not _is_out_of_patience(state, known):
        return f"{wanted} nodes are wanted, and {there} are there"
    return None


def _is_ill(run: Run, state: RunState) -> str | None:
    """Why not all tasks can be stored where they are; None if they can."""
    if state.outage is not None or not standing(run, state).healthy or state.placement.waiting:
        return "tasks are missing"
    if any(_is_elsewhere(state, number) for number in range(len(state.tasks))):
        return "tasks have not stepped since they were restored from an older checkpoint"
    return None


def _is_elsewhere(state: RunState, number: int) -> bool:
    """Whether the state of a task lies neither on its node nor on the newest checkpoint.

    Of one that is rebuilt from nothing there is none.
    """
    primary, point = state.tasks[number].primary, state.newest.points[number]
    if primary is None or not primary.stored or isinstance(primary.head, RebuildPoint):
        return False
    return isinstance(point, RebuildPoint) or point.batch != primary.head.batch


def _is_out_of_patience(state: RunState, known: Rescaling) -> bool:
    """Whether the nodes that were asked for have had time enough to come."""
    return known.asked_s is not None and state.checkpoints.seen_s >= known.asked_s + NODES_PATIENCE_S


def _wanted(run: Run, known: Rescaling) -> int:
    """How many nodes there are to be, with those of the pool; 0 if that is to stay as it is."""
    return known.target.nodes + run.settings.cluster.pool if known.target.nodes else 0


def _go_on(state: RunState) -> tuple[RunState, Decided | None]:
    """When all is quiet: store all tasks at the batch that they are at, then let the next version begin."""
    known = state.rescaling
    passes, checkpoints = state.passes, state.checkpoints
    busy = passes.running or state.logs.unpublished or checkpoints.storing is not None
    if known is None or busy or state.final < state.finished:
        return state, None  # batches that are being logged belong to the next version
    versions = tuple(_version(*pair) for pair in zip(state.tasks, state.newest.points, strict=True))
    if state.newest.points == versions:
        switching = replace(state, rescaling=replace(known, stage=Stage.SWITCHING))
        return switching, Rescale(known.target, state.newest, passes.begun, known.attempt, pause_s(known.faults))
    upload = _whole(state, versions)
    order = StoreCheckpoint(
        *(upload.cut, upload.versions, upload.nodes, upload.attempt, pause_s(upload.faults)),
        load=state.load if state.load.batches else None,
    )
    tasks = tuple(_without_lagging(task) for task in state.tasks)
    return replace(state, tasks=tasks, checkpoints=replace(checkpoints, due=None, sweeps=(), storing=upload)), order


def _without_lagging(task: TaskState) -> TaskState:
    """Replicas that lag would ask for what is trimmed behind the next checkpoint; they begin again from there."""
    return task if task.replica is None or task.in_step is not None else replace(task, replica=None)


def _version(task: TaskState, point: RestorePoint) -> Version:
    """Where a task is: what the newest checkpoint has of that batch is the same state, whichever pass made it.

    One that is rebuilt from nothing is where its rebuild point says, without any state.
    """
    assert task.primary is not None
    assert task.primary.rebuilding is None, "a task whose state is being rebuilt is behind"
    return point if isinstance(point, Version) and point.batch == task.batch else task.primary.start


def _whole(state: RunState, versions: tuple[Version, ...]) -> Upload:
    """All tasks at one batch, whatever their strategy: what the newest checkpoint has is in the store already.

    It takes the place of one that is due, but not with fresh patience: the store must answer at some time.
    """
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
    cut, due = Cut(next_number(state), versions), state.checkpoints.due
    attempt, faults = (1, 0) if due is None else (due.attempt, due.faults)
    return Upload(cut, tuple(versions[number] for number in new), tuple(nodes), attempt, faults)
