"""What is said of elastic runs: tables of rescales, of the step and of the day, goals, and diagrams over time."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tenax.pictures.figures import Panel
from tenax_lab.elasticity_cases import (
    DAY,
    DAY_TIMES,
    ELASTIC,
    SIDES,
    SMALL,
    STEP,
    STEP_TIMES,
    SWITCH,
    Case,
    ElasticPlan,
)
from tenax_lab.elasticity_measures import NODES, OUTCOME, OUTPUT, PASS, settling, switches, through_a_day
from tenax_lab.findings import Claim, Findings, Table
from tenax_lab.lab import frame
from tenax_lab.report import curves, met, spread, table, value, values

GOAL_LATER, GOAL_THROUGHPUT, GOAL_MOVED = 1.0, 0.9, 1.1
GOAL_DECISIONS, GOAL_WAITING = 2, 5


def report(plan: ElasticPlan, observed: pl.DataFrame) -> Findings:
    """All cases."""
    if "outcome" not in observed.columns:
        observed = observed.with_columns(outcome=pl.lit(None, pl.String))
    outcomes = observed.filter(what=OUTCOME)
    judged = outcomes["exact"].drop_nulls()
    tables, claims = [], []
    for case in plan.cases:
        own = _own(observed, case)
        measured, said = {SWITCH: _rescale, STEP: _step, DAY: _day}[case.what_happens](plan, case, own)
        tables.append(measured)
        claims += said
    return Findings(
        settings={
            "cluster": f"local-cluster[n,2,1024], from {plan.few} to {plan.many} nodes",
            "topology": "rows (2) → lookups, the output, as many tasks as nodes; a task waits "
            f"{plan.wait_us:,} µs for a row, as for a service",
            "batches": f"{plan.batch_s:g} s, a checkpoint every {plan.checkpoint_s:g} s",
            "elasticity": f"a pass below {100 * plan.target:.0f} % of a batch interval; periods of "
            f"{plan.period_s:g} s, no scale-in for {plan.cooldown_s:g} s after a rescale",
        },
        tables=tuple(tables),
        claims=tuple(claims),
        remarks=(
            "tasks wait instead of computing, so that nodes count on a machine with fewer cores than nodes; what "
            "computes would gain no more than there are cores",
            "bytes read are those that the first pass behind a switch read from the store: a segment is read whole by "
            "every task that has part of it, unless it lies on the task's node; later ones are read by the second "
            "process of a node. All lie on one disk here, and come from its cache. Bytes that move are those of all "
            "states times the part of the key groups that move",
            "throughput around a switch: rows that became final from 5 s before to 5 s behind it, over those that came",
            "waiting: how long before a pass began the last row of the batch before it had come, in batch intervals: 1 "
            "where a run keeps up",
            "back and forth: a scale-out behind a scale-in at a rate that has not risen by a tenth from its lowest "
            "since, or a scale-in behind a scale-out at one that has not fallen by a tenth from its highest",
            "a day is a cosine from night to noon and back; sides with fixed nodes have it until noon, where the small "
            "one is stopped and not judged; Structured Streaming has as many executors as the large side, which take "
            "one task at a time, and gets ticks that stand for the rows of their time",
            "before noon: the median in the last quarter of the morning. Rows come to Structured Streaming from its "
            "start on, and its first batch takes long, so that it is late at first; Tenax has begun before rows come",
            "Flink's adaptive scheduler is not beside it: a side that runs a job of Flink has yet to be written",
            f"the oracle found {judged.sum()} of {len(judged)} runs exact: final results as those of a replay of the "
            "same batches in the same versions, to the byte",
        ),
        panels=tuple(_panels(plan, observed)),
    )


def _own(observed: pl.DataFrame, case: Case) -> pl.DataFrame:
    return observed.filter(pl.col("what_happens") == case.what_happens)


def _rescale(plan: ElasticPlan, _: Case, own: pl.DataFrame) -> tuple[Table, list[Claim]]:
    measured = frame(switches(plan, own))
    busy = own.filter(pl.col("after_s") < value(measured, pl.col("after_s").min()), what=PASS)["seconds"]
    share = float(str(busy.median())) / plan.batch_s
    state_mb = value(measured, pl.col("state_bytes").max()) / 1e6
    made = table(
        f"Rescales by hand under {100 * share:.0f} % load with a state of {state_mb:,.0f} MB; latencies in s",
        measured,
        "nodes | tasks | usual = usual_s | highest = highest_s | later, in intervals = later | "
        "between results s = pause_s | usually s = rhythm_s | throughput % = percent | moved MB = moved_mb | "
        "read MB = read_mb | read / moved = moved | "
        "later MB = again_mb",
        percent=100 * pl.col("throughput"),
        moved_mb=pl.col("group_bytes") / 1e6,
        read_mb=pl.col("read_bytes") / 1e6,
        again_mb=pl.col("again_bytes") / 1e6,
    )
    later, slowest, moved = values(measured, "later"), values(measured, "throughput"), values(measured, "moved")
    each = f"the worst of {measured.height} rescales"
    claims = [
        _goal("no result comes later than usual by more", "1 interval", max(later), "intervals", each, GOAL_LATER),
        _goal(
            "throughput over the ten seconds around a rescale",
            "at least 90 %",
            100 * min(slowest),
            "%",
            f"{each}, {spread([100 * part for part in slowest], '.0f')}",
            100 * GOAL_THROUGHPUT,
            least=True,
        ),
    ]
    if moved:
        over = f"{each}, {spread(moved)}"
        goal = f"{GOAL_MOVED:g} ×"
        claims.append(_goal("bytes read over those of the states that move", goal, max(moved), "×", over, GOAL_MOVED))
    return made, claims


def _step(_: ElasticPlan, case: Case, own: pl.DataFrame) -> tuple[Table, list[Claim]]:
    measured = frame([settling(case, own)])
    made = table(
        f"{STEP_TIMES} times the rate from {case.turn_s:g} s on; latencies in s",
        measured,
        "rescales = decisions | last after s = last_s | nodes | slowest before = before_s | highest = highest_s | "
        "as before again after s = usual_again_s | longest waiting = waiting",
    )
    decisions = value(measured, "decisions")
    what, said = f"rescales after {STEP_TIMES} times the rate", f"at most {GOAL_DECISIONS}"
    return made, [_goal(what, said, decisions, "", "one run", GOAL_DECISIONS)]


def _day(_: ElasticPlan, case: Case, own: pl.DataFrame) -> tuple[Table, list[Claim]]:
    sides = own["side"].unique(maintain_order=True)
    measured = frame([through_a_day(case, side, own.filter(side=side)) for side in sides])
    made = table(
        f"A day of {case.lasts_s:g} s, {DAY_TIMES} times as many rows at noon; latencies in s",
        measured,
        "side | median = typical_s | 95 % = p95_s | highest = highest_s | before noon = forenoon_s | "
        "longest waiting = waiting | rescales = decisions | back and forth = back_and_forth | "
        "nodes, mean = mean_nodes | most = most_nodes",
    )
    ours = measured.filter(side=ELASTIC)
    back, waiting = value(ours, "back_and_forth"), value(ours, "waiting")
    counted = f"of {value(ours, 'decisions'):.0f} rescales"
    return made, [
        _goal("rescales that went back though the load had not turned", "none", back, "", counted, 0),
        _goal("longest backlog of the day", f"{GOAL_WAITING} batches", waiting, "batches", "one day", GOAL_WAITING),
    ]


def _goal(statement: str, said: str, ours: float, unit: str, over: str, goal: float, *, least: bool = False) -> Claim:
    reached = ours >= goal if least else ours <= goal
    return Claim(statement, said, ours, unit, f"{over}; goal {met(reached)}", "we aim at")


def _panels(plan: ElasticPlan, observed: pl.DataFrame) -> Iterator[Panel]:
    for case in plan.cases:
        own = _own(observed, case)
        outputs = own.filter(what=OUTPUT)
        shown = outputs if case.what_happens != DAY else outputs.filter(pl.col("side") != SMALL)
        title = {SWITCH: "A rescale by hand", STEP: f"{STEP_TIMES} times the rate", DAY: "A day"}[case.what_happens]
        label = "when rows came, s"
        yield Panel(f"{title}: latency", label, "s", curves(shown, "after_s", "latency_s", looks=SIDES))
        nodes = own.filter(what=NODES).with_columns(pl.col("after_s").clip(lower_bound=0.0))
        ends = (
            nodes.group_by("side", maintain_order=True)
            .last()
            .with_columns(after_s=pl.lit(case.lasts_s))
            .select(nodes.columns)
        )
        stepped = pl.concat([nodes, ends]).sort("side", "after_s", maintain_order=True)
        before = stepped.with_columns(nodes=pl.col("nodes").shift(1).over("side"), after_s=pl.col("after_s") - 0.01)
        drawn = curves(pl.concat([stepped, before.drop_nulls("nodes")]), "after_s", "nodes", looks=SIDES)
        yield Panel(f"{title}: nodes", "s", "nodes", drawn)
