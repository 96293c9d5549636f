"""What a driver reports to the coordinator: facts, in the past tense.

Every answer names what it answers (pass, batches, attempt), so that late, repeated and unknown ones are known as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from tenax.control.batch_sizes import BatchSizes
from tenax.control.load import Load
from tenax.control.recovery.failures import PassFailure
from tenax.control.state import LogRequest
from tenax.control.versions import Cut, PassId, Version
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target
from tenax.planning.promises import Promise
from tenax.planning.scaling.policy import Watch


@dataclass(frozen=True, slots=True)
class Started:
    """A driver owns the store under a new epoch, and its nodes are up and empty.

    - `checkpoint` is the newest complete and readable one, none if there is none.
    - Batches up to `logged` are in the batch log; `published` has the newest committed final batch of every task that
      has results.
    - `load` is what an earlier driver had measured when it stored that checkpoint.
    - The run goes on from another version of its topology, in the same epoch, if `passes` have begun in it already.
      Then batches that were asked for may be under way: `logging`; or none will follow: `ended`. Nodes that are `gone`
      never come back, and so many `outages` have been counted: what is under way may still tell of either.
    - Results of batches up to `shown` may be there, final or tentative.
    - `next_version` begins behind a batch that the run has yet to come to again.
    """

    epoch: int
    nodes: tuple[Node, ...]
    checkpoint: Cut | None
    logged: int
    published: Mapping[Task, int]
    load: Load | None = None
    passes: int = 0
    logging: LogRequest | None = None
    ended: bool = False
    sizes: BatchSizes | None = None
    watch: Watch | None = None
    gone: frozenset[str] = frozenset()
    outages: int = 0
    shown: int = 0
    next_version: Target | None = None

    @property
    def checkpoint_number(self) -> int:
        """The number of the checkpoint; 0 is the initial state."""
        return 0 if self.checkpoint is None else self.checkpoint.number


@dataclass(frozen=True, slots=True)
class BatchesLogged:
    """The ranges of these batches are in the batch log; this ends the request.

    - At least one batch, at most as many as were asked for.
    - `ended` says that no batch will follow; only then may the range be empty (`last` = `first` − 1).
    - They have so many `rows`, and were known so long after the driver began; after a batch that `caught_up` no source
      had more.
    """

    first: int
    last: int
    ended: bool = False
    rows: int = 0
    at_s: float = 0.0
    caught_up: bool = False


@dataclass(frozen=True, slots=True)
class LoggingFailed:
    """The sources could not say their next ranges, or these could not be written.

    - `again` says whether another attempt may go better: a file that cannot be read stays as it is.
    - If the `storage` refused them, waiting may help.
    """

    first: int
    attempt: int
    cause: str
    again: bool = True
    storage: bool = False


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one step did in a pass: the version that it made, and the node it is on.

    - That version can be rebuilt by stepping the initial state from batch `rebuild_from` on; 0 if it cannot.
    - It was stepped in a `level` of the pass, was `busy_s` by the clock, and `restore_s` to read its start from the
      store before that: `read_bytes` of it.
    """

    version: Version
    node: str
    _: KW_ONLY
    rows: int = 0
    written_bytes: int = 0
    watermark_us: int = 0
    busy_s: float = 0.0
    rows_out: int = 0
    rebuild_from: int = 0
    state_bytes: int = 0
    level: int = 0
    restore_s: float = 0.0
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PassFinished:
    """A pass is through, with one report per step, so long after the driver began; it took so many `seconds`."""

    pass_id: PassId
    reports: tuple[TaskReport, ...]
    at_s: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PassFailed:
    """A pass is over without a result."""

    pass_id: PassId
    failure: PassFailure


@dataclass(frozen=True, slots=True)
class Published:
    """The final or the tentative results of a pass are committed."""

    pass_id: PassId
    tentative: bool = False


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """Not all results of a pass could be committed; those that were stay committed.

    If a sink's `storage` refused them, waiting may help.
    """

    pass_id: PassId
    tentative: bool
    attempt: int
    cause: str
    storage: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """The manifest of a checkpoint is committed, after so long by the clock, and with so much processor time.

    What was stored has `held_bytes`; of these `written_bytes` were not in the store already.
    """

    number: int
    attempt: int
    written_bytes: int = 0
    seconds: float = 0.0
    held_bytes: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """A checkpoint could not be stored."""

    number: int
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True)
class NodesJoined:
    """Nodes are up and empty."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class NodesLost:
    """Nodes are gone, with all that they held; they never come back under these names.

    `overdue` are those that were given up because their part of a pass did not end within its deadline.
    """

    nodes: tuple[str, ...]
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class Woken:
    """The time that a Wake asked for has passed."""

    outage: int


@dataclass(frozen=True, slots=True)
class ReplicasPlanned:
    """The best replicas by the rows of the batches up to this one.

    `before` and `after` are what outputs keep with the present ones and with these, if all other tasks fail.
    """

    batch: int
    replicas: tuple[Task, ...]
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class BackupsPlanned:
    """The tasks that should retain their outputs, by what was measured up to this batch, and what they promise."""

    batch: int
    backups: tuple[Task, ...]
    promise: Promise


class PlanKind(StrEnum):
    """What is planned while a run goes on."""

    REPLICAS = "replicas"
    BACKUPS = "backups"


@dataclass(frozen=True, slots=True)
class PlanningFailed:
    """No plan could be made."""

    batch: int
    cause: str
    what: PlanKind = PlanKind.REPLICAS


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The run is to end in good order."""

    cause: str = "asked to"


@dataclass(frozen=True, slots=True)
class EpochLost:
    """The store refused this driver: a newer one owns it."""

    newer: int


@dataclass(frozen=True, slots=True)
class RescaleAsked:
    """Somebody, or the run itself, wants other numbers of tasks or nodes."""

    target: Target


@dataclass(frozen=True, slots=True)
class RescaleFailed:
    """The next version of the topology could not be recorded; if the `storage` refused it, waiting may help."""

    attempt: int
    cause: str
    storage: bool = False


Event = (
    Started
    | BatchesLogged
    | LoggingFailed
    | PassFinished
    | PassFailed
    | Published
    | PublishFailed
    | CheckpointStored
    | CheckpointFailed
    | NodesJoined
    | NodesLost
    | Woken
    | ReplicasPlanned
    | BackupsPlanned
    | PlanningFailed
    | StopRequested
    | EpochLost
    | RescaleAsked
    | RescaleFailed
)
