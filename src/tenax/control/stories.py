"""What happened to one task, and why, told from the log of events and instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tenax.control.events import (
    CheckpointFailed,
    CheckpointStored,
    Event,
    NodesLost,
    PassFailed,
    PassFinished,
    Published,
    Restored,
    RestoreFailed,
)
from tenax.control.instructions import (
    CancelPass,
    Instruction,
    Restore,
    RunPass,
    Stop,
    StoreCheckpoint,
    Trim,
)
from tenax.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, counted from 1, and what followed; `ignored` says why nothing did, if the event meant nothing."""

    number: int
    event: Event
    instructions: tuple[Instruction, ...]
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story, with the number of the event that it belongs to."""

    number: int
    text: str


def tell(log: Iterable[Entry], task: Task) -> list[Line]:
    """The part of the log that concerns a task. O(log × tasks)."""
    lines: list[Line] = []
    for entry in log:
        text = _of_event(entry.event, task)
        if text:
            lines.append(Line(entry.number, f"{text} (ignored: {entry.ignored})" if entry.ignored else text))
        lines += [Line(entry.number, text) for one in entry.instructions if (text := _of_instruction(one, task))]
    return lines


def _of_event(event: Event, task: Task) -> str:
    match event:
        case PassFinished(pass_id, reports):
            for report in reports:
                if report.version.task == task:
                    return f"pass {pass_id} finished: {report.version}, {report.rows} rows"
            return f"pass {pass_id} finished without a report of it"
        case PassFailed(pass_id, failure):
            return f"pass {pass_id} failed: {failure}"
        case Published(first, last):
            return f"results of batches {first} to {last} published"
        case CheckpointStored(batch):
            return f"checkpoint {batch} stored"
        case CheckpointFailed(batch, attempt, cause):
            return f"checkpoint {batch} failed, attempt {attempt}: {cause}"
        case Restored(batch):
            return f"checkpoint {batch} restored"
        case RestoreFailed(batch, attempt, cause):
            return f"checkpoint {batch} not restored, attempt {attempt}: {cause}"
        case NodesLost(nodes):
            return f"nodes lost: {', '.join(nodes)}"
    return ""


def _of_instruction(instruction: Instruction, task: Task) -> str:
    match instruction:
        case RunPass() if task in instruction.tasks:
            start = instruction.starts[instruction.tasks.index(task)]
            node = instruction.placement.primaries[task]
            batches = f"batches {instruction.first} to {instruction.last}"
            return f"pass {instruction.pass_id} through {batches} on {node} from {start}, attempt {instruction.attempt}"
        case CancelPass(pass_id):
            return f"pass {pass_id} cancelled"
        case Restore() | StoreCheckpoint():
            for version in instruction.versions:
                if version.task == task:
                    verb = "restore" if isinstance(instruction, Restore) else "store"
                    return f"{verb} {version}, attempt {instruction.attempt}"
        case Trim():
            return (
                f"trim retained outputs before batch {instruction.retained_before}, "
                f"versions before {instruction.checkpoints_before}"
            )
        case Stop():
            return f"stop, {instruction.outcome}: {instruction.reason}"
    return ""
