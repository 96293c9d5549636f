"""What the engine costs beside the work itself: against empty jobs, as state grows, with checkpoints, over time."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from tenax.application.application import Application
from tenax.connectors.source import Limits
from tenax.control.state import Settings
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.engine.settings import RunSettings
from tenax.model.graph import TaskGraph
from tenax.planning.levels import layout
from tenax.store.records import Json, JsonObject, integer, text
from tenax_lab.overhead_findings import findings
from tenax_lab.overhead_loads import (
    FULL,
    NODES,
    PLANS,
    QUICK,
    SIZES,
    TREE_SOURCES,
    Load,
    Plan,
    means,
    window_tree,
)
from tenax_lab.processes import memory_mb, run_side, tree
from tenax_lab.results import Findings, Progress
from tenax_lab.sides.empty_jobs import empty_job
from tenax_lab.sides.runs import Watch, run_watched
from tenax_lab.sides.sides import Series, Step, serve

DEADLINE_S = 3_600.0
SELDOM = 1_000_000  # batches between checkpoints where there are to be none
SOAK_SAMPLES = 60
STEPS = 7  # of the measuring process


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure in a process of its own; empty jobs with default settings in another one, because they need a session."""
    plan = QUICK if quick else FULL
    progress.total(STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="tenax-overhead-") as folder:
        ours = run_side(
            "tenax_lab.overhead",
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
        bare = run_side("tenax_lab.sides.empty_jobs", given, deadline_s=DEADLINE_S, step=progress.advance).series
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


def _stages(application: Application) -> int:
    """The stages of a pass if every task that can stay with its producer does."""
    graph = TaskGraph(application.topology)
    return len(layout(graph, ("one",), dict.fromkeys(range(len(graph)), (0,))).levels)


if __name__ == "__main__":
    serve(measure)
