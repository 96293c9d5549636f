"""`tx.testing.run`: a topology on frames, without Spark, whatever the cut into batches."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tenax as tx
from tenax.errors import InvalidRequest, RunFailed

START = datetime(2024, 1, 1)
SCHEMA: dict[str, Any] = {"ts": pl.Datetime("us"), "key": pl.String, "value": pl.Int64}


def frame(rows: int, **more: Any) -> pl.DataFrame:
    """A row a second: a key of three, and its number."""
    return pl.DataFrame(
        {
            "ts": [START + timedelta(seconds=number) for number in range(rows)],
            "key": [f"k{number % 3}" for number in range(rows)],
            "value": list(range(rows)),
            **more,
        },
        schema_overrides={"ts": pl.Datetime("us")},
    )


def endless(topology: tx.Topology, name: str = "rows", partitions: int = 2, **more: Any) -> tx.Stream:
    return topology.source(name, tx.files("nowhere/*.csv", time="ts", schema=SCHEMA, **more), partitions=partitions)


def sums(partitions: int = 2, parallelism: int = 3, **more: Any) -> tx.Topology:
    """rows (2) ─by key→ window (3) → out."""
    topology = tx.Topology("sums")
    windows = endless(topology, partitions=partitions, **more).key_by("key").window("10s")
    windows.aggregate(total=pl.col("value").sum(), n=pl.len(), parallelism=parallelism).output("out", tx.console())
    return topology


def expected(rows: pl.DataFrame) -> pl.DataFrame:
    made = rows.group_by("key", (pl.col("ts").dt.truncate("10s")).alias("window_start"))
    totals = made.agg(pl.col("value").sum().alias("total"), pl.len().alias("n"))
    end = (pl.col("window_start") + pl.duration(seconds=10)).alias("window_end")
    return totals.with_columns(end).select("key", "total", "n", "window_start", "window_end").sort("window_end", "key")


@pytest.mark.parametrize("batch_rows", [None, 1, 7, 1000, [1, 30, 2]])
@pytest.mark.parametrize(("partitions", "parallelism"), [(1, 1), (2, 3), (5, 1)])
def test_results_are_those_of_the_whole_frame_however_it_is_cut(
    batch_rows: int | list[int] | None, partitions: int, parallelism: int
) -> None:
    rows = frame(95)
    topology = sums(partitions, parallelism)
    assert_frame_equal(tx.testing.run(topology, {"rows": rows}, batch_rows=batch_rows)["out"], expected(rows))


def test_late_rows_are_left_out_as_the_source_says_and_kept_where_asked() -> None:
    late = frame(30).reverse().head(1)
    rows = pl.concat([frame(40), late])  # 10 s behind the newest
    topology = tx.Topology("t")
    source = tx.files("nowhere/*.csv", time="ts", schema=SCHEMA, lateness="5s")
    topology.source("rows", source, late=tx.console()).output("out", tx.console())
    results = tx.testing.run(topology, {"rows": rows}, batch_rows=7)
    assert results["out"].height == 40
    assert results["rows-late"].to_dicts() == late.to_dicts()


def test_sources_of_different_lengths_meet_and_a_bounded_one_needs_no_frame() -> None:
    """a, b → join → out."""
    topology = tx.Topology("t")
    a = endless(topology, "a").key_by("key").window("10s").aggregate(pl.len().alias("n"))
    b = topology.source("b", tx.elements(rate=1.0, pace=tx.Pace(rows=20)), partitions=2)
    other = b.with_columns(key=pl.lit("k1")).key_by("key").window("10s").aggregate(pl.len().alias("m"))
    a.join(other, on=["key", "window"]).output("out", tx.console())
    for batch_rows in (None, 3):
        rows = tx.testing.run(topology, {"a": frame(60)}, batch_rows=batch_rows)["out"]
        assert rows.select("key", "n", "m").rows() == [("k1", 3, 10), ("k1", 4, 10)]


def test_no_rows_give_no_results_with_their_columns() -> None:
    rows = tx.testing.run(sums(), {"rows": frame(3).clear()})["out"]
    assert rows.schema == expected(frame(3)).schema
    assert rows.is_empty()


def test_times_of_a_frame_are_read_as_its_source_would() -> None:
    topology = tx.Topology("t")
    source = tx.files("nowhere/*.csv", time="ts", time_unit="s", schema={"ts": pl.Int64(), "value": pl.Int64()})
    topology.source("rows", source).output("out", tx.console())
    seconds = pl.DataFrame({"ts": [1_704_067_200, 1_704_067_201], "value": [1, 2]})
    assert tx.testing.run(topology, {"rows": seconds})["out"]["ts"].to_list() == [START, START + timedelta(seconds=1)]


def test_a_frame_may_have_other_columns_and_narrower_types() -> None:
    rows = frame(30).with_columns(value=pl.col("value").cast(pl.Int16), more=pl.lit(1))
    assert_frame_equal(tx.testing.run(sums(), {"rows": rows})["out"], expected(frame(30)))


def test_code_of_a_user_that_raises_is_named_with_its_line() -> None:
    def broken(rows: pl.DataFrame) -> pl.DataFrame:
        raise ValueError("no such thing") if rows.height else KeyError("empty")

    topology = tx.Topology("t")
    stream = endless(topology)
    stream.map(broken, schema=stream.schema).output("out", tx.console())
    with pytest.raises(RunFailed) as raised:
        tx.testing.run(topology, {"rows": frame(3)})
    assert "operator 'map-1' raised in task map-1[0], batch 1: ValueError: no such thing" in str(raised.value)
    assert Path(__file__).name in str(raised.value)


@pytest.mark.parametrize(
    ("frames", "batch_rows", "message"),
    [
        ({"row": frame(1)}, None, "frames are for sources, found one for 'row'"),
        ({}, None, "source 'rows' never ends, found no frame for it"),
        ({"rows": [1]}, None, "is a pl.DataFrame, found list"),
        ({"rows": pl.DataFrame({"a": [1]})}, None, "has the column of event times 'ts', found ['a']"),
        ({"rows": frame(1).drop("key")}, None, "has the columns of the source, found none of ['key']"),
        ({"rows": frame(1).with_columns(value=pl.lit("x"))}, None, "has the types of the source"),
        ({"rows": frame(1)}, 0, "at least 1, found 0"),
        ({"rows": frame(1)}, [], "at least 1, found []"),
    ],
)
def test_wrong_frames_are_one_line(frames: Any, batch_rows: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        tx.testing.run(sums(), frames, batch_rows=batch_rows)
    assert message in str(raised.value)


def test_spark_is_not_loaded() -> None:
    script = (
        "import sys, polars as pl, tenax as tx\n"
        "from datetime import datetime\n"
        "topology = tx.Topology('t')\n"
        "rows = topology.source('rows', tx.elements(rate=1.0))\n"
        "rows.window('1s').aggregate(n=pl.len()).output('out', tx.console())\n"
        "frame = pl.DataFrame({'ts': [datetime(2024, 1, 1)], 'sequence': [1], 'value': [1]})\n"
        "assert tx.testing.run(topology, {'rows': frame})['out']['n'].to_list() == [1]\n"
        "heavy = {'pyspark', 'py4j', 'matplotlib', 'ortools', 'pandas', 'rich', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
