"""Who watches a run: the contract between the driver and whatever shows or records what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.engine.worker.orders import Report


class Observer(Protocol):
    """Who watches a run."""

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A live pass has finished."""

    def told(self, message: str) -> None:
        """Something happened that a user should know."""

    def published(self, last: int, latencies_s: list[float]) -> None:
        """All final results up to a batch are committed, each batch so long after its ranges were known."""

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Instruction]) -> None:
        """The coordinator has handled an event; called in the loop of the run, so it must return soon."""
