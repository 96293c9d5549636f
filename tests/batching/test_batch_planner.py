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
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.control.events import BatchesLogged
from tenax.errors import StoreFailed
from tenax.store.records import Json, items
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


class Sensor(Source):
    """Rows are there when a test says so, in all copies of it: a planner has its own."""

    rows = 0

    def __init__(self) -> None:
        self.time, self.lateness_us, self.bounded = "ts", 0, False

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:  # noqa: ARG002
        read = position if isinstance(position, int) else 0
        new = min(self.rows - read, limits.rows)
        return Planned(([read, read + new],), read + new, new) if new else NothingNew()

    def read(self, partition: int, planned: Json) -> pl.DataFrame:  # noqa: ARG002
        first, last = (int(str(end)) for end in items(planned))
        return pl.DataFrame({"ts": pl.Series(range(first, last), dtype=pl.Datetime("us"))})


def test_rows_that_wait_because_the_run_is_behind_were_ready_when_they_would_have_been_asked_for(
    tmp_path: Path,
) -> None:
    interval_s = 0.05
    topology = Topology("plain")
    topology.source("rows", Sensor()).output("out", parquet(tmp_path / "out"))
    store = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(topology.build(), store, Limits(ROWS_EACH), interval_s)
    Sensor.rows = 5
    planner.log(1, 1, threading.Event())
    first_s = planner.ready_at(1)
    assert first_s is not None
    Sensor.rows += 2 * ROWS_EACH + 5  # and nobody asks for a while
    time.sleep(6 * interval_s)
    planner.log(2, 2, threading.Event())
    planner.log(4, 1, threading.Event())
    store.close()
    ready = [planner.ready_at(number) for number in (2, 3, 4)]
    assert ready == [pytest.approx(first_s + intervals * interval_s, abs=1e-6) for intervals in (1, 2, 3)]
    known_s = planner.known_at(4)
    assert known_s is not None
    assert ready[-1] is not None
    assert known_s > ready[-1]


def test_rows_that_come_after_a_silence_are_ready_when_they_come(tmp_path: Path) -> None:
    interval_s = 0.02
    topology = Topology("plain")
    topology.source("rows", Sensor()).output("out", parquet(tmp_path / "out"))
    store = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(topology.build(), store, Limits(ROWS_EACH), interval_s)
    Sensor.rows = 5
    planner.log(1, 1, threading.Event())
    came = threading.Timer(10 * interval_s, setattr, (Sensor, "rows", 10))
    came.start()
    begun_s = time.monotonic()
    planner.log(2, 1, threading.Event())
    store.close()
    ready_s = planner.ready_at(2)
    assert ready_s is not None
    assert ready_s >= begun_s + 10 * interval_s
