"""The learning half of the state machine: the state after an event, one function per event."""

from __future__ import annotations

from dataclasses import replace

from tenax.control.checkpoints.rebuild_points import (
    known_rebuild_points,
    new_rebuild_points,
    with_fewer_rebuild_points,
    with_rebuild_point,
)
from tenax.control.checkpoints.strategies import acknowledged, swept
from tenax.control.copies import Copy, Role, TaskState
from tenax.control.elastic import observed
from tenax.control.events import (
    BackupsPlanned,
    BatchesLogged,
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    Event,
    LoggingFailed,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
    PlanningFailed,
    Published,
    PublishFailed,
    ReplicasPlanned,
    RescaleAsked,
    RescaleFailed,
    Started,
    StopRequested,
    Woken,
)
from tenax.control.instructions import Outcome, Part, PassKind, Step, Stop
from tenax.control.learned import Ignored, Learned, failed
from tenax.control.load import LEFT_OUT, MEMORY, Arrival, measured, restored
from tenax.control.placement import promises
from tenax.control.placement.assignment import LESS, place_replicas
from tenax.control.placement.balancing import begin_moves, first_places
from tenax.control.placement.capacity import Capacity, in_use, yields
from tenax.control.placement.following import counted, planning_failed, replicas_planned
from tenax.control.recovery.failed_passes import pass_failed
from tenax.control.recovery.failures import Refused
from tenax.control.recovery.outages import nodes_lost, partial, settle
from tenax.control.recovery.pauses import given_up, has_patience
from tenax.control.recovery.rounds import lag
from tenax.control.recovery.standing import qualities, standing
from tenax.control.rescaling import is_paused, rescale_asked, rescale_failed
from tenax.control.run import Run
from tenax.control.starts import at_start, wrong_start
from tenax.control.state import KEPT_CHECKPOINTS, Period, Phase, Rescaling, Results, Running, RunState
from tenax.control.versions import NO_PASS, Cut, PassId, Span, Version
from tenax.errors import TenaxError
from tenax.model.tasks import Task


def learn(run: Run, state: RunState, event: Event) -> Learned:
    """The state after an event, or why the event means nothing now."""
    if state.phase is Phase.STOPPED:
        return Ignored("the run has stopped")
    if state.phase is Phase.WAITING and not isinstance(event, Started | StopRequested | EpochLost):
        return Ignored("the run has not started")
    match event:
        case Started():
            return _started(run, state, event)
        case BatchesLogged():
            return _batches_logged(run, state, event)
        case LoggingFailed():
            return _logging_failed(run, state, event)
        case PassFinished():
            return _pass_finished(run, state, event)
        case PassFailed():
            return pass_failed(run, state, event.pass_id, event.failure)
        case Published():
            return _published(state, event)
        case PublishFailed():
            return _publish_failed(run, state, event)
        case CheckpointStored():
            return _checkpoint_stored(run, state, event)
        case CheckpointFailed():
            return _checkpoint_failed(run, state, event)
        case NodesJoined():
            return _nodes_joined(state, event)
        case NodesLost():
            return nodes_lost(run, state, event)
        case Woken():
            return _woken(state, event)
        case ReplicasPlanned():
            return replicas_planned(run, state, event) or Ignored("this plan was not asked for")
        case BackupsPlanned():
            return promises.backups_planned(run, state, event) or Ignored("this plan was not asked for")
        case PlanningFailed():
            known = planning_failed(state, event) or promises.planning_failed(state, event)
            return known or Ignored("this plan was not asked for")
        case StopRequested():
            return _stop_requested(state, event)
        case EpochLost():
            return _epoch_lost(state, event)
        case RescaleAsked():
            return rescale_asked(state, event)
        case RescaleFailed():
            return rescale_failed(run, state, event)


