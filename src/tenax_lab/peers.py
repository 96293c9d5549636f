"""Tenax against Structured Streaming, with plain Polars as the limit: speed, latency, memory, equal results."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet, read_committed
from tenax.connectors.source import Limits
from tenax.control.state import Settings
from tenax.engine.driver import Driver
from tenax.engine.session import JVM_OPTIONS, Session
from tenax.engine.settings import RunSettings
from tenax.pictures.figures import Curve, Panel, Reference
from tenax.store.records import Json, JsonObject, integer, mapping, text
from tenax_lab.processes import Measured, run_side
from tenax_lab.results import Claim, Findings, Progress, Table
from tenax_lab.sides.inputs import Schedule, Shape, write_inputs
from tenax_lab.sides.runs import Watch, run_watched
from tenax_lab.sides.sides import Series, Step, latencies, serve

QUERIES = {"means": "windowed mean per key", "joined": "windowed join"}
NODES = 2
BATCHES_PER_PASS = 4
PARTITION_COUNTS = (1, 2, 4)
GOAL_RATIO = 3.0
AIM_RATIO = 10.0
SIDE_DEADLINE_S = 1_800.0
TOLERANCE = 1e-9
LATENCY_BATCH_S = 0.02  # how often Tenax looks for new files; Structured Streaming looks all the time


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: the input, the batches before the clock starts, the rounds, and the paced part."""

    shape: Shape
    warmup: int
    rounds: int
    counts: tuple[int, ...]
    paced_batches: int
    interval_ms: int


