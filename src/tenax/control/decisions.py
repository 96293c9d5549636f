"""The deciding half of the state machine: what follows from a state, each instruction once, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tenax.control.checkpoints.strategies import (
    acknowledged,
    captured,
    interval,
    is_last,
    stored_tasks,
    sweeping,
    wanted,
)
from tenax.control.copies import Role
from tenax.control.instructions import (
    CancelPass,
    Decided,
    LogBatches,
    Outcome,
    PassKind,
    Publish,
    Reading,
    RunPass,
    Step,
    Stop,
    StoreCheckpoint,
    Trim,
)
from tenax.control.placement.assignment import place_lost, request_nodes
from tenax.control.placement.balancing import change_places
from tenax.control.placement.following import plan_replicas, retire
from tenax.control.placement.promises import plan_backups
from tenax.control.recovery.outages import settle
from tenax.control.recovery.pauses import pause_s
from tenax.control.recovery.prediction import with_blocking
from tenax.control.recovery.restores import takes_long
from tenax.control.recovery.rounds import lag, next_round
from tenax.control.recovery.standing import Standing, standing
from tenax.control.rescaling import ended, ends, is_paused, is_switching, last_batch, request_for_rescale, rescale
from tenax.control.run import Run
from tenax.control.state import KEPT_CHECKPOINTS, LogRequest, Phase, Running, RunState
from tenax.control.versions import PassId
from tenax.model.protection import Backups, Outputs, Recovery, Strategy
from tenax.model.tasks import Task

Decision = tuple[RunState, Decided | None]


def decide(run: Run, state: RunState) -> tuple[RunState, list[Decided]]:
    """All that is to be done now. Each instruction is noted in the state, so the next call does not repeat it."""
    if state.phase is Phase.STOPPED:
        return state, []
    decided = list(state.pending)
    state = replace(state, pending=())
    if state.stop is not None:
        state, last = _end(run, state, state.stop)
        return state, [*decided, *last]
    for step in _STEPS:
        if is_switching(state):  # what else there is to do is the next coordinator's, or waits for the answer
            return state, decided
        state, following = step(run, state)
        if following is not None:
            decided.append(following)
    if state.phase is not Phase.WAITING and _is_over(run, state):
        state, last = _end(
            run, state, state.wrap_up or Stop(Outcome.FINISHED, "the sources have ended", resumable=False)
        )
        decided += last
    return state, decided


def _end(run: Run, state: RunState, stop: Stop) -> tuple[RunState, list[Decided]]:
    cancelled: list[Decided] = [CancelPass(running.pass_id) for running in state.passes.running]
    over = replace(state, phase=Phase.STOPPED, stop=stop, passes=replace(state.passes, live=None, round=None))
    return settle(run, over) if over.tasks else over, [*cancelled, *ended(state, stop), stop]


def _place(run: Run, state: RunState) -> Decision:
    """Nodes for lost tasks, whenever nodes have come or gone."""
    if not state.placement.due:
        return state, None
    state, placed = place_lost(run, replace(state, placement=replace(state.placement, due=False)))
    return with_blocking(run, settle(run, state)), placed


def _publish(_run: Run, state: RunState) -> Decision:
    """One at a time, oldest first: so results of a task appear in the order of their batches."""
    if state.logs.publishing is not None or not state.logs.unpublished:
        return state, None
    results, attempt = state.logs.unpublished[0], state.logs.publish_attempt
    return (
        replace(state, logs=replace(state.logs, publishing=attempt)),
        Publish(results.pass_id, results.parts, results.tentative, attempt, pause_s(state.logs.publish_faults)),
    )


def _run_round(run: Run, state: RunState) -> Decision:
    """In the background, one at a time, and not beside a checkpoint: nodes have one slot for such work."""
    busy = state.passes.round is not None or state.checkpoints.storing is not None or is_paused(state)
    if state.phase is not Phase.RUNNING or busy or state.wrap_up is not None:
        return state, None
    now = standing(run, state)
    gathered = None if _outputs_come_first(run, state, now) else next_round(run, state, now)
    if gathered is None:
        return state, None
    batches = gathered.after + 1, gathered.last
    return _pass(run, state, PassKind.ROUND, batches, tuple(gathered.steps), tuple(gathered.readings))


def _outputs_come_first(run: Run, state: RunState, now: Standing) -> bool:
    """Whether a round that has much to read waits for the first live pass since nodes were lost.

    Beside it, on what is left of the nodes, the first outputs would take several times as long.
    """
    outage, passes = state.outage, state.passes
    if outage is None or outage.went_on or passes.live_attempt > 1 or passes.live_faults:
        return False
    return takes_long(run, state, now) and (passes.live is not None or _run_live(run, state)[1] is not None)


def _run_live(run: Run, state: RunState) -> Decision:
    """The logged batches that wait, up to a bound, for all tasks that can step."""
    if state.phase is not Phase.RUNNING or state.passes.live is not None or state.wrap_up is not None:
        return state, None
    if is_paused(state):
        return state, None
    now = standing(run, state)
    settings, first = run.settings, state.finished + 1
    may_wait = state.finished + settings.max_unpublished - sum(results.batches for results in state.logs.unpublished)
    last = min(state.logs.logged, state.finished + settings.max_batches_per_pass, may_wait)
    if first < state.passes.raises_at:
        last = min(last, state.passes.raises_at - 1)
    of_version = last_batch(state)
    if of_version is not None:
        last = min(last, of_version)
    if last < first or _pauses(run, state, now) or _suspended(run, state):
        return state, None
    steps = _live_steps(run, state, now)
    if not steps or (all(run.is_source[run.number[step.task]] for step in steps) and not run.is_source.all()):
        return state, None  # there is no task to read
    return _pass(run, state, PassKind.LIVE, (first, last), steps, ())


def _pauses(run: Run, state: RunState, now: Standing) -> bool:
    """Whether live passes pause for tasks or replicas that are about to be back, or cannot come back otherwise.

    Those that have yet to read large states are not, however few batches they are behind.
    """
    left = lag(state, now)
    near = left is not None and (left <= run.protection.cutover_lag or _late(run, state) or _came_near(run, state))
    cutover = near and state.checkpoints.storing is None and not takes_long(run, state, now)
    if state.outage is None:
        return cutover
    return (
        cutover
        or run.protection.recovery is Recovery.BLOCKING
        or state.outage.blocks
        or state.outage.stalled >= run.protection.patience
        or state.outage.bytes > run.protection.max_outage_bytes
    )


def _late(run: Run, state: RunState) -> bool:
    """Whether a checkpoint waits for replicas: if live passes outran them for ever, none would ever be made."""
    return state.outage is None and (state.checkpoints.due is not None or bool(wanted(run, state)))


def _suspended(run: Run, state: RunState) -> bool:
    """Whether tasks pause until they are stored."""
    if Strategy.SYNCHRONOUS not in run.by_strategy:
        return False
    suspended = set(run.by_strategy[Strategy.SYNCHRONOUS])
    versions = (version for upload in state.checkpoints.uploads for version in upload.versions)
    return any(run.number[version.task] in suspended for version in versions)


def _came_near(run: Run, state: RunState) -> bool:
    """Whether the last round came near; what a live pass added meanwhile must not put the cutover off for ever."""
    reached = None if state.outage is None else state.outage.lag
    return reached is not None and reached <= run.protection.cutover_lag


def _live_steps(run: Run, state: RunState, now: Standing) -> tuple[Step, ...]:
    """Every copy that is at the front: accurate ones, and tentative ones unless outputs are held for good.

    During a delay they step as well, else they would not be at the front when it is over; their results are not shown.
    """
    steps: list[Step] = []
    for number, task in enumerate(state.tasks):
        degraded = bool(now.degraded[number])
        if degraded and run.protection.outputs is Outputs.HOLD:
            continue
        for copy, role in ((task.primary, Role.PRIMARY), (task.in_step, Role.REPLICA)):
            start = None if copy is None else copy.front(state.finished)
            if copy is not None and start is not None:
                stored = copy.stored and start == copy.head
                steps.append(Step(run.tasks[number], copy.node, start, role, stored, degraded))
    return tuple(steps)


def _pass(
    run: Run,
    state: RunState,
    kind: PassKind,
    batches: tuple[int, int],
    steps: tuple[Step, ...],
    readings: tuple[Reading, ...],
) -> tuple[RunState, RunPass]:
    first, last = batches
    attempt, faults = state.passes.tries(kind)
    retain, begun = _retained(run, state), state.passes.begun + 1
    running = Running(PassId(state.epoch, begun), kind, first, last, steps, retain)
    state = replace(state, passes=replace(state.passes, begun=begun).with_running(kind, running))
    # A pass that waits before it begins lets go of nothing: until then others may need what nobody needs now.
    keep, deadline_s = (
        0 if faults else _needed_from(state),
        run.settings.bounds.pass_deadline_s * max(attempt, 1 + state.failures.overdue),
    )
    instruction = RunPass(
        *(running.pass_id, kind, first, last, steps, readings, retain, keep, deadline_s, attempt),
        active_active=run.active_active,
        pause_s=pause_s(faults),
    )
    return state, instruction


def _retained(run: Run, state: RunState) -> frozenset[Task]:
    """The tasks that keep their outputs now; sources need not, and the last tasks have no consumers.

    While tasks are missing, all do: a task that is lost next can then be fed. Producers of a task that lacks its
    replica do, so that a new one can catch up. And all do whose consumers may be restored at an older batch than they.
    """
    graph = run.graph
    all_tasks = state.outage is not None or state.failures.alert or run.protection.backups is Backups.ALL
    retaining: set[Task] = set(run.tasks) if all_tasks else {*state.promises.retained_by, *run.ahead}
    if not all_tasks:
        for number in {*(run.number[task] for task in state.placement.replicated), *state.placement.moving}:
            if state.tasks[number].in_step is None:
                retaining.update(run.tasks[producer] for producer in graph.producers_of(number))
    return frozenset(
        task for task in retaining if not run.is_source[run.number[task]] and graph.consumers[_operator(run, task)]
    )


def _operator(run: Run, task: Task) -> int:
    return int(run.graph.operator_of[run.number[task]])


def _needed_from(state: RunState) -> int:
    """The oldest batch of which a version on a node may still be asked for.

    While a copy has to catch up, replay copies may begin at any checkpoint at any time, also while this pass runs.
    """
    stored = [version.batch for upload in state.checkpoints.uploads for version in upload.versions]
    copies = (copy for task in state.tasks for copy in (task.primary, task.replica, task.replay))
    behind = state.outage is not None or any(task.replica is not None and task.in_step is None for task in state.tasks)
    replays = [cut.oldest_batch for cut in state.checkpoints.kept] if behind else []
    swept = [head.batch for heads in state.checkpoints.sweeps for head in heads]
    return min([*stored, *replays, *swept, *(copy.batch for copy in copies if copy is not None)], default=0)


def _log(run: Run, state: RunState) -> Decision:
    """Ahead of the passes, by a bounded number."""
    count = state.sizes.count(run.settings, state.logs.logged - state.finished)
    over = state.logs.ended or state.wrap_up is not None or is_paused(state)
    if state.phase is Phase.WAITING or state.logs.logging is not None or over or count < 1:
        return state, None
    request = LogRequest(state.logs.logged + 1, count, state.logs.log_attempt)
    rows = state.sizes.limit(run.settings)
    order = LogBatches(request.first, request.count, request.attempt, pause_s(state.logs.log_faults), rows)
    return replace(state, logs=replace(state.logs, logging=request)), order


def _store_checkpoint(run: Run, state: RunState) -> Decision:
    """One at a time, between two passes, and only of published batches.

    A run that is restored from a checkpoint could not make earlier results again.
    """
    if state.checkpoints.storing is not None or state.passes.round is not None or state.phase is not Phase.RUNNING:
        return state, None
    if is_paused(state):  # that stores its own
        return state, None
    ending = _ends(state) and not is_last(run, state, state.newest)
    newer = state.checkpoints.due is None or (ending and not is_last(run, state, state.checkpoints.due.cut))
    if state.passes.live is None and newer and standing(run, state).healthy:
        numbers = stored_tasks(run) if ending else wanted(run, state)
        without_sweeps = replace(state, checkpoints=replace(state.checkpoints, sweeps=()))
        state = without_sweeps if ending else sweeping(run, state, numbers)
        if numbers or ending:
            state = replace(state, checkpoints=replace(state.checkpoints, due=captured(run, state, numbers)))
    due = state.checkpoints.due
    if due is None or due.newest_batch > state.final:
        return state, None
    load = replace(state.load, interval=interval(run, state)) if state.load.batches else None
    order = StoreCheckpoint(due.cut, due.versions, due.nodes, due.attempt, pause_s(due.faults), load)
    return replace(state, checkpoints=replace(state.checkpoints, due=None, storing=due)), order


def _trim(run: Run, state: RunState) -> Decision:
    """Behind the newest checkpoint what recovery reads, behind the oldest kept one what a restart reads."""
    if len(state.checkpoints.kept) < KEPT_CHECKPOINTS or state.outage is not None:
        return state, None
    oldest, newest = state.checkpoints.kept[0], state.checkpoints.kept[-1]
    of_task = {task: acknowledged(run, newest, run.number[task]) + 1 for task in run.trimmed_apart}
    trim = Trim(newest.oldest_batch + 1, oldest.number, oldest.oldest_batch + 1, of_task)
    if trim == state.checkpoints.trimmed:
        return state, None
    return replace(state, checkpoints=replace(state.checkpoints, trimmed=trim)), trim


def _ends(state: RunState) -> bool:
    """Whether nothing is left to run: the end was asked for, or the sources have ended and all is finished."""
    return ends(state) and not state.passes.running


def _is_over(run: Run, state: RunState) -> bool:
    idle = not state.logs.unpublished and state.checkpoints.storing is None
    if not (_ends(state) and idle):
        return False
    if not standing(run, state).healthy:
        return state.wrap_up is not None  # no checkpoint can be made: what was stored before must do
    if state.checkpoints.due is not None:
        return False
    return is_last(run, state, state.newest) or captured(run, state, stored_tasks(run)) is None


_STEPS: tuple[Callable[[Run, RunState], Decision], ...] = (
    _place,
    request_nodes,
    retire,  # before the next pass: it steps in none that runs
    change_places,
    _publish,  # before the next pass: results are what people wait for
    _run_round,
    request_for_rescale,
    rescale,
    _store_checkpoint,  # before the next pass: it needs all tasks at rest
    _run_live,
    _log,
    _trim,
    plan_replicas,
    plan_backups,
)
