"""Failover: what follows when nodes are lost, for replicas, for tasks without one, and for work under way.

Beside it the other end of an outage: what is let go of when tasks are accurate again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenax.control.copies import Role, TaskState
from tenax.control.events import NodesLost
from tenax.control.instructions import (
    CancelCheckpoint,
    CancelPass,
    Decided,
    Outcome,
    Stop,
    Wake,
)
from tenax.control.load import LEFT_OUT
from tenax.control.notices import ReplicaPromoted
from tenax.control.placement.assignment import requested
from tenax.control.recovery.standing import standing
from tenax.control.rescaling import put_off
from tenax.control.run import Run
from tenax.control.state import Outage, Running, RunState
from tenax.model.protection import Backups, Outputs


def nodes_lost(run: Run, state: RunState, event: NodesLost) -> RunState:
    """The state after nodes are gone: whatever runs is over, and every task that was there has a new beginning."""
    lost = {node.name for node in state.nodes if node.name in event.nodes}
    state = replace(state, failures=replace(state.failures, gone=state.failures.gone | set(event.nodes)))
    if not lost:
        return state
    if event.overdue:
        state = _overdue(run, state)
    pending: list[Decided] = []
    tasks = []
    for number, task in enumerate(state.tasks):
        left = task.without(lost)
        if task.primary is not None and task.primary.node in lost:
            left = _bereft(run, state, number, left)
            if left.primary is not None:
                pending.append(ReplicaPromoted(run.tasks[number], left.primary.node))
        tasks.append(left)
    for number in run.rebuilt:
        if tasks[number].primary is None:
            tasks[number] = _rebuilt(run, state, number, tasks)
    losses = state.failures.losses + len(lost)
    correlated = losses >= run.protection.correlated_losses
    state = replace(
        state,
        nodes=tuple(node for node in state.nodes if node.name not in lost),
        tasks=tuple(tasks),
        failures=replace(
            state.failures,
            losses=losses,
            alert=state.failures.alert or (correlated and run.protection.backups is Backups.ADAPTIVE),
        ),
        placement=replace(state.placement, due=True),
        load=replace(state.load, left_out=LEFT_OUT),
    )
    if correlated:
        state, request = requested(run, state, len(lost))
        pending += [] if request is None else [request]
    state = cancelled(replace(state, pending=(*state.pending, *pending)))
    begins = state.outage is None
    state = settle(run, state)
    delay_s = run.protection.tentative_delay_s
    if begins and state.outage is not None and delay_s and run.protection.outputs is Outputs.TENTATIVE:
        state = replace(
            state,
            pending=(*state.pending, Wake(delay_s, state.outage.number)),
            failures=replace(state.failures, outage=replace(state.outage, holding=True)),
        )
    return state


def _overdue(run: Run, state: RunState) -> RunState:
    """One more pass did not end: after some, it is the code that does not, and would take one node after the other."""
    state = replace(state, failures=replace(state.failures, overdue=state.failures.overdue + 1))
    if state.failures.overdue < run.protection.max_attempts:
        return state
    running = next(iter(state.passes.running), None)
    which = "a pass" if running is None else f"batches {running.first} to {running.last}"
    reason = (
        f"a pass ends within its deadline, found that {which} did not, {state.failures.overdue} times on other nodes: "
        "correct the operator whose code does not end, or make batches smaller, and start again"
    )
    return replace(state, stop=Stop(Outcome.FAILED, reason, resumable=True))


def _bereft(run: Run, state: RunState, number: int, task: TaskState) -> TaskState:
    """A task that has lost its primary: its replica takes over, if it is of use; a source goes on anywhere."""
    point = task.head if run.is_source[number] else state.newest.points[number]
    replica = task.replica
    if replica is not None and replica.head.batch >= point.batch and replica.head.inputs_after >= point.inputs_after:
        return replace(task, restore_point=point, primary=replica, replica=None, replay=None)
    return TaskState(point, retained=task.retained, rebuild_points=task.rebuild_points)


def _rebuilt(run: Run, state: RunState, number: int, tasks: Sequence[TaskState]) -> TaskState:
    """A lost task that was never stored: at the newest batch after which it can be rebuilt and feed its consumers."""
    bound = min((tasks[consumer].batch for consumer in run.graph.consumers_of(number)), default=state.finished)
    point = tasks[number].rebuild_point(state.newest.points[number], bound)
    return replace(tasks[number], restore_point=point)


def cancelled(state: RunState) -> RunState:
    """Without running passes and the checkpoint that is made of versions that may be gone; tasks have to come back."""
    pending: list[Decided] = [CancelPass(running.pass_id) for running in state.passes.running]
    if state.checkpoints.storing is not None:
        pending.append(CancelCheckpoint(state.checkpoints.storing.cut.number))
    outage = None if state.outage is None else replace(state.outage, lag=None, stalled=0, went_on=False)
    rebalancing_due = state.placement.rebalancing_due or bool(state.placement.moving)
    return replace(
        put_off(state),
        pending=(*state.pending, *pending),
        passes=replace(state.passes, live=None, live_attempt=1, round=None, round_attempt=1),
        checkpoints=replace(state.checkpoints, due=None, sweeps=()),
        placement=replace(state.placement, rebalancing_due=rebalancing_due, moving={}),
        failures=replace(state.failures, outage=outage),
    )


def partial(run: Run, running: Running | None) -> bool:
    """Whether a live pass will leave tasks behind: it steps some of them tentatively, or not at all."""
    if running is None:
        return False
    accurate = sum(step.role is Role.PRIMARY and not step.tentative for step in running.steps)
    return accurate < len(run.tasks)


def settle(run: Run, state: RunState) -> RunState:
    """Let go of what an outage left behind: forks of tasks that are accurate again, replay copies, the outage.

    A task that is accurate and up to date needs no fork; when all are, no replay copy is needed either. A live pass
    that is partial will leave tasks behind once more, so the outage lasts at least as long as that.
    """
    now = standing(run, state)
    tasks = tuple(
        task if degraded else task.accurate() for task, degraded in zip(state.tasks, now.degraded.tolist(), strict=True)
    )
    lagging = any(task.replica is not None and task.replica.batch < task.batch for task in tasks)
    if now.healthy and not lagging:
        tasks = tuple(task if task.replay is None else replace(task, replay=None) for task in tasks)
    outage = None if now.healthy and not partial(run, state.passes.live) else state.outage
    if not now.healthy and outage is None:
        outage = Outage(state.failures.outages + 1)
    outages = state.failures.outages if outage is None else outage.number
    return replace(state, tasks=tasks, failures=replace(state.failures, outage=outage, outages=outages))
