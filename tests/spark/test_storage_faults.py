"""Disks that refuse, and files that are lost: a run waits and goes on, makes results again, or says what is wrong."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spark.oracles import assert_equal, top_pages
from spark.runs import Watcher, example, finish, results, settings, whole_input

from tenax.application.application import Application
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.control.instructions import Outcome
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import DamagedStore
from tenax.model.settings import Settings
from tenax.store import journal
from tenax.store.checkpoints import Manifests

ROWS, BATCH_ROWS = 12_000, 500
AWAY_S = 1.5
BATCH = settings(BATCH_ROWS, checkpoint_every=4)
NEVER_STORED = settings(BATCH_ROWS, checkpoint_every=1_000)


def pages(folder: Path) -> Application:
    return example("top_pages", rows=ROWS, rate=1_000, servers=4, pages=50, count=5, length="1s", folder=str(folder))


def sink_of(application: Application) -> ParquetSink:
    sink = application.sinks["top"]
    assert isinstance(sink, ParquetSink)
    return sink


def assert_exact(application: Application) -> None:
    expected = top_pages(whole_input(application)["requests"], 5, 1)
    assert_equal(results(application), expected, {"top": ["page"]})
    assert read_committed(sink_of(application).folder).height == expected["top"].height


def stopped(application: Application, store: Path, cluster: Session, after: int, how: Settings = BATCH) -> None:
    """Run until some batches are published, then end in good order."""
    watcher = Watcher()
    driver = Driver(application, store, how, watcher, cluster)
    watcher.on_published = lambda last: driver.request_stop() if last >= after else None
    assert driver.run().outcome is Outcome.STOPPED


def once(action: Callable[[], None], batch: int) -> Callable[[int], None]:
    """Do something when a batch is published."""
    left = [action]

    def published(last: int) -> None:
        if last >= batch and left:
            left.pop()()

    return published


def test_a_sink_folder_that_is_away_for_a_moment_is_waited_for(cluster: Session, tmp_path: Path) -> None:
    application = pages(tmp_path / "out")
    folder = sink_of(application).folder
    away = tmp_path / "away"

    def rename_away() -> None:
        folder.rename(away)
        threading.Timer(AWAY_S, away.rename, [folder]).start()

    watcher = Watcher(once(rename_away, 8))
    finish(application, tmp_path / "store", BATCH, cluster, watcher)
    said = [message for message in watcher.messages if str(folder) in message]
    assert said
    assert all("output 'top'" in message and "tries again in" in message for message in said)
    assert any(message.startswith("results are published again, after") for message in watcher.messages)
    assert_exact(application)


def test_a_store_that_is_away_for_a_moment_is_waited_for_and_never_made_anew(cluster: Session, tmp_path: Path) -> None:
    application = pages(tmp_path / "out")
    store, away = tmp_path / "store", tmp_path / "away"
    back: list[str] = []

    def return_it() -> None:
        back.extend(str(path) for path in store.rglob("*")) if store.exists() else None
        away.rename(store)

    def rename_away() -> None:
        store.rename(away)
        threading.Timer(AWAY_S, return_it).start()

    watcher = Watcher(once(rename_away, 8))
    finish(application, store, BATCH, cluster, watcher)
    assert back == []
    assert any("tries again in" in message for message in watcher.messages), watcher.messages
    assert_exact(application)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a full disk is tried on a small file system of its own, which only root may mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(disk: Path) -> Path:
    """Leave no room on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    return filler


def test_a_full_disk_is_waited_for_and_the_sink_is_named_not_the_operator(
    cluster: Session, tmp_path: Path, small_disk: Path
) -> None:
    application = pages(small_disk / "out")

    def fill_for_a_while() -> None:
        threading.Timer(AWAY_S, fill(small_disk).unlink).start()

    watcher = Watcher(once(fill_for_a_while, 8))
    finish(application, tmp_path / "store", BATCH, cluster, watcher)
    said = [message for message in watcher.messages if "No space left" in message]
    assert said
    assert all(f"output 'top' in {sink_of(application).folder}" in message for message in said)
    assert not any("raised" in message for message in watcher.messages)
    assert_exact(application)


