"""What the coordinator tells a driver to do: instructions, in the imperative.

All are carried out at the same time as others, and answered by events; `Trim`, `CancelPass` and `Stop` need no answer.
`attempt` counts from 1. With a `pause_s` the driver waits so long first: a sink or the store has refused the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tenax.control.copies import Role
from tenax.control.load import Load
from tenax.control.notices import Notice
from tenax.control.versions import Cut, PassId, RebuildPoint, Version
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target
from tenax.planning.measured import Measures
from tenax.planning.rates import Rows


@dataclass(frozen=True, slots=True)
class LogBatches:
    """Ask the sources for the next ranges and write them to the batch log. Answer: BatchesLogged, LoggingFailed.

    At least one batch, as soon as there is one; up to `count` if the rows are there already. A batch takes at most
    `rows` of a source; None means as many as the settings say.
    """

    first: int
    count: int
    attempt: int
    pause_s: float = 0.0
    rows: int | None = None


class PassKind(StrEnum):
    """What a pass is for."""

    LIVE = "live"
    """The next batches, for all that can step."""
    ROUND = "round"
    """Batches that others have passed long ago, for tasks or copies that catch up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One task on one node in a pass, from the version after the batch before the first.

    - `stored` says that this version is to be read from the store.
    - `tentative` steps do without the producers that are neither stepped nor read in the pass; any other step refuses.
    - A step that is `rebuilding` a state has no output: nothing of it is sent, retained or shown. If it starts from the
      initial state after a later batch than 0, it takes of its first batch nothing but the watermark.
    """

    task: Task
    node: str
    start: Version
    role: Role = Role.PRIMARY
    stored: bool = False
    tentative: bool = False
    rebuilding: RebuildPoint | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Outputs of a task that is not stepped in a pass: a node sends what was retained of an earlier one.

    They are of batches `first` to `last`, and lie on the node, or in the store if they are `stored`. A pass may have
    several of a task, each for some of its batches.
    """

    task: Task
    node: str
    pass_id: PassId
    first: int
    last: int
    stored: bool = False


@dataclass(frozen=True, slots=True)
class RunPass:
    """Step tasks through batches `first` to `last`. Answer: PassFinished, PassFailed.

    - A task has at most one step that is a primary or a replay copy: that one sends.
    - Source tasks read logged ranges; their start names a batch, and needs no version.
    - The replicas of the tasks in `active_active` send as well, and consumers drop what they have twice.
    - The tasks in `retain` keep their output chunks on the node of each step until a trim lets them go.
    - Results of primaries are kept until they are published or the run stops; replay copies and replicas make none.
    - Versions before batch `keep` are no longer needed on the nodes.
    - After `deadline_s` the driver ends the pass by itself and reports DeadlinePassed.
    """

    pass_id: PassId
    kind: PassKind
    first: int
    last: int
    steps: tuple[Step, ...]
    readings: tuple[Reading, ...]
    retain: frozenset[Task]
    keep: int
    deadline_s: float
    attempt: int
    active_active: frozenset[Task] = frozenset()
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CancelPass:
    """End a running pass; whatever it still writes or reports is garbage."""

    pass_id: PassId


@dataclass(frozen=True, slots=True)
class Part:
    """Results of one task for a range of batches; `quality` is 1 for final ones, an estimate for tentative ones."""

    task: Task
    first: int
    last: int
    quality: float = 1.0


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit results that a pass made, each once. Answer: Published, PublishFailed.

    - What is committed already, by an earlier attempt or driver, is left as it is.
    - Tentative results are shown apart from final ones; a final result takes back the tentative one before it.
    """

    pass_id: PassId
    parts: tuple[Part, ...]
    tentative: bool
    attempt: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Upload these versions and the outputs beside them from these nodes, the manifest of the cut last.

    What else the cut needs is in the store since earlier checkpoints. The load is noted with it, once it was measured.
    Answer: CheckpointStored, CheckpointFailed.
    """

    cut: Cut
    versions: tuple[Version, ...]
    nodes: tuple[str, ...]
    attempt: int
    pause_s: float = 0.0
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class CancelCheckpoint:
    """Do not wait any longer for nodes that are gone; the checkpoint is answered as it stands."""

    number: int


@dataclass(frozen=True, slots=True)
class PlanReplicas:
    """Find the best replicas by the rows of the batches up to this one. Answer: ReplicasPlanned, PlanningFailed."""

    batch: int
    rows: Rows
    replicas: frozenset[Task]


@dataclass(frozen=True, slots=True)
class PlanBackups:
    """Find who should retain outputs, by what was measured up to this batch. Answer: BackupsPlanned, PlanningFailed.

    Tasks have their primaries at their `homes`; those that are `covered` have a replica elsewhere.
    """

    batch: int
    measures: Measures
    backups: frozenset[Task]
    homes: Mapping[Task, str]
    covered: frozenset[Task] = frozenset()


@dataclass(frozen=True, slots=True)
class RequestNodes:
    """Ask the cluster for `count` nodes more, so that there are `total`; those that come are NodesJoined."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Rescale:
    """Record the next version of the topology, and let its coordinator begin where this one stands; the last word.

    - All tasks are stored at the one batch of `cut`, and all results up to it are committed.
    - The record is the point of no return: from then on every driver goes on with that version. Before it, this
      coordinator goes on: answer RescaleFailed.
    - Passes of this epoch have numbers up to `passes`.
    """

    target: Target
    cut: Cut
    passes: int
    attempt: int = 1
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wake:
    """Report Woken after a time."""

    after_s: float
    outage: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Let go of exactly this, which nothing needs any more; each number is the first that is kept.

    - `retained_before`: retained outputs of earlier batches; `retained_before_of` has the batch of single tasks.
    - `checkpoints_before`: checkpoints with lower numbers, and state segments that only they use.
    - `source_log_before`: ranges of earlier batches in the batch log and what a durable source log holds for them.
    """

    retained_before: int
    checkpoints_before: int
    source_log_before: int
    retained_before_of: Mapping[Task, int] = field(default_factory=dict)


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


Instruction = (
    LogBatches
    | RunPass
    | CancelPass
    | Publish
    | StoreCheckpoint
    | CancelCheckpoint
    | Trim
    | PlanReplicas
    | PlanBackups
    | RequestNodes
    | Wake
    | Rescale
    | Stop
)

Decided = Instruction | Notice
"""What follows from an event: instructions are carried out, notices are only recorded."""
