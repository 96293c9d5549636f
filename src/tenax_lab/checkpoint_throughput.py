"""What checkpoints cost of the throughput while nothing fails, told pass by pass.

Runs of equal work differ by a tenth on a machine that others use as well, from one minute to the next, and checkpoints
cost far less. So the pass that carries one, and the next, beside which it is committed and what is old is deleted, are
compared with passes around them that have nothing to do with any:

    calm │ calm │ carries a checkpoint │ commits it │ calm │ calm …
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.engine.session import Session
from tenax.model.protection import Protection, Strategy
from tenax.pictures.figures import Curve, Panel, Reference
from tenax.store.records import JsonObject, integer, text
from tenax_lab.element_chain import NODES, PATIENT, SELDOM, Ledger, Load, chain, chain_settings, run_chain
from tenax_lab.processes import run_apart
from tenax_lab.results import Claim, Findings, Progress, Table
from tenax_lab.sides.sides import Series, Step, serve

DEADLINE_S = 3_600.0
WITHOUT = "none"
STRATEGIES = {"aligned": Strategy.ALIGNED, "sweeping": Strategy.SWEEPING}
SIDES = (WITHOUT, *STRATEGIES)
TOUCHED = 2  # passes that a checkpoint has to do with
TOLD_FOR = 10  # batches between checkpoints, as a run has them if nobody says anything else
NEAR = 4  # passes on either side of these that may be compared with them
GOAL_PERCENT = 5.0
CONFIDENCE = 0.95
FEWEST = 6  # values whose range has the true median with that confidence


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: `rounds` of all sides in turn, so many batches after the `warmup`.

    A checkpoint is due `every` so many batches: more than a sweep takes, so that there are calm passes between sweeps.
    """

    batch_rows: int
    every: int
    warmup: int
    measured: int
    rounds: int

    @property
    def load(self) -> Load:
        """What a run is given."""
        return Load(self.warmup + self.measured, self.batch_rows)

    @property
    def steps(self) -> int:
        """How many runs there are."""
        return self.rounds * len(SIDES)


FULL = Plan(100_000, 20, 10, 80, 3)
QUICK = Plan(2_000, 10, 8, 12, 1)
PLANS = {"full": FULL, "quick": QUICK}


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Run all sides in one session, in a process of its own."""
    plan = QUICK if quick else FULL
    progress.total(plan.steps)
    return findings(plan, run_apart(__name__, seed, quick=quick, deadline_s=DEADLINE_S, step=progress.advance))


def measure(arguments: JsonObject, step: Step) -> Series:
    """What each checkpoint of all runs took; another side begins each round."""
    plan, work = PLANS[text(arguments, "plan")], Path(text(arguments, "work"))
    session = Session(work / "cluster", PATIENT)
    found: Series = {}
    try:
        for number in range(plan.rounds):
            first = number % len(SIDES)
            for name in (*SIDES[first:], *SIDES[:first]):
                ledger = _run(plan, integer(arguments, "seed"), session, work / f"{number}-{name}", name)
                for what, values in recorded(plan, ledger).items():
                    found.setdefault(f"{name} {what}", []).extend(values)
                step(f"{name}, round {number + 1}")
    finally:
        session.stop()
    return found


def _run(plan: Plan, seed: int, session: Session, folder: Path, name: str) -> Ledger:
    """The chain with a part of every element on each node."""
    application = chain(seed, plan.load, folder / "results", parallelism=NODES)
    asked = Protection(checkpoint_every=SELDOM)
    if name in STRATEGIES:
        asked = Protection(checkpoint=STRATEGIES[name].value, checkpoint_every=plan.every)
    settings = chain_settings(asked, plan.load)
    return run_chain(application, folder / "store", settings, session, cut=False)


def recorded(plan: Plan, ledger: Ledger) -> Series:
    """What a run took, and its checkpoints; where there are none, what passes take that would have carried some."""
    begin, end = plan.warmup, plan.warmup + plan.measured
    at_s = {batch: next(at for at, last in ledger.published_s if last >= batch) for batch in range(begin, end + 1)}
    pass_s = {batch: at_s[batch] - at_s[batch - 1] for batch in range(begin + 1, end + 1)}
    stored = [one for one in ledger.stored if begin < one.batch <= end - TOUCHED]
    carriers = [one.batch for one in stored] or list(range(begin + TOUCHED, end - TOUCHED, plan.every))
    return {
        "extra s": extra(pass_s, carriers),
        "stored s": [one.seconds for one in stored],
        "stored": [float(len(stored))],
        "pass s": list(pass_s.values()),
        "share": [ledger.costs.share],
    }


def extra(pass_s: Mapping[int, float], carriers: Sequence[int]) -> list[float]:
    """The seconds that passes took longer than calm ones around them, for each checkpoint that has some nearby."""
    touched = {carrier + place for carrier in carriers for place in range(TOUCHED)}
    found = []
    for carrier in carriers:
        around = range(carrier - NEAR, carrier + TOUCHED + NEAR)
        calm = [pass_s[batch] for batch in around if batch in pass_s and batch not in touched]
        if calm:
            spent_s = sum(pass_s[carrier + place] for place in range(TOUCHED))
            found.append(spent_s - TOUCHED * statistics.fmean(calm))
    return found


def percent(plan: Plan, found: Mapping[str, Sequence[float]], name: str, each_s: float) -> float:
    """The part of a side's time that checkpoints every `TOLD_FOR` batches take, if each takes so long.

    A sweep counts with all its checkpoints. Where there are none, as many are reckoned as were compared.
    """
    count = sum(found[f"{name} stored"]) or float(len(found[f"{name} extra s"]))
    return 100 * each_s * count * (plan.every / TOLD_FOR) / sum(found[f"{name} pass s"])


def findings(plan: Plan, found: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, claims and pictures of recorded series."""
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024], {NODES} tasks of each of 8 elements",
            "elements a batch": plan.batch_rows,
            "state, elements": plan.load.groups,
            "a checkpoint": f"every {plan.every} batches",
            "batches": f"{plan.measured} in each of {plan.rounds} rounds, {plan.warmup} before them",
        },
        tables=(
            Table(
                f"Throughput that checkpoints every {TOLD_FOR} batches cost",
                ("checkpoints", "elements/s", "compared", "costs %", "likely from %", "to %"),
                tuple(_cost_row(plan, found, name) for name in SIDES),
            ),
            Table(
                "What was stored meanwhile, as the engine counts it",
                (
                    "checkpoints",
                    "stored",
                    "s each",
                    f"% of the time, every {TOLD_FOR} batches",
                    "% of the processor time, as run",
                ),
                tuple(_stored_row(plan, found, name) for name in SIDES),
            ),
        ),
        claims=tuple(_claim(plan, found, name) for name in STRATEGIES),
        remarks=_remarks(plan, found),
        panels=(_panel(found),),
        panel_columns=1,
    )


