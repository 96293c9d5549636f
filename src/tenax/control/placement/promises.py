"""Backups follow what is measured: how soon a lost task would be back, who should retain outputs so that it is in time.

Retained outputs only save recovery from making them again. So the tasks that retain may change between any two passes:
what was retained stays until it is trimmed, and what was not is made again by replay copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tenax.control.checkpoints.strategies import interval
from tenax.control.events import BackupsPlanned, PlanKind, PlanningFailed
from tenax.control.instructions import PlanBackups
from tenax.control.load import Load
from tenax.control.notices import BackupsMoved, PromiseMeasured
from tenax.control.run import Run
from tenax.control.state import Phase, RunState
from tenax.control.versions import Cut, RebuildPoint
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.planning.measured import Measures
from tenax.planning.promises import Promise
from tenax.planning.rates import Rows


def measures(load: Load, cut: Cut, settings: Settings) -> Measures:
    """What plans are made by, of a load with its interval and the checkpoint that it was noted with. O(tasks).

    - Rows and busy seconds are those of the rate at which rows come; of a run that takes them as fast as it can, rows
      are those of a second of work, and busy seconds those of the batches that were measured.
    - Just before a checkpoint, a task has an interval behind it; one that is never stored is rebuilt before that.
    """
    each_s = (load.arrival.rows_per_s or load.rows_per_s() or 0.0) / load.rows if load.rows else 0.0
    busy_s = load.busy_s(settings.batches.batch_s) or tuple(task.busy_s for task in load.tasks)
    rebuilt = (point.batch - point.inputs_after if isinstance(point, RebuildPoint) else 0 for point in cut.points)
    batches = tuple(load.interval + more for more in rebuilt)
    rounds = -(-max(batches, default=0) // settings.max_batches_per_round)
    return Measures(
        Rows(tuple(each_s * task.rows for task in load.tasks), tuple(each_s * task.rows_out for task in load.tasks)),
        busy_s,
        batches,
        tuple(task.state_bytes for task in load.tasks),
        load.restore_s,
        rounds,
        load.levels,
        load.fixed_s,
    )


def is_asked(run: Run) -> bool:
    """Whether a latency is to be kept, and promises are measured."""
    return run.protection.recovery_latency is not None


def plan_backups(run: Run, state: RunState) -> tuple[RunState, PlanBackups | None]:
    """Ask for a plan whenever the load was measured; one at a time, and not while tasks are missing."""
    asked = state.promises
    if not asked.due or asked.request is not None or not state.load.is_measured:
        return state, None
    if state.phase is not Phase.RUNNING or state.wrap_up is not None or state.outage is not None:
        return state, None
    is_time = run.protection.checkpoint_every_s is not None or run.protection.failure_every_s is not None
    noted = state.load.interval if is_time and not state.checkpoints.batch_s else 0  # by an earlier driver
    load = replace(state.load, interval=noted or interval(run, state))
    homes = {
        task: known.primary.node
        for task, known in zip(run.tasks, state.tasks, strict=True)
        if known.primary is not None
    }
    covered = frozenset(task for task, known in zip(run.tasks, state.tasks, strict=True) if known.in_step is not None)
    return (
        replace(state, promises=replace(asked, due=False, request=state.finished)),
        PlanBackups(state.finished, measures(load, state.newest, run.settings), asked.retained_by, homes, covered),
    )


def backups_planned(run: Run, state: RunState, event: BackupsPlanned) -> RunState | None:
    """Outputs are retained by whom the plan says, from the next pass on; None if it was not asked for."""
    before = state.promises
    if before.request != event.batch:
        return None
    backups = before.retained_by
    if run.protection.backups_follow:
        backups = frozenset(task for task in event.backups if not run.is_source[run.number[task]])
    news: list[BackupsMoved | PromiseMeasured] = []
    if backups != before.retained_by:
        reason = f"by what was measured up to batch {event.batch}"
        news.append(BackupsMoved(_sorted(run, before.retained_by), _sorted(run, backups), reason))
    if before.promise is None or _broken(before.promise) != _broken(event.promise):
        news.append(PromiseMeasured(event.promise))
    return replace(
        state,
        pending=(*state.pending, *news),
        promises=replace(before, retained_by=backups, request=None, promise=event.promise),
    )


def planning_failed(state: RunState, event: PlanningFailed) -> RunState | None:
    """Backups stay as they are until the next plan; None if it was not asked for."""
    if event.what is not PlanKind.BACKUPS or state.promises.request != event.batch:
        return None
    return replace(state, promises=replace(state.promises, request=None))


def _broken(promise: Promise) -> frozenset[str]:
    """The operators and nodes by which a promise is broken: single tasks come and go with every measure."""
    return frozenset([*(task.operator for task in promise.broken_by), *promise.late_nodes])


def _sorted(run: Run, tasks: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(sorted(tasks, key=run.number.__getitem__))
