"""Other code on the same store: refused by name, or in force from one batch on, whatever dies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from spark.oracles import SECOND_US, windowed
from spark.runs import Watcher, committed, finish, run, whole_input

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.cli.main import run as command
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.instructions import Outcome
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import UnsuitableStore
from tenax.model.protection import Protection, Strategy
from tenax.model.settings import Bounds, Settings
from tenax.store.checkpoints import Manifests, ValidCheckpoint
from tenax.store.events import read_events

ROWS, BATCH_ROWS, LAST = 4_500, 500, 9
KEYS = 4
DEADLINE_S = 120.0


def counts(folder: Path, length: str = "500ms", below: float = 0.5, out: str = "fine") -> Application:
    """elements (2) --> some (2) --> key (2) --full--> fine (2) --+--> fine-out (2)
    |
    +--full--> coarse (1) --> coarse-out (1)
    """
    topology = Topology("counts")
    rows = topology.source("elements", elements(rate=1_000, pace=Pace(rows=ROWS)), partitions=2)
    some = rows.filter(pl.col("value") < below, name="some")
    keyed = some.with_columns((pl.col("sequence") % KEYS).alias("key"), name="key")
    fine = keyed.key_by("key").window(length).aggregate(pl.len().alias("n"), name="fine")
    fine.output("fine-out", parquet(folder / out))
    coarse = fine.key_by("key").window("2s").aggregate(pl.col("n").sum(), parallelism=1, name="coarse")
    coarse.output("coarse-out", parquet(folder / "coarse"))
    return topology.build()


def how(strategy: Strategy = Strategy.ALIGNED, every: int = 2, accept: Sequence[str] = ()) -> Settings:
    """A pass of one batch, published before the next one runs: so a stop comes where it is asked for."""
    bounds = Bounds(max_batches_per_pass=1, max_batches_ahead=8, max_unpublished=1)
    protection = Protection(checkpoint_every=every, checkpoint=strategy)
    return Settings(protection, bounds).but(max_rows=BATCH_ROWS, accept_changes=tuple(accept))


def stopped(application: Application, store: Path, given: Settings, session: Session, after: int) -> int:
    """Run until a batch is published, then end in good order; the batch of its last checkpoint."""
    watcher = Watcher()
    driver = Driver(application, store, given, watcher, session)
    watcher.on_published = lambda last: driver.request_stop() if last >= after else None
    assert driver.run().outcome is Outcome.STOPPED
    newest = Manifests(store).newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    return newest.checkpoint.number


def abandoned(application: Application, store: Path, given: Settings, session: Session, after: int) -> list[str]:
    """Run until a batch is published, then die without a word: to the store that is a newer driver that has come."""
    begun, taken = threading.Event(), threading.Event()

    def published(last: int) -> None:
        if last >= after:
            begun.set()
            taken.wait(DEADLINE_S)

    watcher = Watcher(published)
    driver = Driver(application, store, given, watcher, session)
    thread = threading.Thread(target=driver.run)
    thread.start()
    try:
        assert begun.wait(DEADLINE_S)
        epoch = store / "epochs" / f"{driver.store.epoch + 1:08d}.json"
        epoch.write_bytes(b"")
    finally:
        taken.set()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    return watcher.messages


def files_of(folder: Path, first: int, last: int) -> pl.DataFrame:
    """The results of some batches."""
    paths = [path for path in sorted(folder.glob("*.parquet")) if first <= int(path.name.split("-b")[1][:10]) <= last]
    frames = [pl.read_parquet(path, use_pyarrow=True) for path in paths]
    return pl.concat(frames) if frames else pl.DataFrame()


def rows_of(application: Application, first: int, last: int, below: float = 0.5) -> pl.DataFrame:
    """What comes through the filter of some batches, with its key."""
    rows = whole_input(application)["elements"].filter(pl.col("value") < below)
    batch = pl.col("sequence") // BATCH_ROWS + 1
    return rows.filter((batch >= first) & (batch <= last)).with_columns((pl.col("sequence") % KEYS).alias("key"))


def counted(rows: pl.DataFrame, length_us: int) -> pl.DataFrame:
    return windowed(rows, ["key"], length_us, length_us, pl.len().alias("n"))


def summed(fine: pl.DataFrame) -> pl.DataFrame:
    """Windows of two seconds over windows, each of which counts at its last instant."""
    rows = fine.with_columns(ts=pl.col("window_end") - pl.duration(microseconds=1))
    return windowed(rows.drop("window_start", "window_end"), ["key"], 2 * SECOND_US, 2 * SECOND_US, pl.col("n").sum())


def assert_same(actual: pl.DataFrame, expected: pl.DataFrame) -> None:
    order = ["window_end", "key"]
    assert expected.height
    assert_frame_equal(
        actual.select(sorted(expected.columns)).sort(order),
        expected.select(sorted(expected.columns)).sort(order),
        check_dtypes=False,
    )


@pytest.mark.parametrize(
    ("strategy", "accept"),
    [(Strategy.ALIGNED, ["fine"]), (Strategy.INDIVIDUAL, ["fine"]), (Strategy.NONE, ["fine", "coarse"])],
)
def test_a_changed_window_is_refused_by_name_and_once_accepted_starts_empty_behind_one_batch(
    strategy: Strategy, accept: list[str], cluster: Session, tmp_path: Path
) -> None:
    store, old, new = tmp_path / "store", counts(tmp_path), counts(tmp_path, length="1s")
    batch = stopped(old, store, how(strategy), cluster, 3)
    with pytest.raises(UnsuitableStore, match="operator 'fine': length was 500ms, is 1s") as refused:
        run(new, store, how(strategy), cluster)
    assert "--accept-changes fine" in str(refused.value)

    # it dies before it has stored anything, and the same code goes on
    messages = abandoned(new, store, how(strategy, every=100, accept=accept), cluster, batch + 2)
    assert messages[0].startswith(
        "operator 'fine' (length was 500ms, is 1s, every was 500ms, is 1s) starts empty with "
    )
    assert f"batch {batch + 1}: windows that are open now" in messages[0]
    with pytest.raises(UnsuitableStore, match="operator 'fine': length was 1s, is 500ms"):
        run(old, store, how(strategy), cluster)
    watcher = Watcher()
    finish(new, store, how(strategy), cluster, watcher)
    assert not [words for words in watcher.messages if "fine" in words]

    before, after = files_of(tmp_path / "fine", 1, batch), files_of(tmp_path / "fine", batch + 1, LAST)
    whole = counted(rows_of(old, 1, LAST), SECOND_US // 2)
    assert_same(before, whole.filter(pl.col("window_end") <= before["window_end"].max()))
    assert_same(after, counted(rows_of(new, batch + 1, LAST), SECOND_US))
    coarse = files_of(tmp_path / "coarse", batch + 1, LAST)
    if "coarse" in accept:
        assert_same(coarse, summed(after))
    else:
        assert_same(committed(tmp_path / "coarse"), summed(pl.concat([before, after], how="diagonal_relaxed")))


def test_a_changed_filter_waits_for_a_good_end_of_the_old_code_and_then_holds_from_the_next_batch_on(
    cluster: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, old, new = tmp_path / "store", counts(tmp_path), counts(tmp_path, below=0.25)
    abandoned(old, store, how(every=100), cluster, 2)
    again = r"operator 'some': filter was .*, and batches 1 to \d, whose results the old code has published, would be"
    with pytest.raises(UnsuitableStore, match=again) as refused:
        run(new, store, how(), cluster)
    assert "let the old code run once more until it ends in good order" in str(refused.value)

    batch = stopped(old, store, how(), cluster, 5)
    watcher = Watcher()
    elsewhere = counts(tmp_path, below=0.25, out="other")
    finish(elsewhere, store, how().but(accept_changes=("fine-out",)), cluster, watcher)
    filtered, moved, *_ = watcher.messages  # batches may have been logged to the end
    assert filtered.startswith("operator 'some': filter was ")
    assert filtered.endswith(f": from batch {batch + 1} on")
    assert f"output 'fine-out': results after batch {batch} go to " in moved
    assert any("changes" in entry for entry in read_events(store))

    fine = pl.concat([committed(tmp_path / "fine"), committed(tmp_path / "other")])
    rows = pl.concat([rows_of(old, 1, batch), rows_of(new, batch + 1, LAST, below=0.25)])
    assert_same(fine, counted(rows, SECOND_US // 2))
    assert_same(committed(tmp_path / "coarse"), summed(counted(rows, SECOND_US // 2)))
    assert command(["inspect", str(store)]) == 0
    assert "Changes of code" in capsys.readouterr().out
