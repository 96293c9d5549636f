"""Death between any two effects on the file system: nothing that was acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import polars as pl
import pytest

from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.connectors.sink import stage
from tenax.model.tasks import Task
from tenax.store import journal
from tenax.store.checkpoints import Checkpoint, ValidCheckpoint, read_segment, upload_segments
from tenax.store.store import Store

TOPOLOGY = {"operators": {"speed": {"parallelism": 2}}}
TASKS = (Task("speed", 0), Task("speed", 1))
LAST_BATCH = 6
LAST_RESULT = 3
MAX_DEATHS = 400
T = TypeVar("T")


class Death(BaseException):
    """Stands for SIGKILL: once raised, no effect reaches the disk any more."""


class Effects:
    """Counts effects on the file system, and dies before one of them; a write dies with half of its bytes written."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.count = 0

    def wrap(self, name: str, real: Callable[..., T]) -> Callable[..., T]:
        def effect(*arguments: object, **options: object) -> T:
            self.count += 1
            if self.count == self.fatal and name == "write":
                descriptor, payload = arguments
                assert isinstance(payload, bytes | memoryview)
                real(descriptor, bytes(payload)[: len(payload) // 2])
            if self.count >= self.fatal:
                raise Death(f"before effect {self.fatal}, {name}")
            return real(*arguments, **options)

        return effect


@contextmanager
def dying_at(fatal: int) -> Iterator[Effects]:
    effects = Effects(fatal)
    real_open = os.open

    def opening(path: str, flags: int, *rest: int) -> int:
        return creating(path, flags, *rest) if flags & os.O_CREAT else real_open(path, flags, *rest)

    creating = effects.wrap("open", real_open)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "replace", "link", "unlink", "mkdir", "ftruncate"):
            patch.setattr(os, name, effects.wrap(name, getattr(os, name)))
        patch.setattr(os, "fsync", effects.wrap("fsync", lambda _: None))  # counted, but a test need not wait
        patch.setattr(os, "open", opening)
        yield effects


def ranges(batch: int) -> dict[str, list[int]]:
    return {"locations": [batch * 10, batch * 10 + 10]}


def content(task: Task, batch: int) -> bytes:
    return f"state of {task} after {batch}".encode() * 20


def trim(store: Store) -> None:
    """As the coordinator instructs it: behind the newest two checkpoints, of which the beginning is one."""
    oldest = [0, *(number for number, _ in store.checkpoints.known())][-2:][0]
    store.trim(oldest, oldest + 1)


def run_store(folder: Path, acknowledged: dict[str, int]) -> None:
    """A driver that goes on from whatever it finds: a batch at a time, a checkpoint at every second, trimmed."""
    store = Store.open(folder, TOPOLOGY)
    newest = store.newest_valid()
    done = newest.checkpoint.batch if isinstance(newest, ValidCheckpoint) else 0
    logged = store.batches[-1].number if store.batches else done
    assert [batch.number for batch in store.batches] == list(
        range(store.batches[0].number if store.batches else 1, logged + 1)
    )
    assert all(batch.data == ranges(batch.number) for batch in store.batches)
    assert logged in {acknowledged["batch"], acknowledged["batch"] + 1}
    assert done in {acknowledged["checkpoint"], acknowledged["checkpoint"] + 2}
    assert newest.damage == ()
    if isinstance(newest, ValidCheckpoint):
        for task in TASKS:
            shared, own = newest.checkpoint.segments[task]
            assert read_segment(folder, shared) == content(task, 0)
            assert read_segment(folder, own) == content(task, done)
    acknowledged.update(batch=logged, checkpoint=done)
    for batch in range(done + 1, LAST_BATCH + 1):
        if batch > acknowledged["batch"]:
            store.log_batch(batch, ranges(batch))
            acknowledged["batch"] = batch
        if batch % 2 == 0:
            segments = {
                task: (
                    *upload_segments(folder, task, {"base": content(task, 0)}),
                    *upload_segments(folder, task, {f"delta {batch}": content(task, batch)}),
                )
                for task in TASKS
            }
            store.commit_checkpoint(Checkpoint(batch, store.epoch, segments, {"locations": batch}))
            acknowledged["checkpoint"] = batch
            trim(store)
    trim(store)  # again, for the driver before may have died on its way here
    store.close()


def result(batch: int, partition: int) -> pl.DataFrame:
    rows = 0 if (batch + partition) % 3 == 0 else batch + partition
    columns = {"batch": [batch] * rows, "partition": [partition] * rows, "n": list(range(rows))}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))


