"""Tenax against Structured Streaming, with plain Polars as the limit: speed, latency, memory, equal results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from polars import selectors

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.files import FileSource, files
from tenax.connectors.parquet import parquet, read_committed
from tenax.engine.virtual_machine import JVM_OPTIONS
from tenax.model.durations import Span
from tenax.pictures.figures import Curve, Panel, Reference
from tenax.store.records import Json
from tenax_lab.findings import Claim, Findings, Table
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.processes import run_side
from tenax_lab.report import curves, median, percentile, ratios, spread, table, value, values, yes_no
from tenax_lab.sides.inputs import COLUMNS, Shape, write_inputs

TENAX, STRUCTURED, POLARS = "Tenax", "Structured Streaming", "plain Polars"
QUERIES = {"means": "windowed mean per key", "joined": "windowed join"}
SOURCES = {"means": 1, "joined": 2}
SPEED, TUNED, LATENCY, MEMORY, EQUAL = "speed", "tuned", "latency", "memory", "equal"
NODES = 2
OUTPUT = "results"
BATCHES_PER_PASS = 4
GOAL_RATIO = 3.0
AIM_RATIO = 10.0
SIDE_DEADLINE_S = 1_800.0
TOLERANCE = 1e-9
SETTLED = 0.25  # of the files of a paced run come before its latencies count


@dataclass(frozen=True, slots=True)
class Case:
    """The input, the batches before the clock starts, the shuffle partitions that are tried, and the paced part."""

    shape: Shape
    warmup: int
    partitions: tuple[int, ...]
    paced_batches: int
    interval_ms: int

    @property
    def paced(self) -> dict[str, Json]:
        """What a side learns of the paced part; nothing if there is none."""
        if not self.paced_batches:
            return {}
        rows = self.shape.batch_rows
        return {"batches": self.paced_batches, "batch_rows": rows, "interval_ms": self.interval_ms}


@dataclass(frozen=True, slots=True)
class Prepared:
    """The input that all sides read, what plain Polars makes of it, and the best shuffle partitions by query."""

    inputs: Path
    expected: Mapping[str, pl.DataFrame]
    best: Mapping[str, int]


def prepare(bench: Bench, plan: Plan[Case]) -> Iterator[Row]:
    """Write the input, let plain Polars compute it, and find the best settings of Structured Streaming."""
    (case,) = plan.cases
    inputs, work = bench.folder("inputs"), bench.folder("polars")
    write_inputs(inputs, bench.seed, case.shape)
    arguments: dict[str, Json] = {"inputs": str(inputs), "work": str(work), "queries": list(QUERIES), "repeats": 3}
    limit = run_side("tenax_lab.sides.plain_polars", arguments, deadline_s=SIDE_DEADLINE_S)
    seconds = pl.DataFrame(limit.rows)
    rows = case.shape.batches * case.shape.batch_rows
    for query, sources in SOURCES.items():
        fastest_s = value(seconds.filter(query=query), pl.col("seconds").min())
        yield {"what": SPEED, "side": POLARS, "query": query, "rows_per_s": rows * sources / fastest_s}
    yield {"what": MEMORY, "side": POLARS, "peak_mb": limit.peak_mb}
    expected = {query: pl.read_parquet(work / f"{query}.parquet") for query in QUERIES}
    best = dict.fromkeys(QUERIES, case.partitions[0])
    if len(case.partitions) > 1:
        tried = _structured(bench, case, inputs, {query: list(case.partitions) for query in QUERIES}, paced={})[0]
        for row in tried:
            yield {**row, "what": TUNED, "side": STRUCTURED}
        fastest = pl.DataFrame(tried).sort("rows_per_s").group_by("query").last()
        best = dict(fastest.select("query", "shuffle_partitions").iter_rows())
    bench.prepared = Prepared(inputs, expected, best)


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """One side in a process of its own: both queries over all files, then as files appear; its results are compared."""
    case, prepared = trial.case, bench.prepared
    if trial.side == TENAX:
        work = bench.folder("tenax")
        arguments: dict[str, Json] = {
            "inputs": str(prepared.inputs),
            "nodes": NODES,
            "work": str(work),
            "warmup": case.warmup,
            "batch_rows": case.shape.batch_rows,
            "latency": case.paced,
        }
        measured = run_side("tenax_lab.sides.tenax_queries", arguments, deadline_s=SIDE_DEADLINE_S)
        rows, peak_mb = measured.rows, measured.peak_mb
        results = {query: read_committed((work / f"{query}-results").resolve()) for query in QUERIES}
    else:
        chosen: dict[str, Json] = {query: [prepared.best[query]] for query in QUERIES}
        rows, peak_mb, work = _structured(bench, case, prepared.inputs, chosen, case.paced)
        results = {query: pl.read_parquet(work / f"{query}@{prepared.best[query]}" / "*.parquet") for query in QUERIES}
    yield from rows
    yield {"what": MEMORY, "peak_mb": peak_mb}
    for query, frame in results.items():
        compared = same_results({POLARS: prepared.expected[query], trial.side: frame})
        yield {"what": EQUAL, "query": query, "rows": compared}


def _structured(
    bench: Bench, case: Case, inputs: Path, partitions: Mapping[str, Json], paced: dict[str, Json]
) -> tuple[list[Row], float, Path]:
    work = bench.folder("structured")
    arguments: dict[str, Json] = {
        "inputs": str(inputs),
        "nodes": NODES,
        "work": str(work),
        # as many files as one of our passes takes when there is more to do
        "files_per_trigger": case.shape.partitions * BATCHES_PER_PASS,
        "warmup": max(1, case.warmup // BATCHES_PER_PASS),
        "partitions": dict(partitions),
        "latency": paced,
    }
    measured = run_side("tenax_lab.sides.structured_streaming", arguments, deadline_s=SIDE_DEADLINE_S)
    return measured.rows, measured.peak_mb, work


class DifferentResults(AssertionError):
    """Two sides computed different things, so comparing their speed would mean nothing."""


def same_results(sides: Mapping[str, pl.DataFrame], keys: tuple[str, ...] = ("window_end", "segment")) -> int:
    """How many rows are the same on all sides, by keys, the first of which is a time.

    Windows that no later row completes are never emitted by Structured Streaming, so rows count up to the earliest of
    the sides' last times.
    """
    alike = (
        selectors.datetime().dt.replace_time_zone(None).dt.cast_time_unit("us"),
        selectors.numeric().cast(pl.Float64),
    )
    frames = {name: frame.with_columns(alike) for name, frame in sides.items()}
    ends = [frame[keys[0]].max() for frame in frames.values()]
    until = min(pl.Series(ends).drop_nulls().to_list(), default=None)
    columns = next(iter(frames.values())).columns
    values = [name for name in columns if name not in keys]
    expected: pl.DataFrame | None = None
    for side, frame in frames.items():
        rows = frame.filter(pl.col(keys[0]) <= until).select(*keys, *values).sort(keys)
        if expected is None:
            expected = rows
            continue
        measures = [name for name in values if rows[name].dtype.is_float()]
        same = rows.drop(measures).equals(expected.drop(measures)) and all(
            bool(((rows[name] - expected[name]).abs() <= TOLERANCE).all()) for name in measures
        )
        if not same or rows.is_empty():
            raise DifferentResults(f"all sides have the same results, found {side} with {rows.height} other rows")
    assert expected is not None
    return expected.height


def application(query: str, inputs: Path, *, follow: bool, every: Span = "1s") -> Application:
    """The query as a user of Tenax writes it, with a window so often; the run says where results go."""
    topology = Topology(query)
    locations = topology.source("locations", _files(inputs, "locations", follow=follow), partitions=NODES)
    stream = locations.key_by("segment").window("10s", every=every).aggregate(pl.col("speed").mean(), name="means")
    if query == "joined":
        reports = topology.source("reports", _files(inputs, "reports", follow=follow), partitions=NODES)
        counts = (
            reports.key_by("segment").window("10s", every=every).aggregate(pl.len().alias("reports"), name="counts")
        )
        stream = stream.join(counts, on=["segment", "window"])
    stream.output(OUTPUT, parquet(Path(OUTPUT)))
    return topology.build()


def _files(inputs: Path, kind: str, *, follow: bool) -> FileSource:
    """The files of a kind; those that have yet to appear do not say their columns."""
    return files(inputs / kind, time="ts", follow=follow, schema=COLUMNS[kind] if follow else None)


def settled(frame: pl.DataFrame) -> pl.DataFrame:
    """Latencies without the first quarter of each run."""
    if "latency_s" not in frame.columns:
        return pl.DataFrame(schema={"query": pl.String, "side": pl.String, "latency_s": pl.Float64})
    latencies = frame.filter(what=LATENCY)
    count = pl.len().over("query", "side", "round")
    return latencies.filter(pl.col("place") >= (SETTLED * count).floor())


def speeds(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows per second by query, medians of rounds, with their ratio and how much of plain Polars ours is."""
    rows = []
    speed = frame.filter(what=SPEED)
    for query, what in QUERIES.items():
        own = speed.filter(query=query)
        compared = ratios(own, "rows_per_s", TENAX, STRUCTURED, on=["round"])
        ours, theirs = (value(own.filter(side=side), pl.col("rows_per_s").median()) for side in (TENAX, STRUCTURED))
        limit = value(own.filter(side=POLARS), pl.col("rows_per_s").max())
        rows.append(
            {
                "query": what,
                "ours": ours,
                "theirs": theirs,
                "ratio": median(compared),
                "spread": spread(sorted(compared)),
                "met": median(compared) >= GOAL_RATIO,
                "limit": limit,
                "share": ours / limit,
            }
        )
    return pl.DataFrame(rows)


