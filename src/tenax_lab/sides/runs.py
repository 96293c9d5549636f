"""Runs of Tenax applications that are watched for a measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tenax.application.application import Application
from tenax.control.instructions import Outcome, Stop
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.engine.settings import RunSettings
from tenax.engine.worker.orders import Report
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Passed:
    """A pass: its batches, its time, the time inside steps over all nodes, and the rows of each source."""

    first: int
    last: int
    seconds: float
    steps_s: float
    rows: dict[str, int]


@dataclass(slots=True)
class Watch(Observer):
    """Remembers passes and publications; may do something between two passes, or when results are published."""

    graph: TaskGraph
    between: Callable[[], None] = lambda: None
    on_published: Callable[[int], None] = lambda _: None
    passes: list[Passed] = field(default_factory=list)
    published_s: list[tuple[float, int]] = field(default_factory=list)
    """On the clock of `time.time`, with the last batch that was published."""

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A pass has finished; the next one begins when this returns."""
        rows = {
            operator.name: sum(report.rows_in for report in reports if self.graph.operator_of[report.task] == number)
            for number, operator in enumerate(self.graph.operators)
            if not operator.inputs
        }
        self.passes.append(Passed(first, last, seconds, sum(report.seconds for report in reports), rows))
        self.between()

    def published(self, last: int, latencies_s: list[float]) -> None:  # noqa: ARG002
        """Results are committed."""
        self.published_s.append((time.time(), last))
        self.on_published(last)

    def rows_per_s(self, warmup: int) -> float:
        """Rows per second from when the warm-up batches were published to the last publication."""
        begun_s, begun = next(one for one in self.published_s if one[1] >= warmup)
        ended_s, ended = self.published_s[-1]
        rows = sum(sum(one.rows.values()) for one in self.passes if begun < one.first <= ended)
        return rows / (ended_s - begun_s)

    def batch_s(self, warmup: int) -> list[float]:
        """Seconds per batch of the passes after the warm-up batches; the last pass closes windows and is left out."""
        return [one.seconds / (one.last - one.first + 1) for one in self.passes[:-1] if one.first > warmup]

    def done(self, source: str) -> list[tuple[float, int]]:
        """When results were published, and how many rows of a source were read by then."""
        return [
            (when, sum(one.rows[source] for one in self.passes if one.last <= last)) for when, last in self.published_s
        ]


def run_watched(
    application: Application,
    store: Path,
    settings: RunSettings,
    session: Session,
    prepare: Callable[[Watch, Driver], None] = lambda _watch, _driver: None,
) -> Watch:
    """Run to the end; an end that is not good is an error, because its measurements would mean nothing."""
    watch = Watch(TaskGraph(application.topology))
    driver = Driver(application, store, settings, watch, session)
    prepare(watch, driver)
    stop: Stop = driver.run()
    if stop.outcome is Outcome.FAILED:
        raise ClusterFailed(f"a measured run ends well, found {stop.reason}: correct that first")
    return watch
