"""Recovery after the loss of each node, predicted by the plan of backups and measured, for several latency bounds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tenax.model.graph import TaskGraph
from tenax.model.protection import Recovery
from tenax.store.records import Json
from tenax_lab.processes import run_side
from tenax_lab.recovery_bound_cases import FULL, NODES, QUICK, Loss, measured, planned_graph
from tenax_lab.recovery_bound_findings import findings
from tenax_lab.recovery_bound_model import from_series, latency_bounds
from tenax_lab.recovery_bound_tree import tree_topology
from tenax_lab.recovery_bound_trials import Pace
from tenax_lab.results import Findings, Progress
from tenax_lab.sides.sides import Series

SIDE = "tenax_lab.recovery_bound_trials"
DEADLINE_S = 3_600.0


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Measure the time of steps, plan backups for several bounds, lose every node in turn under each plan."""
    plan = QUICK if quick else FULL
    cores = os.cpu_count() or 1
    kinds = [(Recovery.BLOCKING, one) for one in plan.lengths] + [
        (Recovery.INCREMENTAL, one) for one in plan.incremental
    ]
    progress.total(1 + len(kinds) * len(plan.victims))
    pace = Pace(plan.load, plan.interval, plan.per_pass, seed)
    with tempfile.TemporaryDirectory(prefix="tenax-recovery-bound-") as folder:

        def side(part: str, nodes: int, more: Mapping[str, Json]) -> Series:
            given = {"part": part, "work": str(Path(folder, part)), "nodes": nodes, "pace": pace.to_json(), **more}
            return run_side(SIDE, given, deadline_s=DEADLINE_S, step=progress.advance).series

        # With more nodes than cores, steps would wait for each other's processors, and T would count that.
        timed = side("times", min(NODES, cores), {"batches": plan.batches})
        bare = TaskGraph(tree_topology())
        batch_s = tuple(tuple(timed[f"batch s {task}"]) for task in range(len(bare)))
        graph = planned_graph(bare, batch_s, plan.interval)
        bounds = dict(zip(plan.lengths, latency_bounds(graph, plan.lengths), strict=True))
        losses = [
            Loss(length, bounds[length], victim, recovery, judged=victim == plan.victims[0])
            for recovery, length in kinds
            for victim in plan.victims
        ]
        asked: dict[str, Json] = {
            "times_s": {str(graph.task(task)): float(graph.reprocess[task]) for task in range(len(graph))},
            "losses": [one.to_json() for one in losses],
        }
        found = side("losses", NODES, asked)
    facts = [from_series(str(position), found) for position in range(len(losses))]
    return findings(measured(plan, graph, batch_s, losses, facts, cores))
