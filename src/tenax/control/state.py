"""What the coordinator knows of a run: one frozen value, in nine records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tenax.control.batch_sizes import BatchSizes
from tenax.control.copies import TaskState
from tenax.control.instructions import Decided, Part, PassKind, Step, Stop, Trim
from tenax.control.load import Load
from tenax.control.versions import Cut, PassId, RestorePoint, Version
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target
from tenax.planning.promises import Promise
from tenax.planning.rates import Rows
from tenax.planning.scaling.policy import Watch

KEPT_CHECKPOINTS = 2  # should the newest turn out to be damaged, the one before it is still readable


class Phase(StrEnum):
    """Where a run stands."""

    WAITING = "waiting"
    """Not started."""
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Batches that the driver was asked to log."""

    first: int
    count: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Running:
    """A pass that runs."""

    pass_id: PassId
    kind: PassKind
    first: int
    last: int
    steps: tuple[Step, ...]
    retain: frozenset[Task]

    def made(self, step: Step) -> Version:
        """The version that a step of it makes."""
        return Version(step.task, self.last, self.pass_id)


@dataclass(frozen=True, slots=True)
class Results:
    """Results of a finished pass that are not known to be committed."""

    pass_id: PassId
    parts: tuple[Part, ...]
    tentative: bool = False
    batches: int = 0
    """How many batches of a live pass these are: what counts against `max_unpublished`."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A checkpoint that is due, or being stored: the cut that there will be, what is new on it, and where it lies."""

    cut: Cut
    versions: tuple[Version, ...]
    nodes: tuple[str, ...]
    attempt: int = 1
    faults: int = 0

    @property
    def newest_batch(self) -> int:
        """The batch of the newest version."""
        return max(version.batch for version in self.versions)


@dataclass(frozen=True, slots=True)
class Counts:
    """The rows that tasks have taken in and given out in the last so many batches, in task order."""

    batches: int
    taken: tuple[int, ...]
    given: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outage:
    """Since tasks are missing: what it has cost, and how the way back goes.

    - `lag` is how many batches the furthest missing task was behind the live passes when the last round since a loss
      ended, `stalled` in how many rounds in a row that was no less than before.
    - `holding` is the delay before the first tentative result, not yet over: tentative results are not shown.
    - `blocks` says that live passes pause until all are back, where the run decides that by itself.
    - `went_on` says that a live pass has finished since nodes were lost last.
    """

    number: int
    bytes: int = 0
    lag: int | None = None
    stalled: int = 0
    holding: bool = False
    blocks: bool = False
    went_on: bool = False


@dataclass(frozen=True, slots=True)
class Logs:
    """The two logs of a run: batches that were logged before they run, and results that were committed after it.

    - Batches up to `logged` are in the batch log; `ended` says that none will follow. `logging` is what the driver was
      asked to log, `log_attempt` how often.
    - `published` has the newest final batch of every task that has results; it may be beyond what is finished: then
      the run replays what an earlier driver published. `unpublished` results wait in order; `publishing` is the attempt
      for the first.
    - Results of batches up to `shown` are there since an earlier driver, maybe tentative ones.
    - `log_faults` and `publish_faults` are how often in a row the store or a sink has refused what was asked for.
    """

    logged: int = 0
    ended: bool = False
    logging: LogRequest | None = None
    log_attempt: int = 1
    shown: int = 0
    log_faults: int = 0
    published: Mapping[Task, int] = field(default_factory=dict)
    unpublished: tuple[Results, ...] = ()
    publishing: int | None = None
    publish_attempt: int = 1
    publish_faults: int = 0


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of a run: how far live passes have come, and what is under way.

    - `finished` is the newest batch that a live pass is through; `begun` counts passes of both kinds.
    - `raises_at` is a batch at which an operator raised: no live pass takes it together with those before it.
    - `live_faults` and `round_faults` are how often in a row a sink or the store has refused what was asked for.
    """

    finished: int = 0
    begun: int = 0
    live: Running | None = None
    live_attempt: int = 1
    live_faults: int = 0
    round: Running | None = None
    round_attempt: int = 1
    round_faults: int = 0
    raises_at: int = 0

    @property
    def running(self) -> tuple[Running, ...]:
        """The passes that are under way."""
        return tuple(running for running in (self.live, self.round) if running is not None)

    def tries(self, kind: PassKind) -> tuple[int, int]:
        """The attempt that is next or under way, and the faults so far."""
        live = kind is PassKind.LIVE
        return (self.live_attempt, self.live_faults) if live else (self.round_attempt, self.round_faults)

    def with_running(self, kind: PassKind, running: Running | None) -> Passes:
        """The same with this pass under way, or none."""
        return replace(self, live=running) if kind is PassKind.LIVE else replace(self, round=running)

    def with_attempt(self, kind: PassKind, attempt: int) -> Passes:
        """The same with this as the next attempt."""
        live = kind is PassKind.LIVE
        return replace(self, live_attempt=attempt) if live else replace(self, round_attempt=attempt)

    def with_faults(self, kind: PassKind, faults: int) -> Passes:
        """The same after so many faults in a row."""
        return replace(self, live_faults=faults) if kind is PassKind.LIVE else replace(self, round_faults=faults)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What is stored, what is to be, and how long that takes.

    - `kept` are the checkpoints that can be restored, oldest first; number 0, the initial state, is one.
    - `due` is a checkpoint not yet begun, `storing` the one under way.
    - `sweeps` are those under way, oldest first: of each the heads when it began, in task order.
    - `trimmed` is the last trim that was instructed.
    - `batch_s` and `checkpoint_s` are how long a batch and a checkpoint take, as measured; `seen_s` is when the last
      pass finished.
    """

    kept: tuple[Cut, ...] = ()
    due: Upload | None = None
    storing: Upload | None = None
    sweeps: tuple[tuple[RestorePoint, ...], ...] = ()
    trimmed: Trim | None = None
    batch_s: float = 0.0
    checkpoint_s: float = 0.0
    seen_s: float = 0.0

    @property
    def uploads(self) -> tuple[Upload, ...]:
        """The checkpoints that are due or being stored."""
        return tuple(upload for upload in (self.due, self.storing) if upload is not None)


