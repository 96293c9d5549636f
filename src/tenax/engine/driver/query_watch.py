"""What a driver tells of its queries: batches and results as they come, losses, and what follows for the record."""

from __future__ import annotations

import time

from tenax.batching.batches import BatchPlanner
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.engine.driver.publishing import Publisher
from tenax.engine.observer import Observer
from tenax.engine.queries import QUERIES, Interval, Queries
from tenax.model.graph import TaskGraph
from tenax.store.store import Store


class QueryWatch:
    """Lets `Queries` know what happens in a run; tells the events and the observer what it says.

    The record has a line when nodes are lost, when everything is as before, a bounded number in between, and at the end
    of the run.
    """

    def __init__(
        self,
        graph: TaskGraph,
        planner: BatchPlanner,
        publisher: Publisher,
        store: Store,
        observer: Observer,
        batch_s: float,
    ) -> None:
        tasks = {task: last for task, last in publisher.published.items() if graph.is_output[graph.number(task)]}
        self._queries = Queries(tasks, batch_s)
        self._planner = planner
        self._store = store
        self._observer = observer
        self._began_s = time.monotonic()

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def logged(self, answer: events.BatchesLogged) -> None:
        """Batches are logged."""
        for batch in range(answer.first, answer.last + 1):
            ready_s = self._planner.ready_at(batch)
            if ready_s is not None:
                self._queries.logged(batch, ready_s - self._began_s)

    def published(self, instruction: instructions.Publish) -> None:
        """Results are committed, or shown tentatively."""
        self._queries.published(instruction.parts, self._now_s, tentative=instruction.tentative)

    def handled(self, coordinator: Coordinator, event: events.Event) -> None:
        """The coordinator has handled an event."""
        if isinstance(event, events.NodesLost):
            self._queries.lost(self._now_s, coordinator.state.finished)
        self._queries.missing(self._now_s, is_missing=coordinator.state.outage is not None)

    def look(self) -> None:
        """Tell of the intervals that have ended."""
        for interval in self._queries.ended(self._now_s):
            if interval.is_recorded:
                self._record(interval)
            self._observer.queried(interval)

    def close(self) -> None:
        """Tell of what there has been, at the end of a run."""
        self.look()
        self._record(self._queries.now(self._now_s))

    def _record(self, interval: Interval) -> None:
        self._store.record_event({QUERIES: interval.to_data(), "text": interval.text})
