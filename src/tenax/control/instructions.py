"""What the coordinator tells a driver to do: orders, in the imperative.

All are carried out at the same time as others, and answered by events; `Trim`, `CancelPass` and `Stop` need no answer.
`attempt` counts from 1: a driver may wait longer before a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenax.control.versions import PassId, Version
from tenax.model.plans import Placement
from tenax.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Restore:
    """Bring the versions of a stored checkpoint to the nodes of their tasks. Answer: Restored, RestoreFailed."""

    batch: int
    versions: tuple[Version, ...]
    placement: Placement
    attempt: int


@dataclass(frozen=True, slots=True)
class LogBatches:
    """Ask the sources for the next ranges and write them to the batch log. Answer: BatchesLogged, LoggingFailed.

    At least one batch, as soon as there is one; up to `count` if the rows are there already.
    """

    first: int
    count: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RunPass:
    """Step these tasks through batches `first` to `last`. Answer: PassFinished, PassFailed.

    - `starts` has the version of each task to start from, after batch `first` − 1, in the order of `tasks`.
    - The tasks in `retain` keep their output chunks on their node until a trim lets them go.
    - Results of output tasks are kept until they are published or the run stops.
    - After `deadline_s` the driver ends the pass by itself and reports DeadlinePassed.
    """

    pass_id: PassId
    first: int
    last: int
    tasks: tuple[Task, ...]
    starts: tuple[Version, ...]
    placement: Placement
    retain: tuple[Task, ...]
    deadline_s: float
    attempt: int


@dataclass(frozen=True, slots=True)
class CancelPass:
    """End a running pass; whatever it still writes or reports is garbage."""

    pass_id: PassId


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit the results that a pass made for these batches, each once. Answer: Published, PublishFailed.

    What is committed already, by an earlier attempt or driver, is left as it is.
    """

    pass_id: PassId
    first: int
    last: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Upload these versions, the manifest last. Answer: CheckpointStored, CheckpointFailed."""

    batch: int
    versions: tuple[Version, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Let go of what nothing needs any more; each number is the first batch that is kept.

    - `retained_before`: retained outputs of earlier batches.
    - `checkpoints_before`: checkpoints of earlier batches, and state segments that only they or older versions use.
    - `source_log_before`: ranges of earlier batches in the batch log and what a durable source log holds for them.
    """

    retained_before: int
    checkpoints_before: int
    source_log_before: int


class Outcome(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Stop:
    """End this driver; nothing is instructed after this, and no answer that is still under way is waited for.

    `resumable` says that starting again on the same store goes on where this one ended.
    """

    outcome: Outcome
    reason: str
    resumable: bool


Instruction = Restore | LogBatches | RunPass | CancelPass | Publish | StoreCheckpoint | Trim | Stop