@dataclass(frozen=True, slots=True)
class Placing:
    """Where tasks and replicas should be.

    - `due` says that nodes are to be assigned again: for lost tasks, for replicas.
    - `rebalancing_due` says that nodes have come, which tasks may move to; `moving` are those that do, by number, with
      their new nodes.
    - `replicated` are the tasks that should run twice; `plan_due` says that they are to be planned anew, and
      `plan_request` is the batch up to which that is being done.
    - `counts` are rows of the last batches, `measured` those of the last `measure_every` that were complete.
    - `waiting` are the lost tasks that found no room when rows came at this `rate`; `requested` is how many nodes there
      should be, as far as the cluster was asked for more.
    """

    due: bool = False
    rebalancing_due: bool = False
    moving: Mapping[int, str] = field(default_factory=dict)
    replicated: frozenset[Task] = frozenset()
    plan_due: bool = False
    plan_request: int | None = None
    counts: Counts | None = None
    measured: Rows | None = None
    waiting: tuple[Task, ...] = ()
    rate: float | None = None
    requested: int = 0


@dataclass(frozen=True, slots=True)
class Promises:
    """Who retains outputs, and how soon a lost task is back by that.

    - `retained_by` are the tasks that retain their outputs whatever happens.
    - `due` says that they are to be planned anew, `request` is the batch up to which that is being done.
    - `promise` is the last one that was measured; none before that.
    """

    retained_by: frozenset[Task] = frozenset()
    due: bool = False
    request: int | None = None
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """What has failed, and the outage that lasts.

    - A node that is `gone` never comes back, not even if its arrival is reported late.
    - `losses` counts nodes lost since the last checkpoint; after a correlated failure `alert` lets all tasks retain
      their outputs until the next one.
    - `overdue` is how often nodes were lost because a pass did not end, since the last live pass of all tasks.
    - `rollbacks` is how often all tasks went back to a checkpoint since the last one was stored.
    - `outages` counts outages; `outage` is the one that lasts.
    """

    gone: frozenset[str] = frozenset()
    losses: int = 0
    alert: bool = False
    overdue: int = 0
    rollbacks: int = 0
    outages: int = 0
    outage: Outage | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """The period in which the load is looked at: since when, until when, the rows taken in it; 0 before the first.

    `watch` is what is remembered from one to the next.
    """

    watch: Watch = field(default_factory=Watch)
    begun_s: float = 0.0
    ends_s: float = 0.0
    rows: int = 0


class Stage(StrEnum):
    """How far a rescale has come."""

    WAITING = "waiting"
    """It is wanted; the run goes on until all is well."""
    PAUSED = "paused"
    """Nothing new runs: what runs ends, results are committed, all tasks are stored at one batch."""
    SWITCHING = "switching"
    """The driver records the next version; nothing is decided until it answers."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """A rescale that is wanted or under way.

    - `asked_s` is when the last pass had finished as it was asked for, or else when the first one has.
    - `attempt` and `faults` count how often recording the next version has failed, and was refused by the store.
    - `postponed` is what people were told last about why it waits.
    - `begun` is how many passes had begun when the run paused: no other begins.
    """

    target: Target
    stage: Stage = Stage.WAITING
    asked_s: float | None = None
    attempt: int = 1
    faults: int = 0
    postponed: str = ""
    begun: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """What is known of a run; events make a new one of it, and instructions follow from it alone.

    - `tasks` has one state per task, in task order. A task whose head is older than what is finished is behind; what
      depends on it can only go on tentatively.
    - `load` and `sizes` are what was measured: of tasks and passes, and for the rows of the next batches.
    - `rescaling` leads to the next version of the topology; `period` is what an elastic run looks at its load in.
    - `pending` is what the last event calls for by itself.
    - `stop` ends the run at once; `wrap_up` ends it in good order, after results and a last checkpoint.
    """

    phase: Phase = Phase.WAITING
    epoch: int = 0
    nodes: tuple[Node, ...] = ()
    tasks: tuple[TaskState, ...] = ()
    logs: Logs = field(default_factory=Logs)
    passes: Passes = field(default_factory=Passes)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    placement: Placing = field(default_factory=Placing)
    promises: Promises = field(default_factory=Promises)
    failures: Failures = field(default_factory=Failures)
    load: Load = field(default_factory=Load)
    sizes: BatchSizes = field(default_factory=BatchSizes)
    rescaling: Rescaling | None = None
    period: Period = field(default_factory=Period)
    pending: tuple[Decided, ...] = ()
    wrap_up: Stop | None = None
    stop: Stop | None = None

    @property
    def finished(self) -> int:
        """The newest batch that a live pass is through."""
        return self.passes.finished

    @property
    def outage(self) -> Outage | None:
        """The outage that lasts, if tasks are missing."""
        return self.failures.outage

    @property
    def newest(self) -> Cut:
        """The newest checkpoint."""
        return self.checkpoints.kept[-1]

    @property
    def final(self) -> int:
        """The newest batch whose final results are committed, of all tasks that have results."""
        return min(self.logs.published.values(), default=self.finished)

    def with_outage(self, outage: Outage | None) -> RunState:
        """The same with this outage."""
        return replace(self, failures=replace(self.failures, outage=outage))
