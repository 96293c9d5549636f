"""Everything the coordinator knows, as one frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from tenax.control.instructions import Stop, Trim
from tenax.control.versions import PassId, Version
from tenax.errors import InvalidRequest
from tenax.model.cluster import Node
from tenax.model.plans import Placement

KEPT_CHECKPOINTS = 2  # should the newest turn out to be damaged, the one before it is still whole


@dataclass(frozen=True, slots=True)
class Settings:
    """The bounds of a run.

    - A checkpoint is due at the end of every pass that reaches or passes a multiple of `checkpoint_every` batches.
    - A pass takes at most `max_batches_per_pass` batches: being behind makes passes longer.
    - At most `max_batches_ahead` batches are logged beyond the finished ones, `max_unpublished` finished beyond the
      published ones: being behind does not make queues longer.
    - Whatever may fail for a passing cause is tried `max_attempts` times in a row.
    - The n-th attempt of a pass may take n × `pass_deadline_s`.
    - The coordinator remembers the last `log_length` events.
    """

    checkpoint_every: int = 10
    max_batches_per_pass: int = 4
    max_batches_ahead: int = 8
    max_unpublished: int = 8
    max_attempts: int = 3
    pass_deadline_s: float = 60.0
    log_length: int = 1000

    def __post_init__(self) -> None:
        for name in (
            "checkpoint_every",
            "max_batches_per_pass",
            "max_batches_ahead",
            "max_unpublished",
            "max_attempts",
            "log_length",
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


class Phase(StrEnum):
    """Where a run stands."""

    WAITING = "waiting"
    """Not started."""
    RESTORING = "restoring"
    """A checkpoint is on its way to the nodes; batches are logged, no pass runs."""
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Restoration:
    """A checkpoint that must be on the nodes before the first pass."""

    batch: int
    attempt: int = 1
    asked: bool = False


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Batches that the driver was asked to log."""

    first: int
    count: int
    attempt: int


@dataclass(frozen=True, slots=True)
class LivePass:
    """The pass that runs."""

    pass_id: PassId
    first: int
    last: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FailedPass:
    """A pass that will be tried again, over the same batches."""

    last: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Results:
    """Results of a finished pass that are not known to be committed."""

    pass_id: PassId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Upload:
    """A checkpoint that is due, or being stored."""

    batch: int
    versions: tuple[Version, ...]
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class RunState:
    """What is known of a run; events make a new one of it, and instructions follow from it alone.

    - `heads` are the newest citable versions of all tasks, in task order, after batch `finished`.
    - `published` may be beyond `finished`: then the run replays what an earlier driver published.
    - `unpublished` are the finished results from `published` + 1 on, oldest first; `publishing` is the attempt that is
      made to publish the first of them.
    - `kept` are the batches of the checkpoints that can be restored, oldest first; batch 0, the initial state, is one.
    - `due` is a checkpoint not yet begun, `storing` the one under way.
    - `stop` ends the run at once; `wrap_up` ends it in good order, after results and a last checkpoint.
    """

    phase: Phase = Phase.WAITING
    epoch: int = 0
    nodes: tuple[Node, ...] = ()
    placement: Placement = field(default_factory=lambda: Placement({}, {}))
    heads: tuple[Version, ...] = ()
    restoration: Restoration | None = None

    logged: int = 0
    ended: bool = False
    logging: LogRequest | None = None
    log_attempt: int = 1

    finished: int = 0
    passes: int = 0
    live: LivePass | None = None
    failed: FailedPass | None = None

    published: int = 0
    replayed_through: int = 0
    unpublished: tuple[Results, ...] = ()
    publishing: int | None = None
    publish_attempt: int = 1

    kept: tuple[int, ...] = (0,)
    due: Upload | None = None
    storing: Upload | None = None
    trimmed: Trim | None = None

    wrap_up: Stop | None = None
    stop: Stop | None = None

    @property
    def wraps_up(self) -> bool:
        """Whether nothing is left to run: somebody asked for the end, or the sources have ended and all is finished."""
        over = self.wrap_up is not None or (self.ended and self.finished == self.logged)
        return over and self.live is None
