"""What rescales cost and what elasticity decides, computed from when results were final and what the run said."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from tenax.operators.keys import KEY_GROUPS
from tenax_lab.elasticity_cases import ELASTIC, Case, ElasticPlan
from tenax_lab.lab import Row
from tenax_lab.report import percentile, value

OUTPUT, PASS, NODES, SWITCHED, JUDGED, ASKED, OUTCOME = (
    *("output", "pass", "nodes", "switched", "judged", "asked", "outcome"),
)
"""What rows tell of: a final batch, a live pass, nodes from now on, another version, a period, a wish, the end."""
OUT, IN = "scale-out", "scale-in"
AROUND_S = 10.0  # of throughput, half of it before a switch
USUAL = 6  # batches before a rescale was asked for, of which the usual latency is
TURNED = 0.1  # of the rate: less is no reason to go back
MOMENTS = 100  # between two rescales at which the rate is looked at
BEFORE_NOON = 0.75  # of the morning: by then every side runs as it does
STEADY = 3  # batches in a row that are as prompt as before


def switches(plan: ElasticPlan, own: pl.DataFrame) -> list[Row]:
    """What each rescale of a trial cost."""
    outputs, passes = own.filter(what=OUTPUT).sort("batch"), own.filter(what=PASS)
    moments = own.filter(what=SWITCHED).sort("after_s")
    whole = passes.filter(pl.col("after_s") < moments["after_s"].min()) if moments.height else passes
    state_bytes = value(whole, pl.col("state_bytes").max())  # later ones count what tasks share for each of them
    begun = [*moments["after_s"], float("inf")]
    rescales: list[Row] = []
    for place, switch in enumerate(moments.iter_rows(named=True)):
        at_s, until_s = switch["after_s"], min(switch["after_s"] + AROUND_S, begun[place + 1])
        asked = own.filter(pl.col("what").is_in([ASKED, JUDGED]), pl.col("after_s") <= at_s)
        asked = asked.filter((pl.col("what") == ASKED) | pl.col("outcome").is_in([OUT, IN]))
        asked_s = asked["after_s"].max() if asked.height else at_s
        before = outputs.filter(pl.col("final_s") < asked_s).tail(USUAL)
        around = outputs.filter(pl.col("final_s").is_between(asked_s, until_s))
        since = passes.filter(pl.col("after_s") >= at_s, pl.col("after_s") < begun[place + 1])
        if before.is_empty() or around.is_empty():
            continue
        usual_s, highest_s = value(before, pl.col("latency_s").median()), value(around, pl.col("latency_s").max())
        finals = outputs["final_s"].to_list()
        came = value(outputs, pl.col("rows").max() / pl.col("after_s").max())
        group_bytes = int(state_bytes * switch["groups"] / KEY_GROUPS)
        read, again = (int(part["read_bytes"].sum()) for part in (since.head(1), since.slice(1)))
        rescales.append(
            {
                "number": switch["number"],
                "nodes": _nodes_at(own, until_s),
                "tasks": switch["tasks"],
                "after_s": at_s,
                "usual_s": usual_s,
                "highest_s": highest_s,
                "later": (highest_s - usual_s) / plan.batch_s,
                "pause_s": min((t for t in finals if t > at_s), default=at_s)
                - max((t for t in finals if t <= at_s), default=at_s),
                "rhythm_s": float(np.median(np.diff(before["final_s"].to_numpy()))) if before.height > 1 else 0.0,
                "throughput": throughput(outputs, at_s) / came,
                "state_bytes": int(state_bytes),
                "group_bytes": group_bytes,
                "read_bytes": read,
                "again_bytes": again,
                "moved": read / group_bytes if group_bytes else None,
            }
        )
    return rescales


def throughput(outputs: pl.DataFrame, at_s: float) -> float:
    """Rows a second that became final around a moment, where those of a batch do so evenly since the one before."""
    ordered = outputs.sort("final_s")
    ends = np.interp([at_s - AROUND_S / 2, at_s + AROUND_S / 2], ordered["final_s"], ordered["rows"])
    return float(np.diff(ends)[0] / AROUND_S)


def settling(case: Case, own: pl.DataFrame) -> Row:
    """After the step: how many rescales, when the last one was, and when results were as prompt again as before."""
    outputs = own.filter(what=OUTPUT).sort("batch")
    before = outputs.filter(pl.col("after_s") < case.turn_s).tail(2 * USUAL)
    slowest_s = value(before, pl.col("latency_s").max())
    late = outputs.filter(pl.col("after_s") >= case.turn_s)
    prompt = [latency_s <= slowest_s for latency_s in late["latency_s"]]
    usual = next((n for n in range(len(prompt)) if all(prompt[n : n + STEADY])), None)
    after = own.filter(pl.col("after_s") >= case.turn_s, what=SWITCHED)
    passes = own.filter(what=PASS)
    return {
        "before_s": slowest_s,
        "highest_s": value(late, pl.col("latency_s").max()),
        "decisions": after.height,
        "last_s": value(after, pl.col("after_s").max()) - case.turn_s if after.height else None,
        "usual_again_s": None if usual is None else late["final_s"][usual] - case.turn_s,
        "nodes": _nodes_at(own, value(outputs, pl.col("final_s").max())),
        "waiting": value(passes, pl.col("waiting").max()),
    }


def through_a_day(case: Case, side: str, own: pl.DataFrame) -> Row:
    """Latency and nodes over the day, and the rescales that undid the one before without a reason."""
    outputs = own.filter(what=OUTPUT)
    latency = outputs.select(
        typical_s=pl.col("latency_s").median(), p95_s=percentile("latency_s", 95), highest_s=pl.col("latency_s").max()
    ).row(0, named=True)
    passes = own.filter(what=PASS)
    forenoon = outputs.filter(pl.col("after_s").is_between(case.turn_s * BEFORE_NOON, case.turn_s))
    until_s = min(case.lasts_s, float(str(outputs["after_s"].max())))
    return {
        "side": side,
        **latency,
        "forenoon_s": value(forenoon, pl.col("latency_s").median()) if forenoon.height else None,
        "waiting": value(passes, pl.col("waiting").max()) if passes.height else None,
        "decisions": own.filter(what=SWITCHED).height if side == ELASTIC else None,
        "back_and_forth": len(undone(case, own)) if side == ELASTIC else None,
        "mean_nodes": mean_nodes(own, until_s),
        "most_nodes": int(value(own.filter(what=NODES), pl.col("nodes").max())),
    }


def undone(case: Case, own: pl.DataFrame) -> list[float]:
    """When a rescale went back though the load had not turned.

    That is a scale-out behind a scale-in at a rate that has not risen by a tenth from its lowest since then, or a
    scale-in behind a scale-out at one that has not fallen by a tenth from its highest.
    """
    decided = own.filter(pl.col("outcome").is_in([OUT, IN]), what=JUDGED).sort("after_s")
    undoing = []
    for (before_s, before), (at_s, now) in pairwise(decided.select("after_s", "outcome").iter_rows()):
        rates = [case.rhythm.rate(moment_s) for moment_s in np.linspace(before_s, at_s, MOMENTS)]
        turned = rates[-1] / min(rates) - 1 if now == OUT else 1 - rates[-1] / max(rates)
        if before != now and turned < TURNED:
            undoing.append(at_s)
    return undoing


def mean_nodes(own: pl.DataFrame, until_s: float) -> float:
    """The nodes of a trial in the mean over time, while rows came."""
    changes: Sequence[tuple[float, int]] = own.filter(what=NODES).sort("after_s").select("after_s", "nodes").rows()
    ends = [*(max(0.0, at_s) for at_s, _ in changes[1:]), until_s]
    spans = [min(end, until_s) - min(max(0.0, at_s), until_s) for (at_s, _), end in zip(changes, ends, strict=True)]
    return sum(span * nodes for span, (_, nodes) in zip(spans, changes, strict=True)) / until_s


def _nodes_at(own: pl.DataFrame, at_s: float) -> int:
    known = own.filter(pl.col("after_s") <= at_s, what=NODES).sort("after_s")["nodes"]
    return int(known[-1]) if len(known) else 0