def _started(run: Run, state: RunState, event: Started) -> Learned:
    if state.phase is not Phase.WAITING:
        return Ignored("the run has started already")
    initial = Cut(0, tuple(Version(task, 0, NO_PASS) for task in run.tasks))
    checkpoint = event.checkpoint or initial
    published = {task: event.published.get(task, 0) for task in sorted(run.publishers, key=run.number.__getitem__)}
    state = replace(
        state,
        phase=Phase.RUNNING,
        epoch=event.epoch,
        nodes=event.nodes,
        logs=replace(
            state.logs,
            logged=event.logged,
            published=published,
            logging=event.logging,
            ended=event.ended,
            shown=event.shown,
        ),
        passes=replace(state.passes, finished=checkpoint.newest_batch, begun=event.passes),
        checkpoints=replace(state.checkpoints, kept=(checkpoint,)),
        placement=replace(state.placement, replicated=run.replicas),
        # what an earlier driver has measured is known at once, and counts before what is only reckoned
        promises=replace(state.promises, retained_by=run.retain, due=promises.is_asked(run) and event.load is not None),
        failures=replace(state.failures, gone=event.gone, outages=event.outages),
        load=event.load or state.load,
        sizes=event.sizes or state.sizes,
        period=Period(event.watch) if event.watch is not None else state.period,
        rescaling=None if event.next_version is None else Rescaling(event.next_version),
    )
    wrong = wrong_start(run, event, checkpoint, published.values())
    if wrong is not None:
        return failed(state, wrong)
    capacity = Capacity(run, state)
    try:
        homes = first_places(run, capacity, in_use(run, state)).primaries if event.nodes else {}
    except TenaxError as error:
        if not event.passes and (not capacity.is_measured or any(node.slots is not None for node in event.nodes)):
            return failed(state, str(error))
        # By what an earlier driver has measured there is not room for all, or nodes were lost while this version was
        # recorded: the best queries come first.
        homes = {}
        state = replace(state, placement=replace(state.placement, due=True))
    tasks = tuple(
        TaskState(point, Copy(homes[point.task], point, stored=True) if homes else None, rebuild_points=known)
        for point, known in zip(at_start(run, checkpoint), known_rebuild_points(run, checkpoint), strict=True)
    )
    state = settle(run, place_replicas(run, replace(state, tasks=tasks), checkpoint))
    if lag(state, standing(run, state)):  # some are stored at older batches: nothing goes on before they have caught up
        assert state.outage is not None
        state = state.with_outage(replace(state.outage, stalled=run.protection.patience))
    return state


def _batches_logged(run: Run, state: RunState, event: BatchesLogged) -> Learned:
    asked = state.logs.logging
    if asked is None or asked.first != event.first:
        return Ignored("these batches were not asked for, or are known")
    fewest = 0 if event.ended else 1
    if not fewest <= event.last - event.first + 1 <= asked.count:
        return failed(
            state,
            f"a driver logs {fewest} to {asked.count} batches from {asked.first} on, found through {event.last}: "
            "correct the driver",
        )
    arrival = state.load.arrival.logged(event, MEMORY * run.settings.batches.batch_s)
    return replace(
        state,
        logs=replace(state.logs, logged=event.last, ended=event.ended, logging=None, log_attempt=1, log_faults=0),
        load=replace(state.load, arrival=arrival),
        placement=replace(state.placement, due=state.placement.due or _slower(state, arrival)),
        sizes=state.sizes.logged(event),
    )


def _slower(state: RunState, arrival: Arrival) -> bool:
    """Whether rows come so much slower than when tasks found no room that they may find some now."""
    before, now = state.placement.rate, arrival.rows_per_s
    return bool(state.placement.waiting) and before is not None and (now is None or now < LESS * before)