def report(plan: Plan[Case], frame: pl.DataFrame) -> Findings:
    """Speed, latency, memory, and what was tuned."""
    (case,) = plan.cases
    late = settled(frame)
    by_side = late.group_by("query", "side", maintain_order=True).agg(
        files=pl.len(), p50=percentile("latency_s", 50), p99=percentile("latency_s", 99)
    )
    rate = case.shape.batch_rows * 1000 / case.interval_ms
    memory = frame.filter(what=MEMORY).group_by("side", maintain_order=True)
    tables = (
        table(
            "Sustained rows per second, medians of rounds; share is Tenax of plain Polars",
            speeds(frame).with_columns(goal=pl.lit(GOAL_RATIO)),
            "query | Tenax rows/s = ours | Structured rows/s = theirs | ratio | spread | goal | met | "
            "Polars rows/s = limit | share",
            met=yes_no("met", otherwise="no"),
        ),
        table(
            f"Latency in s from file to committed result at {rate:,.0f} rows/s a source, the first quarter left out",
            by_side.with_columns(pl.col("query").replace_strict(QUERIES, return_dtype=pl.String)),
            {name: name for name in ("query", "side", "files", "p50", "p99")},
        ),
        table(
            "Peak memory of the process tree in MB",
            memory.agg(median=pl.col("peak_mb").median(), highest=pl.col("peak_mb").max()),
            {name: name for name in ("side", "median", "highest")},
        ),
        _tuning(frame),
    )
    best = frame.filter(what=SPEED, side=STRUCTURED).unique("query", keep="first", maintain_order=True)
    equal = frame.filter(what=EQUAL).group_by("query", maintain_order=True).agg(pl.col("rows").min())
    return Findings(
        settings={
            "input": f"{case.shape.batches} batches of {case.shape.batch_rows:,} rows a source, 1 s of event time each",
            "keys": case.shape.segments,
            "windows": "10 s, one every 1 s",
            "cluster": f"local-cluster[{NODES},2,1024] on both sides",
            "most rows of a job": f"{case.shape.batch_rows * BATCHES_PER_PASS:,} a source on both sides",
            "warm-up": f"the first {case.warmup} batches",
            "rounds": plan.rounds,
        },
        tables=tuple(each for each in tables if each.rows),
        claims=tuple(_claims(frame, late)),
        remarks=(
            "Structured Streaming: RocksDB with changelog checkpointing, append mode, no watermark delay, Parquet "
            "sink with checkpoint; the join is of two windowed aggregations on window and key, the form it supports",
            f"Java's options are those of an embedded cluster on our side ({JVM_OPTIONS}), and its defaults on theirs",
            "its shuffle partitions: "
            + ", ".join(f"{query} {count}" for query, count in best.select("query", "shuffle_partitions").iter_rows()),
            "results were equal on all sides by key and window: "
            + ", ".join(f"{query} {rows:,} rows" for query, rows in equal.iter_rows()),
            "starting a session is in no number; memory is the largest sum over driver, executors and Python workers, "
            "shared pages counted once, of a process that ran both queries",
        ),
        panels=tuple(_panels(frame, late)),
        panel_columns=2,
    )


