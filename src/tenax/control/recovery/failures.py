"""Why a pass failed, as values: the text of an exception is not an interface."""

from __future__ import annotations

from dataclasses import dataclass

from tenax.model.tasks import Task


@dataclass(frozen=True, slots=True)
class OperatorRaised:
    """The code of an operator raised; it would do so again, for a step is a pure function.

    `place` is the file and line of the user's code that is to blame, `trace` the way there; both may be unknown.
    """

    operator: str
    task: Task
    batch: int
    cause: str
    place: str = ""
    trace: str = ""

    def __str__(self) -> str:
        said = f"operator {self.operator!r} raised in task {self.task}, batch {self.batch}: {self.cause}"
        return f"{said} ({self.place})" if self.place else said


@dataclass(frozen=True, slots=True)
class SourceUnreadable:
    """A logged range of a source could not be read."""

    operator: str
    batch: int
    cause: str

    def __str__(self) -> str:
        return f"source {self.operator!r} could not be read for batch {self.batch}: {self.cause}"


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node of the pass was lost."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} was lost"


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The pass did not finish in time and was cancelled."""

    deadline_s: float

    def __str__(self) -> str:
        return f"not finished within {self.deadline_s:g} s"


@dataclass(frozen=True, slots=True)
class Refused:
    """A step found itself on another node than planned, or its inputs or start version incomplete."""

    task: Task
    cause: str

    def __str__(self) -> str:
        return f"task {self.task} refused to step: {self.cause}"


@dataclass(frozen=True, slots=True)
class StorageRefused:
    """A disk refused what a step had to write or read: results of an output, or the state of a task on its node.

    The operator has done nothing wrong, and waiting may help: the disk is full, read-only or away.
    """

    place: str
    cause: str

    def __str__(self) -> str:
        return f"{self.place}: {self.cause}"


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job that carried the pass failed for a reason of its own."""

    cause: str

    def __str__(self) -> str:
        return f"the job failed: {self.cause}"


@dataclass(frozen=True, slots=True)
class RowsLate:
    """Rows came too late, where none may: they would do so again."""

    task: Task
    batch: int
    cause: str

    def __str__(self) -> str:
        return self.cause


PassFailure = (
    OperatorRaised | SourceUnreadable | NodeGone | DeadlinePassed | Refused | StorageRefused | RowsLate | JobFailed
)
