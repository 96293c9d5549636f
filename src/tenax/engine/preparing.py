"""Spark's classes made ready once for all runs of the user, so that these start in about half of the processor time."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext

from tenax.engine import virtual_machine
from tenax.engine.session import Session
from tenax.engine.virtual_machine import VirtualMachine, archive_path
from tenax.errors import ClusterFailed
from tenax.model.settings import ClusterSettings

END_DEADLINE_S = 300.0  # to write the classes: seconds on a free machine


def prepare() -> Path:
    """Run what runs consist of once, and let Java write the classes that were loaded; where they are.

    Whatever changes (Java, Spark, where it is installed) has classes of its own; what does not fit, Java leaves alone.
    """
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tenax-prepare-") as name, suppress(subprocess.TimeoutExpired):
        made = Path(name) / path.name
        virtual_machine.end_ahead()
        machine = VirtualMachine(archive=made)
        virtual_machine._ahead.append(machine)
        session = Session(Path(name) / "cluster", ClusterSettings(nodes=1))
        try:
            _exercise(session.context)
            session.context.stop()
            alone = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("tenax"))
            _exercise(alone)  # what executors do, done by the virtual machine that remembers it
            alone.stop()
            assert machine.process.stdin is not None
            machine.process.stdin.close()
            machine.process.wait(END_DEADLINE_S)
        finally:
            session.stop()
        if made.is_file():
            whole = path.with_name(f".{path.name}.{os.getpid()}")
            whole.write_bytes(made.read_bytes())
            whole.replace(path)
            return path
    raise ClusterFailed(
        f"Java writes the classes that were loaded, found none in {path.parent}: is there room for them?"
    )


def _exercise(context: SparkContext) -> None:
    """A broadcast, Python workers, a shuffle: what a pass is made of."""
    shared = context.broadcast(b"rows")
    pairs = context.parallelize(range(8), 2).map(lambda number: (number % 2, shared.value))
    assert pairs.groupByKey(2).count() == 2