def _tuning(frame: pl.DataFrame) -> Table:
    tuned = frame.filter(what=TUNED)
    return table(
        "Structured Streaming tuned",
        tuned.with_columns(
            pl.col("query").replace_strict(QUERIES, default=pl.col("query"), return_dtype=pl.String),
            kept=pl.col("rows_per_s") == pl.col("rows_per_s").max().over("query"),
        ),
        "query | shuffle partitions = shuffle_partitions | rows/s = rows_per_s | kept",
        kept=yes_no("kept", otherwise=""),
    )


def _claims(frame: pl.DataFrame, late: pl.DataFrame) -> Iterator[Claim]:
    for query, what in QUERIES.items():
        compared = ratios(frame.filter(what=SPEED, query=query), "rows_per_s", TENAX, STRUCTURED, on=["round"])
        yield Claim(
            f"{what}: sustained rows/s against Structured Streaming",
            f"at least {GOAL_RATIO:g} times, better {AIM_RATIO:g}",
            median(compared),
            "times",
            f"median of {len(compared)} rounds, sides alternating",
            "we aim at",
        )
        sides = [late.filter(query=query, side=side) for side in (TENAX, STRUCTURED)]
        if not any(side.is_empty() for side in sides):
            ours, theirs = (value(side, percentile("latency_s", 99)) for side in sides)
            yield Claim(
                f"{what}: p99 latency against Structured Streaming",
                "lower",
                ours / theirs,
                "times theirs",
                f"p99 over {sides[0].height} files at the same rate",
                "we aim at",
            )


