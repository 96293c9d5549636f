"""Batches that were logged for other sources than there are now, because other code has taken the store over."""

from __future__ import annotations

import threading
from pathlib import Path

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.batching.batches import BatchPlanner
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits
from tenax.connectors.workloads import elements
from tenax.store import records
from tenax.store.store import Store


def application(folder: Path, *, rows: int, more: int = 0) -> Application:
    """rows (2) --> o, and, if there are to be `more` rows, more (2) --> m"""
    topology = Topology("t")
    first = topology.source("rows", elements(rate=100, pace=Pace(rows=rows)), partitions=2)
    first.output("o", parquet(folder / "o"))
    if more:
        second = topology.source("more", elements(rate=100, pace=Pace(rows=more)), partitions=2)
        second.output("m", parquet(folder / "m"))
    return topology.build()


def planner(built: Application, store: Store) -> BatchPlanner:
    return BatchPlanner(built, store, Limits(10), 0.0)


def test_batches_that_nothing_depends_on_are_planned_anew_for_the_sources_that_there_are(tmp_path: Path) -> None:
    old, new = application(tmp_path, rows=60), application(tmp_path, rows=60, more=60)
    store = Store.open(tmp_path / "store", {})
    before = planner(old, store)
    before.log(1, 5, threading.Event())
    after = planner(new, store)
    assert after.batch(2).ranges["more"] == (None, None)
    forgotten = after.renew(2, 2)
    assert forgotten is not None
    assert forgotten.first == 3
    assert after.logged == 2
    assert [set(records.mapping(records.mapping(batch.data)["ranges"])) for batch in store.batches] == [
        {"rows", "more"}
    ] * 2
    assert "more" not in after.positions
    after.log(3, 1, threading.Event())
    assert after.batch(3).ranges["rows"] == before.batch(3).ranges["rows"]
    assert after.batch(3).ranges["more"] == before.batch(1).ranges["rows"], "it begins at its beginning"
    again = planner(old, store)
    assert set(again.batch(3).ranges) == set(again.positions) == {"rows"}
    store.close()


def test_sources_that_had_ended_stay_so_and_a_new_one_is_read(tmp_path: Path) -> None:
    old, new = application(tmp_path, rows=20), application(tmp_path, rows=20, more=20)
    store = Store.open(tmp_path / "store", {})
    before = planner(old, store)
    before.log(1, 9, threading.Event())
    last = before.logged
    assert before.batch(last).ended
    after = planner(new, store)
    assert not after.batch(last).ended
    after.log(last + 1, 9, threading.Event())
    assert after.batch(last + 1).ranges["rows"] == (None, None)
    assert after.batch(after.logged).ended
    store.close()


def test_where_all_sources_that_are_left_had_ended_a_batch_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", {})
    planner(application(tmp_path, rows=20, more=500), store).log(1, 4, threading.Event())
    after = planner(application(tmp_path, rows=20), store)
    assert not after.batch(4).ended
    logged = after.log(5, 3, threading.Event())
    assert logged is not None
    assert (logged.last, logged.ended, logged.rows) == (5, True, 0)
    store.close()
