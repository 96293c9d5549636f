"""Operators split and merge while they run: results are those of a run that never rescaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from spark.runs import Watcher, finish

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event
from tenax.control.instructions import Decided, Rescale, RunPass
from tenax.engine.session import Session
from tenax.model.settings import Settings
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.store import topology_versions

BATCHES, BATCH_ROWS, KEYS = 24, 500, 40
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


def by_key(frame: pl.DataFrame) -> pl.DataFrame:
    """Results in an order that says nothing of tasks and batches."""
    return frame.sort("window_end", "key")


@pytest.mark.parametrize(
    "wishes",
    [
        {4: Target(nodes=2)},
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
