"""Code and files that fail stop a run with their place and cause, and leave a store that goes on after a fix."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from spark.oracles import SECOND_US, assert_equal, windowed
from spark.runs import finish, run, settings, ship, whole_input

from tenax.api.streams import Topology
from tenax.control.instructions import Outcome
from tenax.engine.application import Application
from tenax.engine.session import Session
from tenax.engine.sinks.parquet import parquet
from tenax.engine.sources.files import files
from tenax.engine.sources.generators import Pace
from tenax.engine.sources.workloads import elements

pytestmark = pytest.mark.xdist_group("spark")
ship(sys.modules[__name__])

ROWS, BATCH_ROWS = 4_000, 500
BAD_ROW = 1_750  # in batch 4


def checked(rows: pl.DataFrame) -> pl.DataFrame:
    if (rows["sequence"] == BAD_ROW).any():
        raise ValueError("this row\ncannot be")
    return rows


def fixed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def means(folder: Path, function: Callable[[pl.DataFrame], pl.DataFrame]) -> Application:
    """elements (2) --> check (2) --> key (2) --full--> window (2) --> means (2)"""
    topology = Topology("means")
    rows = topology.source("elements", elements(rate=1_000, pace=Pace(rows=ROWS)), partitions=2)
    keyed = rows.map(function, name="check").with_columns((pl.col("sequence") % 5).alias("key"))
    window = keyed.key_by("key").window("1s").aggregate(pl.col("value").mean())
    window.output("means", parquet(folder / "means"))
    return topology.build()


def test_an_operator_that_raises_stops_the_run_with_its_place_and_after_a_fix_the_results_are_exact(
    cluster: Session, tmp_path: Path
) -> None:
    how = settings(BATCH_ROWS, checkpoint_every=2)
    stop = run(means(tmp_path / "out", checked), tmp_path / "store", how, cluster)
    assert stop.outcome is Outcome.FAILED
    assert stop.resumable
    place = f"operator 'check' raised in task check[{BAD_ROW % 2}], batch {BAD_ROW // BATCH_ROWS + 1}: "
    assert f"{place}ValueError: this row cannot be" in stop.reason
    assert "\n" not in stop.reason

    application = means(tmp_path / "out", fixed)
    found = finish(application, tmp_path / "store", how, cluster)
    given = whole_input(application)["elements"].with_columns((pl.col("sequence") % 5).alias("key"))
    expected = {"means": windowed(given, ["key"], SECOND_US, SECOND_US, pl.col("value").mean())}
    assert_equal(found, expected, {"means": ["key"]})


def readings(data: Path, out: Path) -> Application:
    """readings (1) --> window (1) --> means (1)"""
    topology = Topology("readings")
    schema = {"ts": pl.Datetime("us"), "key": pl.Int64(), "value": pl.Float64()}
    rows = topology.source("readings", files(data, time="ts", follow=False, schema=schema))
    rows.key_by("key").window("1s").aggregate(pl.col("value").mean()).output("means", parquet(out))
    return topology.build()


def test_a_row_that_cannot_be_parsed_stops_the_run_with_its_file_and_number(cluster: Session, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    lines = [f"2024-01-01T00:00:{row % 60:02d}.{row // 60:03d},{row % 3},{row}.5" for row in range(60)]
    (data / "a.csv").write_text("\n".join(["ts,key,value", *lines]) + "\n")
    bad = [*lines]
    bad[41] = "2024-01-01T00:00:41,2,many"
    (data / "b.csv").write_text("\n".join(["ts,key,value", *bad]) + "\n")
    stop = run(readings(data, tmp_path / "out"), tmp_path / "store", settings(30), cluster)
    assert stop.outcome is Outcome.FAILED
    assert "readings" in stop.reason
    assert str(data / "b.csv") in stop.reason
    assert "row 42" in stop.reason
    assert "\n" not in stop.reason