def test_a_full_disk_below_the_store_is_waited_for(cluster: Session, tmp_path: Path, small_disk: Path) -> None:
    application = pages(tmp_path / "out")

    def fill_for_a_while() -> None:
        threading.Timer(AWAY_S, fill(small_disk).unlink).start()

    watcher = Watcher(once(fill_for_a_while, 8))
    finish(application, small_disk / "store", BATCH, cluster, watcher)
    assert any("No space left" in message and "tries again in" in message for message in watcher.messages)
    assert_exact(application)


def test_a_disk_that_stays_full_ends_the_run_which_can_be_started_again(
    cluster: Session, tmp_path: Path, small_disk: Path
) -> None:
    application = pages(small_disk / "out")
    filled: list[Path] = []
    impatient = BATCH.but(storage_patience="1s")
    stop = Driver(
        application, tmp_path / "store", impatient, Watcher(once(lambda: filled.append(fill(small_disk)), 8)), cluster
    ).run()
    assert (stop.outcome, stop.resumable) == (Outcome.FAILED, True)
    assert "after 1 s of waiting: output 'top' in" in stop.reason
    filled[0].unlink()
    finish(application, tmp_path / "store", BATCH, cluster)
    assert_exact(application)


def test_results_that_were_lost_while_no_driver_ran_are_made_again(cluster: Session, tmp_path: Path) -> None:
    application = pages(tmp_path / "out")
    store = tmp_path / "store"
    stopped(application, store, cluster, 8, NEVER_STORED)  # but for the last checkpoint, so the log is whole
    visible = sorted(sink_of(application).folder.iterdir())
    visible[0].unlink()
    visible[3].write_bytes(visible[3].read_bytes()[:-1])
    watcher = Watcher()
    finish(application, store, NEVER_STORED, cluster, watcher)
    assert sum("lost, and made again from the batch log" in message for message in watcher.messages) == 2
    assert any(visible[3].name in message and "set aside" in message for message in watcher.messages)
    assert_exact(application)


def test_a_result_that_cannot_be_made_again_is_refused_by_name_and_nothing_is_touched(
    cluster: Session, tmp_path: Path
) -> None:
    application = pages(tmp_path / "out")
    store = tmp_path / "store"
    finish(application, store, BATCH, cluster)
    assert journal.read_content(store / "batches").dropped > 1  # nothing leads back to the first results
    lost = min(sink_of(application).folder.iterdir())
    content = lost.read_bytes()
    lost.unlink()
    epochs = len(list((store / "epochs").iterdir()))
    with pytest.raises(DamagedStore, match=lost.name) as refused:
        Driver(application, store, BATCH, Watcher(), cluster)
    assert "--accept-losses" in str(refused.value)
    assert len(list((store / "epochs").iterdir())) == epochs
    lost.write_bytes(content)
    finish(application, store, BATCH, cluster)
    assert_exact(application)


def test_a_shortened_log_is_refused_before_anything_is_taken_over_and_can_be_put_back(
    cluster: Session, tmp_path: Path
) -> None:
    application = pages(tmp_path / "out")
    store = tmp_path / "store"
    stopped(application, store, cluster, 8)
    for log in (sink_of(application).log, store / "batches"):
        (path,) = log.iterdir()
        content = path.read_bytes()
        for harmed in (b"".join(content.splitlines(keepends=True)[:2]), None):
            path.unlink() if harmed is None else path.write_bytes(harmed)
            with pytest.raises(DamagedStore, match=r"entries are missing, restore"):
                Driver(application, store, BATCH, Watcher(), cluster)
            path.write_bytes(content)
    finish(application, store, BATCH, cluster)
    assert_exact(application)
    assert len(journal.read(sink_of(application).log)) >= ROWS // BATCH_ROWS


def test_a_run_whose_events_cannot_be_written_goes_on(cluster: Session, tmp_path: Path) -> None:
    application = pages(tmp_path / "out")
    store = tmp_path / "store"

    def block() -> None:
        (store / "events.jsonl").unlink()
        (store / "events.jsonl").mkdir()

    finish(application, store, BATCH, cluster, Watcher(once(block, 8)))
    assert_exact(application)
    assert Manifests(store).known()
