"""Failures as events: what went wrong in workers or in an instruction, as the coordinator hears of it."""

from __future__ import annotations

from collections.abc import Mapping

from tenax.application.traces import with_sources
from tenax.control import events, instructions
from tenax.control.recovery.failures import (
    JobFailed,
    NodeGone,
    OperatorRaised,
    PassFailure,
    Refused,
    SourceUnreadable,
    StorageRefused,
)
from tenax.engine.gateway import one_line
from tenax.engine.worker.orders import Failure
from tenax.errors import InvalidSource, StoreFailed, UnreadableSource
from tenax.model.tasks import Task


def pass_failure(failure: Failure, places: Mapping[str, str]) -> PassFailure:
    """Why a pass failed, by what its workers said.

    Where no code of the user's was at work, the line that made the operator is to blame.
    """
    match failure.kind:
        case "source":
            return SourceUnreadable(failure.operator, failure.batch, failure.cause)
        case "chunk":
            return Refused(Task.parse(failure.task), failure.cause)
        case "node":
            return NodeGone(failure.task)
        case "storage":
            return StorageRefused(failure.operator, failure.cause)
        case _:
            made = places.get(failure.operator, "")
            place = failure.place or (f"made in {made}" if made else "")
            task, trace = Task.parse(failure.task), with_sources(failure.trace)
            return OperatorRaised(failure.operator, task, failure.batch, failure.cause, place, trace)


def failed(instruction: instructions.Instruction, error: Exception) -> events.Event | None:
    """The event that says an instruction could not be carried out."""
    cause, storage = one_line(error), isinstance(error, StoreFailed)
    match instruction:
        case instructions.RunPass():
            return events.PassFailed(instruction.pass_id, JobFailed(cause))
        case instructions.Publish():
            return events.PublishFailed(instruction.pass_id, instruction.tentative, instruction.attempt, cause, storage)
        case instructions.StoreCheckpoint():
            return events.CheckpointFailed(instruction.cut.number, instruction.attempt, cause)
        case instructions.Rescale():
            return events.RescaleFailed(instruction.attempt, cause, storage)
        case instructions.PlanReplicas():
            return events.PlanningFailed(instruction.batch, cause)
        case instructions.PlanBackups():
            return events.PlanningFailed(instruction.batch, cause, events.PlanKind.BACKUPS)
        case instructions.LogBatches():
            again = not isinstance(error, UnreadableSource | InvalidSource)
            return events.LoggingFailed(instruction.first, instruction.attempt, cause, again, storage)
    return None