def _logging_failed(run: Run, state: RunState, event: LoggingFailed) -> Learned:
    asked = state.logs.logging
    if asked is None or (asked.first, asked.attempt) != (event.first, event.attempt):
        return Ignored("these batches were not asked for, or are known")
    if not event.again:
        return failed(state, f"batch {event.first} cannot be planned: {event.cause}")
    if event.storage:
        faults = state.logs.log_faults + 1
        if not has_patience(run, faults):
            return failed(state, given_up(run, f"batch {event.first} was not logged", event.cause))
        return replace(state, logs=replace(state.logs, logging=None, log_attempt=asked.attempt + 1, log_faults=faults))
    if asked.attempt >= run.protection.max_attempts:
        return failed(
            state, f"batch {event.first} could not be planned and logged, tried {event.attempt} times: {event.cause}"
        )
    return replace(state, logs=replace(state.logs, logging=None, log_attempt=asked.attempt + 1))


def _pass_finished(run: Run, state: RunState, event: PassFinished) -> Learned:
    running = next((running for running in state.passes.running if running.pass_id == event.pass_id), None)
    if running is None:
        return Ignored("this pass does not run")
    reported = {(report.version, report.node) for report in event.reports}
    missing = [step for step in running.steps if (running.made(step), step.node) not in reported]
    if missing:
        return pass_failed(run, state, event.pass_id, Refused(missing[0].task, "its report is missing"))
    results = _results(run, state, running)
    tasks = list(state.tasks)
    for step in running.steps:
        number = run.number[step.task]
        tasks[number] = _stepped(tasks[number], step, running)
    for point in new_rebuild_points(run, running, event):
        number = run.number[point.task]
        tasks[number] = with_rebuild_point(tasks[number], point)
    for task, steps in _retaining(running).items():
        number = run.number[task]
        span = Span(running.first, running.last, running.pass_id, tuple(step.node for step in steps))
        tasks[number] = replace(tasks[number], retained=(*tasks[number].retained, span))
    state = replace(
        state, tasks=tuple(tasks), logs=replace(state.logs, unpublished=(*state.logs.unpublished, *results))
    )
    written = sum(report.written_bytes for report in event.reports)
    if running.kind is PassKind.LIVE:
        state = _paced(state, event.at_s, running.last - running.first + 1)
        overdue = state.failures.overdue if partial(run, running) else 0
        state = replace(
            state,
            passes=replace(state.passes, live=None, live_attempt=1, live_faults=0, finished=running.last),
            failures=replace(state.failures, overdue=overdue),
        )
        state = counted(run, state, event.reports, running.last - running.first + 1)
        state = observed(run, _measured(run, state, event, running), event)
        if state.outage is not None:
            outage = replace(state.outage, bytes=state.outage.bytes + written, went_on=True)
            state = state.with_outage(outage)
            if state.placement.waiting and yields(run, state):
                state = replace(state, placement=replace(state.placement, due=True))
    else:
        state = replace(state, load=restored(state.load, event.reports))
        state = _closer(run, replace(state, passes=replace(state.passes, round=None, round_attempt=1, round_faults=0)))
    return settle(run, state)


def _measured(run: Run, state: RunState, event: PassFinished, running: Running) -> RunState:
    """What a live pass tells of the load, if no task is missing, and of the sizes of batches."""
    batches, degraded = running.last - running.first + 1, state.outage is not None or partial(run, running)
    state = replace(
        state,
        sizes=state.sizes.passed(
            run.settings, run.graph, event, batches, degraded=degraded, rows_per_s=state.load.arrival.rows_per_s
        ),
    )
    if state.outage is not None:
        return replace(state, load=replace(restored(state.load, event.reports), left_out=LEFT_OUT))
    homes = tuple(None if task.primary is None else task.primary.node for task in state.tasks)
    return replace(state, load=measured(state.load, run.graph, homes, event, batches))


def _paced(state: RunState, at_s: float, batches: int) -> RunState:
    """How long a batch takes: a moving mean, from one live pass to the next."""
    spent = (at_s - state.checkpoints.seen_s) / batches if state.checkpoints.seen_s else 0.0
    mean = spent if not state.checkpoints.batch_s else 0.8 * state.checkpoints.batch_s + 0.2 * spent
    return replace(state, checkpoints=replace(state.checkpoints, seen_s=at_s, batch_s=mean))


