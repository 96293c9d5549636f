"""Observers of a run: the contract between the driver and what shows or records what it does."""

from __future__ import annotations

from collections.abc import Sequence

from tenax.application.application import Application
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.engine.queries import Interval
from tenax.engine.worker.orders import Report
from tenax.model.topology_versions import TopologyVersion


class Observer:
    """Watches a run.

    - Every method does nothing until it is overridden: an observer writes those that it needs.
    - `begun`, `handled` and `queried` are called in the loop of the run, the others in threads that carry out its
      instructions: all must return soon.
    """

    def begun(self, application: Application, version: TopologyVersion) -> None:
        """The run goes on, or begins, in a version of its topology: tasks that are told of next are those of it."""

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A live pass of these batches has finished; `seconds` is how long it took."""

    def said(self, message: str) -> None:
        """Something happened that a user should know."""

    def published(self, last: int, latencies_s: list[float]) -> None:
        """All final results up to batch `last` are committed; one latency per batch, since its ranges were known."""

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """The coordinator has handled an event, and these instructions and notices follow, in order."""

    def queried(self, interval: Interval) -> None:
        """An interval has ended, or nodes were lost: how late the results of every query are."""
