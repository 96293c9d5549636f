"""What checkpoints cost of the throughput while nothing fails, measured pass by pass.

Runs of equal work differ by a tenth on a machine that others use as well, from one minute to the next, and checkpoints
cost far less. So the pass that carries one, and the next, beside which it is committed and what is old is deleted, are
compared with passes around them that have nothing to do with any:

    calm │ calm │ carries a checkpoint │ commits it │ calm │ calm …
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tenax.model.protection import Protection, Strategy
from tenax.pictures.figures import Curve, Panel, Reference
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial, frame
from tenax_lab.loads.chain import NODES, Load, chain, chain_settings
from tenax_lab.recorder import Kind
from tenax_lab.report import table, values
from tenax_lab.runs import SELDOM, run

WITHOUT = "none"
STRATEGIES = (Strategy.ALIGNED.value, Strategy.SWEEPING.value)
SIDES = (WITHOUT, *STRATEGIES)
TOUCHED = 2  # passes that a checkpoint has to do with
USUAL_EVERY = 10  # batches between checkpoints, as a run has them if nothing else is said
NEAR = 4  # passes on either side of these that may be compared with them
GOAL_PERCENT = 5.0
CONFIDENCE = 0.95
FEWEST = 6  # values whose range has the true median with that confidence


@dataclass(frozen=True, slots=True)
class Case:
    """So many batches after the `warmup`; a checkpoint is due `every` so many of them.

    That is more than a sweep takes, so that there are calm passes between sweeps.
    """

    batch_rows: int
    every: int
    warmup: int
    measured: int

    @property
    def load(self) -> Load:
        """What a run is given."""
        return Load(self.warmup + self.measured, self.batch_rows)


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """The chain with a part of every element on each node; what its passes and checkpoints took."""
    case = trial.case
    application = chain(bench.seed, case.load, parallelism=NODES)
    asked = Protection(checkpoint_every=SELDOM)
    if trial.side in STRATEGIES:
        asked = Protection(checkpoint=trial.side, checkpoint_every=case.every)
    recorder = run(bench, application, chain_settings(asked, case.load))
    return observations(case, frame(recorder.rows), recorder.costs.share)


def observations(case: Case, run_rows: pl.DataFrame, share: float) -> Iterator[Row]:
    """A row per pass, per stored checkpoint and per comparison, of as many passes where nothing is stored."""
    begin, end = case.warmup, case.warmup + case.measured
    final = run_rows.filter(what=Kind.FINAL.value).select("at_s", "last").rows()
    at_s = {batch: next(at for at, last in final if last >= batch) for batch in range(begin, end + 1)}
    pass_s = {batch: at_s[batch] - at_s[batch - 1] for batch in range(begin + 1, end + 1)}
    stored: list[tuple[int, float]] = []
    if Kind.CHECKPOINT in run_rows["what"]:
        chosen = pl.col("what") == Kind.CHECKPOINT, pl.col("batch") > begin, pl.col("batch") <= end - TOUCHED
        stored = run_rows.filter(*chosen).select("batch", "writing_s").rows()
    carriers = [batch for batch, _ in stored] or list(range(begin + TOUCHED, end - TOUCHED, case.every))
    yield {"what": "run", "share": share}
    for seconds in pass_s.values():
        yield {"what": "pass", "pass_s": seconds}
    for _, seconds in stored:
        yield {"what": "checkpoint", "stored_s": seconds}
    for seconds in extra(pass_s, carriers):
        yield {"what": "comparison", "extra_s": seconds}


def extra(pass_s: Mapping[int, float], carriers: Sequence[int]) -> list[float]:
    """The seconds that passes took longer than calm ones around them, for each checkpoint that has some nearby."""
    touched = {carrier + place for carrier in carriers for place in range(TOUCHED)}
    longer = []
    for carrier in carriers:
        around = range(carrier - NEAR, carrier + TOUCHED + NEAR)
        calm = [pass_s[batch] for batch in around if batch in pass_s and batch not in touched]
        if calm:
            spent_s = sum(pass_s[carrier + place] for place in range(TOUCHED))
            longer.append(spent_s - TOUCHED * statistics.fmean(calm))
    return longer


def costs_of(observed: pl.DataFrame) -> pl.DataFrame:
    """A row per side; percentages are of the time that checkpoints every `USUAL_EVERY` batches take.

    A sweep counts with all its checkpoints. Where there are none, as many are reckoned as were compared.
    """
    sides = observed.group_by("side", maintain_order=True).agg(
        pl.col("batch_rows", "every").first(),
        passes=pl.col("pass_s").count(),
        time_s=pl.col("pass_s").sum(),
        compared=pl.col("extra_s").count(),
        stored=pl.col("stored_s").count(),
        each_s=pl.col("stored_s").median(),
        mean_s=pl.col("stored_s").mean().fill_null(0.0),
        share=100 * pl.col("share").median(),
        extra_s=pl.col("extra_s").drop_nulls(),
    )
    ranges = [likely(extras) for extras in sides["extra_s"].to_list()]
    counted = pl.when(pl.col("stored") > 0).then("stored").otherwise("compared")
    percent = 100 * counted * (pl.col("every") / USUAL_EVERY) / pl.col("time_s")
    return sides.with_columns(
        rate=pl.col("batch_rows") * pl.col("passes") / pl.col("time_s"),
        costs=percent * pl.col("extra_s").list.median(),
        low=percent * pl.Series([low for low, _ in ranges]),
        high=percent * pl.Series([high for _, high in ranges]),
        writing=percent * pl.col("mean_s"),
    ).sort(pl.col("side").replace_strict(SIDES, range(len(SIDES))))


def report(plan: Plan[Case], observed: pl.DataFrame) -> Findings:
    """The median of what passes with checkpoints took longer, and between what it lies."""
    (case,) = plan.cases
    costs = costs_of(observed)
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024], {NODES} tasks of each of 8 elements",
            "elements a batch": case.batch_rows,
            "state, elements": case.load.groups,
            "a checkpoint": f"every {case.every} batches",
            "batches": f"{case.measured} in each of {plan.rounds} rounds, {case.warmup} before them",
        },
        tables=(
            table(
                f"Throughput that checkpoints every {USUAL_EVERY} batches cost",
                costs,
                "checkpoints = side | elements/s = rate | compared | costs % = costs | likely from % = low | "
                "to % = high",
            ),
            table(
                "What was stored meanwhile, as the engine counts it",
                costs,
                {
                    "checkpoints": "side",
                    "stored": "stored",
                    "s each": "each_s",
                    f"% of the time, every {USUAL_EVERY} batches": "writing",
                    "% of the processor time, as run": "share",
                },
            ),
        ),
        claims=tuple(
            Claim(
                f"throughput that {row['side']} checkpoints cost",
                f"at most {GOAL_PERCENT:g} %",
                row["costs"],
                "%",
                f"likely {row['low']:.2g} to {row['high']:.2g} % by {row['compared']} checkpoints; "
                f"{verdict(row['low'], row['high'], row['compared'])}",
                "we aim at",
            )
            for row in costs.filter(pl.col("side") != WITHOUT).iter_rows(named=True)
        ),
        remarks=_remarks(case, costs.filter(side=WITHOUT).row(0, named=True)),
        panels=(_panel(observed),),
        panel_columns=1,
    )


def _remarks(case: Case, without: Mapping[str, float]) -> tuple[str, ...]:
    return (
        "the pass that carries a checkpoint and the next one are compared with those up to "
        f"{NEAR} before and after them that have to do with none; the median of the difference is what one "
        f"takes. It is due every {case.every} batches here, so that there are such passes, and reckoned for "
        f"{USUAL_EVERY}",
        f"where nothing is stored, as many passes differ from those around them by {without['costs']:.2g} % of the "
        f"time (likely {without['low']:.2g} to {without['high']:.2g} %): what is smaller than that, this machine "
        "cannot tell",
        f"the likely range of a median is where the true one lies with {CONFIDENCE:.0%} confidence; of fewer than "
        f"{FEWEST} checkpoints, all that was seen",
        "a sweep is several small checkpoints, one after the other, and all of them count. Where sweeps overlap they "
        "share some, so that the true cost is smaller",
        "neither strategy keeps outputs while nothing fails: a sweep stores consumers before their producers, which "
        "can make again whatever a lost consumer asks for. So nothing is paid in the passes between",
        "the engine counts how long the slowest node writes and how long the driver commits, and processor time of "
        "steps and checkpoints; not that old ones are deleted",
    )


def _panel(observed: pl.DataFrame) -> Panel:
    drawn = []
    for look, side in enumerate(SIDES):
        more = sorted(values(observed.filter(side=side), "extra_s"))
        places = tuple(100 * (place + 0.5) / len(more) for place in range(len(more)))
        drawn.append(Curve(side, places, tuple(1_000 * each for each in more), look))
    return Panel(
        "Time that a checkpoint adds to two passes",
        "% of checkpoints, the cheapest first",
        "ms",
        tuple(drawn),
        references=(Reference("as calm ones take", 0.0),),
    )


def likely(numbers: Sequence[float]) -> tuple[float, float]:
    """Between what the true median lies: values whose ranks a fair coin makes unlikely to be all on one side of it."""
    ordered, count, rank = sorted(numbers), len(numbers), 0
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


EXPERIMENT = Experiment(
    full=Plan((Case(100_000, 20, 10, 80),), SIDES, rounds=3),
    quick=Plan((Case(500, 5, 2, 8),), SIDES),
    measure=measure,
    report=report,
)