def run_sink(folder: Path, epoch: int, acknowledged: set[tuple[int, int]]) -> None:
    """A driver that stages and commits what its sink does not have yet; every commit is asked for twice."""
    sink = ParquetSink(folder)
    committer = sink.committer("jams", folder, "run", epoch)
    assert all(committer.is_committed(*commit) for commit in acknowledged)
    check_visible(folder, [pair for pair in pairs() if committer.is_committed(*pair)])
    for batch in range(1, LAST_RESULT + 1):
        for some in ([0, 1], [2]):  # in two commits, as partitions may finish apart
            if all(committer.is_committed(batch, partition) for partition in some):
                continue
            staged = [stage(sink, "jams", partition, batch, "7", result(batch, partition)) for partition in some]
            again = [stage(sink, "jams", partition, batch, "8", result(batch, partition)) for partition in some]
            committer.commit(batch, staged)
            acknowledged |= {(batch, partition) for partition in some}
            committer.commit(batch, again)
    check_visible(folder, pairs())
    committer.close()


def pairs() -> list[tuple[int, int]]:
    return [(batch, partition) for batch in range(1, LAST_RESULT + 1) for partition in range(3)]


def check_visible(folder: Path, committed: list[tuple[int, int]]) -> None:
    expected = pl.concat([result(0, 0), *(result(*commit) for commit in committed)])
    if expected.is_empty():
        assert list(folder.iterdir()) == []
        return
    assert pl.read_parquet(folder).sort("batch", "partition", "n").equals(expected)
    assert read_committed(folder).equals(expected)


def count_effects(action: Callable[[], None]) -> int:
    with dying_at(1 << 30) as effects:
        action()
    return effects.count


def test_a_store_survives_death_before_every_effect(tmp_path: Path) -> None:
    total = count_effects(lambda: run_store(tmp_path / "whole", {"batch": 0, "checkpoint": 0}))
    assert total > 100
    for fatal in range(1, total + 1):
        folder, acknowledged = tmp_path / str(fatal), {"batch": 0, "checkpoint": 0}
        with dying_at(fatal), pytest.raises(Death):
            run_store(folder, acknowledged)
        with dying_at(1 << 30):
            run_store(folder, acknowledged)
        assert acknowledged == {"batch": 6, "checkpoint": 6}


