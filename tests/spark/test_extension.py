"""A source and a sink from outside the package on real nodes, also when these and the driver die."""

from __future__ import annotations

import os
import runpy
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from spark.runs import Watcher, run, settings, ship

import tenax as tx
from tenax.chaos.process import run_in_processes
from tenax.chaos.record import Moment
from tenax.chaos.runs import Trial
from tenax.chaos.schedule import Kind, parse_fault
from tenax.chaos.settings import CHAOS
from tenax.control.instructions import Outcome
from tenax.engine.session import Session

EXTENSION = Path(__file__).parents[2] / "examples" / "extension"
ROWS, BATCH_ROWS = 6_000, 200


@pytest.fixture(autouse=True)
def _extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXTENSION))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "tenax_sqlite"]:
        del sys.modules[name]


def test_databases_lose_nothing_when_nodes_and_the_driver_die(tmp_path: Path) -> None:
    """readings (1) --> by-car (2) --> speeds (2), and filter-1 (2) --> fast (2)"""
    runpy.run_path(str(EXTENSION / "app.py"))["fill"](tmp_path / "cars.db", ROWS)
    schedule = (
        parse_fault(Kind.KILL, "by-car[0]@6b"),
        parse_fault(Kind.RETURN, "1@10b"),
        parse_fault(Kind.DRIVER, "18b"),
    )
    settings = CHAOS.but(nodes=2, racks=None, batch=timedelta(seconds=0.2), max_rows=BATCH_ROWS, checkpoint_every=4)
    trial = Trial(settings, schedule)
    moments: list[Moment] = []
    options = {"database": str(tmp_path / "cars.db"), "results": str(tmp_path / "never.db"), "partitions": 1}
    outcome = run_in_processes(EXTENSION / "app.py", options, tmp_path / "out", trial, moments.append)
    print(outcome.to_json())
    assert outcome.held, outcome.findings
    assert outcome.drivers == 2
    assert outcome.unreached == ()
    assert (outcome.reference.outputs, outcome.reference.not_judged) == (2, ())
    assert outcome.final_results > 0
    assert outcome.corrected_results == outcome.tentative_results
    assert not (tmp_path / "never.db").exists()  # a trial has places of its own
    for name in ("speeds", "fast"):
        with closing(sqlite3.connect(tmp_path / "out" / "results" / name / "results.db")) as connection:
            tables = {table for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            assert {name, f"{name}_staged", f"{name}_tentative", "tenax_commits"} <= tables
            assert connection.execute(f"SELECT count(*) FROM {name}_tentative").fetchone() == (0,)
    with closing(sqlite3.connect(tmp_path / "cars.db")) as connection:
        assert connection.execute("SELECT count(*) FROM readings").fetchone() == (ROWS,)


def watched(kind: Any, log: Path) -> Any:
    """A class that writes down when and where it is opened and closed."""

    class Watched(kind):  # type: ignore[misc]
        def open(self) -> None:
            super().open()
            self.happened("open")

        def close(self) -> None:
            super().close()
            self.happened("close")

        def happened(self, what: str) -> None:
            with log.open("a") as file:
                file.write(f"{kind.__name__} {os.getpid()} {what}\n")

    return Watched


def test_workers_open_once_and_close_and_what_is_released_is_deleted(cluster: Session, tmp_path: Path) -> None:
    import tenax_sqlite  # type: ignore[import-not-found]

    for name in ("tenax_sqlite", "tenax_sqlite.columns", "tenax_sqlite.source", "tenax_sqlite.sink"):
        ship(sys.modules[name])
    log = tmp_path / "log"
    sources, sinks = watched(tenax_sqlite.SqliteSource, log), watched(tenax_sqlite.SqliteSink, log)
    for number in (1, 2):
        folder = tmp_path / str(number)
        runpy.run_path(str(EXTENSION / "app.py"))["fill"](folder / "cars.db", ROWS)
        topology = tx.Topology("cars")
        readings = topology.source("readings", sources(folder / "cars.db", "readings", time="at", prune=True))
        speeds = readings.key_by("car").window("10s").aggregate(pl.col("speed").mean(), name="by-car")
        speeds.output("speeds", sinks(folder / "speeds.db"))
        expected = tx.testing.run(topology)["speeds"]
        log.write_text("" if number == 1 else log.read_text())
        watcher = Watcher()
        stop = run(topology.build(), folder / "store", settings(BATCH_ROWS), cluster, watcher)
        assert stop.outcome is Outcome.FINISHED, stop
        results = sinks(folder / "speeds.db").results("speeds")
        rows = pl.concat([rows for _, rows in sorted(results.final.items(), key=lambda item: item[0]) if rows.height])
        assert rows.sort(pl.all()).equals(expected.sort(pl.all()))
        with closing(sqlite3.connect(folder / "cars.db")) as connection:
            count, first = connection.execute("SELECT count(*), min(id) FROM readings").fetchone()
        assert 0 < count < ROWS
        assert first == ROWS - count + 1
        assert not [message for message in watcher.messages if "never read again" in message]
    _check_lives(log.read_text().splitlines())


def _check_lives(lines: list[str]) -> None:
    lives: dict[tuple[str, int], list[str]] = {}
    for line in lines:
        kind, process, what = line.split()
        lives.setdefault((kind, int(process)), []).append(what)
    for life in lives.values():
        assert all(what == ("open", "close")[number % 2] for number, what in enumerate(life)), lives
    workers = [life for (_, process), life in lives.items() if process != os.getpid()]
    assert ["open", "close", "open"] in [life[:3] for life in workers], lives  # by the second run
    driver = lives["SqliteSource", os.getpid()]
    assert driver[-1] == "close"
    assert ("SqliteSink", os.getpid()) not in lives
