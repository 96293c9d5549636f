"""What a run that was started from Python says on standard error, and what it remembers for its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tenax.application.application import Application
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event, PassFailed
from tenax.control.instructions import Decided
from tenax.control.narrator import promise_words
from tenax.control.notices import PromiseMeasured
from tenax.control.recovery.failures import OperatorRaised
from tenax.engine.observer import Observer
from tenax.engine.worker.orders import Report
from tenax.model.graph import TaskGraph
from tenax.model.topology_versions import TopologyVersion

SAY_EVERY_S = 5.0  # how far a run is; not more often, whatever it does


class Progress(Observer):
    """Counts batches and rows, and says now and then how far the run is."""

    def __init__(self, application: Application, *, quiet: bool) -> None:
        graph = TaskGraph(application.topology)
        self._name = application.topology.name
        self._quiet = quiet
        self._sources = {number for number, operator in enumerate(graph.operators) if operator.is_source}
        self._operator_of = graph.operator_of
        self._said_s = time.monotonic()
        self.batches = self.rows = 0
        self.trace = ""
        """Of the user's code that ended the run."""

    def begun(self, application: Application, version: TopologyVersion) -> None:  # noqa: ARG002
        """The tasks are those of a version of the topology from now on."""
        self._operator_of = TaskGraph(application.topology).operator_of

    def said(self, message: str) -> None:
        """Something happened that a user should know."""
        if not self._quiet:
            sys.stderr.write(f"{self._name}: {message}\n")
            sys.stderr.flush()

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:  # noqa: ARG002
        """A pass has finished."""
        self.rows += sum(report.rows_in for report in reports if int(self._operator_of[report.task]) in self._sources)

    def published(self, last: int, latencies_s: list[float]) -> None:  # noqa: ARG002
        """All results up to a batch are there."""
        self.batches = max(self.batches, last)
        if time.monotonic() >= self._said_s + SAY_EVERY_S:
            self._said_s = time.monotonic()
            self.said(f"{self.batches:,} batch{'es' * (self.batches != 1)}, {self.rows:,} rows")

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        """Remember what the code of a user did when it raised; say how soon a lost task would be back."""
        for each in then:
            if isinstance(each, PromiseMeasured):
                self.said(promise_words(each.promise))
        if isinstance(event, PassFailed) and isinstance(event.failure, OperatorRaised):
            self.trace = event.failure.trace
