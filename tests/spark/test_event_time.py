"""Event time on a real cluster: idle partitions, drained runs, files that grow, late rows where none may be."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from spark.runs import FEW, Watcher, committed

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.chaos.oracle import judge
from tenax.cli.live import LiveView
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet
from tenax.control.instructions import Outcome, Stop
from tenax.engine.driver import Driver
from tenax.engine.driver.latecomers import LateNotice
from tenax.engine.session import Session
from tenax.model.protection import Strategy
from tenax.model.settings import Settings
from tenax.store import records
from tenax.store.events import read_events

START = datetime(2024, 1, 1)
DEADLINE_S = 300.0
SETTINGS = FEW.but(batch="100ms", checkpoint_every=4)


def write(path: Path, seconds: Sequence[float]) -> None:
    path.parent.mkdir(exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("ts,n\n" + "".join(lines(seconds)))
    hidden.rename(path)


def lines(seconds: Sequence[float]) -> list[str]:
    return [f"{(START + timedelta(seconds=second)).isoformat()},1\n" for second in seconds]


def counts(out: Path) -> dict[int, int]:
    """Rows by the second at which their window begins; every window once."""
    rows = committed(out)
    if not rows.height:
        return {}
    assert not rows["window_start"].is_duplicated().any()
    starts = [int((start - START).total_seconds()) for start in rows["window_start"]]
    return dict(sorted(zip(starts, rows["n"].to_list(), strict=True)))


def application(folder: Path, *, follow: bool = True, tail: bool = False, lateness: str = "0s") -> Application:
    """s (2) --> w (1) --> windows (1): how many rows in every 10 s"""
    topology = Topology("times")
    source = files(folder / "in" / "*.csv", time="ts", follow=follow, tail=tail, lateness=lateness, idle_after="300ms")
    rows = topology.source("s", source, partitions=2)
    rows.window("10s").aggregate(pl.col("n").sum(), parallelism=1, name="w").output(
        "windows", parquet(folder / "results" / "windows")
    )
    return topology.build()


@dataclass(slots=True)
class Ended:
    """How a run ended, what it told, and what it said of late rows."""

    stop: Stop
    messages: list[str]
    late: list[LateNotice]


@dataclass(slots=True)
class Until(Watcher):
    """Asks for an end when something that was told or published is what a test has waited for."""

    told_of: str = "nothing"
    stop: Callable[[], None] = lambda: None

    def said(self, message: str) -> None:
        self.messages.append(message)
        if self.told_of in message:
            self.stop()


def run(
    folder: Path,
    of: Application,
    cluster: Session,
    how: Settings = SETTINGS,
    until: Callable[[], bool] = lambda: False,
    told_of: str = "nothing",
) -> Ended:
    """Run until the run ends, or what a test waits for was published or told; never longer than a deadline."""
    watcher = Until(told_of=told_of)
    driver = Driver(of, folder / "store", how, watcher, cluster)
    watcher.stop = driver.request_stop
    watcher.on_published = lambda _: driver.request_stop() if until() else None
    bound = threading.Timer(DEADLINE_S, driver.request_stop)
    bound.start()
    try:
        stop = driver.run()
    finally:
        bound.cancel()
    return Ended(stop, watcher.messages, driver.latecomers.said())


@pytest.mark.parametrize("strategy", [Strategy.ALIGNED, Strategy.NONE])
def test_a_partition_without_rows_holds_no_windows_and_counts_what_is_late_when_it_comes_back(
    cluster: Session, tmp_path: Path, strategy: Strategy
) -> None:
    how = SETTINGS.but(checkpoint=strategy, keep_batches=True)
    out = tmp_path / "results" / "windows"
    write(tmp_path / "in" / "a.csv", range(25))
    first = run(tmp_path, application(tmp_path), cluster, how, lambda: len(counts(out)) == 2)
    assert first.stop.outcome is Outcome.STOPPED
    assert counts(out) == {0: 10, 10: 10}
    assert any("s[1] is idle" in message for message in first.messages)

    # the next file is for s[0], the one after it for s[1]: behind what is complete, in the open window, and after it
    write(tmp_path / "in" / "b.csv", [26, 27])
    write(tmp_path / "in" / "c.csv", [*range(5, 23), 31])
    again = run(tmp_path, application(tmp_path), cluster, how.but(drain=True))
    assert again.stop.outcome is Outcome.FINISHED, again.stop
    assert counts(out) == {0: 10, 10: 10, 20: 10, 30: 1}
    assert [notice.text.partition(",")[0] for notice in again.late] == ["LATE w: 15 rows dropped"]
    assert any(message.startswith("LATE w: 15 rows dropped") for message in again.messages)
    verdict = judge(application(tmp_path), tmp_path / "store", tmp_path / "results", cluster)
    assert verdict.held, verdict  # a replay of the log, without clock and restart, closes the same windows


def test_a_run_that_followed_closes_every_window_when_it_follows_no_more(cluster: Session, tmp_path: Path) -> None:
    out = tmp_path / "results" / "windows"
    write(tmp_path / "in" / "a.csv", range(25))
    run(tmp_path, application(tmp_path), cluster, SETTINGS, lambda: len(counts(out)) == 2)
    with (tmp_path / "in" / "a.csv").open("a") as file:
        file.writelines(lines([30]))
    ended = run(tmp_path, application(tmp_path), cluster, told_of="a.csv has")
    assert [message for message in ended.messages if "a.csv has changed" in message or "a.csv has grown" in message]
    changes = [
        records.mapping(entry["changed_file"]) for entry in read_events(tmp_path / "store") if "changed_file" in entry
    ]
    assert [change["source"] for change in changes] == ["s"]
    ended = run(tmp_path, application(tmp_path, follow=False), cluster)
    assert ended.stop.outcome is Outcome.FINISHED, ended.stop
    assert counts(out) == {0: 10, 10: 10, 20: 5}


def test_lines_are_read_as_they_are_written_and_late_ones_stop_a_strict_run_before_they_are_published(
    cluster: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, path = tmp_path / "results" / "windows", tmp_path / "in" / "a.csv"
    write(path, range(12))

    def grow(seconds: Sequence[float], rest: str = "") -> None:
        with path.open("a") as file:
            file.write("".join(lines(seconds)) + rest)

    def next_lines() -> bool:
        windows = counts(out)
        if list(windows) == [0] and path.stat().st_size < 400:
            grow(range(12, 22), rest="2024-01-01T00:00:22")  # the last line is not whole yet
        return list(windows) == [0, 10]

    first = run(tmp_path, application(tmp_path, tail=True), cluster, SETTINGS, next_lines)
    assert first.stop.outcome is Outcome.STOPPED, first.stop
    assert counts(out) == {0: 10, 10: 10}

    grow([], rest=",1\n")
    grow([35, 33.5, 34, 41])
    strict = run(tmp_path, application(tmp_path, tail=True), cluster, SETTINGS.but(strict_lateness=True))
    assert strict.stop.outcome is Outcome.FAILED
    assert "source 's': with strict lateness no row comes late, found 2 rows of partition s[0] in batch" in str(
        strict.stop
    )
    assert "up to 1.5 s behind: write lateness='2s'" in strict.stop.reason
    assert counts(out) == {0: 10, 10: 10}

    capsys.readouterr()
    of = application(tmp_path, tail=True)
    view = LiveView(of, tmp_path / "store")  # in a pipe
    driver = Driver(of, tmp_path / "store", SETTINGS.but(drain=True), view, cluster)
    view.follow(driver.latecomers)
    stop = driver.run()
    view.summary(stop)
    assert stop.outcome is Outcome.FINISHED, stop
    assert counts(out) == {0: 10, 10: 10, 20: 3, 30: 1, 40: 1}
    said = capsys.readouterr()
    for text in (said.err, " ".join(said.out.split())):
        assert "LATE s: " in text
        assert "s[0]" in text
        assert "lateness='2s' would have kept all" in text
