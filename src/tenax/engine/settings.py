"""How an application runs, as the driver is told: its bounds, its plans of protection, its cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tenax.connectors.source import Limits
from tenax.control.state import Settings, Strategy
from tenax.engine.session import Heartbeat
from tenax.model.tasks import Task
from tenax.planning.rates import Rows

MAX_ROWS = 100_000
MAX_BATCHES_PER_PASS = 8
MAX_BYTES = 64 * 1024 * 1024


def control_settings(checkpoint_every: int = 10) -> Settings:
    """The coordinator's bounds for a run; a pass never spans more than a checkpoint's interval.

    A round may take as much as a live pass, else it could not follow.
    """
    per_pass = min(MAX_BATCHES_PER_PASS, checkpoint_every)
    return Settings(checkpoint_every, per_pass, 2 * per_pass + 1, 2 * per_pass + 1, max_batches_per_round=per_pass)


@dataclass(frozen=True, slots=True)
class Replanned:
    """The best replicas by measured rates; what outputs keep with the present ones and with these if all else fails."""

    replicas: tuple[Task, ...]
    before: float
    after: float


Replan = Callable[[Rows, Collection[Task]], Replanned]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How an application runs.

    - `retain` and `replicas` are the plans of its protection: who keeps outputs, who runs twice. `strategies` says, by
      operator, how states are stored, where it is not as `control` says; replicas of `active_active` tasks send as
      well. `replan` finds better replicas, should they follow the load.
    - `racks` is among how many racks the nodes are dealt out; `slots` how many tasks a node may hold.
    - So many `standby_nodes` hold replicas only, as long as there are others, each at most `standby_slots`.
    - `keep_batches` lets the whole batch log stay, so that the run can be replayed; `replay` runs what is logged and
      asks the sources for nothing more.
    - `heartbeat` is how a node that hangs is found.
    - `accept_changes` names the operators and outputs whose code may differ from the store's, see `changes`.
    - `strict_lateness` ends the run at the first batch with late rows; `drain` ends it with what the sources have now.
    """

    nodes: int = 2
    master: str | None = None
    batch_s: float = 1.0
    limits: Limits = field(default_factory=lambda: Limits(MAX_ROWS, MAX_BYTES))
    control: Settings = field(default_factory=control_settings)
    retain: tuple[Task, ...] = ()
    replicas: tuple[Task, ...] = ()
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    active_active: tuple[Task, ...] = ()
    replan: Replan | None = None
    racks: int | None = None
    slots: int | None = None
    standby_nodes: int = 0
    standby_slots: int | None = None
    keep_batches: bool = False
    replay: bool = False
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    accept_changes: tuple[str, ...] = ()
    strict_lateness: bool = False
    drain: bool = False
