"""Structured Streaming over rows that operators wait for, while executors are killed and come back: its latency."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tenax.errors import ClusterFailed
from tenax.store.records import JsonObject, integer, number, text
from tenax_lab.lab import Row
from tenax_lab.sides.failover_structured import executors
from tenax_lab.sides.sides import Step, serve
from tenax_lab.sides.structured_streaming import local_cluster

if TYPE_CHECKING:
    import pyarrow as pa

POLL_S = 0.05
START_DEADLINE_S = 300.0
END_DEADLINE_S = 600.0
TASK_CPUS = "2"  # all that an executor has: it takes one task at a time, as a node of Tenax does in a level
SECOND, OUTCOME = "second", "outcome"


def measure(arguments: JsonObject, step: Step) -> Iterator[Row]:
    """Count rows by key as they come, kill executors meanwhile, and tell how late every second of rows was."""
    work, nodes = Path(text(arguments, "work")), integer(arguments, "nodes")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.task.cpus={TASK_CPUS} pyspark-shell"
    spark = local_cluster(work, nodes)
    await_executors(spark, nodes)
    running = _start(spark, work, arguments)
    killed_s, returned_s = _kill(spark, running, nodes, arguments)
    await_end(running, returned_s + number(arguments, "tail_s"))
    progress = [committed(batch) for batch in running.recentProgress]
    running.stop()
    step("Structured Streaming")
    spark.stop()
    for came_s, latency_s in latencies(progress):
        yield {"what": SECOND, "after_s": came_s - killed_s, "latency_s": latency_s, "partition": 0}
    yield {"what": OUTCOME, "away_s": returned_s - killed_s}


def waiting(wait_us: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function over batches of rows that waits for each of them, as a call to a service does."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(batch.num_rows * wait_us / 1_000_000)
            yield batch

    return wait


def _start(spark: SparkSession, work: Path, arguments: JsonObject) -> StreamingQuery:
    """The query: rows of Spark's own generator, dealt to as many tasks as Tenax has, waited for and counted."""
    tasks, keys = integer(arguments, "tasks"), integer(arguments, "keys")
    spark.conf.set("spark.sql.shuffle.partitions", str(integer(arguments, "nodes")))
    rows = spark.readStream.format("rate").option("rowsPerSecond", integer(arguments, "rate")).load()
    keyed = rows.select((f.col("value") % keys).alias("key"))
    waited = keyed.repartition(tasks).mapInArrow(waiting(integer(arguments, "wait_us")), "key BIGINT")
    return (
        waited.groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(processingTime=f"{number(arguments, 'batch_s'):g} seconds")
        .start()
    )


def _kill(spark: SparkSession, running: StreamingQuery, nodes: int, arguments: JsonObject) -> tuple[float, float]:
    """Kill executors some time after the first batch, and let as many come back later; when that was."""
    deadline = time.monotonic() + START_DEADLINE_S
    while not any(batch.numInputRows for batch in running.recentProgress):
        _check(running, deadline)
        time.sleep(POLL_S)
    time.sleep(number(arguments, "kill_after_s"))
    pids = executors()
    hit = [pids[executor] for executor in sorted(pids)][: integer(arguments, "killed")]
    _limit(spark, nodes - len(hit))
    killed_s = time.time()
    for pid in hit:
        os.kill(pid, signal.SIGKILL)
    time.sleep(number(arguments, "away_s"))
    _limit(spark, nodes)
    return killed_s, time.time()


def await_end(running: StreamingQuery, end_s: float) -> None:
    """Until rows of the end, and all before, are counted."""
    deadline = time.monotonic() + END_DEADLINE_S
    while latest(running.recentProgress) < end_s:
        _check(running, deadline)
        time.sleep(POLL_S)


def latest(progress: Sequence[Any]) -> float:
    """Up to which moment rows are counted."""
    known = latencies([committed(batch) for batch in progress])
    return known[-1][0] if known else 0.0


def latencies(progress: Sequence[tuple[float, float, int, int]]) -> list[tuple[float, float]]:
    """When the rows of every second came, and how long after that they were counted.

    A batch is (trigger, commit, first second, end): Spark's generator counts seconds since it began, and never plans
    a second before it is over, so the batch that came soonest after its last second tells when that was.
    """
    with_rows = [batch for batch in progress if batch[3] > batch[2]]
    began_s = min((trigger - end for trigger, _, _, end in with_rows), default=0.0)
    return [
        (began_s + second + 1, commit - began_s - second - 1)
        for _, commit, first, end in with_rows
        for second in range(first, end)
    ]


def committed(batch: Any) -> tuple[float, float, int, int]:
    """What `latencies` needs of a batch."""
    source = batch.sources[0]
    trigger_s = datetime.fromisoformat(batch.timestamp).timestamp()
    first = int(source.startOffset) if source.startOffset not in {None, "null"} else 0
    return trigger_s, trigger_s + batch.durationMs["triggerExecution"] / 1000, first, int(source.endOffset)


def _check(running: StreamingQuery, deadline: float) -> None:
    if not running.isActive:
        raise ClusterFailed(f"a query runs until it is stopped, found {running.exception()}: see spark.log")
    if time.monotonic() > deadline:
        counted = sum(batch.numInputRows for batch in running.recentProgress)
        raise ClusterFailed(f"rows are counted in time, found {counted:,} at the deadline: lower the load")


def _limit(spark: SparkSession, count: int) -> None:
    """How many executors the cluster shall keep up."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None
    context._jsc.sc().requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()))


def await_executors(spark: SparkSession, nodes: int) -> None:
    """Until as many executors are there."""
    deadline = time.monotonic() + START_DEADLINE_S
    status = spark.sparkContext._jsc.sc().statusStore()
    while status.executorList(True).size() <= nodes:  # the driver is listed, too
        if time.monotonic() > deadline:
            raise ClusterFailed(
                f"{nodes} executors are needed, found fewer after {START_DEADLINE_S:g} s: see spark.log"
            )
        time.sleep(POLL_S)


if __name__ == "__main__":
    serve(measure)