@pytest.mark.parametrize("seed", range(4))
def test_a_store_survives_many_deaths_in_a_row_also_while_it_recovers(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    draw, acknowledged = random.Random(seed), {"batch": 0, "checkpoint": 0}
    for _ in range(MAX_DEATHS):
        try:
            with dying_at(draw.randrange(1, 90)):
                run_store(tmp_path / "store", acknowledged)
            break
        except Death:
            continue
    assert acknowledged == {"batch": 6, "checkpoint": 6}
    listed = {path.name for path in (tmp_path / "store" / "checkpoints").glob("[0-9]*")}
    assert len(listed) == 2


def test_after_deaths_a_start_leaves_no_file_that_no_manifest_lists(tmp_path: Path) -> None:
    total = count_effects(lambda: run_store(tmp_path / "whole", {"batch": 0, "checkpoint": 0}))
    for fatal in range(1, total, 7):
        folder = tmp_path / str(fatal)
        with dying_at(fatal), pytest.raises(Death):
            run_store(folder, {"batch": 0, "checkpoint": 0})
        with dying_at(1 << 30):
            store = Store.open(folder, TOPOLOGY)
            store.close()
        listed = {file for key in store.checkpoints.known() for file in store.checkpoints.read(key).files}
        present = {str(path.relative_to(folder)) for path in (folder / "segments").rglob("*") if path.is_file()}
        assert present == listed


def test_results_survive_death_before_every_effect(tmp_path: Path) -> None:
    total = count_effects(lambda: run_sink(tmp_path / "whole" / "jams", 1, set()))
    assert total > 100
    for fatal in range(1, total + 1):
        folder = tmp_path / str(fatal) / "jams"
        acknowledged: set[tuple[int, int]] = set()
        with dying_at(fatal), pytest.raises(Death):
            run_sink(folder, 1, acknowledged)
        # Whoever reads the folder before the next driver starts sees nothing that does not count.
        logged = {record["batch"] for record in journal.read(folder.parent / ".jams.tenax" / "log")}
        shown = folder.glob("*") if folder.exists() else []
        assert {int(path.name.split("-b")[1][:10]) for path in shown} <= logged
        with dying_at(1 << 30):
            run_sink(folder, 2, acknowledged)


@pytest.mark.parametrize("seed", range(4))
def test_results_survive_many_deaths_in_a_row_also_while_a_driver_takes_over(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    draw, folder = random.Random(seed), tmp_path / "jams"
    acknowledged: set[tuple[int, int]] = set()
    for epoch in range(1, MAX_DEATHS):
        try:
            with dying_at(draw.randrange(1, 60)):
                run_sink(folder, epoch, acknowledged)
            break
        except Death:
            continue
    check_visible(folder, pairs())
    assert list((tmp_path / ".jams.tenax" / "staged").iterdir()) == []


CHILD = """
import sys
from pathlib import Path
import polars as pl
from tenax.connectors.parquet import ParquetSink
from tenax.connectors.sink import stage
from tenax.store import journal
from tenax.store.checkpoints import Checkpoint, upload_segments
from tenax.store.store import Store
from tenax.model.tasks import Task
folder = Path(sys.argv[1])
store = Store.open(folder / "store", {})
sink = ParquetSink(folder / "jams")
committer = sink.committer("jams", folder / "store", store.identity, store.epoch)
print("ready", flush=True)
for batch in range(committer.last_batch(0) + 1, 100_000):
    if not store.batches or batch > store.batches[-1].number:
        store.log_batch(batch, {"first": batch})
    committer.commit(batch, [stage(sink, "jams", 0, batch, "1", pl.DataFrame({"batch": [batch] * 50}))])
    print(batch, flush=True)
    if batch % 3 == 0:
        part = upload_segments(folder / "store", Task("a", 0), {f"s{batch}": b"x" * 5000})[0]
        store.commit_checkpoint(Checkpoint(batch, store.epoch, {Task("a", 0): (part,)}))
        store.trim(batch - 3, batch - 2)
"""


def test_a_killed_process_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seed = 20
    print("seed", seed)
    draw, acknowledged = random.Random(seed), 0
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(draw.randrange(2, 12)):
            acknowledged = int(child.stdout.readline())
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(draw.random() * 0.02)
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
        child.wait(10)
        acknowledged = int(rest[-1]) if rest and rest[-1] else acknowledged
    store = Store.open(tmp_path / "store", {})
    ParquetSink(tmp_path / "jams").committer("jams", tmp_path, store.identity, store.epoch).close()
    counted = pl.read_parquet(tmp_path / "jams").group_by("batch").len().sort("batch")
    assert counted["batch"].to_list() == list(range(1, counted.height + 1))
    assert set(counted["len"]) == {50}
    assert counted.height in {acknowledged, acknowledged + 1}
    newest = store.newest_valid()
    assert isinstance(newest, ValidCheckpoint)
    assert newest.damage == ()
    store.close()
