"""What the engine costs beside the work itself: against empty jobs, as state grows, with checkpoints, over time."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl

from tenax.api.streams import Topology
from tenax.control.state import Settings
from tenax.engine.application import Application
from tenax.engine.driver import MAX_ROWS, Driver, RunSettings
from tenax.engine.layout import layout
from tenax.engine.peers.empty_jobs import empty_job
from tenax.engine.peers.runs import Watch, run_watched
from tenax.engine.peers.sides import Series, Step, serve
from tenax.engine.session import Session
from tenax.engine.sinks.parquet import parquet
from tenax.engine.sources.generators import Pace
from tenax.engine.sources.source import Limits
from tenax.engine.sources.workloads import elements, page_views
from tenax.engine.store.events import MAX_EVENT_BYTES
from tenax.engine.store.records import Json, JsonObject, integer, text
from tenax.experiments.processes import memory_mb, run_side, tree
from tenax.experiments.results import Claim, Findings, Progress, Table
from tenax.model.graph import TaskGraph
from tenax.pictures.figures import Curve, Panel, Reference

NODES = 2
TREE_WIDTHS = (8, 4, 2, 1)  # of windows over windows above 16 sources, as in the example window-tree: 31 tasks
TREE_SOURCES = 16
TREE_KEYS = 64
DEADLINE_S = 3_600.0
EMPTY_GOAL = 1.5
KEYS_GOAL = 1.3
WINDOW_GOAL = 5.0  # well under the ten times that the window is longer
ROWS_GOAL = 25.0  # far less than the hundred times that a batch has more rows
CHECKPOINT_GOAL_PERCENT = 5.0
FLAT_PERCENT = 5.0  # what passes for flat: the change over the second half of a soak
SIZES = ("full", "small")
SELDOM = 1_000_000  # batches between checkpoints where there are to be none
SOAK_SAMPLES = 60
SOAKED = {"soak MB": "memory in MB", "soak files": "files in the store", "soak store MB": "store in MB"}


@dataclass(frozen=True, slots=True)
class Load:
    """Windowed means of so many rows a batch, each batch 1 s of event time; `together` rows in a row share a key."""

    batches: int
    batch_rows: int
    keys: int
    length: str = "10s"
    every: str = "1s"
    together: int = 1
    warmup: int = 12
    """Batches before the state is as large as it will be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; growth is by name, the plain load and the larger one.

    Checkpoints are stored every 10 batches of the size that a run takes when there is enough to do; and of small ones.
    """

    passes: int
    rounds: int
    growth: Mapping[str, tuple[Load, Load]]
    checkpoints: tuple[Load, Load]
    soak_s: int


# Windows that stay open keep all keys; a batch touches 1,000 of them, whatever their number.
FULL = Plan(
    60,
    3,
    {
        "keys": (
            Load(80, 10_000, 4_000, "10h", "10h", 10, 40),
            Load(80, 10_000, 40_000, "10h", "10h", 10, 40),
        ),
        "window": (Load(160, 10_000, 100, "10s", warmup=104), Load(160, 10_000, 100, "100s", warmup=104)),
        "rows": (Load(60, 1_000, 100), Load(60, 100_000, 100)),
    },
    (Load(100, MAX_ROWS, 1_000, warmup=20), Load(200, 20_000, 1_000, warmup=20)),
    240,
)
QUICK = Plan(
    3,
    1,
    {
        "keys": (Load(16, 1_000, 200, "10h", "10h", 10, 8), Load(16, 1_000, 2_000, "10h", "10h", 10, 8)),
        "window": (Load(16, 500, 20, "1s", warmup=8), Load(16, 500, 20, "10s", warmup=8)),
        "rows": (Load(16, 100, 20, "2s", warmup=8), Load(16, 10_000, 20, "2s", warmup=8)),
    },
    (Load(24, 1_000, 100, "2s", warmup=4), Load(24, 500, 100, "2s", warmup=4)),
    4,
)
PLANS = {"full": FULL, "quick": QUICK}
STEPS = 7  # of the measuring process


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure in a process of its own; empty jobs with default settings in another one, because they need a session."""
    plan = QUICK if quick else FULL
    progress.total(STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="tenax-overhead-") as folder:
        ours = run_side(
            "tenax.experiments.overhead",
            {"work": folder, "seed": seed, "plan": "quick" if quick else "full"},
            deadline_s=DEADLINE_S,
            step=progress.advance,
        ).series
        given: dict[str, Json] = {
            "work": str(Path(folder, "default")),
            "nodes": NODES,
            "stages": int(ours["stages"][0]),
            "warmup": 3,
            "jobs": plan.passes,
        }
        bare = run_side("tenax.engine.peers.empty_jobs", given, deadline_s=DEADLINE_S, step=progress.advance).series
    return findings(plan, {**ours, **bare})


