"""The chain of eight elements on four nodes, and a ledger of what its protection costs.

node 1        node 2        node 3        node 4
pe1 ─▶ pe2 ─▶ pe3 ─▶ pe4 ─▶ pe5 ─▶ pe6 ─▶ pe7 ─▶ pe8
source        means of the values of each group, one row out for one row in           output
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.control.events import CheckpointStored, Event
from tenax.control.instructions import Decided, Outcome, StoreCheckpoint
from tenax.engine.costs import Costs
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.protection import Protected, planned
from tenax.engine.session import Session
from tenax.engine.worker.orders import Report
from tenax.engine.worker.retained import RETAINED
from tenax.errors import ClusterFailed
from tenax.examples.apps.elements import RunningMean
from tenax.model.protection import Protection
from tenax.model.settings import ClusterSettings, Settings
from tenax.model.tasks import Task
from tenax_lab.sides.sides import Series

NODES = 4
STATEFUL = range(3, 8)  # pe3 to pe7
PROTECTED = tuple(f"pe{number}" for number in range(2, 9))
# Tasks that retain end a chain, and their consumers go to another node: so there are two elements on each node.
CUTS = tuple(Task(name, 0) for name in ("pe2", "pe4", "pe6"))
# where nothing fails, a node on a busy machine must not pass for one that hangs
PATIENT = ClusterSettings(NODES, heartbeat="60s")
SELDOM = 1_000_000  # batches between checkpoints where there are to be none


@dataclass(frozen=True, slots=True)
class Load:
    """So many rows in each batch; an element with a state keeps one row for each of the groups."""

    batches: int
    batch_rows: int
    groups: int = 20

    @property
    def rows(self) -> int:
        """All of them."""
        return self.batches * self.batch_rows


def chain(
    seed: int, load: Load, results: Path, *, rate: float = 3_000, paced: bool = False, parallelism: int = 1
) -> Application:
    """The chain as a user writes it."""
    topology = Topology("elements")
    pace = Pace(rows=load.rows, paced=paced)
    stream = topology.source("pe1", elements(seed, rate, pace=pace), partitions=parallelism)
    stream = stream.with_columns((pl.col("sequence") % load.groups).alias("group"), name="pe2")
    for number in STATEFUL:
        stream = stream.key_by("group").apply(RunningMean(), name=f"pe{number}")
    stream.output("pe8", parquet(results))
    return topology.build()


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint: after which batch, of how many tasks, the new bytes of states and of queues, and its time."""

    batch: int
    tasks: int
    state_bytes: int
    queue_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Passed:
    """A pass: its last batch, its time, what went from node to node, and what was retained there."""

    last: int
    seconds: float
    messages: int
    sent_bytes: int
    retained_bytes: int


@dataclass(slots=True)
class Ledger(Observer):
    """Watches a run and notes what its checkpoints and passes cost; `driver` is set before it runs."""

    driver: Driver | None = None
    stored: list[Stored] = field(default_factory=list)
    passes: list[Passed] = field(default_factory=list)
    published_s: list[tuple[float, int]] = field(default_factory=list)
    """On the monotonic clock, with the last batch that was published."""
    costs: Costs = field(default_factory=Costs)
    _tasks: int = 0
    _known: dict[Task, set[str]] = field(default_factory=dict)

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:  # noqa: ARG002
        """A live pass has finished."""
        self.costs.passed(reports)
        self.passes.append(
            Passed(
                last,
                seconds,
                sum(one.sent.messages for one in reports),
                sum(one.sent.bytes for one in reports),
                sum(one.retained_bytes for one in reports),
            )
        )

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:
        """A checkpoint has been stored: what is new in the store is a part of a state, or of a queue."""
        self.costs.handled(event)
        if isinstance(event, CheckpointStored):
            queued = self._queued_bytes()
            self.stored.append(
                Stored(coordinator.state.finished, self._tasks, event.written_bytes - queued, queued, event.seconds)
            )
        for one in then:
            if isinstance(one, StoreCheckpoint):
                self._tasks = sum(version.task.operator in PROTECTED for version in one.versions)

    def published(self, last: int, latencies_s: list[float]) -> None:  # noqa: ARG002
        """All results up to a batch are there."""
        self.published_s.append((time.monotonic(), last))

    def series(self, name: str) -> Series:
        """Everything as measurements by name."""
        stored, passes = self.stored, self.passes
        found: Series = {
            "batch": [float(one.batch) for one in stored],
            "tasks": [float(one.tasks) for one in stored],
            "state bytes": [float(one.state_bytes) for one in stored],
            "queue bytes": [float(one.queue_bytes) for one in stored],
            "seconds": [one.seconds for one in stored],
            "last": [float(one.last) for one in passes],
            "pass s": [one.seconds for one in passes],
            "messages": [float(one.messages) for one in passes],
            "sent bytes": [float(one.sent_bytes) for one in passes],
            "retained bytes": [float(one.retained_bytes) for one in passes],
        }
        return {f"{name} {column}": values for column, values in found.items()}

    def _queued_bytes(self) -> int:
        """The bytes of queues that the checkpoint before this one did not list."""
        assert self.driver is not None
        listed = self.driver.ordering.newest
        new = (
            part for task, parts in listed.items() for part in parts if part.segment not in self._known.get(task, ())
        )
        queued = sum(part.bytes for part in new if part.segment.startswith(RETAINED))
        self._known = {task: {part.segment for part in parts} for task, parts in listed.items()}
        return queued


def chain_settings(protection: Protection, load: Load) -> Settings:
    """One batch in each pass, as fast as passes go."""
    return Settings(protection=protection).but(
        nodes=NODES,
        batch="0s",
        max_rows=load.batch_rows,
        max_batches_per_pass=1,
        max_batches_per_round=1,
        max_batches_ahead=17,
        max_unpublished=17,
    )


def chain_plan(application: Application, protection: Protection, *, cut: bool = True) -> Protected:
    """What is planned for the chain, which is cut into four parts or left as it is placed."""
    plan = planned(application.topology, protection)
    return replace(plan, retain=CUTS) if cut else plan


def run_chain(
    application: Application, store: Path, settings: Settings, session: Session, *, cut: bool = True
) -> Ledger:
    """Run without failures to the end; an end that is not good is an error."""
    ledger = Ledger()
    plan = chain_plan(application, settings.protection, cut=cut)
    ledger.driver = Driver(application, store, settings, ledger, session, plan)
    stop = ledger.driver.run()
    if stop.outcome is not Outcome.FINISHED:
        raise ClusterFailed(f"a measured run finishes, found {stop.reason}: correct that first")
    return ledger
