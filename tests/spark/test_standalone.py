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
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl
from spark.oracles import SECOND_US, assert_equal, windowed
from spark.runs import committed

from tenax.connectors.generators import Pace
from tenax.connectors.workloads import elements
from tenax.engine.virtual_machine import own_spark_home

ROWS = 6_000
DEADLINE_S = 240.0
POLL_S = 0.1
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


@contextlib.contextmanager
def standalone(folder: Path, workers: int) -> Iterator[str]:
    """A master and its workers on loopback; the address of the master."""
    home = own_spark_home(folder)
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-class")]
    with contextlib.ExitStack() as stack:
        port = free_port()
        master = [*command, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)]
        stack.enter_context(started([*master, "--webui-port", "0"], environment, folder / "master.log"))
        wait_for_port(port, folder / "master.log")
        address = f"spark://{LOOPBACK}:{port}"
        for number in range(workers):
            worker = [*command, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--webui-port", "0"]
            own = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}"), address]
            stack.enter_context(started([*worker, *own], environment, folder / f"worker-{number}.log"))
        yield address


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
    with standalone(tmp_path, workers=2) as address:
        settings = ["--store", str(tmp_path / "store"), "--max-rows", "1500", "--nodes", "2", "--master", address]
        with started([*run, *settings], environment, tmp_path / "run.log") as process:
            assert process.wait(DEADLINE_S) == 0, (tmp_path / "run.log").read_text()

    given = elements(rate=1_000, pace=Pace(rows=ROWS)).read(0, [0, ROWS, 1])
    rows = given.with_columns((pl.col("sequence") % 5).alias("key"))
    expected = {"means": windowed(rows, ["key"], SECOND_US, SECOND_US, pl.col("value").mean())}
    assert_equal({"means": committed(out)}, expected, {"means": ["key"]})
