"""Users' code whose columns vary is stopped at the batch, by its name, whichever process ran before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from engine.worker_cluster import LIMIT, Cluster

import tenax as tx
from tenax.application.application import Application
from tenax.application.schemas import from_record
from tenax.batching.batches import BatchPlanner
from tenax.control.versions import Cut
from tenax.engine.driver.ordering import Ordering
from tenax.engine.worker.orders import Failure, Order
from tenax.engine.worker.steps import Worker
from tenax.errors import InvalidTopology
from tenax.store import records
from tenax.store.store import Store

Function = Callable[[pl.DataFrame], pl.DataFrame]
BATCH_ROWS = LIMIT.rows


def application(folder: Path, function: Function, partitions: int = 1) -> Application:
    # elements (1 or 2) ─► change (1 or 2) ─► out (1 or 2)
    topology = tx.Topology("varying")
    rows = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=6_000)), partitions=partitions)
    rows.select("sequence").map(function, name="change").output("out", tx.parquet(folder / "out"))
    return topology.build()


def failure_of(cluster: Cluster, order: Order) -> Failure:
    return next(failure for bundle in cluster.attempt(order) for failure in bundle.failures)


def second_batch(rows: pl.DataFrame) -> bool:
    return bool((rows["sequence"] >= BATCH_ROWS).any())


def other_type(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=pl.lit(1.5) if second_batch(rows) else pl.lit(1))


def other_order(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("ts", "sequence") if second_batch(rows) else rows


def one_more(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=pl.lit(1)) if second_batch(rows) else rows


@pytest.mark.parametrize(
    ("function", "now", "before"),
    [
        (other_type, "(sequence Int64, ts Datetime, w Float64)", "(sequence Int64, ts Datetime, w Int32)"),
        (other_order, "(ts Datetime, sequence Int64)", "(sequence Int64, ts Datetime)"),
        (one_more, "(sequence Int64, ts Datetime, w Int32)", "(sequence Int64, ts Datetime)"),
    ],
)
@pytest.mark.parametrize("passes", [1, 2])
def test_other_columns_stop_the_run_at_their_batch_with_both(
    function: Function, now: str, before: str, passes: int, tmp_path: Path
) -> None:
    cluster = Cluster(application(tmp_path, function), tmp_path, 1)
    if passes == 1:
        failure = failure_of(cluster, cluster.order(3, 1))
    else:
        cluster.run(cluster.order(1, 1))
        cluster.workers = [Worker(cluster.application, cluster.places, name) for name in cluster.names]  # new processes
        failure = failure_of(cluster, cluster.order(1, 2))
    assert (failure.kind, failure.operator, failure.task, failure.batch) == ("operator", "change", "change[0]", 2)
    assert f"found {now} after {before}" in failure.cause


def by_partition(rows: pl.DataFrame) -> pl.DataFrame:
    odd = bool((rows["sequence"] % 2 == 1).any())  # rows are dealt to partitions in turn
    return rows.with_columns(w=pl.lit("x") if odd else pl.lit(1))


def test_a_task_that_differs_from_the_others_is_told(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path, by_partition, partitions=2), tmp_path, 2)
    failure = failure_of(cluster, cluster.order(1, 1))
    assert (failure.operator, failure.task, failure.batch) == ("change", "change[1]", 1)
    assert "w String) after (sequence Int64, ts Datetime, w Int32)" in failure.cause


def test_tasks_that_differ_are_to_blame_and_not_who_reads_them(tmp_path: Path) -> None:
    # elements (2) ─► change (2) ─full─► sums (1) ─► out (1)
    topology = tx.Topology("varying")
    rows = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=6_000)), partitions=2)
    keyed = rows.map(by_partition, name="change").key_by("w")
    keyed.window("1s").aggregate(pl.len().alias("n"), parallelism=1).output("out", tx.parquet(tmp_path / "out"))
    failure = failure_of(cluster := Cluster(topology.build(), tmp_path, 2), cluster.order(1, 1))
    assert (failure.operator, failure.task, failure.batch) == ("change", "change[1]", 1)
    assert "w String" in failure.cause


def rows_only(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=pl.lit(rows["sequence"][0]))


def test_once_its_columns_are_known_a_function_is_not_asked_about_no_rows(tmp_path: Path) -> None:
    # elements (1) ─► few (1) ─► change (1) ─► out (1)
    topology = tx.Topology("varying")
    rows = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=6_000)))
    few = rows.filter(pl.col("sequence") < BATCH_ROWS, name="few")
    schema = {"ts": pl.Datetime("us"), "sequence": pl.Int64(), "value": pl.Float64(), "w": pl.Int32()}
    few.map(rows_only, schema=schema, name="change").output("out", tx.parquet(tmp_path / "out"))
    cluster = Cluster(topology.build(), tmp_path, 1)
    cluster.run(cluster.order(2, 1))
    assert cluster.run(cluster.order(2, 2))


def test_a_checkpoint_tells_the_next_driver_which_columns_operators_gave(tmp_path: Path) -> None:
    made = application(tmp_path, other_type)
    cluster = Cluster(made, tmp_path, 1)
    store = Store.open(tmp_path / "store", made.fingerprint())
    ordering = Ordering(made, cluster.graph, BatchPlanner(made, store, LIMIT, 0.0), "run")
    notes = ordering.notes(Cut(0, ()))
    store.close()
    assert from_record(records.mapping(notes["schemas"])) == made.schemas
    assert made.schemas["change"]["w"] == pl.Int32


def declared_otherwise(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=pl.lit(1))


def test_rows_that_are_not_as_declared_stop_the_run_with_both(tmp_path: Path) -> None:
    topology = tx.Topology("varying")
    rows = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=6_000))).select("sequence")
    schema = {**rows.schema, "w": pl.String()}
    rows.map(declared_otherwise, schema=schema, name="change").output("out", tx.parquet(tmp_path / "out"))
    failure = failure_of(cluster := Cluster(topology.build(), tmp_path, 1), cluster.order(1, 1))
    assert (failure.operator, failure.task, failure.batch) == ("change", "change[0]", 1)
    assert "found (sequence Int64, ts Datetime, w Int32) after (sequence Int64, ts Datetime, w String), which are" in (
        failure.cause
    )


def from_lists(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame([{"ts": ts, "w": number / 2} for ts, number in rows.select("ts", "sequence").rows()])


def test_a_function_that_loses_its_columns_without_rows_is_to_blame_and_not_who_misses_them(tmp_path: Path) -> None:
    # elements (1) ─► few (1) ─► change (1) ─► mean (1) ─► out (1)
    topology = tx.Topology("varying")
    rows = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=6_000)))
    changed = rows.filter(pl.col("sequence") >= BATCH_ROWS, name="few").map(from_lists, name="change")
    changed.window("1s").aggregate(pl.col("w").mean(), name="mean").output("out", tx.parquet(tmp_path / "out"))
    with pytest.raises(InvalidTopology, match=r"operator 'change' .*found none when it was tried without rows"):
        topology.build()
