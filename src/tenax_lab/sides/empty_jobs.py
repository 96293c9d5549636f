"""The side of bare PySpark: jobs that do nothing, with as many stages as a pass has and one task per node."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import SparkConf, SparkContext

from tenax.engine.session import NODE_SLOTS, errors_to
from tenax.engine.virtual_machine import LOOPBACK, own_spark_home
from tenax.store.records import JsonObject, integer, text
from tenax_lab.lab import Row
from tenax_lab.sides.sides import Step, serve

Pair = tuple[int, int]
_frozen: list[bool] = []


def empty_job(context: SparkContext, nodes: int, stages: int, *, tuned: bool) -> float:
    """Run one job, the seconds it took; its shuffle files are deleted after the clock has stopped."""
    keep = _tuned if tuned else _plain
    started = time.perf_counter()
    rdd = context.parallelize([(number, number) for number in range(nodes)], nodes).mapPartitions(keep)
    for _ in range(stages - 1):
        rdd = rdd.partitionBy(nodes, _itself).mapPartitions(keep)
    rdd.collect()
    seconds = time.perf_counter() - started
    rdd._jrdd.rdd().cleanShuffleDependencies(False)
    return seconds


def measure(arguments: JsonObject, step: Step) -> list[Row]:
    """Empty jobs with PySpark's default settings."""
    work, nodes = Path(text(arguments, "work")), integer(arguments, "nodes")
    work.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_HOME"] = str(own_spark_home(work))
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SparkConf().setAppName("empty").setMaster(f"local-cluster[{nodes},{NODE_SLOTS},1024]")
    conf.set("spark.driver.bindAddress", LOOPBACK).set("spark.driver.host", LOOPBACK)
    with errors_to(work / "spark.log"):
        context = SparkContext(conf=conf)
    context.setLogLevel("OFF")
    jobs = integer(arguments, "warmup") + integer(arguments, "jobs")
    seconds = [empty_job(context, nodes, integer(arguments, "stages"), tuned=False) for _ in range(jobs)]
    context.stop()
    step("empty jobs with default settings")
    return [{"seconds": each} for each in seconds[integer(arguments, "warmup") :]]


def _itself(number: int) -> int:
    return number


def _plain(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return iter(list(pairs))


def _tuned(pairs: Iterable[Pair]) -> Iterator[Pair]:
    if not _frozen:
        gc.freeze()  # as our workers do: the stock worker collects everything after every task
        _frozen.append(True)
    return iter(list(pairs))


if __name__ == "__main__":
    serve(measure)
