"""What the coordinator has decided and people should know: facts for the record, which no driver carries out.

They stand among the instructions of an event, in order; what has to be done about them is said by instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenax.model.tasks import Task
from tenax.model.topology_versions import Target
from tenax.planning.promises import Promise


@dataclass(frozen=True, slots=True)
class ReplicaPromoted:
    """A replica has become the primary of its task."""

    task: Task
    node: str


@dataclass(frozen=True, slots=True)
class RecoveryBegun:
    """Lost tasks have got nodes, so that these queries come back; those that wait have none yet, for this reason."""

    homes: Mapping[Task, str]
    queries: tuple[Task, ...]
    waiting: tuple[Task, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TasksMoved:
    """Tasks go on at nodes that have come, to spread the load: their states are there already."""

    homes: Mapping[Task, str]


@dataclass(frozen=True, slots=True)
class RolledBack:
    """All tasks are back at a checkpoint, because passes from newer versions kept failing."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReplicasMoved:
    """Other tasks have replicas from now on: new ones start from the next checkpoint."""

    before: tuple[Task, ...]
    after: tuple[Task, ...]
    fidelity_before: float
    fidelity_after: float
    reason: str


@dataclass(frozen=True, slots=True)
class BackupsMoved:
    """Other tasks retain their outputs from the next pass on."""

    before: tuple[Task, ...]
    after: tuple[Task, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PromiseMeasured:
    """How soon a lost task is back was measured: for the first time, or it is kept again, or broken by other tasks."""

    promise: Promise


@dataclass(frozen=True, slots=True)
class LoadJudged:
    """A period has ended: whether the run keeps its shape, waits with a decision, or scales out or in, and why."""

    outcome: str
    reason: str
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RescalePlanned:
    """The run is to go over to other numbers of tasks or nodes, as soon as all is well."""

    target: Target


@dataclass(frozen=True, slots=True)
class RescalePostponed:
    """A rescale waits until what stands in its way is over."""

    target: Target
    reason: str


@dataclass(frozen=True, slots=True)
class RescaleGivenUp:
    """A rescale will not be done; the run goes on as it was."""

    target: Target
    reason: str


Notice = (
    ReplicaPromoted
    | RecoveryBegun
    | TasksMoved
    | RolledBack
    | ReplicasMoved
    | BackupsMoved
    | PromiseMeasured
    | LoadJudged
    | RescalePlanned
    | RescalePostponed
    | RescaleGivenUp
)
