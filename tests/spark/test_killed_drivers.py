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
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.oracles import assert_equal, traffic
from spark.runs import example, finish, results, settings, whole_input

from tenax.engine.session import Session
from tenax.engine.sinks.parquet import ParquetSink
from tenax.engine.store import journal

pytestmark = pytest.mark.xdist_group("spark")

# locations (2) --> speed-window (2) --+--> speed (2)
#                                      +--> join (2) --> filter (2) --> jams (2)
# reports (1) ----> incidents (1) -----+
BATCH_ROWS, BATCHES = 150, 72
OPTIONS = {
    "rows": BATCH_ROWS * BATCHES,
    "reports": 1_000,
    "rate": 500,
    "users": 2_000,
    "segments": 20,
    "length": "3s",
    "parallelism": 2,
}
KEYS = {"speed": ["segment"], "jams": ["segment", "incident"]}
DEADLINE_S = 240.0
POLL_S = 0.02
SOURCES = Path(__file__).parents[1]


@contextlib.contextmanager
def child(store: Path, options: dict[str, object], nodes: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own, which ends with the test."""
    command = [sys.executable, "-m", "spark.child", "traffic", str(store), str(BATCH_ROWS), str(nodes)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
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
    return max((int(str(one["batch"])) for one in journal.read(log)), default=0) if log.exists() else 0


def test_a_driver_killed_at_random_moments_loses_nothing_and_repeats_nothing(cluster: Session, tmp_path: Path) -> None:
    seed = int(os.environ.get("TENAX_SEED", "7"))
    dice = random.Random(seed)
    options: dict[str, object] = {**OPTIONS, "folder": str(tmp_path / "out")}
    application = example("traffic", **options)
    log = tmp_path / "child.log"
    for first, last in ((1, 20), (21, 40)):
        batch, pause_s = dice.randint(first, last), dice.random() / 2
        print(f"seed {seed}: kill {pause_s:.3f} s after batch {batch} is published")
        with child(tmp_path / "store", options, 1, log) as process:
            deadline = time.monotonic() + DEADLINE_S
            while published(tmp_path / "out" / "speed") < batch and process.poll() is None:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(POLL_S)
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(pause_s)
            process.kill()  # on a very fast machine it may have ended by now: then there is one kill fewer
    with child(tmp_path / "store", options, 1, log) as process:
        assert process.wait(DEADLINE_S) == 0, log.read_text()
    given = whole_input(application)
    assert_equal(results(application), traffic(given["locations"], given["reports"], 3), KEYS)

    # the same batches on two nodes, never killed
    options["folder"] = str(tmp_path / "other")
    other = example("traffic", **options)
    finish(other, tmp_path / "other-store", settings(BATCH_ROWS), cluster)
    for output in KEYS:
        killed, whole = (
            {path.name: path.read_bytes() for path in (tmp_path / name / output).iterdir()} for name in ("out", "other")
        )
        assert killed == whole, output