@dataclass(frozen=True, slots=True)
class Bench:
    """The session in which everything is measured, and a fresh folder for each run."""

    session: Session
    folders: Iterator[Path]
    seed: int

    def run(
        self,
        build: Callable[[Path], Application],
        batch_rows: int,
        prepare: Callable[[Watch, Driver], None] = lambda _watch, _driver: None,
        control: Settings | None = None,
    ) -> Watch:
        """Run an application whose results go to a folder of its own."""
        folder = next(self.folders)
        settings = RunSettings(nodes=NODES, limits=Limits(batch_rows), control=control or Settings(), batch_s=0.0)
        return run_watched(build(folder / "results"), folder / "store", settings, self.session, prepare)


def measure(arguments: JsonObject, step: Step) -> Series:
    """All parts that share a session."""
    plan, work = PLANS[text(arguments, "plan")], Path(text(arguments, "work"))
    session = Session(work / "cluster", NODES)
    folders = (work / f"run-{number}" for number in count())
    bench = Bench(session, folders, integer(arguments, "seed"))
    found: Series = {}
    parts: tuple[tuple[str, Callable[[Bench, Plan], Series]], ...] = (
        ("passes against empty jobs", _passes),
        ("passes with several batches", _long_passes),
        ("more keys", partial(_growth, "keys")),
        ("longer windows", partial(_growth, "window")),
        ("more rows", partial(_growth, "rows")),
        ("checkpoints", _checkpoints),
        ("soak", _soak),
    )
    for label, part in parts:
        found |= part(bench, plan)
        step(label)
    session.stop()
    return found


