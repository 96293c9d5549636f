"""Recipes of tasks that are never stored: which there are, and which are of use no more."""

from __future__ import annotations

from dataclasses import replace

from tenax.control.copies import Role, TaskState
from tenax.control.events import PassFinished
from tenax.control.run import Run
from tenax.control.state import Running, Strategy
from tenax.control.versions import StoredCheckpoint, Version


def known_recipes(run: Run, line: StoredCheckpoint) -> list[tuple[Version, ...]]:
    """The recipes on a line, by task."""
    return [
        (version,) if version.is_recipe and run.strategy_of[number] is Strategy.NONE else ()
        for number, version in enumerate(line.versions)
    ]


def rebuildable(run: Run, running: Running, event: PassFinished) -> dict[Version, int]:
    """The accurate versions of a pass that can be rebuilt, of tasks that are never stored, and since which batch."""
    since = {report.version: report.since for report in event.reports if report.since}
    never_stored = {run.tasks[number] for number in run.rebuilt}
    found = {}
    for step in running.steps:
        made = running.made(step)
        partly = step.towards is not None and made.batch < step.towards.batch
        if step.task in never_stored and step.role is Role.PRIMARY and not (step.tentative or partly):
            found[made] = since.get(made, 0)
    return {version: batch for version, batch in found.items() if batch}


def with_recipe(task: TaskState, new: Version) -> TaskState:
    """A task that has one recipe more, in the order of batches; of two for one batch, that which reaches back less."""
    if any(one.batch == new.batch and one.after > new.after for one in task.recipes):
        return task
    before = (one for one in task.recipes if one.batch < new.batch)
    behind = (one for one in task.recipes if one.batch > new.batch)
    return replace(task, recipes=(*before, new, *behind))


def with_fewer_recipes(task: TaskState, version: Version) -> TaskState:
    """A task without recipes that are older than its version on the newest line."""
    if not task.recipes or task.recipes[0].batch >= version.batch:
        return task
    return replace(task, recipes=tuple(one for one in task.recipes if one.batch >= version.batch))
