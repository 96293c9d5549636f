"""Structured Streaming over rows that come faster and slower, on as many executors as it begins with: its latency."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from tenax.store.records import JsonObject, integer, items, number, text
from tenax_lab.lab import Row
from tenax_lab.loads.varying import Rhythm
from tenax_lab.sides.sides import Step, serve
from tenax_lab.sides.structured_streaming import local_cluster
from tenax_lab.sides.waiting_structured import TASK_CPUS, await_end, await_executors, committed, latencies

if TYPE_CHECKING:
    import pyarrow as pa

TICKS = 200  # rows a second of Spark's generator: each stands for as many rows as the rhythm has in its time
OUTPUT = "output"


def measure(arguments: JsonObject, step: Step) -> Iterator[Row]:
    """Count rows by key as they come, and tell how late every second of them was."""
    work, nodes = Path(text(arguments, "work")), integer(arguments, "nodes")
    rhythm = Rhythm(tuple((float(str(at)), float(str(rate))) for at, rate in map(items, items(arguments["points"]))))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.task.cpus={TASK_CPUS} pyspark-shell"
    spark = local_cluster(work, nodes)
    await_executors(spark, nodes)
    running = _start(spark, work, arguments, rhythm)
    began_s = _began(running)
    await_end(running, began_s + rhythm.lasts_s)
    known = latencies([committed(batch) for batch in running.recentProgress])
    running.stop()
    step("Structured Streaming")
    spark.stop()
    for came_s, latency_s in known:
        after_s = came_s - known[0][0] + 1
        if after_s <= rhythm.lasts_s:
            yield {"what": OUTPUT, "after_s": after_s, "latency_s": latency_s, "final_s": after_s + latency_s}


def waiting(wait_us: int, rhythm: Rhythm) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function over ticks that waits for all rows that came in their time, as a call to a service does."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ticks = batch.column("value").to_pylist()
            rows = sum(rhythm.rows((tick + 1) / TICKS) - rhythm.rows(tick / TICKS) for tick in ticks)
            time.sleep(rows * wait_us / 1_000_000)
            yield batch

    return wait


def _start(spark: SparkSession, work: Path, arguments: JsonObject, rhythm: Rhythm) -> StreamingQuery:
    """The query: ticks dealt to as many tasks as there are nodes, waited for and counted."""
    nodes, keys = integer(arguments, "nodes"), integer(arguments, "keys")
    spark.conf.set("spark.sql.shuffle.partitions", str(nodes))
    ticks = spark.readStream.format("rate").option("rowsPerSecond", TICKS).load().select("value")
    waited = ticks.repartition(nodes).mapInArrow(waiting(integer(arguments, "wait_us"), rhythm), "value BIGINT")
    return (
        waited.groupBy((f.col("value") % keys).alias("key"))
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(processingTime=f"{number(arguments, 'batch_s'):g} seconds")
        .start()
    )


def _began(running: StreamingQuery) -> float:
    """When ticks began to come."""
    while not any(batch.numInputRows for batch in running.recentProgress):
        time.sleep(0.05)
    return latencies([committed(batch) for batch in running.recentProgress])[0][0] - 1


if __name__ == "__main__":
    serve(measure)
