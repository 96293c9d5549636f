"""Rebuild points of tasks that are never stored: which are known, and which are of use no more."""

from __future__ import annotations

from dataclasses import replace

from tenax.control.copies import Role, TaskState
from tenax.control.events import PassFinished
from tenax.control.run import Run
from tenax.control.state import Running
from tenax.control.versions import Cut, RebuildPoint, RestorePoint
from tenax.model.protection import Strategy


def known_rebuild_points(run: Run, cut: Cut) -> list[tuple[RebuildPoint, ...]]:
    """The rebuild points of a cut, by task."""
    return [
        (point,) if isinstance(point, RebuildPoint) and run.strategy_of[number] is Strategy.NONE else ()
        for number, point in enumerate(cut.points)
    ]


def new_rebuild_points(run: Run, running: Running, event: PassFinished) -> list[RebuildPoint]:
    """How the accurate versions that a pass made can be rebuilt, of tasks that are never stored."""
    first_batch = {report.version: report.rebuild_from for report in event.reports if report.rebuild_from}
    never_stored = {run.tasks[number] for number in run.rebuilt}
    points = []
    for step in running.steps:
        made = running.made(step)
        partly = step.rebuilding is not None and made.batch < step.rebuilding.batch
        accurate = step.role is Role.PRIMARY and not (step.tentative or partly)
        if step.task in never_stored and accurate and made in first_batch:
            points.append(RebuildPoint(step.task, made.batch, first_batch[made]))
    return points


def with_rebuild_point(task: TaskState, new: RebuildPoint) -> TaskState:
    """A task with one rebuild point more, in the order of batches; of two for one batch, the one that needs less."""
    known = task.rebuild_points
    if any(point.batch == new.batch and point.inputs_after > new.inputs_after for point in known):
        return task
    before = (point for point in known if point.batch < new.batch)
    behind = (point for point in known if point.batch > new.batch)
    return replace(task, rebuild_points=(*before, new, *behind))


def with_fewer_rebuild_points(task: TaskState, stored: RestorePoint) -> TaskState:
    """A task without rebuild points that are older than its point on the newest cut."""
    known = task.rebuild_points
    if not known or known[0].batch >= stored.batch:
        return task
    return replace(task, rebuild_points=tuple(point for point in known if point.batch >= stored.batch))
