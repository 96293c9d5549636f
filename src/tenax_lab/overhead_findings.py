"""What measurements of the engine's own costs say, beside the goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenax.pictures.figures import Curve, Panel, Reference
from tenax.store.events import MAX_EVENT_BYTES
from tenax_lab.overhead_loads import NODES, SIZES, Load, Plan
from tenax_lab.results import Claim, Findings, Table

EMPTY_GOAL = 1.5
KEYS_GOAL = 1.3
WINDOW_GOAL = 5.0  # well under the ten times that the window is longer
ROWS_GOAL = 25.0  # far less than the hundred times that a batch has more rows
CHECKPOINT_GOAL_PERCENT = 5.0
FLAT_PERCENT = 5.0  # what passes for flat: the change over the second half of a soak
SOAKED = {"soak MB": "memory in MB", "soak files": "files in the store", "soak store MB": "store in MB"}


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
