"""Structured Streaming while executors are killed and come back: when its results were there for readers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tenax.engine.processes import ancestors
from tenax.errors import ClusterFailed
from tenax.store.records import JsonObject, integer, mapping, text
from tenax_lab.sides.failover_files import Ordeal, Seconds, SinkLog, newest_second
from tenax_lab.sides.sides import Series, Step, serve
from tenax_lab.sides.structured_streaming import SCHEMAS, local_cluster

POLL_S = 0.02
START_DEADLINE_S = 120.0
END_DEADLINE_S = 300.0  # how long after the last second of input its results may take
MAX_RESTARTS = 20
RESULTS = "results"
PROC = Path("/proc")
BACKEND = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
EXECUTOR_ID = b"--executor-id"


def measure(arguments: JsonObject, step: Step) -> Series:
    """Run the windowed mean as files appear, strike in between, and tell what was shown when."""
    work, ordeal = Path(text(arguments, "work")), Ordeal.from_data(mapping(arguments["ordeal"]))
    spark = _session(work, ordeal.nodes)
    spark.conf.set("spark.sql.shuffle.partitions", str(integer(arguments, "shuffle_partitions")))
    seconds = Seconds(ordeal, work / "appearing")
    found = _watch(lambda: _start(spark, seconds.folder, work), seconds, Strike(spark, ordeal), work / RESULTS)
    step("Structured Streaming")
    spark.stop()
    return found


@dataclass(slots=True)
class Strike:
    """Kills one rack some time after the first result, and lets as many executors return later.

    Executors are dealt out to racks in the order of their ids, as the nodes of a run of Tenax are. The limit goes down
    first, so that the cluster does not replace what is killed.
    """

    spark: SparkSession
    ordeal: Ordeal
    killed_s: float | None = None
    returned_s: float | None = None
    killed: int = 0

    def look(self, first_s: float | None) -> None:
        """Do what is due, given when the first result was there."""
        now_s = time.time()
        if first_s is None or now_s < first_s + self.ordeal.kill_after_s:
            return
        if self.killed_s is None:
            pids = executors()
            struck = [pids[one] for place, one in enumerate(sorted(pids)) if place % self.ordeal.racks == 0]
            self.killed = len(struck)
            self._limit(self.ordeal.nodes - self.killed)
            self.killed_s = time.time()
            for pid in struck:
                os.kill(pid, signal.SIGKILL)
        elif self.returned_s is None and now_s >= self.killed_s + self.ordeal.away_s:
            self._limit(self.ordeal.nodes)
            self.returned_s = time.time()

    @property
    def over(self) -> bool:
        """Whether nodes could return long enough ago."""
        return self.returned_s is not None and time.time() >= self.returned_s + self.ordeal.tail_s

    def _limit(self, count: int) -> None:
        """How many executors the cluster shall keep up."""
        context = self.spark.sparkContext
        jvm = context._jvm
        assert jvm is not None
        context._jsc.sc().requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()))


def executors() -> dict[int, int]:
    """The processes of the executors that this process has started, by executor id."""
    found = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if BACKEND in words and EXECUTOR_ID in words and os.getpid() in ancestors(int(entry.name)):
            found[int(words[words.index(EXECUTOR_ID) + 1])] = int(entry.name)
    return found


def _watch(start: Callable[[], StreamingQuery], seconds: Seconds, strike: Strike, results: Path) -> Series:
    """Run the query until all input is shown; should it die, it goes on from its checkpoint."""
    log = SinkLog(results)
    shown: list[tuple[float, int]] = []
    first_s: float | None = None
    restarts = 0
    running = start()
    seconds.start()
    deadline = time.monotonic() + seconds.shape.batches * seconds.interval_s + END_DEADLINE_S
    while not (strike.over and not seconds.is_alive() and shown and shown[-1][1] >= len(seconds.appeared_s) - 1):
        if time.monotonic() > deadline or restarts > MAX_RESTARTS:
            raise ClusterFailed(
                f"all {len(seconds.appeared_s)} seconds are shown in the end, found {shown[-1:]} after {restarts} "
                f"restarts ({running.exception()}): see spark.log"
            )
        for commit in log.look():
            second = newest_second(commit.files)
            if second is not None:  # its first commits have no rows: windows are complete one micro-batch later
                first_s = first_s or commit.at_s
                shown.append((commit.at_s, second))
        strike.look(first_s)
        if strike.over:
            seconds.stop()
        if not running.isActive:
            restarts += 1
            running = start()
        time.sleep(POLL_S)
    running.stop()
    assert strike.killed_s is not None
    assert strike.returned_s is not None
    return {
        "appeared s": seconds.appeared_s,
        "shown s": [at_s for at_s, _ in shown],
        "shown second": [float(second) for _, second in shown],
        "shown final": [1.0] * len(shown),
        "shown tentative": [0.0] * len(shown),
        "killed s": [strike.killed_s],
        "returned s": [strike.returned_s],
        "killed": [float(strike.killed)],
        "restarts": [float(restarts)],
    }


def _start(spark: SparkSession, inputs: Path, work: Path) -> StreamingQuery:
    """Begin the query, or go on from its checkpoint; without a trigger of its own it looks for files all the time."""
    rows = (
        spark.readStream.schema(SCHEMAS["locations"])
        .option("recursiveFileLookup", "true")
        .parquet(str(inputs / "locations"))
        .withWatermark("ts", "0 seconds")
    )
    means = rows.groupBy(f.window("ts", "10 seconds", "1 second"), "segment").agg(f.avg("speed").alias("speed"))
    return (
        means.withColumn("window_end", f.col("window.end"))
        .drop("window")
        .writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", str(work / "checkpoint"))
        .start(str(work / RESULTS))
    )


def _session(work: Path, nodes: int) -> SparkSession:
    """A cluster like that of a run of Tenax, with Spark's own settings for failures; all executors are up."""
    spark = local_cluster(work, nodes)
    deadline = time.monotonic() + START_DEADLINE_S
    status = spark.sparkContext._jsc.sc().statusStore()
    while status.executorList(True).size() <= nodes:  # the driver is listed, too
        if time.monotonic() > deadline:
            raise ClusterFailed(
                f"{nodes} executors are needed, found fewer after {START_DEADLINE_S:g} s: see spark.log"
            )
        time.sleep(POLL_S)
    return spark


if __name__ == "__main__":
    serve(measure)