def _stepped(task: TaskState, step: Step, running: Running) -> TaskState:
    """A task after one of its copies has stepped."""
    made = running.made(step)
    match step.role:
        case Role.REPLAY:
            return replace(task, replay=_moved(Copy(step.node, step.rebuilding or made), step, made))
        case Role.REPLICA:
            return replace(task, replica=_moved(task.replica, step, made))
        case Role.PRIMARY:
            return replace(task, primary=_moved(task.primary, step, made))


def _moved(copy: Copy | None, step: Step, made: Version) -> Copy:
    assert copy is not None
    assert copy.node == step.node
    if step.tentative:
        return replace(copy, fork=made)
    if step.rebuilding is not None and made.batch < step.rebuilding.batch:
        return replace(copy, rebuilt=made, stored=False)
    return replace(copy, head=made, rebuilt=None, stored=False)


def _retaining(running: Running) -> dict[Task, list[Step]]:
    """The accurate steps that kept their outputs; what is tentative, or of a state half rebuilt, is never kept."""
    retaining: dict[Task, list[Step]] = {}
    for step in running.steps:
        if step.task in running.retain and not step.tentative and step.rebuilding is None:
            retaining.setdefault(step.task, []).append(step)
    return retaining


def _results(run: Run, state: RunState, running: Running) -> list[Results]:
    """What a pass has made for outputs that is neither committed nor waits to be."""
    final: list[Part] = []
    tentative: list[Part] = []
    held = state.outage is not None and state.outage.holding
    any_tentative = any(step.tentative for step in running.steps)
    quality = qualities(run, running.steps, state.placement.measured) if any_tentative else {}
    for step in running.steps:
        if step.role is not Role.PRIMARY or step.task not in run.publishers or step.rebuilding is not None:
            continue
        first = max(running.first, through(state, step.task) + 1)
        if first > running.last:
            continue
        if step.tentative and held:
            continue
        if step.tentative:
            tentative.append(Part(step.task, first, running.last, quality[step.task]))
        else:
            final.append(Part(step.task, first, running.last))
    batches = running.last - running.first + 1 if running.kind is PassKind.LIVE else 0
    results = [Results(running.pass_id, tuple(final), False, batches)] if final else []
    if tentative:
        results.append(Results(running.pass_id, tuple(tentative), True, 0 if final else batches))
    return results


def through(state: RunState, task: Task) -> int:
    """The newest batch of which a task's final results are committed or wait."""
    waiting = (
        part.last
        for results in state.logs.unpublished
        if not results.tentative
        for part in results.parts
        if part.task == task
    )
    return max(state.logs.published[task], max(waiting, default=0))


def _closer(run: Run, state: RunState) -> RunState:
    """Whether a round has brought the missing tasks closer."""
    if state.outage is None:
        return state
    now = standing(run, state)
    left = 0 if now.healthy else lag(state, now)
    before, stalled = state.outage.lag, state.outage.stalled
    if not left:
        stalled = 0
    elif stalled < run.protection.patience:  # once live passes pause, they do until the cutover
        stalled = stalled + 1 if before is not None and left >= before else 0
    return state.with_outage(replace(state.outage, lag=left, stalled=stalled))


def _published(state: RunState, event: Published) -> Learned:
    front = _front(state, event.pass_id, event.tentative)
    if front is None:
        return Ignored("these results are not being published")
    published = dict(state.logs.published)
    if not front.tentative:
        published |= {part.task: part.last for part in front.parts}
    rest = state.logs.unpublished[1:]
    return replace(
        state,
        logs=replace(
            state.logs, published=published, unpublished=rest, publishing=None, publish_attempt=1, publish_faults=0
        ),
    )


