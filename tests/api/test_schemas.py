"""Schemas are known before anything runs: what operators give follows from what sources tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

import tenax as tx
from tenax.connectors.source import Limits, Planned, Source
from tenax.errors import InvalidRequest, InvalidTopology

TS = pl.Datetime("us")
COLUMNS = {"ts": TS, "name": pl.String(), "v": pl.Int64()}
WINDOW = {"window_start": TS, "window_end": TS}
LIMITS, NOW_US = Limits(100), 1_800_000_000_000_000
TEXT = "2024-01-01T00:00:00,a,1\n"


def rows(folder: Path, **options: object) -> tx.Stream:
    (folder / "rows.csv").write_text(f"ts,name,v\n{TEXT}")
    return tx.Topology("t").source("rows", tx.files(folder / "rows.csv", time="ts", **options))  # type: ignore[arg-type]


def doubled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(w=pl.col("v") * 2.0)


class Counts(tx.KeyedComputation):
    keys = ("name",)
    state_schema = pl.Schema({"name": pl.String, "n": pl.Int64})

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:
        return pl.Schema({"name": inputs[0]["name"], "n": pl.Int64()})

    def step_keys(self, *_: object) -> tuple[pl.DataFrame, tx.Changes]:
        raise NotImplementedError  # never without rows: its columns are declared


def windows(stream: tx.Stream) -> tx.Stream:
    return stream.key_by("name").window("1s").aggregate(pl.col("v").mean(), pl.len().alias("n"))


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (lambda given: given, COLUMNS),
        (lambda given: given.filter(pl.col("v") > 1), COLUMNS),
        (lambda given: given.select("v"), {"v": pl.Int64(), "ts": TS}),
        (lambda given: given.with_columns((pl.col("v") / 2).alias("w")), {**COLUMNS, "w": pl.Float64()}),
        (lambda given: given.map(doubled), {**COLUMNS, "w": pl.Float64()}),
        (lambda given: given.map(doubled, schema={"ts": TS, "x": pl.Int8}), {"ts": TS, "x": pl.Int8()}),
        (lambda given: given.union(given.select("v", "name")), COLUMNS),
        (windows, {"name": pl.String(), "v": pl.Float64(), "n": pl.UInt32(), **WINDOW}),
        (
            lambda given: windows(given).top(3, "v"),
            {"name": pl.String(), "v": pl.Float64(), "n": pl.UInt32(), **WINDOW},
        ),
        (
            lambda given: windows(given).join(windows(given), on=["name", "window"]),
            {
                "name": pl.String(),
                "v": pl.Float64(),
                "n": pl.UInt32(),
                **WINDOW,
                "v_2": pl.Float64(),
                "n_2": pl.UInt32(),
            },
        ),
        (lambda given: given.key_by("name").apply(Counts()), {"name": pl.String(), "n": pl.Int64()}),
    ],
)
def test_a_stream_shows_the_columns_that_follow_from_its_source(
    flow: Callable[[tx.Stream], tx.Stream], expected: dict[str, pl.DataType], tmp_path: Path
) -> None:
    stream = flow(rows(tmp_path))
    assert list(stream.schema.items()) == list(expected.items())
    stream.output("out", tx.console())
    assert stream.topology.build().schemas["out"] == stream.schema


@pytest.mark.parametrize("suffix", ["csv", "ndjson", "jsonl", "parquet"])
@pytest.mark.parametrize("tail", [False, True])
def test_files_tell_their_columns_by_a_footer_or_their_first_rows(suffix: str, tail: bool, tmp_path: Path) -> None:
    frame = pl.DataFrame({"ts": ["2024-01-01T00:00:00"], "v": [1]})
    if suffix == "parquet":
        if tail:
            return  # Parquet files do not grow
        frame.write_parquet(tmp_path / "a.parquet")
    elif suffix == "csv":
        frame.write_csv(tmp_path / "a.csv")
    else:
        frame.write_ndjson(tmp_path / f"a.{suffix}")
    source = tx.files(tmp_path, time="ts", tail=tail)
    assert source.schema() == {"ts": TS, "v": pl.Int64()}


@pytest.mark.parametrize(
    "source", [tx.elements(), tx.traffic_locations(), tx.incident_reports(), tx.page_views(), tx.tweets()]
)
def test_generators_know_the_columns_of_their_rows(source: Source) -> None:
    assert source.schema() == source.read(0, [0, 5, 1]).schema


def test_a_first_plan_goes_by_the_columns_that_were_seen(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("ts,v\n2024-01-01T00:00:00,1.5\n")
    source = tx.files(tmp_path, time="ts")
    seen = source.schema()
    (tmp_path / "a.csv").write_text("ts,v\n2024-01-01T00:00:00,1\n")  # before the other, and narrower
    planned = source.plan(None, 1, LIMITS, NOW_US)
    assert isinstance(planned, Planned)
    read = source.read(0, planned.ranges[0])
    assert read.schema == seen
    assert read.schema["v"] == pl.Float64()


def test_columns_of_a_run_that_goes_on_are_those_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,v\n2024-01-01T00:00:00,1.5\n")
    source = tx.files(tmp_path, time="ts")
    planned = source.plan(None, 1, LIMITS, NOW_US)
    assert isinstance(planned, Planned)
    (tmp_path / "a.csv").unlink()
    again = tx.files(tmp_path, time="ts")
    assert again.schema() is None
    assert again.schema_at(planned.position) == {"ts": TS, "v": pl.Float64()}


def test_a_typo_is_told_with_what_was_meant(tmp_path: Path) -> None:
    stream = rows(tmp_path).filter(pl.col("nam") == "a")
    with pytest.raises(
        InvalidTopology, match=r"operator 'filter-1' \(made in .*, line \d+\): .*: did you mean 'name'\?$"
    ):
        _ = stream.schema
    with pytest.raises(InvalidTopology) as raised:
        _ = rows(tmp_path).with_columns(pl.col("nme")).schema
    assert str(raised.value).count("id you mean") == 1


def test_what_does_not_fit_is_told_before_anything_runs(tmp_path: Path) -> None:
    numbers = windows(rows(tmp_path))
    texts = numbers.topology.source("more", tx.files(tmp_path / "rows.csv", time="ts"))
    other = texts.with_columns(pl.col("v").cast(pl.String).alias("name"), pl.col("name").alias("v"))
    counted = other.with_columns(pl.lit(1.5).alias("name")).key_by("name").window("1s").aggregate(pl.len())
    with pytest.raises(
        InvalidTopology, match="join is on columns of one type: 'name' is String in input 1, Float64 in"
    ):
        _ = numbers.join(counted, on=["name", "window"]).schema
    with pytest.raises(InvalidTopology, match="`sum` operation not supported for dtype `str`"):
        _ = other.window("1s").aggregate(pl.col("v").sum()).schema


def test_columns_that_no_source_tells_yet_are_asked_for_in_words(tmp_path: Path) -> None:
    stream = tx.Topology("t").source("rows", tx.files(tmp_path, time="ts")).filter(pl.col("v") > 1)
    with pytest.raises(InvalidRequest, match=r"'filter-1' follow from those of its sources, .* state a schema there"):
        _ = stream.schema


@pytest.mark.parametrize("schema", [{}, "ts", {"ts": "Datetime"}, {1: pl.Int64}])
def test_a_schema_that_is_none_is_refused_at_the_call(schema: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"^a schema has .*: write map\(..., schema="):
        rows(tmp_path).map(doubled, schema=schema)  # type: ignore[arg-type]


def test_schemas_of_many_operators_take_little_time(tmp_path: Path) -> None:
    stream = rows(tmp_path)
    for _ in range(50):
        stream = stream.with_columns(pl.col("v") + 1).filter(pl.col("v") > 0)
    began_s = time.process_time()
    assert stream.schema == COLUMNS
    assert time.process_time() - began_s < 5.0  # about 30 ms; a machine may be slow