def _passes(bench: Bench, plan: Plan) -> Series:
    """Passes of the window tree, after each of them an equally tuned empty job."""
    stages = _stages(window_tree(bench.seed, 1, Path("nowhere")))
    empty_s: list[float] = []

    def prepare(watch: Watch, _: Driver) -> None:
        context = bench.session.context
        watch.between = lambda: empty_s.append(empty_job(context, NODES, stages, tuned=True))

    warmup = max(2, plan.passes // 6)
    rows = (plan.passes + warmup + 1) * TREE_SOURCES * 100
    watch = bench.run(
        lambda out: window_tree(bench.seed, rows, out), TREE_SOURCES * 100, prepare, Settings(max_batches_per_pass=1)
    )
    measured = watch.passes[warmup:-1]
    return {
        "stages": [float(stages)],
        "pass s": [one.seconds for one in measured],
        "pass steps s": [one.steps_s for one in measured],
        "empty s": empty_s[warmup:-1],
    }


def _long_passes(bench: Bench, plan: Plan) -> Series:
    """The same with up to four batches in a pass, as when a run is behind."""
    rows = (4 * plan.passes + 8) * TREE_SOURCES * 100
    watch = bench.run(lambda out: window_tree(bench.seed, rows, out), TREE_SOURCES * 100)
    return {"long pass batch s": watch.batch_s(8)}


def _growth(what: str, bench: Bench, plan: Plan) -> Series:
    """Seconds per batch of the plain and the larger load, in turn."""
    found: Series = {}
    for _ in range(plan.rounds):
        for name, load in zip(("plain", "larger"), plan.growth[what], strict=True):
            watch = bench.run(partial(means, bench.seed, load), load.batch_rows)
            found.setdefault(f"{what} {name} s", []).extend(watch.batch_s(load.warmup))
    return found


def _checkpoints(bench: Bench, plan: Plan) -> Series:
    """Rows per second with a checkpoint every 10 batches, and with none before the end, in turn.

    Every other round begins with the other side: a session becomes faster as it becomes older.
    """
    found: Series = {}
    for size, load in zip(SIZES, plan.checkpoints, strict=True):
        for number in range(3 * plan.rounds):  # short runs that differ little
            sides = [("with", 10), ("without", SELDOM)]
            for name, every in sides if number % 2 == 0 else reversed(sides):
                watch = bench.run(
                    partial(means, bench.seed, load), load.batch_rows, control=Settings(checkpoint_every=every)
                )
                found.setdefault(f"{size} batches {name} rows/s", []).append(watch.rows_per_s(load.warmup))
    return found


def _soak(bench: Bench, plan: Plan) -> Series:
    """Small batches as fast as possible for some time; what the run holds is looked at again and again."""
    load = Load(1 << 20, 1_000, 100)
    names = ("soak s", "soak batches", "soak MB", "soak files", "soak store MB")
    found: Series = {name: [] for name in names}

    def prepare(watch: Watch, driver: Driver) -> None:
        begun = time.monotonic()

        def published(last: int) -> None:
            elapsed = time.monotonic() - begun
            due = len(found["soak s"]) * plan.soak_s / SOAK_SAMPLES
            if elapsed >= due:
                seen = elapsed, float(last), memory_mb(tree(os.getpid())), *_held(driver.store.folder)
                for name, value in zip(names, seen, strict=True):
                    found[name].append(value)
            if elapsed > plan.soak_s:
                driver.request_stop()

        watch.on_published = published

    bench.run(partial(means, bench.seed, load), load.batch_rows, prepare)
    return found


def _held(folder: Path) -> tuple[float, float]:
    """The number of files in a folder, and their size in MB."""
    files, size = 0, 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name.startswith("events."):
                continue  # bounded by itself
            try:
                size += Path(place, name).stat().st_size
            except OSError:
                continue  # trimmed meanwhile
            files += 1
    return float(files), size / 2**20


def means(seed: int, load: Load, results: Path) -> Application:
    """The windowed mean per key of generated elements."""
    topology = Topology("means")
    pace = Pace(rows=load.batches * load.batch_rows)
    rows = topology.source("elements", elements(seed, load.batch_rows, pace=pace), partitions=NODES)
    keyed = rows.with_columns((pl.col("sequence") // load.together % load.keys).alias("key"))
    windowed = keyed.key_by("key").window(load.length, every=load.every)
    windowed.aggregate(pl.col("value").mean()).output("results", parquet(results))
    return topology.build()


def window_tree(seed: int, rows: int, results: Path) -> Application:
    """Windows over windows, each level half as wide and looking back twice as far."""
    topology = Topology("window-tree")
    views = page_views(seed, 1_000.0, servers=TREE_KEYS, pages=1_000, pace=Pace(rows=rows))
    stream = topology.source("sources", views, partitions=TREE_SOURCES)
    for level, width in enumerate(TREE_WIDTHS):
        windowed = stream.key_by("server").window(f"{2**level}s")
        stream = windowed.aggregate(pl.col("page").sum(), parallelism=width, name=f"o{level + 1}")
    stream.output("results", parquet(results))
    return topology.build()


def _stages(application: Application) -> int:
    """The stages of a pass if every task that can stay with its producer does."""
    graph = TaskGraph(application.topology)
    return len(layout(graph, ("one",), dict.fromkeys(range(len(graph)), (0,))).levels)


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured figure beside the highest that is wanted."""

    what: str
    measured: float
    unit: str
    goal: float
    spread: str

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.measured <= self.goal


def findings(plan: Plan, found: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, goals and pictures of recorded series."""
    rows = goals(found)
    passes, steps = _middle(found["pass s"]), _middle(found["pass steps s"]) / NODES
    empty, default = _middle(found["empty s"]), _middle(found["default s"])
    times = Table(
        "A pass of 31 tasks on 2 nodes, and empty jobs of as many stages, in ms",
        ("what", "runs", "median", "p10", "p90"),
        tuple(
            (what, len(found[name]), *(1000 * value for value in _range(found[name])))
            for what, name in (
                ("pass of Tenax", "pass s"),
                ("of it inside steps, all nodes together", "pass steps s"),
                ("empty job, equally tuned", "empty s"),
                ("empty job, PySpark's defaults", "default s"),
                ("a batch of Tenax with 4 in a pass", "long pass batch s"),
            )
        ),
    )
    growth = Table(
        "Milliseconds per batch as something grows",
        ("what", "plain", "larger", "ratio"),
        tuple((what, 1000 * plain, 1000 * larger, larger / plain) for what, plain, larger in _growths(found)),
    )
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]",
            "stages": int(found["stages"][0]),
            "passes": plan.passes,
            "rounds": plan.rounds,
            "soak s": plan.soak_s,
            **{
                f"{size} batches": f"{load.batch_rows:,} rows"
                for size, load in zip(SIZES, plan.checkpoints, strict=True)
            },
            **{f"{what}: larger load": _told(loads[1]) for what, loads in plan.growth.items()},
        },
        tables=(
            Table(
                "Goals and measurements",
                ("what", "goal at most", "measured", "unit", "spread", "met"),
                tuple((row.what, row.goal, row.measured, row.unit, row.spread, _yes(row.met)) for row in rows),
            ),
            times,
            growth,
            _soaked(found),
        ),
        claims=tuple(
            Claim(row.what, f"at most {row.goal:g} {row.unit}", row.measured, row.unit, row.spread, "we aim at")
            for row in rows
        ),
        remarks=(
            f"where the time of a pass goes: {1000 * steps:.0f} ms of {1000 * passes:.0f} ms are inside steps (sum "
            f"over all tasks, divided by {NODES} nodes); an empty job alone takes {1000 * empty:.0f} ms tuned and "
            f"{1000 * default:.0f} ms with defaults",
            "passes and equally tuned empty jobs alternate in one session; an empty job's shuffle files are deleted "
            "after its clock has stopped, a pass's before",
            "results are not counted in files and store: they stay for their readers; nor are events.jsonl and "
            f"events.old.jsonl, which grow to {MAX_EVENT_BYTES >> 20} MB each and then begin anew",
        ),
        panels=_panels(found),
        panel_columns=2,
    )


