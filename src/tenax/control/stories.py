"""What happened to one task, and why, told from the log of events and instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tenax.control.events import (
    CheckpointFailed,
    CheckpointStored,
    Event,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
)
from tenax.control.instructions import (
    CancelPass,
    Instruction,
    MoveReplicas,
    MoveTasks,
    Promote,
    Publish,
    Recover,
    RollBack,
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
            made = [report for report in reports if report.version.task == task]
            if made:
                where = " and ".join(report.node for report in made)
                return f"pass {pass_id} finished: {made[0].version}, {made[0].rows} rows, on {where}"
        case PassFailed(pass_id, failure):
            return f"pass {pass_id} failed: {failure}"
        case CheckpointStored(number):
            return f"checkpoint {number} stored"
        case CheckpointFailed(number, attempt, cause):
            return f"checkpoint {number} failed, attempt {attempt}: {cause}"
        case NodesLost(nodes):
            return f"nodes lost: {', '.join(nodes)}"
        case NodesJoined(nodes):
            return f"nodes joined: {', '.join(node.name for node in nodes)}"
    return ""


def _of_instruction(instruction: Instruction, task: Task) -> str:
    match instruction:
        case RunPass():
            batches = f"batches {instruction.first} to {instruction.last}"
            for step in instruction.steps:
                if step.task == task:
                    how = "tentatively " if step.tentative else ""
                    return (
                        f"{instruction.kind} pass {instruction.pass_id}: {how}as {step.role} through {batches} on "
                        f"{step.node} from {step.start}, attempt {instruction.attempt}"
                    )
            read = [
                f"outputs of batches {one.first} to {one.last}, retained by pass {one.pass_id}, "
                f"are read {'from the store ' if one.stored else ''}on {one.node}"
                for one in instruction.readings
                if one.task == task
            ]
            if read:
                return f"pass {instruction.pass_id}: {'; '.join(read)}"
        case CancelPass(pass_id):
            return f"pass {pass_id} cancelled"
        case Publish():
            for part in instruction.parts:
                if part.task == task:
                    kind = f"tentative, quality {part.quality:.2f}" if instruction.tentative else "final"
                    return f"publish results of batches {part.first} to {part.last}, {kind}"
        case StoreCheckpoint():
            for version in instruction.versions:
                if version.task == task:
                    return f"store {version}, attempt {instruction.attempt}"
        case Promote():
            return f"its replica on {instruction.node} takes over" if instruction.task == task else ""
        case Recover():
            if task in instruction.homes:
                return f"lost, and comes back on {instruction.homes[task]}"
            return "lost, and waits for room on a node" if task in instruction.waiting else ""
        case MoveReplicas() if (task in instruction.before) != (task in instruction.after):
            what = "has no replica any more" if task in instruction.before else "gets a replica"
            return f"{what}: {instruction.reason}"
        case MoveTasks():
            return f"goes on at {instruction.homes[task]}, to spread the load" if task in instruction.homes else ""
        case RollBack():
            return f"back to checkpoint {instruction.number}: {instruction.reason}"
        case Trim():
            before = instruction.retained_before_of.get(task, instruction.retained_before)
            return f"trim retained outputs before batch {before}, checkpoints before {instruction.checkpoints_before}"
        case Stop():
            return f"stop, {instruction.outcome}: {instruction.reason}"
    return ""
