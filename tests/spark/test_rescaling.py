"""Operators split and merge while they run: results are those of a run that never rescaled."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from spark.oracles import SECOND_US, Results, windowed
from spark.runs import Watcher, finish, run, whole_input

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event
from tenax.control.instructions import Decided, Outcome, Rescale, RunPass
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.model.settings import Settings
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.store import topology_versions
from tenax.store.checkpoints import Manifests
from tenax.store.topology_versions import read_versions

BATCHES, BATCH_ROWS, KEYS = 24, 500, 40
DEADLINE_S = 240.0
HOW = Settings.of(
    nodes=2, max_rows=BATCH_ROWS, batch="0s", max_batches_per_pass=2, max_batches_ahead=4, max_unpublished=4
)


def sums(out: Path, parallelism: int = 2, tops: int = 3) -> Application:
    """Sums per key in sliding windows, and the largest of each window."""
    topology = Topology("sums")
    rows = topology.source("rows", elements(3, BATCH_ROWS, pace=Pace(rows=BATCHES * BATCH_ROWS)), partitions=2)
    keyed = rows.with_columns(key=pl.col("sequence") % KEYS).key_by("key")
    windows = keyed.window("2s", every="500ms").aggregate(
        pl.col("value").sum().alias("total"), pl.len().alias("rows"), name="sums", parallelism=parallelism
    )
    windows.output("out", parquet(out / "out"))
    windows.top(tops, by="total", name="best").output("largest", parquet(out / "largest"))
    return topology.build()


@dataclass(slots=True)
class Asking(Watcher):
    """Asks for rescales when batches are published; remembers the versions that were begun, and the passes."""

    store: Path = Path()
    wishes: dict[int, Target] = field(default_factory=dict)
    versions: list[TopologyVersion] = field(default_factory=list)
    rescales: list[Rescale] = field(default_factory=list)
    passes: list[RunPass] = field(default_factory=list)

    def begun(self, application: Application, version: TopologyVersion) -> None:  # noqa: ARG002
        self.versions.append(version)

    def published(self, last: int, latencies_s: list[float]) -> None:
        Watcher.published(self, last, latencies_s)
        for batch in [batch for batch in self.wishes if batch <= last]:
            topology_versions.ask(self.store, self.wishes.pop(batch))

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        coordinator.check_invariants()
        self.rescales += [each for each in then if isinstance(each, Rescale)]
        self.passes += [each for each in then if isinstance(each, RunPass)]


class Dies(Asking):
    """Stops for good at some moment of a switch: to its store it is a driver that is gone when a newer one comes."""

    def __init__(self, store: Path, before_the_record: bool, after: int = 4) -> None:
        Asking.__init__(self, store=store, wishes={after: Target({"sums": 3})})
        self.before = before_the_record
        self.reached, self.over = threading.Event(), threading.Event()

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:
        Asking.handled(self, coordinator, event, then)
        if self.before and self.rescales:
            self._die()

    def begun(self, application: Application, version: TopologyVersion) -> None:
        Asking.begun(self, application, version)
        if version.number > 1:
            self._die()

    def _die(self) -> None:
        self.reached.set()
        self.over.wait(DEADLINE_S)


def by_key(frame: pl.DataFrame) -> pl.DataFrame:
    """Results in an order that says nothing of tasks and batches."""
    return frame.sort("window_end", "key")


@pytest.mark.parametrize(
    "wishes",
    [
        {4: Target({"sums": 4}, nodes=2)},
        {4: Target({"sums": 1}), 12: Target({"sums": 3})},
    ],
)
def test_results_are_those_of_a_run_that_never_rescaled(
    cluster: Session, tmp_path: Path, wishes: dict[int, Target]
) -> None:
    still = finish(sums(tmp_path / "still"), tmp_path / "a", HOW, cluster)
    asking = Asking(store=tmp_path / "b", wishes=dict(wishes))
    moved = finish(sums(tmp_path / "moved"), tmp_path / "b", HOW, cluster, asking)
    assert len(asking.rescales) == len(wishes), asking.messages
    assert [version.number for version in asking.versions] == list(range(1, len(wishes) + 2))
    for name in still:
        assert_frame_equal(by_key(still[name]), by_key(moved[name]))
    for version in asking.versions[1:]:  # no pass has batches of two versions
        assert not [order for order in asking.passes if order.first <= version.after < order.last]


@pytest.mark.parametrize("before_the_record", [True, False])
def test_a_driver_that_dies_as_it_switches_loses_nothing(
    cluster: Session, tmp_path: Path, before_the_record: bool
) -> None:
    store = tmp_path / "store"
    dies = Dies(store, before_the_record)
    first = threading.Thread(target=run, args=[sums(tmp_path / "moved"), store, HOW, cluster, dies])
    first.start()
    assert dies.reached.wait(DEADLINE_S)
    assert len(read_versions(store)) == 1 + (not before_the_record)
    moved = finish(sums(tmp_path / "moved"), store, HOW, cluster)
    dies.over.set()
    first.join(DEADLINE_S)
    assert not first.is_alive()
    assert read_versions(store)[-1].parallelism["sums"] == 3  # the request is found again
    assert_whole(moved, sums(tmp_path / "moved"))


def test_another_parallelism_in_the_file_is_a_rescale_at_the_start(cluster: Session, tmp_path: Path) -> None:
    store = tmp_path / "store"
    watcher = Watcher()
    driver = Driver(sums(tmp_path / "moved"), store, HOW, watcher, cluster)
    watcher.on_published = lambda last: driver.request_stop() if last >= 6 else None
    assert driver.run().outcome is Outcome.STOPPED
    asking = Asking(store=store)
    moved = finish(sums(tmp_path / "moved", parallelism=5), store, HOW, cluster, asking)
    assert "operator 'sums' is to have 5 tasks, has had 2" in asking.messages
    assert [version.parallelism["sums"] for version in asking.versions] == [2, 5]
    assert_whole(moved, sums(tmp_path / "moved"))


def test_a_damaged_newest_checkpoint_leads_back_over_the_switch_and_through_it_again(
    cluster: Session, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    dies, how = Dies(store, before_the_record=False, after=8), HOW.but(checkpoint_every=3)
    first = threading.Thread(target=run, args=[sums(tmp_path / "moved"), store, how, cluster, dies])
    first.start()
    assert dies.reached.wait(DEADLINE_S)
    versions = read_versions(store)
    (newest,) = [key for key in Manifests(store).known() if key[0] == versions[1].after]
    manifest = store / "checkpoints" / f"{newest[0]:010d}-{newest[1]:08d}.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    again = Asking(store=store)
    moved = finish(sums(tmp_path / "moved"), store, how, cluster, again)
    dies.over.set()
    first.join(DEADLINE_S)
    assert [version.number for version in again.versions] == [1, 2]
    assert read_versions(store) == versions  # nothing is recorded twice
    assert_whole(moved, sums(tmp_path / "moved"))


def whole(application: Application) -> pl.DataFrame:
    """All windows, computed from all rows at once."""
    rows = whole_input(application)["rows"].with_columns(key=pl.col("sequence") % KEYS)
    aggregates = pl.col("value").sum().alias("total"), pl.len().alias("rows")
    return by_key(windowed(rows, ["key"], 2 * SECOND_US, SECOND_US // 2, *aggregates))


def assert_whole(results: Results, application: Application) -> None:
    """Every window is there once, with all its rows."""
    wanted = whole(application)
    assert_frame_equal(by_key(results["out"]), wanted, check_column_order=False, check_dtypes=False)