def goals(found: Mapping[str, Sequence[float]]) -> list[Goal]:
    """Every figure that has a goal."""
    ratios = [ours / theirs for ours, theirs in zip(found["pass s"], found["empty s"], strict=False)]
    _, low, high = _range(ratios)
    rows = [
        Goal("a pass against an equally tuned empty job", _middle(ratios), "times", EMPTY_GOAL, _between(low, high)),
        Goal(
            "a pass against an empty job with PySpark's defaults",
            _middle(found["pass s"]) / _middle(found["default s"]),
            "times",
            1.0,
            f"medians of {len(found['pass s'])} passes and {len(found['default s'])} jobs",
        ),
    ]
    wanted = {"keys": KEYS_GOAL, "window": WINDOW_GOAL, "rows": ROWS_GOAL}
    told = {"keys": "ten times the keys in state", "window": "a window ten times as long", "rows": "100 times the rows"}
    for what, plain, larger in _growths(found):
        spread = f"medians of {len(found[f'{what} plain s'])} and {len(found[f'{what} larger s'])} passes"
        rows.append(Goal(f"{told[what]}: batch time", larger / plain, "times", wanted[what], spread))
    for size in SIZES:
        pairs = zip(found[f"{size} batches with rows/s"], found[f"{size} batches without rows/s"], strict=True)
        costs = [100 * (1 - one / other) for one, other in pairs]
        spread = _between(min(costs), max(costs)) + f" in {len(costs)} rounds"
        what = f"checkpoints every 10 {size} batches: throughput"
        rows.append(Goal(what, _middle(costs), "%", CHECKPOINT_GOAL_PERCENT, spread))
    for name, what in SOAKED.items():
        share = _drift_percent(found["soak batches"], found[name])
        rows.append(Goal(f"soak: {what}", share, "%", FLAT_PERCENT, "drift over its second half, by a line fitted"))
    return rows


