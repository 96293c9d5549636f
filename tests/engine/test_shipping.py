"""What cannot travel to the nodes is named before anything starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.delivery import callback
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import ParquetSink, parquet
from tenax.connectors.sink import Sink
from tenax.connectors.workloads import elements
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.shipping import check_shippable, pack
from tenax.errors import InvalidTopology
from tenax.model.settings import Settings

LOCK = threading.Lock()


class LockedSink(ParquetSink):
    """A sink that holds what no other process can have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = threading.Lock()


def application(function: Callable[[pl.DataFrame], pl.DataFrame], sink: Sink) -> Application:
    """elements (1) --> first (1) --> second (1) --> results (1)"""
    topology = Topology("locked")
    rows = topology.source("elements", elements(rate=1.0, pace=Pace(rows=10)))
    rows.map(lambda frame: frame, name="first").map(function, name="second").output("results", sink)
    return topology.build()


def test_an_operator_that_cannot_be_pickled_is_named_with_the_cause_before_the_store_is_claimed(tmp_path: Path) -> None:
    lock = threading.Lock()

    def guarded(frame: pl.DataFrame) -> pl.DataFrame:
        with lock:
            return frame

    locked = application(guarded, parquet(tmp_path / "out"))
    with pytest.raises(InvalidTopology, match=r"operator 'second': .*cannot pickle '_thread\.lock'") as refused:
        Driver(locked, tmp_path / "store", Settings(), Observer())
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "store").exists()


def test_a_sink_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTopology, match="the sink of output 'results': "):
        check_shippable(application(lambda frame: frame, LockedSink(tmp_path)))


def test_a_function_that_stays_in_the_driver_may_hold_anything(tmp_path: Path) -> None:
    def deliver(batch: int, partition: int, rows: pl.DataFrame) -> None:
        with LOCK:
            print(batch, partition, rows)

    delivering = application(lambda frame: frame, callback(deliver))
    check_shippable(delivering)
    assert pack(delivering)
