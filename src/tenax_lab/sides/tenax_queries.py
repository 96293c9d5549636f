"""Our own side of the comparison with peers: the queries over all files, then as files appear."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.model.settings import ClusterSettings, Settings
from tenax.store.records import JsonObject, integer, mapping, text
from tenax_lab.lab import Bench, Row
from tenax_lab.peers import BATCHES_PER_PASS, LATENCY, OUTPUT, QUERIES, SOURCES, SPEED, application
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.runs import rows_per_s, run
from tenax_lab.sides.inputs import Schedule, Shape
from tenax_lab.sides.sides import Step, latencies, serve

LATENCY_BATCH_S = 0.02  # how often Tenax looks for new files; Structured Streaming looks all the time


def measure(arguments: JsonObject, step: Step) -> Iterator[Row]:
    """Rows per second of each query, then, if asked to, latencies."""
    work, inputs = Path(text(arguments, "work")), Path(text(arguments, "inputs"))
    nodes = integer(arguments, "nodes")
    session = Session(work / "cluster", ClusterSettings(nodes))
    bench = Bench(0, work, session, nodes)
    settings = Settings.of(
        nodes=nodes,
        max_rows=integer(arguments, "batch_rows"),
        max_batches_per_pass=BATCHES_PER_PASS,
        max_batches_ahead=8,
        max_unpublished=8,
    )
    for query in QUERIES:
        recorder = run(bench, application(query, inputs, follow=False), settings)
        (work / f"{query}-results").symlink_to(recorder.results(OUTPUT))
        yield {"what": SPEED, "query": query, "rows_per_s": rows_per_s(recorder, integer(arguments, "warmup"))}
        step(f"Tenax, {query}")
    paced = mapping(arguments["latency"])
    for query in QUERIES if paced else ():
        shape = Shape(integer(paced, "batches"), integer(paced, "batch_rows"), 1)
        schedule = Schedule(inputs, work / f"{query}-appearing", shape, integer(paced, "interval_ms") / 1000)
        for place, latency_s in enumerate(
            paced_latencies(bench, query, schedule, settings.but(batch=timedelta(seconds=LATENCY_BATCH_S)))
        ):
            yield {"what": LATENCY, "query": query, "place": place, "latency_s": latency_s}
        step(f"Tenax, {query}, latency")
    session.stop()


def paced_latencies(bench: Bench, query: str, schedule: Schedule, settings: Settings) -> list[float]:
    """Latencies while files appear; the run ends when all of them are read."""
    batch_rows = schedule.shape.batch_rows * SOURCES[query]
    expected = schedule.shape.batches * batch_rows

    def prepare(recorder: RunRecorder, driver: Driver, _: Path) -> None:
        def published(_: int) -> None:
            if read(recorder)[-1][1] >= expected:
                driver.request_stop()

        recorder.after_publication.append(published)
        schedule.start()

    app = application(query, schedule.folder, follow=True)
    recorder = run(bench, app, settings, prepare=prepare, stopped=True)
    done = [(recorder.began_s + at_s, rows) for at_s, rows in read(recorder)]
    return latencies(schedule.appeared_s, batch_rows, done)


def read(recorder: RunRecorder) -> list[tuple[float, int]]:
    """When results were final, and how many rows were read by then."""
    final, passes = recorder.of(Kind.FINAL), recorder.of(Kind.PASS).sort("last")
    counted = passes.select("last", rows=pl.col("rows").cum_sum())
    joined = final.sort("last", maintain_order=True).join_asof(counted, on="last", strategy="backward")
    return [(at_s, rows or 0) for at_s, rows in joined.select("at_s", "rows").iter_rows()]


if __name__ == "__main__":
    serve(measure)
