"""The side of Spark's Structured Streaming: windowed means and their join, with state in RocksDB."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tenax.engine.session import NODE_SLOTS, errors_to
from tenax.engine.virtual_machine import LOOPBACK, own_spark_home
from tenax.store.records import JsonObject, integer, items, mapping, text
from tenax_lab.lab import Row
from tenax_lab.sides.inputs import KINDS, Schedule, Shape
from tenax_lab.sides.sides import Step, latencies, serve

SCHEMAS = {"locations": "ts TIMESTAMP, segment BIGINT, speed DOUBLE", "reports": "ts TIMESTAMP, segment BIGINT"}
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LATENCY_DEADLINE_S = 60.0  # how long after the last file the results may take
POLL_S = 0.05


def measure(arguments: JsonObject, step: Step) -> Iterator[Row]:
    """Run the queries over all files with each number of shuffle partitions; then, if asked to, as files appear."""
    work, inputs = Path(text(arguments, "work")), Path(text(arguments, "inputs"))
    warmup, files = integer(arguments, "warmup"), integer(arguments, "files_per_trigger")
    paced = mapping(arguments["latency"])
    spark = local_cluster(work, integer(arguments, "nodes"))
    for query, counts in mapping(arguments["partitions"]).items():
        for partitions in items(counts):
            spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            name = f"{query}@{partitions}"
            writer = _query(spark, query, inputs, files).writeStream.format("parquet").outputMode("append")
            running = (
                writer.option("checkpointLocation", str(work / f"{name}-checkpoint"))
                .trigger(availableNow=True)
                .start(str(work / name))
            )
            running.awaitTermination()
            speed = _rows_per_s(running, warmup)
            yield {"what": "speed", "query": query, "shuffle_partitions": int(str(partitions)), "rows_per_s": speed}
            step(f"Structured Streaming, {query}, {partitions} shuffle partitions")
        if paced:
            for place, latency_s in enumerate(_paced(spark, query, inputs, work, paced)):
                yield {"what": "latency", "query": query, "place": place, "latency_s": latency_s}
            step(f"Structured Streaming, {query}, latency")
    spark.stop()


def local_cluster(work: Path, nodes: int) -> SparkSession:
    """A session on a cluster like that of a run of Tenax, with Spark's own settings for failures."""
    work.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_HOME"] = str(own_spark_home(work))
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setAppName("structured-streaming").setMaster(f"local-cluster[{nodes},{NODE_SLOTS},1024]")
    conf.setAll([*SETTINGS.items(), ("spark.driver.bindAddress", LOOPBACK), ("spark.driver.host", LOOPBACK)])
    with errors_to(work / "spark.log"):
        spark: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _query(spark: SparkSession, query: str, inputs: Path, files_per_trigger: int | None) -> DataFrame:
    """Means per segment and window, or those joined with the number of reports of the same segment and window."""
    read = {}
    for kind in KINDS:
        reader = spark.readStream.schema(SCHEMAS[kind])
        if files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", files_per_trigger)
        rows = reader.parquet(str(inputs / kind)).withWatermark("ts", "0 seconds")
        read[kind] = rows.groupBy(f.window("ts", "10 seconds", "1 second"), "segment")
    result = read["locations"].agg(f.avg("speed").alias("speed"))
    if query == "joined":
        result = result.join(read["reports"].agg(f.count("*").alias("reports")), on=["window", "segment"])
    return result.withColumn("window_end", f.col("window.end")).drop("window")


def _rows_per_s(query: StreamingQuery, warmup: int) -> float:
    """From the end of the warm-up to the end of the last batch that had rows."""
    batches = [progress for progress in query.recentProgress if progress.numInputRows > 0]
    rows = sum(progress.numInputRows for progress in batches[warmup:])
    return float(rows / (_ended_s(batches[-1]) - _ended_s(batches[warmup - 1])))


def _paced(spark: SparkSession, query: str, inputs: Path, work: Path, paced: JsonObject) -> list[float]:
    """Latencies while files appear; a trigger takes all that are there."""
    shape = Shape(integer(paced, "batches"), integer(paced, "batch_rows"), 1)
    folder = work / f"{query}-appearing"
    schedule = Schedule(inputs, folder, shape, integer(paced, "interval_ms") / 1000)
    running = (
        _query(spark, query, folder, None)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(work / f"{query}-paced-checkpoint"))
        .start(str(work / f"{query}-paced"))
    )
    schedule.start()
    schedule.join()
    deadline = time.monotonic() + LATENCY_DEADLINE_S
    expected = shape.batches * shape.batch_rows
    done = _done(running.recentProgress)
    while (not done or done[-1][1] < expected) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        done = _done(running.recentProgress)
    running.stop()
    return latencies(schedule.appeared_s, shape.batch_rows, done)


def _done(progress: Sequence[StreamingQueryProgress]) -> list[tuple[float, int]]:
    """When each batch was committed, and how many locations were read by then."""
    done, rows = [], 0
    for batch in progress:
        rows += sum(source.numInputRows for source in batch.sources if "locations" in source.description)
        done.append((_ended_s(batch), rows))
    return done


def _ended_s(progress: StreamingQueryProgress) -> float:
    """When a batch was committed, in seconds since 1970."""
    return datetime.fromisoformat(progress.timestamp).timestamp() + progress.durationMs["triggerExecution"] / 1000


if __name__ == "__main__":
    serve(measure)
