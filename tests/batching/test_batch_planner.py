"""Batches are logged ahead of the passes: what one attempt has logged, the next one goes on from."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import polars as pl
import pytest

from tenax.api.streams import Topology
from tenax.batching.batches import BatchPlanner
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits
from tenax.control.events import BatchesLogged
from tenax.errors import StoreFailed
from tenax.store.records import Json
from tenax.store.store import Store

ROWS, ROWS_EACH = 40, 10


class FullDisk(Store):
    """A store whose disk has no room for one batch, once."""

    refused = 3

    def log_batch(self, number: int, data: Json) -> None:
        if number == self.refused:
            self.refused = 0
            raise StoreFailed("no space left")
        super().log_batch(number, data)


def test_an_attempt_that_failed_halfway_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pl.DataFrame({"ts": range(ROWS)}).write_parquet(tmp_path / "rows" / "a.parquet")
    topology = Topology("plain")
    topology.source("rows", files(tmp_path / "rows", time="ts", time_unit="s", any_time=True, follow=False)).output(
        "out", parquet(tmp_path / "out")
    )
    store = FullDisk.open(tmp_path / "store", {})
    planner = BatchPlanner(topology.build(), store, Limits(ROWS_EACH), 0.0)
    with pytest.raises(StoreFailed):
        planner.log(1, 10, threading.Event())
    assert planner.log(1, 10, threading.Event()) == BatchesLogged(1, 4, ended=True, rows=ROWS, caught_up=True)
    assert [batch.number for batch in store.batches] == [1, 2, 3, 4]
    store.close()


def test_batches_have_the_rows_that_were_asked_for_last(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pl.DataFrame({"ts": range(ROWS)}).write_parquet(tmp_path / "rows" / "a.parquet")
    topology = Topology("plain")
    source = files(tmp_path / "rows", time="ts", follow=False, time_unit="s", any_time=True)
    topology.source("rows", source).output("out", parquet(tmp_path / "out"))
    store = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(topology.build(), store, Limits(ROWS_EACH), 0.0)
    for first, rows in ((1, None), (2, 4), (3, None), (4, 30)):
        planner.log(first, 1, threading.Event(), rows)
    store.close()
    assert [planner.batch(number).rows for number in range(1, 5)] == [ROWS_EACH, 4, 4, ROWS - ROWS_EACH - 8]


def test_each_partition_adds_its_bytes_to_what_a_batch_may_have(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(2):
        pl.DataFrame({"ts": range(ROWS)}).write_parquet(tmp_path / "rows" / f"{number}.parquet")
    source = files(tmp_path / "rows", time="ts", follow=False, time_unit="s", any_time=True)
    rows = {}
    for partitions in (1, 2):
        topology = Topology("plain")
        topology.source("rows", source, partitions=partitions).output("out", parquet(tmp_path / "out"))
        store = Store.open(tmp_path / f"store-{partitions}", {})
        planner = BatchPlanner(topology.build(), store, Limits(1_000), 0.0, partition_bytes=8 * ROWS_EACH)
        planner.log(1, 1, threading.Event())
        rows[partitions] = planner.batch(1).rows
        store.close()
    assert rows == {1: ROWS_EACH, 2: 2 * ROWS_EACH}


def test_nobody_knows_the_latency_of_batches_that_an_earlier_driver_logged(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pl.DataFrame({"ts": range(ROWS)}).write_parquet(tmp_path / "rows" / "a.parquet")
    topology = Topology("plain")
    source = files(tmp_path / "rows", time="ts", follow=False, time_unit="s", any_time=True)
    topology.source("rows", source).output("out", parquet(tmp_path / "out"))
    application = topology.build()
    store = Store.open(tmp_path / "store", {})
    BatchPlanner(application, store, Limits(ROWS_EACH), 0.0).log(1, 2, threading.Event())
    store.close()
    again = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(application, again, Limits(ROWS_EACH), 0.0)
    planner.log(3, 1, threading.Event())
    known = [planner.known_at(number) for number in (1, 2, 3)]
    again.close()
    assert known[:2] == [None, None]
    assert known[2] is not None
    assert known[2] <= time.monotonic()
