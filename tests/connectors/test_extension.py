"""A source and a sink from outside the package keep their contracts, with public names alone."""

from __future__ import annotations

import ast
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tenax as tx
from tenax.chaos.oracle import compare
from tenax.connectors.sink import stage

if TYPE_CHECKING:
    from collections.abc import Callable

EXTENSION = Path(__file__).parents[2] / "examples" / "extension"


@pytest.fixture(autouse=True)
def _extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXTENSION))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "tenax_sqlite"]:
        del sys.modules[name]


def source(*arguments: Any, **options: Any) -> tx.Source:
    from tenax_sqlite import SqliteSource  # type: ignore[import-not-found]

    made: tx.Source = SqliteSource(*arguments, **options)
    return made


def sink(path: Path) -> tx.Sink:
    from tenax_sqlite import SqliteSink

    made: tx.Sink = SqliteSink(path)
    return made


@pytest.fixture
def cars(tmp_path: Path) -> Path:
    """A table of 60 readings, with gaps in their ids."""
    path = tmp_path / "cars.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE cars (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER, car TEXT, speed REAL, good BOOLEAN)"
        )
        rows = [(3 * row + 1, row * 1_000_000, f"car-{row % 7}", row / 3, row % 2) for row in range(60)]
        connection.executemany("INSERT INTO cars VALUES (?, ?, ?, ?, ?)", rows)
    return path


def test_it_imports_nothing_but_public_names_of_tenax() -> None:
    for path in EXTENSION.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not [name.name for name in node.names if name.name.startswith("tenax.")], path
            elif isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("tenax."), path


@pytest.mark.parametrize("follow", [False, True])
def test_a_table_is_a_source(cars: Path, follow: bool) -> None:
    tx.testing.check_source(source(cars, "cars", time="at", follow=follow), partitions=(1, 3), batch_rows=(7, 100))


def test_what_is_released_is_deleted_and_the_rest_can_still_be_read(cars: Path) -> None:
    tx.testing.check_source(
        source(cars, "cars", time="at", prune=True), partitions=(1, 3), batch_rows=(7, 100), release=True
    )
    with closing(sqlite3.connect(cars)) as connection:
        assert connection.execute("SELECT count(*), min(id) FROM cars").fetchone() == (25, 106)


def test_rows_that_are_gone_are_missed(cars: Path) -> None:
    table = source(cars, "cars", time="at")
    table.open()
    planned = table.plan(None, 1, tx.Limits(100), 0)
    assert isinstance(planned, tx.Planned)
    with closing(sqlite3.connect(cars)) as connection, connection:
        connection.execute("DELETE FROM cars WHERE id = 4")
    assert "cars.db, table 'cars'" in str(table.changed(planned.ranges[0]))
    with pytest.raises(tx.ChangedSource, match="found 59 of 60 after id 0: put them back"):
        table.read(0, planned.ranges[0])
    table.close()


def test_a_wrong_column_is_told_when_the_topology_is_built(cars: Path) -> None:
    topology = tx.Topology("cars")
    topology.source("cars", source(cars, "cars", time="when")).output("out", tx.console())
    with pytest.raises(tx.TenaxError, match="table 'cars' has a column 'when', found"):
        topology.build()


def test_a_database_is_a_sink() -> None:
    tx.testing.check_sink(lambda folder: sink(folder / "results.db"), deaths=40)


def results(folder: Path, changed: Callable[[tx.Sink], None] = lambda _: None) -> tx.Sink:
    """Three batches of two partitions; the last result was tentative first."""
    made = sink(folder / "results.db")
    committer = made.committer("out", folder, "run", 1)
    made.open()
    for batch in (1, 2, 3):
        for partition in (0, 1):
            frame = pl.DataFrame({"value": [batch, partition]})
            if (batch, partition) == (3, 1):
                committer.show(batch, [stage(made, "out", partition, batch, "1.1", frame * 2)], 0.5)
            committer.commit(batch, [stage(made, "out", partition, batch, "1.1", frame)])
    made.close()
    committer.close()
    changed(made)
    return made


def in_database(made: tx.Sink, statement: str) -> None:
    with closing(sqlite3.connect(made.place)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "lost", "different", "uncorrected"),
    [
        ("SELECT 1", 0, 0, 0),
        ("DELETE FROM out WHERE tenax_batch = 2 AND tenax_partition = 1", 0, 1, 0),
        ("UPDATE out SET value = 9 WHERE tenax_batch = 3 AND tenax_row = 0", 0, 2, 0),
        ("INSERT INTO out SELECT * FROM out WHERE tenax_batch = 1 AND tenax_partition = 0", 0, 1, 0),
        ("INSERT INTO out_tentative SELECT 0.5, * FROM out WHERE tenax_batch = 1 AND tenax_partition = 0", 0, 0, 1),
        ("DELETE FROM tenax_commits WHERE batch = 3", 0, 0, 0),
    ],
)
def test_the_oracle_reads_the_sink_itself(
    tmp_path: Path, statement: str, lost: int, different: int, uncorrected: int
) -> None:
    expected = results(tmp_path / "expected")
    actual = results(tmp_path / "actual", lambda made: in_database(made, statement))
    verdict = compare({"out": actual}, {"out": expected})
    assert (len(verdict.lost), len(verdict.different), len(verdict.uncorrected)) == (lost, different, uncorrected)
    assert verdict.final == 6
    if statement == "SELECT 1":
        assert (verdict.tentative, verdict.corrected) == (1, 1)
        assert verdict.held


def test_the_oracle_misses_a_result_that_was_never_committed(tmp_path: Path) -> None:
    def uncommitted(made: tx.Sink) -> None:
        for table in (
            "tenax_commits WHERE batch = 2 AND partition = 1",
            "out WHERE tenax_batch = 2 AND tenax_partition = 1",
        ):
            in_database(made, f"DELETE FROM {table}")

    verdict = compare({"out": results(tmp_path / "a", uncommitted)}, {"out": results(tmp_path / "b")})
    assert verdict.lost == ("out batch 2 partition 1",)
