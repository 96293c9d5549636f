"""What the engine costs beside the work itself: against empty jobs, as state grows, with checkpoints, over time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.engine.driver import Driver
from tenax.model.graph import TaskGraph
from tenax.model.settings import FIRST_ROWS, Settings
from tenax.pictures.figures import Curve, Panel, Reference
from tenax.planning.levels import layout
from tenax.store.events import MAX_EVENT_BYTES
from tenax.store.records import Json
from tenax_lab.findings import Claim, Findings, Table
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.tree import Arrival, window_tree
from tenax_lab.loads.tree import Load as TreeLoad
from tenax_lab.processes import memory_mb, run_side, tree
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.report import spread, table, value, values, yes_no
from tenax_lab.runs import SELDOM, rows_per_s, run
from tenax_lab.sides.empty_jobs import empty_job

NODES = 2
PASS, LONG_PASS, EMPTY, SOAK = "pass", "long pass", "empty job", "soak"
KEYS, WINDOW, ROWS = "keys", "window", "rows"
FULL_BATCHES, SMALL_BATCHES = "full batches", "small batches"
PLAIN, LARGER = "plain", "larger"
WITH, WITHOUT = "with checkpoints", "without"
DEFAULTS = "PySpark's defaults"
SIDES = ("", PLAIN, LARGER, WITH, WITHOUT, DEFAULTS)
SIDES_OF = {
    **dict.fromkeys((PASS, LONG_PASS, SOAK), ("",)),
    **dict.fromkeys((KEYS, WINDOW, ROWS), (PLAIN, LARGER)),
    **dict.fromkeys((FULL_BATCHES, SMALL_BATCHES), (WITH, WITHOUT)),
    EMPTY: (DEFAULTS,),
}
GROWTH = {KEYS: "ten times the keys in state", WINDOW: "a window ten times as long", ROWS: "100 times the rows"}
GROWTH_GOALS = {KEYS: 1.3, WINDOW: 5.0, ROWS: 25.0}  # well under the ten and the hundred times that there is more
EMPTY_GOAL = 1.5
CHECKPOINT_EVERY = 10
CHECKPOINT_GOAL_PERCENT = 5.0
FLAT_PERCENT = 5.0  # what passes for flat: the change over the second half of a soak
SOAKED = {"memory_mb": "memory in MB", "files": "files in the store", "store_mb": "store in MB"}
SOAK_SAMPLES = 60
EMPTY_WARMUP = 3
DEADLINE_S = 3_600.0
TREE_LOAD = TreeLoad(rate=100, window_s=8, batch_s=1)


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

    def __str__(self) -> str:
        return f"{self.batch_rows:,} rows a batch, {self.keys:,} keys, windows of {self.length}"


@dataclass(frozen=True, slots=True)
class Case:
    """A part of the measurement, in so many rounds: `count` passes, jobs or seconds; a load, and a larger one."""

    part: str
    rounds: int = 1
    count: int = 0
    load: Load | None = None
    larger: Load | None = None

    def load_of(self, side: str) -> Load:
        """What a side runs."""
        chosen = self.larger if side == LARGER else self.load
        assert chosen is not None
        return chosen


@dataclass(frozen=True, slots=True)
class OverheadPlan(Plan[Case]):
    """Short runs that differ little need more rounds than others."""

    def trials(self) -> tuple[Trial[Case], ...]:
        """Each case in its own number of rounds."""
        return tuple(trial for trial in Plan.trials(self) if trial.round <= trial.case.rounds)

    def case(self, part: str) -> Case:
        """The case of a part."""
        return next(case for case in self.cases if case.part == part)


def means(seed: int, load: Load) -> Application:
    """The windowed mean per key of generated elements."""
    topology = Topology("means")
    pace = Pace(rows=load.batches * load.batch_rows)
    rows = topology.source("elements", elements(seed, load.batch_rows, pace=pace), partitions=NODES)
    keyed = rows.with_columns(key=pl.col("sequence") // load.together % load.keys)
    windowed = keyed.key_by("key").window(load.length, every=load.every)
    windowed.aggregate(pl.col("value").mean()).output("results", parquet(Path("results")))
    return topology.build()


def tree_of(seed: int, batches: int) -> Application:
    """Windows over windows in the tree of merges, whose source has so many batches and no end."""
    return window_tree(seed, TREE_LOAD, Arrival(batches, batches))


def stages_of(application: Application) -> int:
    """The stages of a pass if every task that can stay with its producer does."""
    graph = TaskGraph(application.topology)
    return len(layout(graph, ("a node",), dict.fromkeys(range(len(graph)), (0,))).levels)


def measure(bench: Bench, _: OverheadPlan, trial: Trial[Case]) -> Iterator[Row]:
    """One part, on the side that is asked for."""
    case = trial.case
    match case.part:
        case "pass":
            yield from _passes(bench, case)
        case "long pass":  # as when a run is behind
            batches = 4 * case.count + 8
            settings = _settings(TREE_LOAD.batch_rows)
            recorder = run(bench, tree_of(bench.seed, batches), settings, ends_after=batches)
            yield from _batch_times(recorder, warmup=8)
        case "empty job":
            yield from _empty_jobs(bench, case)
        case "soak":
            yield from _soak(bench, case)
        case "keys" | "window" | "rows":
            load = case.load_of(trial.side)
            recorder = run(bench, means(bench.seed, load), _settings(load.batch_rows))
            yield from _batch_times(recorder, load.warmup)
        case _:
            load = case.load_of(trial.side)
            every = CHECKPOINT_EVERY if trial.side == WITH else SELDOM
            recorder = run(bench, means(bench.seed, load), _settings(load.batch_rows).but(checkpoint_every=every))
            yield {"rows_per_s": rows_per_s(recorder, load.warmup)}


def _settings(batch_rows: int) -> Settings:
    return Settings.of(
        nodes=NODES, max_rows=batch_rows, batch="0s", max_batches_per_pass=4, max_batches_ahead=8, max_unpublished=8
    )


def _batch_times(recorder: RunRecorder, warmup: int) -> Iterator[Row]:
    """Seconds per batch of the passes after the warm-up; the last pass closes windows and is left out."""
    passes = recorder.of(Kind.PASS)[:-1].filter(pl.col("first") > warmup)
    yield from passes.select(seconds=pl.col("seconds") / (pl.col("last") - pl.col("first") + 1)).iter_rows(named=True)


def _passes(bench: Bench, case: Case) -> Iterator[Row]:
    """Passes of the window tree, after each of them an equally tuned empty job."""
    warmup = max(2, case.count // 6)
    batches = case.count + warmup + 1
    application = tree_of(bench.seed, batches)
    stages = stages_of(application)
    empty_s: list[float] = []

    def prepare(recorder: RunRecorder, _driver: Driver, _folder: Path) -> None:
        context = bench.session(one_batch.cluster).context
        recorder.after_pass.append(lambda _: empty_s.append(empty_job(context, bench.nodes, stages, tuned=True)))

    one_batch = _settings(TREE_LOAD.batch_rows).but(max_batches_per_pass=1)
    recorder = run(
        bench, application, one_batch, prepare=prepare, heartbeat=Settings().cluster.heartbeat, ends_after=batches
    )
    passes = [row for row in recorder.rows if row["what"] == Kind.PASS]
    for row, seconds in list(zip(passes, empty_s, strict=True))[warmup:-1]:
        yield {"seconds": row["seconds"], "steps_s": row["steps_s"], "empty_s": seconds}


def _empty_jobs(bench: Bench, case: Case) -> Iterator[Row]:
    """Empty jobs with default settings, in another process: they need a session of their own."""
    arguments: dict[str, Json] = {
        "work": str(bench.folder("default")),
        "nodes": NODES,
        "stages": stages_of(tree_of(bench.seed, 1)),
        "warmup": EMPTY_WARMUP,
        "jobs": case.count,
    }
    yield from run_side("tenax_lab.sides.empty_jobs", arguments, deadline_s=DEADLINE_S).rows


def _soak(bench: Bench, case: Case) -> list[Row]:
    """Small batches as fast as possible for some time; what the run holds is looked at again and again."""
    load = Load(1 << 20, 1_000, 100)
    samples: list[Row] = []

    def prepare(recorder: RunRecorder, driver: Driver, _: Path) -> None:
        begun_s = time.monotonic()

        def look(last: int) -> None:
            elapsed_s = time.monotonic() - begun_s
            if elapsed_s >= len(samples) * case.count / SOAK_SAMPLES:
                files, store_mb = _held(driver.store.folder)
                memory = memory_mb(tree(os.getpid()))
                samples.append(
                    {"soak_s": elapsed_s, "batches": last, "memory_mb": memory, "files": files, "store_mb": store_mb}
                )
            if elapsed_s > case.count:
                driver.request_stop()

        recorder.after_publication.append(look)

    run(bench, means(bench.seed, load), _settings(load.batch_rows), prepare=prepare, stopped=True)
    return samples


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


def goals(frame: pl.DataFrame) -> pl.DataFrame:
    """Every figure that has a goal: `measured` beside the highest that is wanted."""
    passes = frame.filter(part=PASS)
    ratio = pl.col("seconds") / pl.col("empty_s")
    low, high = (value(passes, ratio.quantile(share, "linear")) for share in (0.1, 0.9))
    default = frame.filter(part=EMPTY)
    over_default = value(passes, pl.col("seconds").median()) / value(default, pl.col("seconds").median())
    rows: list[Row] = [
        _goal("a pass against an equally tuned empty job", value(passes, ratio.median()), "times", EMPTY_GOAL,
              f"{low:.3g} to {high:.3g}"),
        _goal(f"a pass against an empty job with {DEFAULTS}", over_default, "times", 1.0,
              f"medians of {passes.height} passes and {default.height} jobs"),
    ]  # fmt: skip
    rows += [
        _goal(f"{GROWTH[row['part']]}: batch time", row["ratio"], "times", GROWTH_GOALS[row["part"]],
              f"medians of {row['plain_passes']} and {row['larger_passes']} passes")
        for row in growth(frame).iter_rows(named=True)
    ]  # fmt: skip
    for part in (FULL_BATCHES, SMALL_BATCHES):
        sides = frame.filter(part=part).pivot("side", index="round", values="rows_per_s")
        percents = values(sides, 100 * (1 - pl.col(WITH) / pl.col(WITHOUT)))
        rows.append(
            _goal(f"checkpoints every {CHECKPOINT_EVERY} {part}: throughput", float(np.median(percents)), "%",
                  CHECKPOINT_GOAL_PERCENT, f"{spread(percents, '.3g')} in {len(percents)} rounds")
        )  # fmt: skip
    soak = frame.filter(part=SOAK)
    for column, what in SOAKED.items():
        half = soak[len(soak) // 2 :]
        grown = _slope(soak, column) * (half["batches"][-1] - half["batches"][0])
        drift = grown / max(1e-9, value(half, pl.col(column).mean()))
        rows.append(
            _goal(f"soak: {what}", 100 * drift, "%", FLAT_PERCENT, "drift over its second half, by a line fitted")
        )
    return pl.DataFrame(rows).with_columns(met=pl.col("measured") <= pl.col("goal"))


def _goal(what: str, measured: float, unit: str, goal: float, over: str) -> Row:
    return {"what": what, "measured": float(measured), "unit": unit, "goal": goal, "over": over}


def _claim(goal: Row) -> Claim:
    wanted = f"at most {goal['goal']:g} {goal['unit']}"
    return Claim(
        str(goal["what"]), wanted, float(goal["measured"] or 0.0), str(goal["unit"]), str(goal["over"]), "we aim at"
    )


def growth(frame: pl.DataFrame) -> pl.DataFrame:
    """Milliseconds per batch of the plain and the larger load, by what grows."""
    batch_ms = 1000 * pl.col("seconds")
    sides = {side: pl.col("side") == side for side in (PLAIN, LARGER)}
    grown = frame.filter(pl.col("part").is_in(list(GROWTH))).group_by("part", maintain_order=True)
    return grown.agg(
        *(batch_ms.filter(chosen).median().alias(side) for side, chosen in sides.items()),
        *(chosen.sum().alias(f"{side}_passes") for side, chosen in sides.items()),
    ).with_columns(ratio=pl.col(LARGER) / pl.col(PLAIN))


def _slope(soak: pl.DataFrame, column: str) -> float:
    """Of the least-squares line through the second half: the first half fills windows and caches."""
    half = soak[len(soak) // 2 :]
    if half["batches"].n_unique() < 2:
        return 0.0
    slope, _ = np.polyfit(half["batches"].to_numpy(), half[column].to_numpy(), 1)
    return float(slope)


def report(plan: OverheadPlan, frame: pl.DataFrame) -> Findings:
    """Goals, where the time of a pass goes, growth, and the soak."""
    reached = goals(frame)
    times = _times(frame)
    middle = dict(zip(times["what"], times["median"], strict=True))
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024]",
            "stages": stages_of(tree_of(1, 1)),
            **{f"{case.part}: passes, jobs or s": case.count for case in plan.cases if case.count},
            **{f"{case.part}: rounds": case.rounds for case in plan.cases if case.rounds > 1},
            **{case.part: str(case.load) for case in plan.cases if case.load and not case.larger},
            **{f"{case.part}: larger load": str(case.larger) for case in plan.cases if case.larger},
        },
        tables=(
            table(
                "Goals and measurements",
                reached,
                "what | goal at most = goal | measured | unit | spread = over | met",
                met=yes_no("met", otherwise="no"),
            ),
            table(
                "A pass of 32 tasks on 2 nodes, and empty jobs of as many stages, in ms",
                times,
                {name: name for name in times.columns},
            ),
            table(
                "Milliseconds per batch as something grows",
                growth(frame),
                {"what": "part", PLAIN: PLAIN, LARGER: LARGER, "ratio": "ratio"},
            ),
            _soaked(frame.filter(part=SOAK)),
        ),
        claims=tuple(_claim(row) for row in reached.iter_rows(named=True)),
        remarks=(
            f"where the time of a pass goes: {middle[STEPS] / NODES:.0f} ms of {middle[OURS]:.0f} ms are inside steps "
            f"(sum over all tasks, divided by {NODES} nodes); an empty job alone takes {middle[TUNED]:.0f} ms tuned "
            f"and {middle[BARE]:.0f} ms with defaults",
            "passes and equally tuned empty jobs alternate in one session; an empty job's shuffle files are deleted "
            "after its clock has stopped, a pass's before",
            "results are not counted in files and store: they stay for their readers; nor are events.jsonl and "
            f"events.old.jsonl, which grow to {MAX_EVENT_BYTES >> 20} MB each and then begin anew",
        ),
        panels=(_ordered_times(frame), *_soak_panels(frame.filter(part=SOAK))),
        panel_columns=2,
    )


OURS, STEPS, TUNED = "pass of Tenax", "of it inside steps, all nodes together", "empty job, equally tuned"
BARE, LONG = f"empty job, {DEFAULTS}", "a batch of Tenax with 4 in a pass"
TIMES = {
    OURS: (PASS, "seconds"),
    STEPS: (PASS, "steps_s"),
    TUNED: (PASS, "empty_s"),
    BARE: (EMPTY, "seconds"),
    LONG: (LONG_PASS, "seconds"),
}
"""What is timed: the part of the frame and its column."""


def _times(frame: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for what, (part, column) in TIMES.items():
        seconds = frame.filter(part=part)[column]
        p50, p10, p90 = (1000 * float(np.percentile(seconds, share)) for share in (50, 10, 90))
        rows.append({"what": what, "runs": len(seconds), "median": p50, "p10": p10, "p90": p90})
    return pl.DataFrame(rows)


def _soaked(soak: pl.DataFrame) -> Table:
    first, last = soak.row(0, named=True), soak.row(-1, named=True)
    rate = (last["batches"] - first["batches"]) / max(1e-9, last["soak_s"] - first["soak_s"])
    rows = [
        {
            "what": what,
            "at first": soak[column][0],
            "half way": soak[column][len(soak) // 2],
            "at last": soak[column][-1],
            "slope per 1,000 batches": 1000 * _slope(soak, column),
        }
        for column, what in SOAKED.items()
    ]
    title = f"A soak of {last['batches']:,.0f} batches, {rate:.1f} a second"
    return table(title, pl.DataFrame(rows), {name: name for name in rows[0]})


def _ordered_times(frame: pl.DataFrame) -> Panel:
    drawn = []
    for look, what in ((0, OURS), (2, TUNED), (1, BARE)):
        part, column = TIMES[what]
        milliseconds = tuple(1000 * each for each in sorted(frame.filter(part=part)[column]))
        percents = tuple(100 * (place + 1) / len(milliseconds) for place in range(len(milliseconds)))
        drawn.append(Curve(what, percents, milliseconds, look))
    goal_ms = 1000 * EMPTY_GOAL * value(frame.filter(part=PASS), pl.col("empty_s").median())
    references = (Reference(f"goal: {EMPTY_GOAL:g} × tuned", goal_ms),)
    return Panel(
        "A pass of 32 tasks and empty jobs", "percent of runs", "ms at most", tuple(drawn), references=references
    )


def _soak_panels(soak: pl.DataFrame) -> Iterator[Panel]:
    batches = tuple(float(each) for each in soak["batches"])
    for column, what in SOAKED.items():
        yield Panel(f"Soak: {what}", "batches", what, (Curve(what, batches, tuple(soak[column]), 0),))


def _plan(passes: int, rounds: int, soak_s: int, loads: dict[str, tuple[Load, Load | None]]) -> OverheadPlan:
    return OverheadPlan(
        cases=(
            Case(PASS, count=passes),
            Case(LONG_PASS, count=passes),
            *(
                Case(part, 3 * rounds if larger is None else rounds, load=load, larger=larger)
                for part, (load, larger) in loads.items()
            ),
            Case(SOAK, count=soak_s),
            Case(EMPTY, count=passes),
        ),
        sides=SIDES,
        rounds=3 * rounds,
        applies=lambda case, side: side in SIDES_OF[case.part],
    )


# Windows that stay open keep all keys; a batch touches 1,000 of them, whatever their number. Checkpoints are stored
# every 10 batches of the size that a run takes when there is enough to do; and of small ones.
EXPERIMENT = Experiment(
    full=_plan(
        60,
        3,
        240,
        {
            KEYS: (Load(80, 10_000, 4_000, "10h", "10h", 10, 40), Load(80, 10_000, 40_000, "10h", "10h", 10, 40)),
            WINDOW: (Load(160, 10_000, 100, "10s", warmup=104), Load(160, 10_000, 100, "100s", warmup=104)),
            ROWS: (Load(60, 1_000, 100), Load(60, 100_000, 100)),
            FULL_BATCHES: (Load(100, FIRST_ROWS, 1_000, warmup=20), None),
            SMALL_BATCHES: (Load(200, 20_000, 1_000, warmup=20), None),
        },
    ),
    quick=_plan(
        3,
        1,
        2,
        {
            KEYS: (Load(16, 1_000, 200, "10h", "10h", 10, 8), Load(16, 1_000, 2_000, "10h", "10h", 10, 8)),
            WINDOW: (Load(16, 500, 20, "1s", warmup=8), Load(16, 500, 20, "10s", warmup=8)),
            ROWS: (Load(16, 100, 20, "2s", warmup=8), Load(16, 10_000, 20, "2s", warmup=8)),
            FULL_BATCHES: (Load(24, 1_000, 100, "2s", warmup=4), None),
            SMALL_BATCHES: (Load(24, 500, 100, "2s", warmup=4), None),
        },
    ),
    measure=measure,
    report=report,
)
