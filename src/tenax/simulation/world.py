"""What all drivers of a simulation share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tenax.control.events import Event
from tenax.control.instructions import Decided, Stop
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.simulation.chances import Chances, Fault
from tenax.simulation.kernel import Kernel
from tenax.simulation.loads import VirtualLoad
from tenax.simulation.store import Store
from tenax.simulation.toy import Toy

if TYPE_CHECKING:
    from tenax.simulation.driver import Driver


@dataclass(frozen=True, slots=True)
class World:
    """What all drivers of a simulation share."""

    kernel: Kernel
    store: Store
    toy: Toy
    random: Random
    vague: Random
    """For what tasks say of themselves."""
    settings: Settings
    retain: tuple[Task, ...]
    replicas: tuple[Task, ...]
    slots: int | None
    nodes: int
    batches: int
    chances: Chances
    next_fault: Callable[[], Fault | None]
    """Asked before every effect and every event."""
    on_fault: Callable[[Driver, Fault], None]
    on_stop: Callable[[Driver, Stop], None]
    on_entry: Callable[[Driver, Event, list[Decided]], None]
    plans: Random
    """Draws the plans of replicas."""
    promises: Random
    """Draws the plans of backups."""
    refusals: Random
    """Says whether it was a sink or the store that failed, and whether the pause after it takes time."""
    rescales: Random
    """Draws what rescales lead to, and what becomes of them."""
    load: VirtualLoad | None = None
    """What tasks cost; nodes come when they are asked for only if that is known."""