FULL = Plan(Shape(100, 100_000, 1_000), 40, 3, PARTITION_COUNTS, 20, 2_000)
QUICK = Plan(Shape(12, 10_000, 100), 4, 1, (2,), 0, 1_000)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one query: rows per second and latencies of both sides."""

    query: str
    tenax_rows_s: float
    spark_rows_s: float
    tenax_latency_s: tuple[float, ...] = ()
    spark_latency_s: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """How many times as fast Tenax was."""
        return self.tenax_rows_s / self.spark_rows_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was measured: what the tables are made of."""

    plan: Plan
    best: Mapping[str, int]
    """Shuffle partitions of Structured Streaming by query."""
    tuning: Mapping[str, Mapping[int, float]]
    """Its rows per second by query and shuffle partitions, where more than one was tried."""
    rounds: tuple[Round, ...]
    limit_rows_s: Mapping[str, float]
    tenax_mb: tuple[float, ...]
    spark_mb: tuple[float, ...]
    limit_mb: float
    compared: Mapping[str, int]
    """Result rows by query that were the same on all sides."""


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure both sides in turn, each time in a process of its own."""
    plan = QUICK if quick else FULL
    tuning_steps = len(QUERIES) * len(plan.counts) if len(plan.counts) > 1 else 0
    side_steps = len(QUERIES) * (2 if plan.paced_batches else 1)
    progress.total(len(QUERIES) + tuning_steps + plan.rounds * 2 * side_steps)
    with tempfile.TemporaryDirectory(prefix="tenax-peers-") as folder:
        return findings(compare(Path(folder), seed, plan, progress))


def compare(folder: Path, seed: int, plan: Plan, progress: Progress) -> Comparison:
    """Write the input once, let every side read it, compare what they found."""
    inputs = folder / "inputs"
    write_inputs(inputs, seed, plan.shape)
    step = progress.advance
    given: dict[str, Json] = {"inputs": str(inputs), "nodes": NODES, "latency": {}, "best": {}}

    def polars() -> Measured:
        told: dict[str, Json] = {**given, "work": str(folder / "polars"), "queries": list(QUERIES), "repeats": 3}
        return run_side("tenax_lab.sides.plain_polars", told, deadline_s=SIDE_DEADLINE_S, step=step)

    def spark(name: str, counts: Mapping[str, Sequence[int]], paced: Mapping[str, Json]) -> Measured:
        told: dict[str, Json] = {
            **given,
            "work": str(folder / name),
            # as many files as one of our passes takes when there is more to do
            "files_per_trigger": plan.shape.partitions * BATCHES_PER_PASS,
            "warmup": max(1, plan.warmup // BATCHES_PER_PASS),
            "partitions": counts,
            "latency": paced,
            "best": {query: chosen[0] for query, chosen in counts.items()},
        }
        return run_side("tenax_lab.sides.structured_streaming", told, deadline_s=SIDE_DEADLINE_S, step=step)

    def tenax(name: str, paced: Mapping[str, Json]) -> Measured:
        told: dict[str, Json] = {
            **given,
            "work": str(folder / name),
            "warmup": plan.warmup,
            "batch_rows": plan.shape.batch_rows,
            "latency": paced,
        }
        return run_side("tenax_lab.peers", told, deadline_s=SIDE_DEADLINE_S, step=step)

    limit = polars()
    tuning: dict[str, dict[int, float]] = {}
    best = dict.fromkeys(QUERIES, plan.counts[0])
    if len(plan.counts) > 1:
        tried = spark("tuning", dict.fromkeys(QUERIES, plan.counts), {}).series
        tuning = {query: {one: tried[f"{query}@{one} rows/s"][0] for one in plan.counts} for query in QUERIES}
        best = {query: max(speeds, key=lambda one: speeds[one]) for query, speeds in tuning.items()}
    paced: dict[str, Json] = {}
    if plan.paced_batches:
        paced = {
            "batches": plan.paced_batches,
            "batch_rows": plan.shape.batch_rows,
            "interval_ms": plan.interval_ms,
        }
    rounds: list[Round] = []
    tenax_mb, spark_mb = [], []
    for number in range(plan.rounds):
        ours = tenax(f"tenax-{number}", paced)
        theirs = spark(f"spark-{number}", {query: [best[query]] for query in QUERIES}, paced)
        tenax_mb.append(ours.peak_mb)
        spark_mb.append(theirs.peak_mb)
        rounds += [
            Round(
                query,
                ours.series[f"{query} rows/s"][0],
                theirs.series[f"{query}@{best[query]} rows/s"][0],
                tuple(ours.series.get(f"{query} latency s", ())),
                tuple(theirs.series.get(f"{query} latency s", ())),
            )
            for query in QUERIES
        ]
    rows = plan.shape.batches * plan.shape.batch_rows
    speeds = {query: rows * _sources(query) / min(limit.series[f"{query} s"]) for query in QUERIES}
    compared = {
        query: same_results(
            {
                "plain Polars": pl.read_parquet(folder / "polars" / f"{query}.parquet"),
                "Tenax": read_committed(folder / "tenax-0" / f"{query}-results"),
                "Structured Streaming": pl.read_parquet(folder / "spark-0" / f"{query}@{best[query]}" / "*.parquet"),
            }
        )
        for query in QUERIES
    }
    return Comparison(
        plan, best, tuning, tuple(rounds), speeds, tuple(tenax_mb), tuple(spark_mb), limit.peak_mb, compared
    )


class DifferentResults(AssertionError):
    """Two sides computed different things, so comparing their speed would mean nothing."""


def same_results(sides: Mapping[str, pl.DataFrame]) -> int:
    """How many rows are the same on all sides, by segment and window.

    Windows that no later row completes are never emitted by Structured Streaming, so windows count up to the earliest
    of the sides' last ones.
    """
    frames = {
        name: frame.with_columns(pl.col("window_end").dt.replace_time_zone(None).dt.cast_time_unit("us"))
        for name, frame in sides.items()
    }
    ends = [frame["window_end"].max() for frame in frames.values()]
    until = min(pl.Series(ends).drop_nulls().to_list(), default=None)
    columns = next(iter(frames.values())).columns
    values = [name for name in columns if name not in {"segment", "window_end"}]
    expected: pl.DataFrame | None = None
    for name, frame in frames.items():
        rows = frame.filter(pl.col("window_end") <= until).select("window_end", "segment", *values)
        rows = rows.with_columns(pl.col(values).cast(pl.Float64)).sort("window_end", "segment")
        if expected is None:
            expected = rows
            continue
        same = rows.select("window_end", "segment").equals(expected.select("window_end", "segment")) and all(
            bool(((rows[one] - expected[one]).abs() <= TOLERANCE).all()) for one in values
        )
        if not same or rows.is_empty():
            raise DifferentResults(f"all sides have the same results, found {name} with {rows.height} other rows")
    assert expected is not None
    return expected.height


def application(query: str, inputs: Path, results: Path, *, follow: bool) -> Application:
    """The query as a user of Tenax writes it."""
    topology = Topology(query)
    locations = topology.source("locations", files(inputs / "locations", time="ts", follow=follow), partitions=NODES)
    stream = locations.key_by("segment").window("10s", every="1s").aggregate(pl.col("speed").mean(), name="means")
    if query == "joined":
        reports = topology.source("reports", files(inputs / "reports", time="ts", follow=follow), partitions=NODES)
        counts = reports.key_by("segment").window("10s", every="1s").aggregate(pl.len().alias("reports"), name="counts")
        stream = stream.join(counts, on=["segment", "window"])
    stream.output("results", parquet(results))
    return topology.build()


def measure(arguments: JsonObject, step: Step) -> Series:
    """Our own side: the queries over all files, then, if asked to, as files appear."""
    work, inputs = Path(text(arguments, "work")), Path(text(arguments, "inputs"))
    limits = Limits(integer(arguments, "batch_rows"))
    session = Session(work / "cluster", integer(arguments, "nodes"))
    control = Settings(max_batches_per_pass=BATCHES_PER_PASS)
    found: Series = {}
    for query in QUERIES:
        app = application(query, inputs, work / f"{query}-results", follow=False)
        watch = run_watched(app, work / f"{query}-store", RunSettings(limits=limits, control=control), session)
        found[f"{query} rows/s"] = [watch.rows_per_s(integer(arguments, "warmup"))]
        step(f"Tenax, {query}")
    paced = mapping(arguments["latency"])
    for query in QUERIES if paced else ():
        shape = Shape(integer(paced, "batches"), integer(paced, "batch_rows"), 1)
        schedule = Schedule(inputs, work / f"{query}-appearing", shape, integer(paced, "interval_ms") / 1000)
        app = application(query, schedule.folder, work / f"{query}-paced-results", follow=True)
        settings = RunSettings(limits=limits, control=control, batch_s=LATENCY_BATCH_S)
        watch = run_watched(app, work / f"{query}-paced-store", settings, session, _until_read(schedule))
        found[f"{query} latency s"] = latencies(schedule.appeared_s, shape.batch_rows, watch.done("locations"))
        step(f"Tenax, {query}, latency")
    session.stop()
    return found


def _until_read(schedule: Schedule) -> Callable[[Watch, Driver], None]:
    """Starts a schedule with a run, and ends the run when all of its files are read."""

    def prepare(watch: Watch, driver: Driver) -> None:
        expected = schedule.shape.batches * schedule.shape.batch_rows

        def published(_: int) -> None:
            if watch.done("locations")[-1][1] >= expected:
                driver.request_stop()

        watch.on_published = published
        schedule.start()

    return prepare


def _sources(query: str) -> int:
    return 2 if query == "joined" else 1


def findings(found: Comparison) -> Findings:
    """Tables, goals and pictures of a comparison."""
    plan = found.plan
    tables = [_rates(found), _latencies(found), _memory(found)]
    if found.tuning:
        tables.append(_tuning(found))
    return Findings(
        settings={
            "input": f"{plan.shape.batches} batches of {plan.shape.batch_rows:,} rows a source, 1 s of event time each",
            "keys": plan.shape.segments,
            "windows": "10 s, one every 1 s",
            "cluster": f"local-cluster[{NODES},2,1024] on both sides",
            "most rows of a job": f"{plan.shape.batch_rows * BATCHES_PER_PASS:,} a source on both sides",
            "warm-up": f"the first {plan.warmup} batches",
            "rounds": plan.rounds,
        },
        tables=tuple(table for table in tables if table.rows),
        claims=_claims(found),
        remarks=(
            "Structured Streaming: RocksDB with changelog checkpointing, append mode, no watermark delay, Parquet "
            "sink with checkpoint; the join is of two windowed aggregations on window and key, the form it supports",
            f"Java's options are those of an embedded cluster on our side ({JVM_OPTIONS}), and its defaults on theirs",
            "its shuffle partitions: " + ", ".join(f"{query} {count}" for query, count in found.best.items()),
            "results were equal on all sides by key and window: "
            + ", ".join(f"{query} {rows:,} rows" for query, rows in found.compared.items()),
            "starting a session is in no number; memory is the largest sum over driver, executors and Python workers, "
            "shared pages counted once, of a process that ran both queries",
        ),
        panels=_panels(found),
        panel_columns=2,
    )


def _of(found: Comparison, query: str) -> list[Round]:
    return [one for one in found.rounds if one.query == query]


def _rates(found: Comparison) -> Table:
    rows = []
    for query, what in QUERIES.items():
        rounds = _of(found, query)
        ratios = sorted(one.ratio for one in rounds)
        ratio = statistics.median(ratios)
        ours = statistics.median(one.tenax_rows_s for one in rounds)
        limit = found.limit_rows_s[query]
        rows.append(
            (
                what,
                ours,
                statistics.median(one.spark_rows_s for one in rounds),
                ratio,
                f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
                GOAL_RATIO,
                "yes" if ratio >= GOAL_RATIO else "no",
                limit,
                ours / limit,
            )
        )
    columns = ("query", "Tenax rows/s", "Structured rows/s", "ratio", "spread", "goal", "met", "Polars rows/s", "share")
    return Table("Sustained rows per second, medians of rounds; share is Tenax of plain Polars", columns, tuple(rows))


def _latencies(found: Comparison) -> Table:
    rows = []
    for query, what in QUERIES.items():
        for side, all_rounds in _settled(found, query).items():
            if all_rounds:
                p50, p99 = _percentile(all_rounds, 50), _percentile(all_rounds, 99)
                rows.append((what, side, len(all_rounds), p50, p99))
    rate = found.plan.shape.batch_rows * 1000 / found.plan.interval_ms
    title = f"Latency in s from file to committed result at {rate:,.0f} rows/s a source, the first quarter left out"
    return Table(title, ("query", "side", "files", "p50", "p99"), tuple(rows))


def _settled(found: Comparison, query: str) -> dict[str, list[float]]:
    """Latencies by side, of all rounds, without the first quarter of each."""
    sides: dict[str, list[float]] = {"Tenax": [], "Structured Streaming": []}
    for one in _of(found, query):
        sides["Tenax"] += one.tenax_latency_s[len(one.tenax_latency_s) // 4 :]
        sides["Structured Streaming"] += one.spark_latency_s[len(one.spark_latency_s) // 4 :]
    return sides


def _percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def _memory(found: Comparison) -> Table:
    rows = (
        ("Tenax", statistics.median(found.tenax_mb), max(found.tenax_mb)),
        ("Structured Streaming", statistics.median(found.spark_mb), max(found.spark_mb)),
        ("plain Polars", found.limit_mb, found.limit_mb),
    )
    return Table("Peak memory of the process tree in MB", ("side", "median", "highest"), rows)


def _tuning(found: Comparison) -> Table:
    rows = [
        (QUERIES[query], count, speed, "yes" if count == found.best[query] else "")
        for query, speeds in found.tuning.items()
        for count, speed in speeds.items()
    ]
    return Table("Structured Streaming tuned", ("query", "shuffle partitions", "rows/s", "kept"), tuple(rows))


def _claims(found: Comparison) -> tuple[Claim, ...]:
    claims = []
    for query, what in QUERIES.items():
        rounds = _of(found, query)
        claims.append(
            Claim(
                f"{what}: sustained rows/s against Structured Streaming",
                f"at least {GOAL_RATIO:g} times, better {AIM_RATIO:g}",
                statistics.median(one.ratio for one in rounds),
                "times",
                f"median of {len(rounds)} rounds, sides alternating",
                "we aim at",
            )
        )
        sides = _settled(found, query)
        if all(sides.values()):
            ours, theirs = (_percentile(values, 99) for values in sides.values())
            claims.append(
                Claim(
                    f"{what}: p99 latency against Structured Streaming",
                    "lower",
                    ours / theirs,
                    "times theirs",
                    f"p99 over {len(sides['Tenax'])} files at the same rate",
                    "we aim at",
                )
            )
    return tuple(claims)


def _panels(found: Comparison) -> tuple[Panel, ...]:
    panels = []
    for query, what in QUERIES.items():
        rounds = _of(found, query)
        places = tuple(float(number) for number in range(1, len(rounds) + 1))
        panels.append(
            Panel(
                f"Sustained throughput: {what}",
                "round",
                "rows per second",
                (
                    Curve("Tenax", places, tuple(one.tenax_rows_s for one in rounds), 0),
                    Curve("Structured Streaming", places, tuple(one.spark_rows_s for one in rounds), 1),
                ),
                references=(Reference("plain Polars, one process", found.limit_rows_s[query]),),
                logarithmic=True,
            )
        )
    for query, what in QUERIES.items():
        curves = [
            Curve(side, tuple(100 * (n + 1) / len(values) for n in range(len(values))), tuple(sorted(values)), look)
            for look, (side, values) in enumerate(_settled(found, query).items())
            if values
        ]
        if curves:
            panels.append(Panel(f"Latency: {what}", "percent of files", "seconds at most", tuple(curves)))
    return tuple(panels)


if __name__ == "__main__":
    serve(measure)
