"""A standalone master with workers of its own: the command, the application and its modules reach the executors."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import polars as pl
from spark.oracles import SECOND_US, assert_equal, windowed
from spark.runs import committed

from tenax.connectors.generators import Pace
from tenax.connectors.workloads import elements
from tenax.engine.session import Session
from tenax.engine.virtual_machine import own_spark_home
from tenax.model.settings import ClusterSettings

ROWS = 6_000
DEADLINE_S = 240.0
POLL_S = 0.1
SOME_S = 6.0
LOOPBACK = "127.0.0.1"
COMMAND = Path(sysconfig.get_path("scripts")) / "tenax"

HELPER = """
import polars as pl

def keyed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns((pl.col("sequence") % 5).alias("key"))
"""

# elements (2) --> key (2) --full--> window (2) --> means (2)
APPLICATION = """
import helper
import polars as pl
import tenax as tx

def build(rows, folder):
    topology = tx.Topology("means")
    given = topology.source("elements", tx.elements(rate=1_000, pace=tx.Pace(rows=rows)), partitions=2)
    means = given.map(helper.keyed, name="key").key_by("key").window("1s").aggregate(pl.col("value").mean())
    means.output("means", tx.parquet(folder))
    return topology
"""


@contextlib.contextmanager
def started(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which ends with the block."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Standalone:
    """A master on loopback and its workers, which end with the stack."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        home, port = own_spark_home(folder), free_port()
        self._folder, self._stack, self._workers = folder, stack, 0
        of_spark = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
        self._environment = {**os.environ, **of_spark}
        self._command = [str(home / "bin" / "spark-class")]
        self.address = f"spark://{LOOPBACK}:{port}"
        master = "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)
        self._start([*master, "--webui-port", "0"], "master")
        wait_for_port(port, folder / "master.log")

    def add_worker(self) -> None:
        """One more, with room for one executor."""
        name = f"worker-{self._workers}"
        self._workers += 1
        worker = "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--webui-port", "0"
        own = "--cores", "2", "--memory", "1g", "--work-dir", str(self._folder / name), self.address
        self._start([*worker, *own], name)

    def _start(self, arguments: list[str], name: str) -> None:
        command = [*self._command, *arguments]
        self._stack.enter_context(started(command, self._environment, self._folder / f"{name}.log"))


@contextlib.contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Standalone]:
    """A master and so many workers."""
    with contextlib.ExitStack() as stack:
        cluster = Standalone(folder, stack)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=POLL_S):
            return
        time.sleep(POLL_S)
    raise AssertionError(log.read_text())


def test_an_application_with_a_module_of_its_own_runs_on_a_standalone_master(tmp_path: Path) -> None:
    application, out = tmp_path / "app" / "means.py", tmp_path / "out"
    application.parent.mkdir()
    application.write_text(APPLICATION)
    (application.parent / "helper.py").write_text(HELPER)
    environment = {name: value for name, value in os.environ.items() if name not in {"SPARK_HOME", "PYTHONPATH"}}
    run = [str(COMMAND), "run", str(application), f"rows={ROWS}", f"folder={out}"]
    with standalone(tmp_path, workers=2) as cluster:
        settings = [
            "--store",
            str(tmp_path / "store"),
            "--max-rows",
            "1500",
            "--nodes",
            "2",
            "--master",
            cluster.address,
        ]
        with started([*run, *settings], environment, tmp_path / "run.log") as process:
            assert process.wait(DEADLINE_S) == 0, (tmp_path / "run.log").read_text()

    given = elements(rate=1_000, pace=Pace(rows=ROWS)).read(0, [0, ROWS, 1])
    rows = given.with_columns((pl.col("sequence") % 5).alias("key"))
    expected = {"means": windowed(rows, ["key"], SECOND_US, SECOND_US, pl.col("value").mean())}
    assert_equal({"means": committed(out)}, expected, {"means": ["key"]})


def test_a_standalone_master_gives_the_nodes_that_are_asked_for_and_no_others(tmp_path: Path) -> None:
    with standalone(tmp_path, workers=1) as cluster:
        session = Session(tmp_path / "session", ClusterSettings(nodes=1, max_nodes=3, master=cluster.address))
        try:
            session.limit_nodes(1)
            cluster.add_worker()
            session.request_nodes(2)
            time.sleep(SOME_S)  # in which an executor comes
            assert len(session.live_nodes()) == 1
            session.limit_nodes(3)
            awaited(lambda: len(session.live_nodes()) == 2)
            cluster.add_worker()  # a worker that comes is not taken before it is asked for
            time.sleep(SOME_S)
            assert len(session.live_nodes()) == 2
            session.request_nodes(3)
            awaited(lambda: len(session.live_nodes()) == 3)
        finally:
            session.stop()


def awaited(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
