"""Other operators on the same store: those that stay keep their states to the row, others begin behind one batch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from spark.runs import Watcher, committed, finish, run, whole_input
from spark.test_changed_code import assert_same, counted, files_of, how, stopped
from spark.test_killed_drivers import DEADLINE_S, POLL_S, SOURCES, published

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.cli.main import run as command
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.engine.session import Session
from tenax.errors import UnsuitableStore
from tenax.model.protection import Strategy
from tenax.model.settings import Settings
from tenax.store.topology_versions import read_versions
from tenax.takeover.verification import verify

ROWS, BATCH_ROWS, LAST, KEYS = 4_500, 500, 9, 4
SECOND_US = 1_000_000


def counts(folder: Path, *, new: bool = False, parallelism: int = 2) -> Application:
    """elements (2) --> key (2) --+--full--> fine (2) ---------------+--> some (2), new
    |
    +--full--> coarse (2): windows of 2 s, new of 1 s
    +--full--> slow (1), gone
    +--full--> short (1), new
    """
    topology = Topology("counts")
    rows = topology.source("elements", elements(rate=1_000, pace=Pace(rows=ROWS)), partitions=2)
    keyed = rows.with_columns((pl.col("sequence") % KEYS).alias("key"), name="key").key_by("key")
    if new:  # also before the others, so that numbers of tasks are others as well
        short = keyed.window("250ms").aggregate(pl.len().alias("n"), name="short", parallelism=1)
        short.output("short-out", parquet(folder / "short"))
    fine = keyed.window("500ms").aggregate(pl.len().alias("n"), name="fine", parallelism=parallelism)
    fine.output("fine-out", parquet(folder / "fine"))
    coarse = keyed.window("1s" if new else "2s").aggregate(pl.len().alias("n"), name="coarse")
    coarse.output("coarse-out", parquet(folder / "coarse"))
    if new:
        fine.filter(pl.col("key") < 2, name="some").output("some-out", parquet(folder / "some"))
    else:
        slow = keyed.window("1s").aggregate(pl.len().alias("n"), name="slow", parallelism=1)
        slow.output("slow-out", parquet(folder / "slow"))
    return topology.build()


def upgrading(every: int = 2) -> Settings:
    return how(every=every).but(upgrade=True)


def rows_of(application: Application, first: int, last: int) -> pl.DataFrame:
    """The rows of some batches, with their key."""
    rows = whole_input(application)["elements"]
    batch = pl.col("sequence") // BATCH_ROWS + 1
    return rows.filter((batch >= first) & (batch <= last)).with_columns((pl.col("sequence") % KEYS).alias("key"))


def assert_upgraded(folder: Path, application: Application, batch: int) -> None:
    """What the whole run has published that went over to the new code behind a batch."""
    whole, later = rows_of(application, 1, LAST), rows_of(application, batch + 1, LAST)
    fine = counted(whole, SECOND_US // 2)
    assert_same(committed(folder / "fine"), fine)
    assert_same(files_of(folder / "coarse", batch + 1, LAST), counted(later, SECOND_US))
    assert_same(committed(folder / "short"), counted(later, SECOND_US // 4))
    closed = files_of(folder / "fine", 1, batch)["window_end"].max()
    assert_same(committed(folder / "some"), fine.filter((pl.col("key") < 2) & (pl.col("window_end") > closed)))


@pytest.mark.parametrize("strategy", [Strategy.ALIGNED, Strategy.NONE])
def test_operators_come_and_go_and_change_while_others_keep_their_states(
    strategy: Strategy, cluster: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, old, new = tmp_path / "store", counts(tmp_path), counts(tmp_path, new=True)
    batch = stopped(old, store, how(strategy), cluster, 3)
    with pytest.raises(UnsuitableStore, match=r"'slow' is gone; .*operator 'short' is new; .* by --upgrade"):
        run(new, store, how(strategy), cluster)
    watcher = Watcher()
    finish(new, store, how(strategy).but(upgrade=True), cluster, watcher)
    said = "\n".join(watcher.messages)
    assert f"operator 'coarse' (length was 2s, is 1s, every was 2s, is 1s) starts empty with batch {batch + 1}" in said
    assert f"operator 'short' is new: it begins empty with batch {batch + 1}" in said
    assert "operator 'slow' is gone" in said
    assert "operator 'fine' goes on with its state (" in said
    assert_upgraded(tmp_path, new, batch)
    slow = committed(tmp_path / "slow")
    assert slow.height
    assert_same(
        slow, counted(rows_of(old, 1, batch), SECOND_US).filter(pl.col("window_end") <= slow["window_end"].max())
    )
    with pytest.raises(UnsuitableStore, match=r"operator 'short' is gone; .*operator 'slow' is new"):
        run(old, store, how(strategy), cluster)
    assert [version.after for version in read_versions(store)] == [0, batch]
    assert verify(store).problems == []
    assert command(["inspect", str(store)]) == 0
    assert "'slow' is gone" in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["recorded", "published"])
def test_a_driver_killed_as_an_upgrade_begins_is_followed_by_one_that_completes_it(
    moment: str, cluster: Session, tmp_path: Path
) -> None:
    store, old, new = tmp_path / "store", counts(tmp_path), counts(tmp_path, new=True)
    batch = stopped(old, store, how(), cluster, 3)
    with (tmp_path / "child.log").open("ab") as log:
        command_line = [sys.executable, "-m", "spark.upgrading_child", str(tmp_path)]
        inherited = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), *inherited])}
        environment.pop("SPARK_HOME", None)  # that of the session in this process
        process = subprocess.Popen(command_line, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(process, lambda: upgraded(store, batch, tmp_path, moment), tmp_path / "child.log")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if moment == "recorded":  # as if it had been killed a moment earlier still, between its two records
        (store / "versions" / "00000002.json").unlink()
    watcher = Watcher()
    finish(new, store, upgrading(), cluster, watcher)
    assert not [words for words in watcher.messages if "operator" in words], "it is remembered"
    assert [version.after for version in read_versions(store)] == [0, batch]
    assert_upgraded(tmp_path, new, batch)


def upgraded(store: Path, batch: int, folder: Path, moment: str) -> bool:
    """Whether a driver has come as far as that in its upgrade."""
    if moment == "recorded":
        return (store / "versions" / "00000002.json").exists()
    return published(folder / "short") > batch


def wait_for(process: subprocess.Popen[bytes], condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(POLL_S)


def merged(folder: Path, *, more: bool) -> Application:
    """early (2) --> [union with late (2)] --> key (2) --full--> counts (2)"""
    topology = Topology("merged")
    rows = topology.source("early", elements(rate=1_000, pace=Pace(rows=ROWS)), partitions=2)
    if more:
        late = topology.source("late", elements(seed=9, rate=1_000, pace=Pace(rows=ROWS)), partitions=2)
        rows = rows.union(late, name="both")
    keyed = rows.with_columns((pl.col("sequence") % KEYS).alias("key"), name="key").key_by("key")
    counts = keyed.window("500ms").aggregate(pl.len().alias("n"), name="counts")
    counts.output("counts-out", parquet(folder / "counts"))
    return topology.build()


def test_a_new_source_is_read_from_its_beginning_and_windows_wait_for_it(cluster: Session, tmp_path: Path) -> None:
    store, old, new = tmp_path / "store", merged(tmp_path, more=False), merged(tmp_path, more=True)
    batch = stopped(old, store, how(), cluster, 3)
    watcher = Watcher()
    finish(new, store, upgrading(), cluster, watcher)
    assert "operator 'counts' goes on and waits for 'late' from now on" in "\n".join(watcher.messages)
    before = files_of(tmp_path / "counts", 1, batch)
    closed = before["window_end"].max()
    both = pl.concat(rows.with_columns((pl.col("sequence") % KEYS).alias("key")) for rows in whole_input(new).values())
    expected = counted(both, SECOND_US // 2).filter(pl.col("window_end") > closed)
    assert_same(committed(tmp_path / "counts"), pl.concat([before, expected], how="diagonal_relaxed"))
