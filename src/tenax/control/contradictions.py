"""Errors of the coordinator itself: bugs, never a user's mistake. They carry the story of the tasks concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenax.control.events import Event, PassFinished
from tenax.control.narrator import Entry, Line, story
from tenax.control.recovery.failures import OperatorRaised, Refused, RowsLate
from tenax.control.state import RunState
from tenax.model.tasks import Task

MAX_TASKS = 3  # whose stories an error carries
MAX_LINES = 30  # of each, the newest

Stories = Mapping[Task, tuple[Line, ...]]


class Contradiction(AssertionError):
    """The coordinator contradicts itself.

    - The text is one line; `stories` has what happened to the tasks concerned, as far back as the log reaches.
    - A traceback shows both.
    """

    def __init__(self, text: str, stories: Stories) -> None:
        super().__init__(text)
        self.stories = stories
        for task, lines in stories.items():
            self.add_note("\n  ".join([f"the story of {task}, by events:", *map(str, lines)]))


class InvariantBroken(Contradiction):
    """Something that is true of every run is not true of this one."""


class ImpossibleTransition(Contradiction):
    """An event has met a state in which nothing is known to follow from it."""

    def __init__(self, event: Event, cause: Exception, stories: Stories) -> None:
        why = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        super().__init__(f"nothing follows from {type(event).__name__} in this state: {why}", stories)
        self.event = event


def stories_of(log: Iterable[Entry], tasks: Iterable[Task]) -> Stories:
    """The newest part of what happened to the first of these tasks."""
    entries = tuple(log)
    first = list(dict.fromkeys(tasks))[:MAX_TASKS]
    return {task: tuple(story(entries, task)[-MAX_LINES:]) for task in first}


def concerned(state: RunState, event: Event) -> list[Task]:
    """The tasks that an event is about: those it names, or else those of the pass that it answers, or else all."""
    match getattr(event, "failure", None):
        case OperatorRaised(task=task) | Refused(task=task) | RowsLate(task=task):
            return [task]
    if isinstance(event, PassFinished) and event.reports:
        return [report.version.task for report in event.reports]
    answered = [running for running in state.passes.running if running.pass_id == getattr(event, "pass_id", None)]
    named = [step.task for running in answered for step in running.steps]
    return named or [task.restore_point.task for task in state.tasks]
