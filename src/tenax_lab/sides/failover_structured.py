"""Structured Streaming while executors are killed and come back: when its results were there for readers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tenax.errors import ClusterFailed
from tenax.store.records import JsonObject, integer, mapping, text
from tenax_lab.failover_measures import APPEARED, OUTCOME, SHOWN
from tenax_lab.lab import Row
from tenax_lab.sides.failover_files import OnDisk, Scenario, Seconds, SinkLog, newest_second
from tenax_lab.sides.failover_queries import EVENTS, MEANS, Query
from tenax_lab.sides.sides import Step, serve
from tenax_lab.sides.structured_streaming import SCHEMAS, local_cluster

POLL_S = 0.02
START_DEADLINE_S = 120.0
END_DEADLINE_S = 300.0  # how long after the last second of input its results may take
MAX_RESTARTS = 20
RESULTS, CHECKPOINT = "results", "checkpoint"
SST_BYTES = "rocksdbSstFileSize"
AS_EVENTS = "ts TIMESTAMP, ad STRING, click BOOLEAN, text STRING"
BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
EXECUTOR_ID = "--executor-id"


def measure(arguments: JsonObject, step: Step) -> list[Row]:
    """Run the windowed mean as files appear, fault in between, and tell what was shown when."""
    work, scenario = Path(text(arguments, "work")), Scenario.from_data(mapping(arguments["scenario"]))
    spark = _session(work, scenario.nodes)
    spark.conf.set("spark.sql.shuffle.partitions", str(integer(arguments, "shuffle_partitions")))
    seconds = Seconds(scenario, work / "appearing")
    fault, over = RackFault(spark, scenario), threading.Event()
    on_disk = OnDisk(work / CHECKPOINT, over)
    on_disk.start()
    rows = _watch(lambda: _start(spark, scenario.query, seconds.folder, work), seconds, fault, work / RESULTS)
    over.set()
    on_disk.join()
    step("Structured Streaming")
    spark.stop()
    return rows


@dataclass(slots=True)
class RackFault:
    """Kills one rack some time after the first result, and lets as many executors return later.

    Executors are dealt out to racks in the order of their ids, as the nodes of a run of Tenax are. The limit goes down
    first, so that the cluster does not replace what is killed.
    """

    spark: SparkSession
    scenario: Scenario
    killed_s: float | None = None
    returned_s: float | None = None
    killed: int = 0

    def look(self, first_s: float | None) -> None:
        """Do what is due, given when the first result was there."""
        now_s = time.time()
        if first_s is None or now_s < first_s + self.scenario.kill_after_s:
            return
        if self.killed_s is None:
            pids = executors()
            hit = [pids[executor] for place, executor in enumerate(sorted(pids)) if place % self.scenario.racks == 0]
            self.killed = len(hit)
            self._limit(self.scenario.nodes - self.killed)
            self.killed_s = time.time()
            for pid in hit:
                os.kill(pid, signal.SIGKILL)
        elif self.returned_s is None and now_s >= self.killed_s + self.scenario.away_s:
            self._limit(self.scenario.nodes)
            self.returned_s = time.time()

    @property
    def over(self) -> bool:
        """Whether nodes could return long enough ago."""
        return self.returned_s is not None and time.time() >= self.returned_s + self.scenario.tail_s

    def _limit(self, count: int) -> None:
        """How many executors the cluster shall keep up."""
        context = self.spark.sparkContext
        jvm = context._jvm
        assert jvm is not None
        context._jsc.sc().requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()))


def executors() -> dict[int, int]:
    """The processes of the executors that this process has started, by executor id."""
    by_id = {}
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue  # it has ended
        if BACKEND in words and EXECUTOR_ID in words:
            by_id[int(words[words.index(EXECUTOR_ID) + 1])] = process.pid
    return by_id


def _watch(start: Callable[[], StreamingQuery], seconds: Seconds, fault: RackFault, results: Path) -> list[Row]:
    """Run the query until all input is shown; should it die, it goes on from its checkpoint."""
    log = SinkLog(results)
    shown: list[tuple[float, int]] = []
    first_s: float | None = None
    restarts = 0
    state_mb: float | None = None
    running = start()
    seconds.start()
    deadline = time.monotonic() + seconds.shape.batches * seconds.interval_s + END_DEADLINE_S
    while not (fault.over and not seconds.is_alive() and shown and shown[-1][1] >= len(seconds.appeared_s) - 1):
        if time.monotonic() > deadline or restarts > MAX_RESTARTS:
            raise ClusterFailed(
                f"all {len(seconds.appeared_s)} seconds are shown in the end, found {shown[-1:]} after {restarts} "
                f"restarts ({running.exception()}): see spark.log"
            )
        for commit in log.look():
            second = newest_second(commit.files, fault.scenario.query.time)
            if second is not None:  # its first commits have no rows: windows are complete one micro-batch later
                first_s = first_s or commit.at_s
                shown.append((commit.at_s, second))
        fault.look(first_s)
        if fault.killed_s is not None and state_mb is None:
            state_mb = _state_mb(running)
        if fault.over:
            seconds.stop()
        if not running.isActive:
            restarts += 1
            running = start()
        time.sleep(POLL_S)
    running.stop()
    assert fault.killed_s is not None
    assert fault.returned_s is not None
    rows: list[Row] = [
        {"what": APPEARED, "second": second, "at_s": at_s} for second, at_s in enumerate(seconds.appeared_s)
    ]
    rows += [
        {"what": SHOWN, "at_s": at_s, "second": second, "final": 1.0, "tentative_part": 0.0} for at_s, second in shown
    ]
    outcome: Row = {"killed_s": fault.killed_s, "returned_s": fault.returned_s, "killed": fault.killed}
    nothing: Row = {"detection_s": None, "tentative": 0, "corrected": 0, "exact": None, "state_mb": state_mb or 0.0}
    return [*rows, {"what": OUTCOME, "restarts": restarts, **outcome, **nothing}]


def _state_mb(running: StreamingQuery) -> float:
    """The files of RocksDB after the last micro-batch."""
    progress = running.lastProgress
    operators = [] if progress is None else progress.stateOperators
    return sum(float(operator.customMetrics.get(SST_BYTES, 0)) for operator in operators) / 1e6


def _start(spark: SparkSession, query: Query, inputs: Path, work: Path) -> StreamingQuery:
    """Begin the query, or go on from its checkpoint; without a trigger of its own it looks for files all the time."""
    results = _means(spark, query, inputs) if query.name == MEANS else _matches(spark, query, inputs)
    return (
        results.writeStream.format("parquet")
        .outputMode("append")
        .option("checkpointLocation", str(work / CHECKPOINT))
        .start(str(work / RESULTS))
    )


def _means(spark: SparkSession, query: Query, inputs: Path) -> DataFrame:
    rows = _read(spark, inputs / "locations", SCHEMAS["locations"]).withWatermark("ts", "0 seconds")
    windows = f.window("ts", f"{query.window_s} seconds", "1 second")
    means = rows.groupBy(windows, "segment").agg(f.avg("speed").alias("speed"))
    return means.withColumn("window_end", f.col("window.end")).drop("window")


def _matches(spark: SparkSession, query: Query, inputs: Path) -> DataFrame:
    events = _read(spark, inputs / EVENTS, AS_EVENTS).withWatermark("ts", "0 seconds")
    shown = events.filter(~f.col("click")).select("ts", "ad", "text").alias("shown")
    clicks = events.filter("click").select("ad", f.col("ts").alias("clicked")).alias("clicks")
    in_time = f"clicks.ad = shown.ad AND ts <= clicked AND ts >= clicked - INTERVAL {query.window_s} SECONDS"
    return clicks.join(shown, f.expr(in_time)).select("clicks.ad", "clicked", "ts", "text")


def _read(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).option("recursiveFileLookup", "true").parquet(str(folder))


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
