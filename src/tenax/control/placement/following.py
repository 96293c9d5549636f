"""Replicas follow the load: rates are measured, plans made by them, and replicas moved if that is worth it.

New replicas start from a checkpoint and catch up beside the live passes; old ones end when these are in step. Where
room is short, the old ones end first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tenax.control.events import PlanKind, PlanningFailed, ReplicasPlanned, TaskReport
from tenax.control.instructions import PlanReplicas
from tenax.control.notices import ReplicasMoved
from tenax.control.placement.capacity import Capacity
from tenax.control.placement.promises import is_asked
from tenax.control.recovery.standing import standing
from tenax.control.run import Run
from tenax.control.state import Counts, Phase, RunState
from tenax.model.tasks import Task
from tenax.planning.rates import Rows


def counted(run: Run, state: RunState, reports: Iterable[TaskReport], batches: int) -> RunState:
    """With the rows of a live pass; those of a replica are its primary's. O(tasks)."""
    if state.outage is not None:
        return state  # the rows of missing tasks are missing too
    before = state.placement.counts or Counts(0, (0,) * len(run.tasks), (0,) * len(run.tasks))
    taken, given = list(before.taken), list(before.given)
    for task, report in {report.version.task: report for report in reports}.items():
        taken[run.number[task]] += report.rows
        given[run.number[task]] += report.rows_out
    counts = Counts(before.batches + batches, tuple(taken), tuple(given))
    if counts.batches < run.settings.bounds.measure_every or not any(given):
        return replace(state, placement=replace(state.placement, counts=counts))
    rows = Rows(tuple(map(float, taken)), tuple(map(float, given)))
    return replace(
        state,
        placement=replace(state.placement, counts=None, measured=rows, plan_due=run.protection.follows),
        promises=replace(state.promises, due=is_asked(run)),
    )


def plan_replicas(_run: Run, state: RunState) -> tuple[RunState, PlanReplicas | None]:
    """Ask for a plan whenever rates were measured; one at a time, and not while tasks are missing."""
    if not state.placement.plan_due or state.placement.plan_request is not None or state.placement.measured is None:
        return state, None
    if state.phase is not Phase.RUNNING or state.wrap_up is not None or state.outage is not None:
        return state, None
    return (
        replace(state, placement=replace(state.placement, plan_request=state.finished, plan_due=False)),
        PlanReplicas(state.finished, state.placement.measured, state.placement.replicated),
    )


def replicas_planned(run: Run, state: RunState, event: ReplicasPlanned) -> RunState | None:
    """Replicas are to be where the plan says, if it gains enough; None if it was not asked for."""
    if state.placement.plan_request != event.batch:
        return None
    state = replace(state, placement=replace(state.placement, plan_request=None))
    wanted = frozenset(task for task in event.replicas if not run.is_source[run.number[task]])
    gains = run.protection.follows and event.after - event.before > run.protection.follow_load
    if not gains or wanted == state.placement.replicated:
        return state
    moved = ReplicasMoved(
        _sorted(run, state.placement.replicated),
        _sorted(run, wanted),
        event.before,
        event.after,
        f"by the rows of the batches before {event.batch + 1}, what outputs keep if all else fails grows from "
        f"{event.before:.2f} to {event.after:.2f}",
    )
    return replace(state, pending=(*state.pending, moved), placement=replace(state.placement, replicated=wanted))


def planning_failed(state: RunState, event: PlanningFailed) -> RunState | None:
    """Replicas stay where they are until the next plan; None if it was not asked for."""
    if event.what is not PlanKind.REPLICAS or state.placement.plan_request != event.batch:
        return None
    return replace(state, placement=replace(state.placement, plan_request=None))


def retire(run: Run, state: RunState) -> tuple[RunState, None]:
    """Let go of replicas that the plan no longer has: when the new ones are in step, or else to make room for them."""
    old = {
        number
        for number, task in enumerate(state.tasks)
        if task.replica is not None
        and run.tasks[number] not in state.placement.replicated
        and number not in state.placement.moving
    }
    if not old or state.passes.running or not standing(run, state).healthy:
        return state, None
    lacking = any(state.tasks[run.number[task]].in_step is None for task in state.placement.replicated)
    if lacking and not Capacity(run, state).bounds(state.nodes):
        return state, None
    tasks = (replace(task, replica=None) if number in old else task for number, task in enumerate(state.tasks))
    return replace(state, tasks=tuple(tasks)), None


def _sorted(run: Run, tasks: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(sorted(tasks, key=run.number.__getitem__))
