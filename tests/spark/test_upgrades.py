"""Other operators on the same store: those that stay keep their states to the row, others begin behind one batch."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from spark.runs import Watcher, committed, finish, run, whole_input
from spark.test_changed_code import assert_same, counted, files_of, how, stopped

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.cli.main import run as command
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.engine.session import Session
from tenax.errors import UnsuitableStore
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


def test_operators_come_and_go_and_change_while_others_keep_their_states(
    cluster: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, old, new = tmp_path / "store", counts(tmp_path), counts(tmp_path, new=True)
    batch = stopped(old, store, how(), cluster, 3)
    with pytest.raises(UnsuitableStore, match=r"'slow' is gone; .*operator 'short' is new; .* by --upgrade"):
        run(new, store, how(), cluster)
    watcher = Watcher()
    finish(new, store, upgrading(), cluster, watcher)
    said = "\n".join(watcher.messages)
    assert f"operator 'coarse' (length was 2s, is 1s, every was 2s, is 1s) starts empty with batch {batch + 1}" in said
    assert f"operator 'short' is new: it begins empty with batch {batch + 1}" in said
    assert "operator 'slow' is gone: its state (" in said
    assert "operator 'fine' goes on with its state (" in said
    assert_upgraded(tmp_path, new, batch)
    slow = committed(tmp_path / "slow")
    assert slow.height
    assert_same(
        slow, counted(rows_of(old, 1, batch), SECOND_US).filter(pl.col("window_end") <= slow["window_end"].max())
    )
    with pytest.raises(UnsuitableStore, match=r"operator 'short' is gone; .*operator 'slow' is new"):
        run(old, store, how(), cluster)
    assert [version.after for version in read_versions(store)] == [0, batch]
    assert verify(store).problems == []
    assert command(["inspect", str(store)]) == 0
    assert "'slow' is gone" in capsys.readouterr().out
