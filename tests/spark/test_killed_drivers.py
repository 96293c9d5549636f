"""A driver killed at any moment: the same command again goes on, nothing is lost and nothing comes twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from spark.oracles import Results, assert_equal, elements, top_pages, traffic
from spark.runs import example, finish, results, settings, whole_input

from tenax.application.application import Application
from tenax.connectors.parquet import ParquetSink
from tenax.engine.processes import marked
from tenax.engine.scratch import MARK
from tenax.engine.session import SCRATCH, Session
from tenax.store import journal

LONG = pytest.mark.long  # runs in `make chaos`


@dataclass(frozen=True)
class Case:
    """An example that is killed: what `build` gets, its batches, between which of them, and its oracle.

    `watched` is the output whose commit log tells how far the run has come.
    """

    options: Mapping[str, object]
    batch_rows: int
    kills: Sequence[tuple[int, int]]
    watched: str
    oracle: Callable[[dict[str, pl.DataFrame]], Results]
    keys: Mapping[str, Sequence[str]]
    bytes_too: bool = False  # compared with a run on two nodes that is never killed: takes its time


CASES = {
    # locations (2) --> speed-window (2) --+--> speed (2)
    #                                      +--> join (2) --> filter (2) --> jams (2)
    # reports (1) ----> incidents (1) -----+
    "traffic": Case(
        {
            "rows": 6_000,
            "reports": 1_000,
            "rate": 500,
            "users": 2_000,
            "segments": 20,
            "length": "3s",
            "parallelism": 2,
        },
        150,
        [(1, 12), (13, 26)],
        "speed",
        lambda given: traffic(given["locations"], given["reports"], 3),
        {"speed": ["segment"], "jams": ["segment", "incident"]},
        bytes_too=True,
    ),
    # requests (2) --> views (2) --> top in every task (2) --> top (1)
    "top_pages": Case(
        {"rows": 3_000, "rate": 500, "servers": 8, "pages": 300, "count": 10, "length": "3s", "parallelism": 2},
        150,
        [(1, 10)],
        "top",
        lambda given: top_pages(given["requests"], 10, 3),
        {"top": ["page"]},
    ),
    # pe1 (2) --> five running means by group, one after the other --> pe8
    "elements": Case(
        {"rows": 3_000, "rate": 500, "parallelism": 2},
        150,
        [(1, 10)],
        "pe8",
        lambda given: elements(given["pe1"], groups=16, operators=5),
        {"pe8": ["sequence"]},
    ),
}
DEADLINE_S = 240.0
POLL_S = 0.02
SOURCES = Path(__file__).parents[1]


@contextlib.contextmanager
def child(name: str, store: Path, options: Mapping[str, object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with one node in a process group of its own, which ends with the test."""
    command = [sys.executable, "-m", "spark.child", name, str(store), str(CASES[name].batch_rows), "1"]
    inherited = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), *inherited])}
    environment.pop("SPARK_HOME", None)  # that of the session in this process
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, json.dumps(options)], env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def published(folder: Path) -> int:
    """The newest batch in the commit log of an output."""
    log = ParquetSink(folder).log
    return max((int(str(entry["batch"])) for entry in journal.read(log)), default=0) if log.exists() else 0


@pytest.mark.parametrize(
    ("name", "seed"),
    [("traffic", 7), pytest.param("top_pages", 11, marks=LONG), pytest.param("elements", 13, marks=LONG)],
)
def test_a_driver_killed_at_random_moments_loses_nothing_and_repeats_nothing(
    name: str, seed: int, cluster: Session, tmp_path: Path
) -> None:
    case = CASES[name]
    seed = int(os.environ.get("TENAX_SEED", seed))
    options = {**case.options, "folder": str(tmp_path / "out")}
    application = example(name, **options)
    log = tmp_path / "child.log"
    dice = random.Random(seed)
    scratches: list[Path] = []
    for first, last in case.kills:
        batch, pause_s = dice.randint(first, last), dice.random() / 2
        print(f"seed {seed}: kill {name} {pause_s:.3f} s after batch {batch} is published")
        with child(name, tmp_path / "store", options, log) as process:
            kill_after(process, batch, pause_s, folder_of(application, case.watched), log)
            scratches += [link.readlink() for link in (tmp_path / "store").glob(f"run/*/{SCRATCH}")]
        await_end(scratches, log)
    with child(name, tmp_path / "store", options, log) as process:
        assert process.wait(DEADLINE_S) == 0, log.read_text()
    assert not any(folder.exists() for folder in scratches)  # swept by whoever started next
    assert_equal(results(application), case.oracle(whole_input(application)), case.keys)

    if case.bytes_too:
        other = example(name, **{**options, "folder": str(tmp_path / "other")})
        finish(other, tmp_path / "other-store", settings(case.batch_rows), cluster)
        for output in case.keys:
            killed, whole = (
                {path.name: path.read_bytes() for path in folder_of(ran, output).iterdir()}
                for ran in (application, other)
            )
            assert killed == whole, output


def await_end(scratches: Sequence[Path], log: Path) -> None:
    """Wait until everything that killed drivers had started has ended, by itself."""
    deadline = time.monotonic() + DEADLINE_S
    while left := [pid for folder in scratches for pid in marked(MARK, str(folder))]:
        assert time.monotonic() < deadline, (left, log.read_text())
        time.sleep(POLL_S)


def folder_of(application: Application, output: str) -> Path:
    sink = application.sinks[output]
    assert isinstance(sink, ParquetSink)
    return sink.folder


def kill_after(process: subprocess.Popen[bytes], batch: int, pause_s: float, folder: Path, log: Path) -> None:
    """Kill a driver a moment after an output has published a batch."""
    deadline = time.monotonic() + DEADLINE_S
    while published(folder) < batch and process.poll() is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(POLL_S)
    assert published(folder) >= batch, log.read_text()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(pause_s)
    process.kill()  # while this process had to wait it may have ended: then there is one kill fewer
