"""Every way to end `tenax run`, in a terminal and in a pipe: nothing is lost, and nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spark.runs import committed

from tenax.cli.stopping import INTERRUPTED, SAME_S
from tenax.engine.processes import marked
from tenax.engine.scratch import MARK
from tenax.engine.session import SCRATCH
from tenax.engine.virtual_machine import LOG

COMMAND = Path(sysconfig.get_path("scripts")) / "tenax"
DEADLINE_S = 240.0
POLL_S = 0.02
CTRL_C = b"\x03"
RATE = 1_000

# elements (2) --> window (2) --> counts: endless, so that only a stop can end it
APPLICATION = f"""
import time
from pathlib import Path

import polars as pl
import tenax as tx

HOLD = Path(__file__).with_name("hold").absolute()

def held(rows):
    while HOLD.exists():
        HOLD.with_name("held").touch()
        time.sleep(0.1)
    return rows

topology = tx.Topology("endless")
given = topology.source("elements", tx.elements(rate={RATE}, pace=tx.Pace(paced=True)), partitions=2)
keyed = given.map(held).with_columns((pl.col("sequence") % 5).alias("key")).key_by("key")
keyed.window("1s").aggregate(pl.len().alias("count"), parallelism=2).output("counts", tx.parquet("counts"))
"""


@dataclass
class Running:
    """A command that runs, what it has said, and where it keeps what."""

    pid: int
    folder: Path
    send: Callable[[bytes], object]
    said: bytearray = field(default_factory=bytearray)
    code: int | None = None

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def scratch(self) -> Path:
        """The scratch folder, as soon as there is one."""
        self.until(lambda: list(self.store.glob(f"run/*/{SCRATCH}")))
        return next(self.store.glob(f"run/*/{SCRATCH}")).readlink()

    def until_more_is_published(self) -> None:
        """Wait for two more results than there are."""
        wanted = len(results(self.folder)) + 4
        self.until(lambda: len(results(self.folder)) >= wanted)

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < deadline, self.said.decode()
            assert self.poll() is None, self.said.decode()
            time.sleep(POLL_S)

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def ended(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self.poll() is None:
            assert time.monotonic() < deadline, self.said.decode()
            time.sleep(POLL_S)
        assert self.code is not None
        return self.code


def results(folder: Path) -> list[Path]:
    return sorted((folder / "counts").glob("*.parquet"))


def words() -> list[str]:
    options = ["--batch", "200ms", "--checkpoint-every", "1000", "--nodes", "1", "--store", "store"]
    return [str(COMMAND), "run", "app.py", *options]


@contextlib.contextmanager
def in_terminal(folder: Path) -> Iterator[Running]:
    """The command as a shell in a terminal runs it: Ctrl-C reaches all of its process group."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.pop("SPARK_HOME", None)  # that of the session in this process
        os.execv(words()[0], words())
    running = Running(pid, folder, lambda data: os.write(terminal, data))
    reader = threading.Thread(target=read, args=[terminal, running.said], daemon=True)
    reader.start()
    with ending(running):
        yield running
    reader.join(DEADLINE_S)
    os.close(terminal)


@contextlib.contextmanager
def in_pipe(folder: Path) -> Iterator[Running]:
    """The command as a service runs it; `send` lets the reader of its output leave."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    process = subprocess.Popen(
        words(), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    reading, leave = process.stdout.fileno(), threading.Event()
    running = Running(process.pid, folder, lambda _: leave.set())
    reader = threading.Thread(target=read, args=[reading, running.said, leave], daemon=True)
    reader.start()
    with ending(running):
        yield running
    leave.set()
    reader.join(DEADLINE_S)
    process.returncode = running.code


@contextlib.contextmanager
def ending(running: Running) -> Iterator[None]:
    try:
        yield
    finally:
        if running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            running.ended()


def read(source: int, said: bytearray, leave: threading.Event | None = None) -> None:
    """Read until the other side is gone, or this one is told to leave."""
    with contextlib.suppress(OSError):  # how the end of a terminal looks
        while (data := os.read(source, 1 << 16)) and not (leave is not None and leave.is_set()):
            said += data
    if leave is not None:
        os.close(source)


def assert_nothing_is_left(running: Running, scratch: Path) -> None:
    assert marked(MARK, str(scratch)) == []
    assert not scratch.exists()
    assert {path.name for path in running.store.glob("run/*/*")} <= {LOG}


def stored(folder: Path) -> int:
    """The last batch that is in a checkpoint."""
    said = subprocess.run(
        [COMMAND, "inspect", folder / "store", "--json"], check=True, capture_output=True, text=True
    ).stdout
    return max((int(checkpoint["batch"]) for checkpoint in json.loads(said)["checkpoints"]), default=0)


def test_a_stop_finishes_what_runs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)

    with in_terminal(tmp_path) as running:  # once: in good order
        scratch = running.scratch()
        assert scratch.stat().st_mode & 0o777 == 0o700
        running.until_more_is_published()
        running.send(CTRL_C)
        assert running.ended() == 0, running.said.decode()
    text = running.said.decode()
    assert "finishing the running batches" in text
    assert "stopped: asked to" in text
    assert "Run of endless" in text
    assert "Traceback" not in text
    assert_nothing_is_left(running, scratch)
    first = stored(tmp_path)
    assert first > 0
    assert f"published up to {first:,}" in text

    with in_terminal(tmp_path) as running:  # it goes on; twice: at once
        scratch = running.scratch()
        running.until_more_is_published()
        (tmp_path / "hold").touch()  # a batch that takes its time
        running.until((tmp_path / "held").exists)
        running.send(CTRL_C)
        running.until(lambda: b"finishing the running batches" in running.said)
        time.sleep(4 * SAME_S)  # no finger is faster
        running.send(CTRL_C)
        assert running.ended() == INTERRUPTED, running.said.decode()
    (tmp_path / "hold").unlink()
    assert b"Traceback" not in running.said
    assert b"ended at once" in running.said
    assert_nothing_is_left(running, scratch)

    with in_pipe(tmp_path) as running:  # while Spark starts
        scratch = running.scratch()
        os.kill(running.pid, signal.SIGTERM)
        assert running.ended() == 0, running.said.decode()
    assert b"asked to stop while Spark started" in running.said
    assert_nothing_is_left(running, scratch)

    with in_pipe(tmp_path) as running:  # more than once, and nobody reads what it says any more
        scratch = running.scratch()
        running.until_more_is_published()
        running.send(b"")
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            os.kill(running.pid, number)
        assert running.ended() == 0, running.said.decode()
    assert_nothing_is_left(running, scratch)
    assert stored(tmp_path) > first

    rows = committed(tmp_path / "counts")
    assert rows.select("key", "window_start").is_duplicated().sum() == 0
    assert rows["count"].unique().to_list() == [RATE // 5]  # every window whole
    starts = rows["window_start"].unique().sort()
    assert starts.diff().drop_nulls().n_unique() == 1  # and none is missing
    assert rows.group_by("window_start").len()["len"].unique().to_list() == [5]