def _panels(frame: pl.DataFrame, late: pl.DataFrame) -> Iterator[Panel]:
    speed = frame.filter(what=SPEED)
    for query, what in QUERIES.items():
        own = speed.filter(query=query)
        limit = value(own.filter(side=POLARS), pl.col("rows_per_s").max())
        yield Panel(
            f"Sustained throughput: {what}",
            "round",
            "rows per second",
            curves(own, "round", "rows_per_s", looks=(TENAX, STRUCTURED)),
            references=(Reference("plain Polars, one process", limit),),
            logarithmic=True,
        )
    for query, what in QUERIES.items():
        drawn = []
        for look, side in enumerate((TENAX, STRUCTURED)):
            seconds = sorted(values(late.filter(query=query, side=side), "latency_s"))
            percents = tuple(100 * (place + 1) / len(seconds) for place in range(len(seconds)))
            drawn += [Curve(side, percents, tuple(seconds), look)] if seconds else []
        if drawn:
            yield Panel(f"Latency: {what}", "percent of files", "seconds at most", tuple(drawn))


EXPERIMENT = Experiment(
    full=Plan((Case(Shape(100, 100_000, 1_000), 40, (1, 2, 4), 20, 2_000),), (TENAX, STRUCTURED), rounds=3),
    quick=Plan((Case(Shape(12, 10_000, 100), 4, (2,), 0, 1_000),), (TENAX, STRUCTURED)),
    measure=measure,
    report=report,
    prepare=prepare,
)
