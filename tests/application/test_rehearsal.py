"""What is wrong with sources, columns and types is known before Spark starts; functions of users are not judged."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import tenax as tx
from tenax.application.application import Application
from tenax.application.rehearsal import has_batches, logged_positions, rehearse, with_known_schemas
from tenax.batching.batches import BatchPlanner
from tenax.connectors.source import Limits
from tenax.engine.masters import check_master
from tenax.errors import ClusterFailed, InvalidRequest, InvalidSource, InvalidTopology, UnreadableSource
from tenax.store.store import Store

Ending = Callable[[tx.Stream], tx.Stream]
V = pl.col("v")


class Totals(tx.KeyedComputation):
    keys = ("segment",)
    state_schema = pl.Schema({"segment": pl.Int64})

    def step_keys(self, rows: pl.DataFrame, *_: object) -> tuple[pl.DataFrame, tx.Changes]:
        return rows, tx.Changes()


def application(folder: Path, ending: Ending, time: str = "ts", where: str = "rows.csv") -> Application:
    """rows (1) --> whatever (1) --> out (1)"""
    (folder / "rows.csv").write_text("ts,name,v\n2024-01-01T00:00:00,a,1\n2024-01-01T00:00:01,b,2\n")
    topology = tx.Topology("t")
    rows = topology.source("rows", tx.files(folder / where, time=time, follow=False))
    ending(rows).output("out", tx.parquet(folder / "out"))
    return topology.build()


def windows(rows: tx.Stream, key: str = "name") -> tx.Stream:
    return rows.key_by(key).window("1s").aggregate(V.sum())


def joined(rows: tx.Stream) -> tx.Stream:
    return windows(rows).join(windows(rows.with_columns(V.alias("k")), "k"), on=["name", "window"])


@pytest.mark.parametrize(
    ("ending", "operator", "expected"),
    [
        (lambda rows: rows.filter(pl.col("w") > 1), "filter-1", 'unable to find column "w"; valid columns: ["ts", '),
        (lambda rows: rows.filter(pl.col("name") > 1), "filter-1", "cannot compare string with numeric type"),
        (lambda rows: rows.filter(V), "filter-1", "filter predicate must be of type `Boolean`, got `Int64`"),
        (lambda rows: rows.select("v", "nam"), "select-1", 'unable to find column "nam"'),
        (lambda rows: windows(rows, "nam"), "window-1", "a key must be a column: 'nam' is not among ['ts', 'name',"),
        (lambda rows: windows(rows.select("name")), "window-1", "aggregates need their columns: 'v'"),
        (lambda rows: windows(rows).top(3, "w"), "top-1", "top is by columns that are there: 'w' is not among"),
        (joined, "join-1", "'name' is not among"),
        (lambda rows: rows.union(rows.select("v")), "union-1", "input 2 lacks 'name'"),
        (lambda rows: rows.apply(Totals()), "apply-1", "keys are columns of the rows and of the state"),
        (lambda rows: rows.with_columns(pl.col("name").cast(pl.Categorical)), "with-columns-1", "cast it to pl.String"),
    ],
)
def test_a_missing_column_or_a_wrong_type_is_told_with_the_operator_and_its_line(
    ending: Ending, operator: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidTopology) as raised:
        rehearse(application(tmp_path, ending))
    text = str(raised.value)
    assert text.startswith(f"operator {operator!r} (made in {__file__}, line ")
    assert expected in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("time", "where", "expected"),
    [
        ("name", "rows.csv", "source 'rows': {0}/rows.csv, row 1: every row has an event time, found 'a'"),
        ("ts", "raws.csv", "source 'rows': {0}/raws.csv: a source reads what is there, found nothing of that name"),
        ("ts", "no/*.csv", "source 'rows': {0}/no: a source reads what is there, found nothing of that name"),
        ("ts", "*.parquet", "source 'rows': {0}/*.parquet: a source that does not follow has files, found none"),
    ],
)
def test_a_source_that_cannot_be_read_is_told_with_its_file(
    time: str, where: str, expected: str, tmp_path: Path
) -> None:
    made = application(tmp_path, lambda rows: rows, time, where)
    with pytest.raises(UnreadableSource) as raised:
        rehearse(made)
    assert expected.format(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert rehearse(made, resumed=True) == []  # what was read may be gone


def test_a_file_without_the_column_of_event_times_is_told_when_the_topology_is_built(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource) as raised:
        application(tmp_path, lambda rows: rows, "when")
    expected = "source 'rows': {0}/rows.csv: a source has its column of event times, found no 'when'"
    assert expected.format(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def needs_rows(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=pl.lit(rows["v"][0]))


def ends_the_program(rows: pl.DataFrame) -> pl.DataFrame:
    raise SystemExit(rows.height)


@pytest.mark.parametrize("function", [needs_rows, ends_the_program])
def test_a_function_that_cannot_do_with_no_rows_declares_its_columns_and_is_left_to_the_first_batch(
    function: Callable[[pl.DataFrame], pl.DataFrame], tmp_path: Path
) -> None:
    with pytest.raises(InvalidTopology) as raised:
        application(tmp_path, lambda rows: rows.map(function).filter(pl.col("w") > 1))
    text = str(raised.value)
    assert text.startswith(f"operator 'map-1' (made in {__file__}, line ")
    assert "found that it fails without rows of (ts Datetime, name String, v Int64)" in text
    assert f"in {__file__}, line " in text
    assert "map(..., schema={...})" in text
    assert "\n" not in text
    schema = {"ts": pl.Datetime("us"), "name": pl.String(), "v": pl.Int64(), "w": pl.Int64()}
    made = application(tmp_path, lambda rows: rows.map(function, schema=schema).filter(pl.col("w") > 1))
    assert rehearse(made) == []
    assert made.schemas["filter-1"] == schema


def from_lists(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame([{"ts": ts, "w": v / 2} for ts, v in rows.select("ts", "v").rows()])  # no rows, no columns


def test_a_function_that_loses_its_columns_without_rows_declares_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidTopology) as raised:
        application(tmp_path, lambda rows: rows.map(from_lists).filter(pl.col("w") > 1).filter(pl.col("w") > 2))
    text = str(raised.value)
    assert text.startswith(f"operator 'map-1' (made in {__file__}, line ")
    assert "found none when it was tried without rows" in text
    schema = {"ts": pl.Datetime("us"), "w": pl.Float64()}
    made = application(tmp_path, lambda rows: rows.map(from_lists, schema=schema).filter(pl.col("w") > 1))
    assert made.schemas["out"] == schema


def test_a_followed_folder_without_files_is_waited_for_and_said(tmp_path: Path) -> None:
    topology = tx.Topology("t")
    schema = {"ts": pl.Datetime("us"), "v": pl.Int64()}
    rows = topology.source("rows", tx.files(tmp_path, time="ts", schema=schema))
    rows.filter(pl.col("v") > 1).output("out", tx.console())
    assert rehearse(topology.build()) == [f"source 'rows' waits: no file is at {tmp_path / '*'} yet"]


def test_a_followed_folder_without_files_needs_a_stated_schema(tmp_path: Path) -> None:
    topology = tx.Topology("t")
    topology.source("rows", tx.files(tmp_path, time="ts")).output("out", tx.console())
    made = topology.build()  # a run that goes on has its columns in the store
    assert made.schemas == {}
    with pytest.raises(
        InvalidSource, match=r"^source 'rows': .*found no file with rows at .*: state them, as in"
    ) as raised:
        with_known_schemas(made, {})
    assert "\n" not in str(raised.value)


def test_a_run_that_goes_on_has_its_columns_from_the_store_when_its_files_are_gone(tmp_path: Path) -> None:
    made = application(tmp_path, lambda rows: rows.filter(V > 1))
    assert made.schemas["out"] == {"ts": pl.Datetime("us"), "name": pl.String(), "v": pl.Int64()}
    store = Store.open(tmp_path / "store", made.fingerprint())
    planner = BatchPlanner(made, store, Limits(10), 0.0)
    planner.log(1, 1, threading.Event())
    store.close()
    assert logged_positions(tmp_path / "store") == planner.positions
    other = application(tmp_path, lambda rows: rows.filter(V > 1))
    (tmp_path / "rows.csv").unlink()
    gone = replace(other, schemas={})
    known = with_known_schemas(gone, logged_positions(tmp_path / "store"))
    assert known.schemas == made.schemas
    with pytest.raises(UnreadableSource, match="found nothing of that name"):
        with_known_schemas(gone, {})  # from the beginning nothing is known


def test_a_run_that_goes_on_keeps_the_types_that_it_began_with(tmp_path: Path) -> None:
    made = application(tmp_path, lambda rows: rows.filter(V > 1))
    store = Store.open(tmp_path / "store", made.fingerprint())
    BatchPlanner(made, store, Limits(10), 0.0).log(1, 1, threading.Event())
    store.close()
    (tmp_path / "rows.csv").write_text("ts,name,v\n2024-01-01T00:00:00,a,1.5\n")
    topology = tx.Topology("t")
    rows = topology.source("rows", tx.files(tmp_path / "rows.csv", time="ts", follow=False))
    rows.filter(V > 1).output("out", tx.parquet(tmp_path / "out"))
    other = topology.build()
    assert other.schemas["out"]["v"] == pl.Float64()
    assert with_known_schemas(other, logged_positions(tmp_path / "store")).schemas["out"]["v"] == pl.Int64()


def test_only_a_store_with_batches_is_resumed(tmp_path: Path) -> None:
    assert not has_batches(tmp_path)
    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / "00000001.jsonl").touch()
    assert not has_batches(tmp_path)
    (tmp_path / "batches" / "00000001.jsonl").write_text("{}\n")
    assert has_batches(tmp_path)


@pytest.mark.parametrize("url", ["here", "spark://", "spark://host", "local[2]", "http://host:7077"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="write spark://host:7077"):
        check_master(url)


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterFailed, match=rf"{address}: Connection refused.*start it, or correct --master"):
            check_master(f"spark://{address}")
        with pytest.raises(ClusterFailed, match="no-such-host"):
            check_master(f"spark://no-such-host.invalid:7077,{address}")
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            check_master(f"spark://{address},127.0.0.1:{other.getsockname()[1]}")
