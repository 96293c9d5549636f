"""All primaries are lost while all, half or none of the tasks have replicas: when outputs come, how good, when all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from tenax.chaos.runs import RESULTS as FOLDER
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.model.graph import TaskGraph
from tenax.model.plans import ReplicaPlan
from tenax.model.protection import Protection
from tenax.model.topology import Topology
from tenax.operators.event_time import WINDOW_END
from tenax.pictures.figures import Curve, Panel
from tenax.planning.replicas import plan_replicas
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, Plan, Row, Trial
from tenax_lab.loads.tree import RESULTS, SHAPE, Arrival, Load, tree_topology
from tenax_lab.recorder import ShownFiles
from tenax_lab.report import claim_of_ratios, curves, ratios, table, values, yes_no
from tenax_lab.tree_losses import CLUSTER, LOSS, PER_ROUND, PUBLICATION, Scenario, all_primaries, kill_after, lose

ALGORITHM = "structure-aware"
EVERYTHING, HALF, NOTHING = "PPA-1.0", "PPA-0.5", "PPA-0"
SHARES = {EVERYTHING: 1.0, HALF: 0.5, NOTHING: 0.0}
"""The part of the tasks that has replicas, by what the paper calls the plan."""
PACED = 2  # batches that come by the clock before the kill
CONTENT = "content"
TRIAL = ["interval_s", "round"]


@dataclass(frozen=True, slots=True)
class Case:
    """The event time between checkpoints."""

    interval_s: int


@dataclass(frozen=True, slots=True)
class PartialPlan(Plan[Case]):
    """Batches come every `arrival_s` by the clock when nodes are killed, and so many `after` that.

    Nodes are killed after the batch before a checkpoint, or after `killed_after` batches if that is said.
    """

    load: Load = field(default_factory=lambda: Load(1_000, 30, 2))
    arrival_s: float = 1.0
    after: int = 12
    killed_after: int | None = None

    def kill_at(self, case: Case) -> int:
        """The batch after which nodes are killed."""
        return self.killed_after or kill_after(self.load, self.load.batches(case.interval_s))


def measure(bench: Bench, plan: PartialPlan, trial: Trial[Case]) -> Iterator[Row]:
    """One loss of all primaries: how it was met, what was published, and the content of each tentative window."""
    replicas = replica_plan(plan.load, SHARES[trial.side])
    kill_at = plan.kill_at(trial.case)
    protection = Protection(
        replicas=tuple(map(str, replicas.replicas)), checkpoint_every=plan.load.batches(trial.case.interval_s)
    )
    arrival = Arrival(kill_at + plan.after, kill_at - PACED, plan.arrival_s)
    kept: list[ShownFiles] = []
    rows = lose(
        bench,
        Scenario(plan.load, arrival, protection, all_primaries(plan.load, kill_at)),
        lambda recorder, _driver, folder: kept.append(
            ShownFiles(recorder, ParquetSink(folder / FOLDER / RESULTS), folder / "tentative")
        ),
    )
    for row in rows:
        yield {**row, "replicas": len(replicas.replicas), "fidelity": replicas.value} if row["what"] == LOSS else row
    (shown,) = kept
    for part in content(read_committed(shown.results.folder), shown.rows()):
        yield {"what": CONTENT, "content": part}


def replica_plan(load: Load, share: float) -> ReplicaPlan:
    """The replicas for a part of the tasks; sources are logged, cannot be lost and need none."""
    topology = tree_topology(load.rate)
    operators = (replace(each, safe=True) if each.is_source else each for each in topology.operators)
    graph = TaskGraph(Topology(topology.name, tuple(operators)))
    return plan_replicas(graph, round(share * int((~graph.safe).sum())), ALGORITHM)


def content(final: pl.DataFrame, tentative: pl.DataFrame) -> list[float]:
    """For every window that was shown tentatively, the part of its final readings that it counted, in order."""
    if tentative.is_empty():
        return []
    whole, shown = (
        rows.group_by(WINDOW_END).agg(pl.col("readings").cast(pl.Int64).sum().alias(name))  # 32 bits overflow
        for rows, name in ((final, "whole"), (tentative, "shown"))
    )
    both = shown.join(whole, on=WINDOW_END).sort(WINDOW_END)
    return (both["shown"] / both["whole"]).to_list()


def losses_of(frame: pl.DataFrame) -> pl.DataFrame:
    """A row per loss, with what was shown tentatively meanwhile."""
    by = [*TRIAL, "side"]
    columns = frame.columns
    tentative = (
        frame.filter(pl.col("what") == PUBLICATION, "tentative")
        .group_by(by)
        .agg(shown=pl.len().cast(pl.Int64), quality=pl.col("quality").mean())
    )
    held = pl.col("content") if "content" in columns else pl.lit(None, pl.Float64)
    contents = frame.filter(what=CONTENT).group_by(by).agg(content=held.mean(), least=held.min())
    losses = frame.filter(what=LOSS).drop("quality", "content", strict=False)
    for more in (tentative, contents):
        losses = losses.join(more, on=by, how="left", maintain_order="left")
    return losses.with_columns(pl.col("shown").fill_null(0))


def report(plan: PartialPlan, frame: pl.DataFrame) -> Findings:
    """When the first output comes, when all is back, and how good outputs are in between."""
    load, losses = plan.load, losses_of(frame)
    kills = sorted({(case.interval_s, plan.kill_at(case)) for case in plan.cases})
    intervals = sorted({case.interval_s for case in plan.cases})
    return Findings(
        settings={
            "cluster": CLUSTER,
            "topology": f"{SHAPE}, windows of {load.window_s} s every 1 s in four operators",
            "rate": f"{load.rate:,} tuples/s of each of 16 sources, in event time",
            "a batch": f"{load.batch_s} s of event time every {plan.arrival_s:g} s: "
            f"{load.batch_s / plan.arrival_s:g} s of event time a second",
            "failure": "SIGKILL of all nodes with primaries after the batch before a checkpoint, once windows are "
            "full: " + ", ".join(f"batch {batch} for {interval_s} s" for interval_s, batch in kills),
            "recovery": f"on the standby nodes, in rounds of at most {PER_ROUND} batches, live passes go on",
            "replicas": f"by {ALGORITHM}, of the tasks that are no sources",
        },
        tables=(
            table(
                "From the kill to the first tentative and the first final output and until all is back; tentative "
                "outputs, the quality that the run states of them, and the part of the readings that they held",
                losses,
                "plan = side | interval s = interval_s | round | replicas | fidelity | "
                "detection s = detection_s | tentative s = tentative_s | final s = final_s | "
                "all back s = recovered_s | replayed | tentative = shown | quality | content | least | exact",
                exact=yes_no("exact"),
            ),
        ),
        claims=tuple(_claims(losses)),
        remarks=(
            f"the oracle found {losses['exact'].sum()} of {losses.height} runs exact: final results as without "
            "failures, to the byte",
            "all is back when no task is missing and the first batch after the kill is final; with replicas for all "
            "tasks nothing is ever missing, and that is the next output",
            "quality is what the run states when it publishes: the fidelity of the tasks that step; content is how "
            "many of its final readings a tentative window counted: higher, for windows reach back to before the "
            "failure",
            "with half of the replicas tentative passes go on beside the recovery, on the same cores; without any "
            "there is nothing to show, and the recovery has them for itself. The paper's nodes have cores of their own",
            "sources are logged and go on anywhere at once, the paper keeps them alive",
        ),
        panels=(
            *(_qualities(frame, interval_s) for interval_s in intervals),
            *(_times(losses, interval_s) for interval_s in intervals),
        ),
        panel_columns=2,
    )


def _claims(losses: pl.DataFrame) -> Iterator[Claim]:
    half = losses.filter(side=HALF)
    tentative = (pl.col("side") == HALF) & (pl.col("shown") > 0)
    for statement, said, times in (
        (
            "PPA-0.5 over PPA-0, until all is back",
            "lower (no number)",
            ratios(losses, "recovered_s", HALF, NOTHING, TRIAL),
        ),
        (
            "PPA-0.5 over PPA-1.0, until all is back",
            "higher (no number)",
            ratios(losses, "recovered_s", HALF, EVERYTHING, TRIAL),
        ),
        (
            "PPA-0.5: until all is back, over until the first tentative output",
            "up to 10 ×",
            values(half.filter(pl.col("shown") > 0), pl.col("recovered_s") / pl.col("output_s")),
        ),
        (
            "until the first output, PPA-0.5 (its active tasks) over PPA-1.0",
            "slightly less",
            ratios(losses, "output_s", tentative, pl.col("side") == EVERYTHING, TRIAL),
        ),
        (
            "until the first output, PPA-0 over PPA-0.5",
            "outputs need not wait (no number)",
            ratios(losses, "output_s", NOTHING, HALF, TRIAL),
        ),
    ):
        yield from claim_of_ratios(statement, said, times, "runs")


def _qualities(frame: pl.DataFrame, interval_s: int) -> Panel:
    """The quality of the newest output at any time: none at first, then that of the last one shown."""
    drawn = []
    first = frame.filter(pl.col("what") == PUBLICATION, pl.col("interval_s") == interval_s, pl.col("round") == 1)
    for look, side in enumerate(SHARES):
        points = [(0.0, 0.0)]
        for after_s, _, quality in newest(first.filter(side=side)):
            points += [(after_s, points[-1][1]), (after_s, quality)]
        seconds, qualities = zip(*points, strict=True)
        drawn.append(Curve(side, seconds, qualities, look))
    title = f"Quality shown, a checkpoint every {interval_s} s"
    labels = "seconds since the kill (round 1)", "quality stated"
    return Panel(title, *labels, tuple(drawn), y_range=(-0.03, 1.05), nested=True)


def newest(publications: pl.DataFrame) -> list[tuple[float, int, float]]:
    """When, last batch and quality of publications in order, each of a newer batch than all before it."""
    before = pl.col("last").cum_max().shift(1, fill_value=0)
    return publications.filter(pl.col("last") > before).select("after_s", "last", "quality").rows()


def _times(losses: pl.DataFrame, interval_s: int) -> Panel:
    """Until the first output and until all is back, over the part of the tasks that has replicas."""
    own = losses.filter(interval_s=interval_s).with_columns(share=pl.col("side").replace_strict(SHARES))
    first, back = "first output, tentative or final", "all is back"
    drawn = (
        *curves(own, "share", "recovered_s", by=pl.lit(back), looks=["", back], band="range"),
        *curves(own, "share", "output_s", by=pl.lit(first), band="range"),
    )
    return Panel(
        f"Seconds since the kill, a checkpoint every {interval_s} s",
        "part of the tasks that has replicas",
        "seconds",
        drawn,
        claim="PPA-0.5 lies between PPA-1.0 and PPA-0, its active tasks near PPA-1.0 (Figure 10)",
        y_range=(0.0, 1.1 * max(values(losses, "recovered_s"))),
    )


EXPERIMENT = Experiment(
    full=PartialPlan((Case(10), Case(30)), tuple(SHARES), rounds=3),
    # No checkpoint before the end, so that lost tasks are further behind than live passes wait for; and batches come
    # faster than they are run, so that one is there when nodes are lost: then something tentative is shown, always.
    quick=PartialPlan((Case(100),), tuple(SHARES), load=Load(50, 4, 2), arrival_s=0.05, after=6, killed_after=4),
    measure=measure,
    report=report,
)