def _growths(found: Mapping[str, Sequence[float]]) -> list[tuple[str, float, float]]:
    return [
        (what, _middle(found[f"{what} plain s"]), _middle(found[f"{what} larger s"]))
        for what in ("keys", "window", "rows")
    ]


def _soaked(found: Mapping[str, Sequence[float]]) -> Table:
    batches, seconds = found["soak batches"], found["soak s"]
    rate = (batches[-1] - batches[0]) / max(1e-9, seconds[-1] - seconds[0])
    rows = tuple(
        (what, found[name][0], found[name][len(batches) // 2], found[name][-1], 1000 * _slope(batches, found[name]))
        for name, what in SOAKED.items()
    )
    title = f"A soak of {batches[-1]:,.0f} batches, {rate:.1f} a second"
    return Table(title, ("what", "at first", "half way", "at last", "slope per 1,000 batches"), rows)


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the least-squares line through the second half: the first half fills windows and caches."""
    half = len(x) // 2
    if len(set(x[half:])) < 2:
        return 0.0
    slope, _ = np.polyfit(x[half:], y[half:], 1)
    return float(slope)


def _drift_percent(x: Sequence[float], y: Sequence[float]) -> float:
    half = len(x) // 2
    return 100 * _slope(x, y) * (x[-1] - x[half]) / max(1e-9, statistics.mean(y[half:]))


def _panels(found: Mapping[str, Sequence[float]]) -> tuple[Panel, ...]:
    def ordered(label: str, name: str, look: int) -> Curve:
        values = sorted(found[name])
        return Curve(
            label,
            tuple(100 * (place + 1) / len(values) for place in range(len(values))),
            tuple(1000 * value for value in values),
            look,
        )

    batches = tuple(found["soak batches"])
    return (
        Panel(
            "A pass of 31 tasks and empty jobs",
            "percent of runs",
            "ms at most",
            (
                ordered("pass of Tenax", "pass s", 0),
                ordered("empty job, equally tuned", "empty s", 2),
                ordered("empty job, PySpark's defaults", "default s", 1),
            ),
            references=(Reference("goal: 1.5 × tuned", 1000 * EMPTY_GOAL * _middle(found["empty s"])),),
        ),
        *(
            Panel(f"Soak: {what}", "batches", what, (Curve(what, batches, tuple(found[name]), 0),))
            for name, what in SOAKED.items()
        ),
    )


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def _range(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, and the tenth and ninetieth percentile."""
    low, high = np.percentile(values, [10, 90])
    return _middle(values), float(low), float(high)


def _between(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}"


def _told(load: Load) -> str:
    return f"{load.batch_rows:,} rows a batch, {load.keys:,} keys, windows of {load.length}"


def _yes(met: bool) -> str:
    return "yes" if met else "no"


if __name__ == "__main__":
    serve(measure)