def _publish_failed(run: Run, state: RunState, event: PublishFailed) -> Learned:
    front = _front(state, event.pass_id, event.tentative)
    if front is None or event.attempt != state.logs.publishing:
        return Ignored("these results are not being published")
    part = front.parts[0]
    what = f"results of batches {part.first} to {part.last} were not published"
    if event.storage:
        faults = state.logs.publish_faults + 1
        if not has_patience(run, faults):
            return failed(state, given_up(run, what, event.cause))
        return replace(
            state, logs=replace(state.logs, publishing=None, publish_attempt=event.attempt + 1, publish_faults=faults)
        )
    if event.attempt >= run.protection.max_attempts:
        return failed(state, f"{what} in {event.attempt} attempts: {event.cause}")
    return replace(state, logs=replace(state.logs, publishing=None, publish_attempt=event.attempt + 1))


def _front(state: RunState, pass_id: PassId, tentative: bool) -> Results | None:
    """The results that are being published, if these are they."""
    if state.logs.publishing is None or not state.logs.unpublished:
        return None
    front = state.logs.unpublished[0]
    return front if (front.pass_id, front.tentative) == (pass_id, tentative) else None


def _checkpoint_stored(run: Run, state: RunState, event: CheckpointStored) -> Learned:
    storing = state.checkpoints.storing
    if storing is None or (storing.cut.number, storing.attempt) != (event.number, event.attempt):
        return Ignored("this checkpoint is not being stored")
    cut = storing.cut
    kept, mean_s = (*state.checkpoints.kept, cut)[-KEPT_CHECKPOINTS:], state.checkpoints.checkpoint_s
    mean_s = 0.8 * mean_s + 0.2 * event.seconds if mean_s else event.seconds
    tasks = tuple(with_fewer_rebuild_points(*pair) for pair in zip(state.tasks, cut.points, strict=True))
    state = replace(
        state,
        tasks=tasks,
        checkpoints=replace(state.checkpoints, storing=None, kept=kept, checkpoint_s=mean_s),
        failures=replace(state.failures, rollbacks=0),
    )
    state = swept(run, state)
    if standing(run, state).healthy:
        state = replace(state, failures=replace(state.failures, losses=0, alert=False))
        tasks = tuple(_trimmed(run, task, number, cut) for number, task in enumerate(state.tasks))
        state = place_replicas(run, replace(state, tasks=tasks), cut)
        state = state if is_paused(state) else begin_moves(run, state, cut)
    return state


def _trimmed(run: Run, task: TaskState, number: int, cut: Cut) -> TaskState:
    """A task without the outputs that no consumer can ask for any more."""
    if not task.retained:
        return task
    through = cut.oldest_batch if run.all_aligned else acknowledged(run, cut, number)
    return replace(task, retained=tuple(span for span in task.retained if span.last > through))


def _checkpoint_failed(run: Run, state: RunState, event: CheckpointFailed) -> Learned:
    storing = state.checkpoints.storing
    if storing is None or (storing.cut.number, storing.attempt) != (event.number, event.attempt):
        return Ignored("this checkpoint is not being stored")
    state = replace(state, checkpoints=replace(state.checkpoints, storing=None))
    alive = {node.name for node in state.nodes}
    if not standing(run, state).healthy or not set(storing.nodes) <= alive:
        return state  # not its own fault: the next one begins when all tasks are back
    faults = storing.faults + 1
    if not has_patience(run, faults):
        return failed(state, given_up(run, f"checkpoint {event.number} was not stored", event.cause))
    # A newer one that is due by now takes its place, but not with fresh patience: the store must answer at some time.
    return replace(
        state,
        checkpoints=replace(
            state.checkpoints, due=replace(state.checkpoints.due or storing, attempt=storing.attempt + 1, faults=faults)
        ),
    )


def _nodes_joined(state: RunState, event: NodesJoined) -> Learned:
    known = state.failures.gone | {node.name for node in state.nodes}
    new = tuple(node for node in event.nodes if node.name not in known)
    if not new:
        return Ignored("these nodes are known")
    return replace(state, nodes=state.nodes + new, placement=replace(state.placement, due=True, rebalancing_due=True))


def _woken(state: RunState, event: Woken) -> Learned:
    if state.outage is None or state.outage.number != event.outage or not state.outage.holding:
        return Ignored("this outage does not wait")
    return state.with_outage(replace(state.outage, holding=False))


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
