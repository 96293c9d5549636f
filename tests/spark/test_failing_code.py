"""Code and files that fail stop a run with their place and cause, and leave a store that goes on after a fix."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from spark.oracles import SECOND_US, assert_equal, windowed
from spark.runs import Watcher, finish, run, settings, ship, whole_input

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.delivery import callback
from tenax.connectors.files import files
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.instructions import Outcome
from tenax.engine.session import Session
from tenax.errors import ChangedSource
from tenax.model.settings import Settings
from tenax.store import records
from tenax.store.events import read_events

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
    assert f"{place}ValueError: this row cannot be ({__file__}, line " in stop.reason
    assert "\n" not in stop.reason
    events = [records.mapping(entry["event"]) for entry in read_events(tmp_path / "store") if "event" in entry]
    trace = str(records.mapping(next(event for event in events if event["type"] == "PassFailed")["failure"])["trace"])
    assert trace.splitlines()[1].endswith(", in checked")
    assert trace.splitlines()[2:] == [
        '    raise ValueError("this row\\ncannot be")',
        "ValueError: this row",
        "cannot be",
    ]

    application = means(tmp_path / "out", fixed)
    results = finish(application, tmp_path / "store", how, cluster)
    given = whole_input(application)["elements"].with_columns((pl.col("sequence") % 5).alias("key"))
    expected = {"means": windowed(given, ["key"], SECOND_US, SECOND_US, pl.col("value").mean())}
    assert_equal(results, expected, {"means": ["key"]})


OFFSET = 3


def shifted(value: int) -> int:
    return value + OFFSET


def test_functions_within_expressions_travel_with_what_they_use(cluster: Session, tmp_path: Path) -> None:
    # elements (2) --> kept (2) --> shift (2) --> double (2) --> out (2)
    topology = Topology("functions")
    rows = topology.source("elements", elements(rate=1_000, pace=Pace(rows=ROWS)), partitions=2)
    number = pl.col("sequence")
    with warnings.catch_warnings(action="ignore"):  # Polars would rather have expressions
        kept = rows.filter(number.map_elements(lambda value: shifted(value) % 2 == 0, return_dtype=pl.Boolean))
        shift = kept.with_columns(number.map_elements(shifted).alias("shifted"))
        double = shift.select("sequence", "shifted", number.map_batches(lambda s: s * 2, pl.Int64).alias("doubled"))
    double.output("out", parquet(tmp_path / "out"))
    results = finish(topology.build(), tmp_path / "store", settings(BATCH_ROWS), cluster)["out"].sort("sequence")
    assert results["sequence"].to_list() == list(range(1, ROWS, 2))
    assert (results["shifted"] == results["sequence"] + OFFSET).all()
    assert (results["doubled"] == results["sequence"] * 2).all()


def changing(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(0.5 if (rows["sequence"] >= BAD_ROW).any() else 1).alias("extra"))


def test_a_map_whose_columns_vary_is_stopped_at_the_batch_also_by_a_new_driver(
    cluster: Session, tmp_path: Path
) -> None:
    how = one_by_one(BATCH_ROWS, 1)
    for _ in range(2):
        stop = run(means(tmp_path / "out", changing), tmp_path / "store", how, cluster)
        assert stop.outcome is Outcome.FAILED
        assert (
            "operator 'check' raised in task check[0], batch 4: its columns are the same in every batch" in stop.reason
        )
        assert "extra Float64) after (" in stop.reason
        assert "extra Int32)" in stop.reason


def refusing(batch: int, partition: int, rows: pl.DataFrame) -> None:
    raise ValueError("no room for these")


def test_a_function_that_takes_results_and_raises_is_shown_once_with_its_line(cluster: Session, tmp_path: Path) -> None:
    topology = Topology("refused")
    rows = topology.source("elements", elements(rate=1_000, pace=Pace(rows=10)))
    rows.output("out", callback(refusing))
    watcher = Watcher()
    stop = run(topology.build(), tmp_path / "store", settings(BATCH_ROWS), cluster, watcher)
    assert f"ValueError: no room for these ({__file__}, line " in stop.reason
    assert [message.splitlines()[-1] for message in watcher.messages if "Traceback" in message] == [
        "ValueError: no room for these"
    ]


def test_a_file_that_cannot_be_planned_is_named_at_once(cluster: Session, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "a.csv", lines(0, 30))
    (data / "b.csv").write_text("ts,key\n2024-01-01T00:00:30,1\n")
    stop = run(readings(data, tmp_path / "out"), tmp_path / "store", one_by_one(10, 2), cluster)
    assert stop.outcome is Outcome.FAILED
    assert f"cannot be planned: source 'readings': {data / 'b.csv'}: all files of a source have" in stop.reason
    events = [records.mapping(entry["event"])["type"] for entry in read_events(tmp_path / "store") if "event" in entry]
    assert events.count("LoggingFailed") == 1


def readings(data: Path, out: Path) -> Application:
    """readings (1) --> window (1) --> means (1)"""
    topology = Topology("readings")
    schema = {"ts": pl.Datetime("us"), "key": pl.Int64(), "value": pl.Float64()}
    rows = topology.source("readings", files(data, time="ts", follow=False, schema=schema))
    rows.key_by("key").window("1s").aggregate(pl.col("value").mean()).output("means", parquet(out))
    return topology.build()


def lines(first: int, rows: int) -> list[str]:
    """Rows of CSV, a second apart."""
    return [f"2024-01-01T00:{row // 60:02d}:{row % 60:02d}.5,{row % 3},{row}.25" for row in range(first, first + rows)]


def write(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(["ts,key,value", *rows]) + "\n")


def one_by_one(rows: int, checkpoint_every: int) -> Settings:
    """Every batch is published before the next one runs, so that a test knows on what results depend."""
    return Settings.of(
        max_rows=rows, checkpoint_every=checkpoint_every, max_batches_per_pass=1, max_batches_ahead=8, max_unpublished=1
    )


@pytest.mark.parametrize(
    ("before", "how", "first"),
    [(30, settings(100), 1), (30, one_by_one(30, 2), 3), (150, one_by_one(30, 100), 7)],
    ids=["no-results-yet", "half-of-the-file-in-results", "half-of-the-file-to-be-replayed"],
)
def test_a_row_that_cannot_be_parsed_stops_the_run_at_once_and_once_corrected_the_same_run_goes_on(
    before: int, how: Settings, first: int, cluster: Session, tmp_path: Path
) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    data.mkdir()
    good = lines(before, 60)
    bad = [*good]
    bad[41] = bad[41].rpartition(",")[0] + ",many"
    write(data / "a.csv", lines(0, before))
    write(data / "b.csv", bad)
    stop = run(readings(data, tmp_path / "out"), store, how, cluster)
    assert stop.outcome is Outcome.FAILED
    assert stop.resumable
    assert "readings" in stop.reason
    assert f"{data / 'b.csv'}, row 42" in stop.reason
    assert "\n" not in stop.reason
    events = [records.mapping(entry["event"]) for entry in read_events(store) if "event" in entry]
    assert [event["type"] for event in events].count("PassFailed") == 1

    write(data / "b.csv", good)
    watcher = Watcher()
    results = finish(readings(data, tmp_path / "out"), store, how, cluster, watcher)
    assert watcher.messages == [f"{data / 'b.csv'} has changed: batches from {first} on are planned anew"]
    rows = pl.concat(pl.read_csv(path, try_parse_dates=True) for path in sorted(data.iterdir()))
    assert rows.height == before + 60
    assert_equal(
        results, {"means": windowed(rows, ["key"], SECOND_US, SECOND_US, pl.col("value").mean())}, {"means": ["key"]}
    )


def test_a_file_that_results_depend_on_is_refused_by_name(cluster: Session, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data / "a.csv", [*lines(0, 65), "soon,1,1.0"])
    how = one_by_one(15, 100)
    stop = run(readings(data, tmp_path / "out"), tmp_path / "store", how, cluster)
    assert stop.outcome is Outcome.FAILED
    write(data / "a.csv", [*lines(1, 1), *lines(1, 64)])
    with pytest.raises(ChangedSource, match=r"a\.csv: .*results depend on its first 15 rows"):
        run(readings(data, tmp_path / "out"), tmp_path / "store", how, cluster)
