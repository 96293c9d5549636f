"""Stores: equal runs leave equal bytes, damage is found, only one driver and one topology have a store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from spark.oracles import assert_equal, window_tree
from spark.runs import Watcher, example, finish, results, whole_input

from tenax.application.application import Application
from tenax.control.instructions import Outcome, Stop
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import UnsuitableStore
from tenax.model.settings import Settings
from tenax.store import records
from tenax.store.checkpoints import Checkpoint, Manifests, ValidCheckpoint
from tenax.store.events import read_events

# sources (2) --> select (2) --> o1 (1) --> o2 (1) --> o3 (1) --> o4 (1) --> tree (1)
ROWS, SENSORS = 16_000, 8
# A pass waits until the one before is published: so a run that is asked to stop then has done exactly that much.
BATCH = Settings.of(max_rows=2_000, checkpoint_every=2, max_batches_per_pass=2, max_batches_ahead=8, max_unpublished=2)
KEYS = {"tree": ["sensor"]}
DEADLINE_S = 120.0


def small_tree(folder: Path, sources: int = 2) -> Application:
    return example("window_tree", rows=ROWS, rate=1_000, sources=sources, sensors=SENSORS, folder=str(folder))


def assert_exact(application: Application) -> None:
    expected = window_tree(whole_input(application)["sources"], SENSORS)
    assert_equal(results(application), expected, KEYS)


def newest(store: Path) -> Checkpoint:
    newest = Manifests(store).newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    return newest.checkpoint


def stopped_after(batch: int, application: Application, store: Path, session: Session) -> Stop:
    """Run until a batch is published, then end in good order."""
    watcher = Watcher()
    driver = Driver(application, store, BATCH, watcher, session)

    def published(last: int) -> None:
        if last >= batch:
            driver.request_stop()

    watcher.on_published = published
    return driver.run()


def test_a_store_named_by_a_relative_path_is_found_by_the_nodes(
    cluster: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    application = small_tree(Path("out"))
    finish(application, Path("store"), BATCH, cluster)
    assert_exact(application)
    assert newest(tmp_path / "store").files


def test_two_runs_of_the_same_batches_are_equal_to_the_byte(cluster: Session, tmp_path: Path) -> None:
    files: list[Sequence[tuple[str, bytes]]] = []
    segments = []
    for name in ("first", "second"):
        finish(small_tree(tmp_path / name / "out"), tmp_path / name / "store", BATCH, cluster)
        folder = tmp_path / name / "out" / "tree"
        files.append([(path.name, path.read_bytes()) for path in sorted(folder.iterdir())])
        parts = newest(tmp_path / name / "store").segments
        segments.append(
            {
                task: [(segment.segment, segment.bytes, segment.crc32) for segment in listed]
                for task, listed in parts.items()
            }
        )
    assert files[0] == files[1]
    assert len(files[0]) > 1
    assert segments[0] == segments[1]
    assert any(segments[0].values())


def test_a_finished_run_that_is_started_again_and_again_changes_nothing(cluster: Session, tmp_path: Path) -> None:
    for _ in range(4):
        application = small_tree(tmp_path / "out")
        finish(application, tmp_path / "store", BATCH, cluster)
        assert_exact(application)


def test_a_run_that_was_asked_to_stop_goes_on_where_it_ended(cluster: Session, tmp_path: Path) -> None:
    application = small_tree(tmp_path / "out")
    stop = stopped_after(2, application, tmp_path / "store", cluster)
    assert (stop.outcome, stop.resumable) == (Outcome.STOPPED, True)
    done = newest(tmp_path / "store").batch
    watcher = Watcher()
    finish(application, tmp_path / "store", BATCH, cluster, watcher)
    assert watcher.batches[0] > done
    assert_exact(application)


def test_a_damaged_segment_of_the_newest_checkpoint_is_named_and_the_one_before_is_used(
    cluster: Session, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    application = small_tree(tmp_path / "out")
    assert stopped_after(5, application, store, cluster).outcome is Outcome.STOPPED
    manifests = Manifests(store)
    before, last = (manifests.read(key) for key in manifests.known()[-2:])
    damaged = store / sorted(last.files - before.files)[0]
    payload = bytearray(damaged.read_bytes())
    payload[-1] ^= 1
    damaged.write_bytes(payload)

    watcher = Watcher()
    finish(application, store, BATCH, cluster, watcher)
    assert any(damaged.name in message for message in watcher.messages), watcher.messages
    events = [records.mapping(entry["event"]) for entry in read_events(store) if "event" in entry]
    started = [
        records.mapping(event["checkpoint"]) for event in events if event["type"] == "Started" and event["checkpoint"]
    ]
    assert [checkpoint["number"] for checkpoint in started] == [before.batch]
    assert_exact(application)


def test_a_store_of_another_topology_is_refused_with_the_difference(cluster: Session, tmp_path: Path) -> None:
    Driver(small_tree(tmp_path / "out"), tmp_path / "store", BATCH, Watcher(), cluster)
    other = small_tree(tmp_path / "out", sources=4)
    difference = "operator 'sources': parallelism was 2, is 4"
    with pytest.raises(UnsuitableStore, match=difference) as refused:
        Driver(other, tmp_path / "store", BATCH, Watcher(), cluster)
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "store") in str(refused.value)


def test_a_second_driver_makes_the_first_stop_by_itself_while_both_run(cluster: Session, tmp_path: Path) -> None:
    application = small_tree(tmp_path / "out")
    store = tmp_path / "store"
    begun, taken = threading.Event(), threading.Event()

    def wait_for_the_second(last: int) -> None:
        begun.set()
        taken.wait(DEADLINE_S)

    outcomes: list[Stop] = []
    first = Driver(application, store, BATCH, Watcher(wait_for_the_second), cluster)
    thread = threading.Thread(target=lambda: outcomes.append(first.run()))
    thread.start()
    assert begun.wait(DEADLINE_S)
    second = Driver(application, store, BATCH, Watcher(), cluster)
    taken.set()
    assert second.run().outcome is Outcome.FINISHED
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert [stop.outcome for stop in outcomes] == [Outcome.SUPERSEDED], outcomes
    assert_exact(application)