def _cost_row(
    plan: Plan, found: Mapping[str, Sequence[float]], name: str
) -> tuple[str, float, int, float, float, float]:
    spent, more = found[f"{name} pass s"], found[f"{name} extra s"]
    middle, low, high = _costs(plan, found, name)
    return name, plan.batch_rows * len(spent) / sum(spent), len(more), middle, low, high


def _costs(plan: Plan, found: Mapping[str, Sequence[float]], name: str) -> tuple[float, float, float]:
    """Percent of throughput: the median, and between what it lies."""
    more = found[f"{name} extra s"]
    low, high = likely(more)
    return (
        percent(plan, found, name, statistics.median(more)),
        percent(plan, found, name, low),
        percent(plan, found, name, high),
    )


def _stored_row(
    plan: Plan, found: Mapping[str, Sequence[float]], name: str
) -> tuple[str, float, float | None, float, float]:
    seconds = found[f"{name} stored s"]
    return (
        name,
        sum(found[f"{name} stored"]),
        statistics.median(seconds) if seconds else None,
        percent(plan, found, name, statistics.fmean(seconds)) if seconds else 0.0,
        100 * statistics.median(found[f"{name} share"]),
    )


def _claim(plan: Plan, found: Mapping[str, Sequence[float]], name: str) -> Claim:
    middle, low, high = _costs(plan, found, name)
    count = len(found[f"{name} extra s"])
    return Claim(
        f"throughput that {name} checkpoints cost",
        f"at most {GOAL_PERCENT:g} %",
        middle,
        "%",
        f"likely {low:.2g} to {high:.2g} % by {count} checkpoints; {verdict(low, high, count)}",
        "we aim at",
    )


def _remarks(plan: Plan, found: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    middle, low, high = _costs(plan, found, WITHOUT)
    return (
        "the pass that carries a checkpoint and the next one are compared with those up to "
        f"{NEAR} before and after them that have to do with none; the median of the difference is what one "
        f"takes. It is due every {plan.every} batches here, so that there are such passes, and told for {TOLD_FOR}",
        f"where nothing is stored, as many passes differ from those around them by {middle:.2g} % of the time (likely "
        f"{low:.2g} to {high:.2g} %): what is smaller than that, this machine cannot tell",
        f"the likely range of a median is where the true one lies with {CONFIDENCE:.0%} confidence; of fewer than "
        f"{FEWEST} checkpoints, all that was seen",
        "a sweep is several small checkpoints, one after the other, and all of them count. Where sweeps overlap they "
        "share some, so that the true cost is smaller",
        "neither strategy keeps outputs while nothing fails: a sweep stores consumers before their producers, which "
        "can make again whatever a lost consumer asks for. So nothing is paid in the passes between",
        "the engine counts how long the slowest node writes and how long the driver commits, and processor time of "
        "steps and checkpoints; not that old ones are deleted",
    )


def _panel(found: Mapping[str, Sequence[float]]) -> Panel:
    curves = tuple(
        Curve(
            name,
            tuple(100 * (place + 0.5) / len(more) for place in range(len(more))),
            tuple(1_000 * one for one in sorted(more)),
            look,
        )
        for look, (name, more) in enumerate((name, found[f"{name} extra s"]) for name in SIDES)
    )
    return Panel(
        "Time that a checkpoint adds to two passes",
        "% of checkpoints, the cheapest first",
        "ms",
        curves,
        references=(Reference("as calm ones take", 0.0),),
    )


def likely(values: Sequence[float]) -> tuple[float, float]:
    """Between what the true median lies: values whose ranks a fair coin makes unlikely to be all on one side of it."""
    ordered, count, rank = sorted(values), len(values), 0
    tail = 1 / 2**count
    while tail <= (1 - CONFIDENCE) / 2:  # ends: half of all at the latest
        rank += 1
        tail += math.comb(count, rank) / 2**count
    rank = max(rank, 1)
    return ordered[rank - 1], ordered[-rank]


def verdict(low: float, high: float, count: int) -> str:
    """Whether the goal is kept, if the likely range of the cost leaves no doubt."""
    if count < FEWEST:
        return f"{count} checkpoints are too few to tell"
    return "met" if high <= GOAL_PERCENT else "not met" if low > GOAL_PERCENT else "neither shown nor refuted"


if __name__ == "__main__":
    serve(measure)
