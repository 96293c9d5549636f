"""What the coordinator knows of a run: one frozen value, in five records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tenax.control.copies import TaskState
from tenax.control.instructions import Decided, Part, PassKind, Step, Stop, Trim
from tenax.control.versions import Cut, PassId, RestorePoint, Version
from tenax.errors import InvalidRequest
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.planning.rates import Rows

KEPT_CHECKPOINTS = 2  # should the newest turn out to be damaged, the one before it is still readable


class Recovery(StrEnum):
    """What goes on while tasks are missing."""

    INCREMENTAL = "incremental"
    """Live passes go on with what is left; missing tasks come back in the background."""
    BLOCKING = "blocking"
    """No live pass runs until everything is back."""


class Outputs(StrEnum):
    """What outputs show that depend on missing tasks."""

    TENTATIVE = "tentative"
    HOLD = "hold"


class Strategy(StrEnum):
    """When the states of tasks are stored."""

    ALIGNED = "aligned"
    """All at one batch."""
    SYNCHRONOUS = "synchronous"
    """All of a node together, every node by its own timer; nothing runs meanwhile."""
    INDIVIDUAL = "individual"
    """Every task by its own timer."""
    SWEEPING = "sweeping"
    """The last tasks by a timer, the others when their consumers have let go of what they had sent."""
    NONE = "none"
    """Never: their state follows from a few batches, and is rebuilt by stepping these again."""


class Backups(StrEnum):
    """Which tasks retain their outputs beside those that a plan names."""

    PLANNED = "planned"
    """None."""
    ADAPTIVE = "adaptive"
    """All of them, from a correlated failure to the next checkpoint."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Settings:
    """The bounds of a run, and how it meets failures.

    - A checkpoint is due at the end of every pass that reaches or passes a multiple of `checkpoint_every` batches; or
      of as many as take `checkpoint_every_s`; or of as many as are best if nodes fail every `failure_every_s`.
    - `strategy` is how states are stored, where nothing else is said for an operator.
    - A pass takes at most `max_batches_per_pass` batches: being behind makes passes longer.
    - At most `max_batches_ahead` batches are logged beyond the finished ones, `max_unpublished` finished beyond the
      published ones: being behind does not make logs longer.
    - Whatever may fail for a passing cause is tried `max_attempts` times in a row. A pass that still fails is tried
      from the newest checkpoint, then from the one before it; then the run stops.
    - What a sink or the store refuses is tried again after pauses, for `storage_patience_s` in all.
    - The n-th attempt of a pass may take n × `pass_deadline_s`; nodes that do not end their part of it are lost. When
      that has happened `max_attempts` times without a complete live pass in between, the run stops.
    - Missing tasks catch up in rounds of at most `max_batches_per_round`. When they are at most `cutover_lag` batches
      behind, or have not come closer in `patience` rounds, live passes wait for them.
    - Past `max_outage_bytes` of outputs since tasks were lost, live passes wait for them as well.
    - `tentative_delay_s` is how long outputs wait before the first tentative result.
    - `correlated_losses` nodes lost since the last checkpoint make a failure correlated.
    - Every `measure_every` batches the rates of tasks are measured: the quality of tentative results is estimated by
      them. Replicas are planned anew, and move if that gains more than `follow_gain` of what outputs keep; None lets
      them stay.
    - The coordinator remembers the last `log_length` events.
    """

    checkpoint_every: int = 10
    max_batches_per_pass: int = 4
    max_batches_ahead: int = 8
    max_unpublished: int = 8
    max_attempts: int = 3
    pass_deadline_s: float = 60.0
    log_length: int = 1000
    recovery: Recovery = Recovery.INCREMENTAL
    outputs: Outputs = Outputs.TENTATIVE
    backups: Backups = Backups.PLANNED
    order: str = "best-density"
    max_batches_per_round: int = 4
    cutover_lag: int = 2
    patience: int = 3
    max_outage_bytes: int = 4 << 30
    tentative_delay_s: float = 0.0
    correlated_losses: int = 2
    strategy: Strategy = Strategy.ALIGNED
    checkpoint_every_s: float | None = None
    failure_every_s: float | None = None
    measure_every: int = 20
    follow_gain: float | None = None
    storage_patience_s: float = 300.0

    def __post_init__(self) -> None:
        for name in (
            "checkpoint_every",
            "max_batches_per_pass",
            "max_batches_ahead",
            "max_unpublished",
            "max_attempts",
            "log_length",
            "max_batches_per_round",
            "cutover_lag",
            "patience",
            "max_outage_bytes",
            "correlated_losses",
            "measure_every",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} is at least 1, found {getattr(self, name)}: raise it")
        if self.max_batches_ahead <= self.max_batches_per_pass:
            raise InvalidRequest(
                f"max_batches_ahead is above max_batches_per_pass ({self.max_batches_per_pass}), so that batches are "
                f"logged while a pass runs, found {self.max_batches_ahead}: raise it"
            )
        if not (math.isfinite(self.pass_deadline_s) and self.pass_deadline_s > 0):
            raise InvalidRequest(
                f"pass_deadline_s is a finite number above 0, found {self.pass_deadline_s}: correct it"
            )
        for name in ("checkpoint_every_s", "failure_every_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidRequest(f"{name} is a finite number above 0, found {value}: correct it")
        if self.follow_gain is not None and not 0.0 <= self.follow_gain <= 1.0:
            raise InvalidRequest(f"follow_gain is a number from 0 to 1, found {self.follow_gain}: correct it")
        for name in ("tentative_delay_s", "storage_patience_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidRequest(f"{name} is a finite number of at least 0, found {value}: correct it")


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
    """

    number: int
    bytes: int = 0
    lag: int | None = None
    stalled: int = 0
    holding: bool = False


@dataclass(frozen=True, slots=True)
class Logs:
    """The two logs of a run: batches that were logged before they run, and results that were committed after it.

    - Batches up to `logged` are in the batch log; `ended` says that none will follow. `logging` is what the driver was
      asked to log, `log_attempt` how often.
    - `published` has the newest final batch of every task that has results; it may be beyond what is finished: then
      the run replays what an earlier driver published. `unpublished` results wait in order; `publishing` is the attempt
      for the first.
    - `log_faults` and `publish_faults` are how often in a row the store or a sink has refused what was asked for.
    """

    logged: int = 0
    ended: bool = False
    logging: LogRequest | None = None
    log_attempt: int = 1
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
    """

    due: bool = False
    rebalancing_due: bool = False
    moving: Mapping[int, str] = field(default_factory=dict)
    replicated: frozenset[Task] = frozenset()
    plan_due: bool = False
    plan_request: int | None = None
    counts: Counts | None = None
    measured: Rows | None = None


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
class RunState:
    """What is known of a run; events make a new one of it, and instructions follow from it alone.

    - `tasks` has one state per task, in task order. A task whose head is older than what is finished is behind; what
      depends on it can only go on tentatively.
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
    failures: Failures = field(default_factory=Failures)
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
