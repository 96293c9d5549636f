"""Mean speeds of cars, from one SQLite database to another; `python app.py` makes the first of them.

The package beside this file travels to the nodes with it; installed there, it would be found by its name.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
from tenax_sqlite import SqliteSink, SqliteSource

import tenax as tx


def build(
    database: str = "out/cars.db",
    results: str = "out/speeds.db",
    partitions: int = 2,
    parallelism: int = 2,
    follow: bool = False,
) -> tx.Topology:
    """The mean and highest speed of every car, every ten seconds, and the fast ones among them."""
    topology = tx.Topology("cars")
    readings = topology.source(
        "readings", SqliteSource(database, "readings", time="at", follow=follow), partitions=partitions
    )
    speeds = (
        readings.key_by("car")
        .window("10s")
        .aggregate(
            pl.col("speed").mean(), pl.col("speed").max().alias("highest"), parallelism=parallelism, name="by-car"
        )
    )
    speeds.output("speeds", SqliteSink(results))
    speeds.filter(pl.col("highest") > 100.0).output("fast", SqliteSink(results))
    return topology


def fill(database: str | Path, rows: int = 20_000, cars: int = 50) -> None:
    """Make a table of readings: times, cars and speeds are functions of the row's number."""
    Path(database).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE readings (id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER, car TEXT, speed REAL)"
        )
        connection.executemany(
            "INSERT INTO readings (at, car, speed) VALUES (?, ?, ?)",
            ((row * 50_000, f"car-{row * 7 % cars}", 30.0 + row * 13 % 77) for row in range(rows)),
        )


if __name__ == "__main__":
    fill(sys.argv[1] if len(sys.argv) > 1 else "out/cars.db")
