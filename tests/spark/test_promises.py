"""How soon a lost task is back is measured by a real run, and who retains outputs follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from spark.runs import Watcher, results

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.cli.measured import measured
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event
from tenax.control.instructions import Decided, Outcome, PassKind, PlanBackups, RunPass
from tenax.control.notices import BackupsMoved, PromiseMeasured
from tenax.engine.driver import Driver
from tenax.engine.protection import with_safe_sources
from tenax.engine.session import Session
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.store.events import read_events

MOST_BATCHES, BATCH_ROWS = 3_000, 200  # the run is stopped long before, as soon as its backups have followed


def sums(out: Path) -> Application:
    """Sums per key of a tenth of the rows; every task says that it takes 1,000 s to reprocess, which no task does."""
    # rows (2) ──▶ filter-1 (2) ──▶ sums (2) ──▶ out (2)
    topology = Topology("declared")
    rows = topology.source("rows", elements(3, BATCH_ROWS, pace=Pace(rows=MOST_BATCHES * BATCH_ROWS)), partitions=2)
    some = rows.filter(pl.col("sequence") % 10 == 0).key_by("sequence")
    some.window("1s").aggregate(pl.col("value").sum(), name="sums").output("out", parquet(out))
    built = topology.build()
    operators = (each if each.is_source else replace(each, reprocess=1_000.0) for each in built.topology.operators)
    return replace(built, topology=replace(built.topology, operators=tuple(operators)))


@dataclass(slots=True)
class Follower(Watcher):
    """Remembers what was measured and who retains outputs; stops the run when a pass retains as was planned."""

    plans: list[PlanBackups] = field(default_factory=list)
    moves: list[BackupsMoved] = field(default_factory=list)
    promises: list[PromiseMeasured] = field(default_factory=list)
    retained: list[frozenset[Task]] = field(default_factory=list)
    driver: Driver | None = None

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        for each in then:
            match each:
                case PlanBackups():
                    self.plans.append(each)
                case BackupsMoved():
                    self.moves.append(each)
                case PromiseMeasured():
                    self.promises.append(each)
                case RunPass(kind=PassKind.LIVE):
                    self.retained.append(each.retain)
        if self.moves and not self.retained[-1]:
            assert self.driver is not None
            self.driver.request_stop()


def test_backups_that_were_only_reckoned_end_once_it_is_measured_that_none_is_needed(
    cluster: Session, tmp_path: Path
) -> None:
    application = sums(tmp_path / "out")
    asked = Settings.of(recovery_latency="25m", checkpoint_every=4, measure_every=4, max_rows=BATCH_ROWS, batch="0s")
    follower = Follower()
    driver = follower.driver = Driver(application, tmp_path / "store", asked, follower, cluster)
    reckoned = frozenset(driver.plan.retain)
    assert reckoned, "two tasks in a row would take 2,000 s of 1,500"
    assert driver.run().outcome is Outcome.STOPPED
    measures = follower.plans[0].measures
    assert min(measures.busy_s) > 0.0
    assert set(measures.batches) == {4}
    assert follower.moves[0].after == ()
    assert (follower.retained[0], follower.retained[-1]) == (reckoned, frozenset())
    promise = follower.promises[0].promise
    assert promise.holds
    assert 0.0 < promise.steps_s < 1_000.0
    assert promise.scheduling_s > measures.scheduling_s > 0.0  # until the loss is seen comes on top
    said = [str(entry.get("text")) for entry in read_events(tmp_path / "store")]
    assert any(text.startswith("outputs are retained by none in place of") for text in said)
    assert any("of scheduling, as measured" in text for text in said)
    timed, again = measured(with_safe_sources(application.topology), tmp_path / "store")
    assert set(again.batches) == {4}
    assert max(np.max(operator.reprocess) for operator in timed.operators) < 1_000.0
    table = results(application)["out"]
    source = application.sources["rows"].read(0, [0, MOST_BATCHES * BATCH_ROWS, 1])
    windows = source.filter(pl.col("sequence") % 10 == 0).join(table, on="sequence", suffix="_sum")
    assert windows["value"].sum() == pytest.approx(table["value"].sum())
    assert windows.height == table.height > 0
