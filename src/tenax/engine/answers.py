"""What goes wrong, as the coordinator hears it: failures of workers and of instructions turned into its events."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

from tenax.control import events, instructions
from tenax.control.failures import (
    JobFailed,
    NodeGone,
    OperatorRaised,
    PassFailure,
    Refused,
    SourceUnreadable,
    StorageRefused,
)
from tenax.engine.errors import SinkRaised, StoreFailed
from tenax.engine.worker.orders import Failure
from tenax.model.tasks import Task

MAX_CAUSE = 500  # characters of a cause


def one_line(error: Exception) -> str:
    """What went wrong, without the trace; of an error in the JVM its own message, of one in Python there its end."""
    if isinstance(error, Py4JJavaError):
        said = [line.strip() for line in str(error.java_exception.getMessage()).splitlines() if line.strip()]
        said = [line for line in said if not line.startswith(("SQLSTATE", "Driver stacktrace"))]
        return " ".join((said[-1] if said else str(error.java_exception.getClass().getName())).split())[:MAX_CAUSE]
    named = "" if isinstance(error, StoreFailed | SinkRaised) else f"{type(error).__name__}: "
    return f"{named}{' '.join(str(error).split())}"[:MAX_CAUSE]


def pass_failure(failure: Failure) -> PassFailure:
    """Why a pass failed, by what its workers said."""
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
            return OperatorRaised(failure.operator, Task.parse(failure.task), failure.batch, failure.cause)


def failed(instruction: instructions.Instruction, error: Exception) -> events.Event | None:
    """The event that says an instruction could not be carried out."""
    cause, storage = one_line(error), isinstance(error, StoreFailed)
    match instruction:
        case instructions.RunPass():
            return events.PassFailed(instruction.pass_id, JobFailed(cause))
        case instructions.Publish():
            return events.PublishFailed(instruction.pass_id, instruction.tentative, instruction.attempt, cause, storage)
        case instructions.StoreCheckpoint():
            return events.CheckpointFailed(instruction.line.number, instruction.attempt, cause)
        case instructions.PlanReplicas():
            return events.PlanningFailed(instruction.batch, cause)
        case instructions.LogBatches():
            return events.LoggingFailed(instruction.first, instruction.attempt, cause, storage)
    return None
