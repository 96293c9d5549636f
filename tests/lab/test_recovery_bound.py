"""The recovery-bound experiment: its bounds, what is taken down of a loss, and what its tables say.

sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results (1)
tasks 0..15      16..23     24..27     28, 29     30         31
"""

from __future__ import annotations

import pytest
from observing import rows_of

from tenax.control.instructions import PlanBackups
from tenax.control.placement.spreading import place_tasks
from tenax.engine.protection import planned
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.planning.measured import Measures
from tenax.planning.rates import Rows
from tenax_lab import recovery_bound
from tenax_lab.lab import Row, frame
from tenax_lab.loads.tree import tree_topology
from tenax_lab.loads.waiting_tree import Waits, waiting_tree
from tenax_lab.recovery_bound import BLOCKING, EXPERIMENT, INCREMENTAL, NODES, VICTIM, bound_s, named

GRAPH = TaskGraph(tree_topology())
FULL = EXPERIMENT.full


def asked(step_s: float = 0.1) -> PlanBackups:
    """A plan of backups as a run asks for it, all merges of which take as long for a batch."""
    busy_s = tuple(step_s if 16 <= task < 31 else 0.0 for task in range(len(GRAPH)))
    rows = Rows((1.0,) * len(GRAPH), (1.0,) * len(GRAPH))
    measures = Measures(rows, busy_s, (8,) * len(GRAPH), (0.0,) * len(GRAPH), rounds=1, levels=6, level_s=0.02)
    placement = place_tasks(GRAPH, [Node(f"n{number}") for number in range(NODES)], {})
    return PlanBackups(16, measures, frozenset(), placement.primaries)


def test_all_merges_wait_as_long() -> None:
    load = Waits(160, 5_000)
    application = waiting_tree(1, load, 2)
    assert load.step_s == pytest.approx(0.1)  # 20 rows of every batch
    rows = application.sources["sources"].read(3, [3, 160, 16])
    assert (rows.height, rows.columns) == (10, ["ts", "key"])
    assert application.topology.operator("o4").parallelism == 1


def test_a_wider_bound_is_kept_with_fewer_backups() -> None:
    bounds = [bound_s(asked(), length) for length in FULL.lengths]
    assert bounds == sorted(bounds)
    protection = [FULL.settings(f"{round(1000 * bound)}ms", BLOCKING).protection for bound in bounds]
    counts = []
    for each in protection:
        plan = planned(tree_topology(), each)
        order = asked()
        followed = plan.followed(order.measures, (), order.homes, detection_s=0.1)
        assert followed.promise.holds
        counts.append(len(followed.backups))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


def test_every_node_holds_one_of_the_tasks_by_which_nodes_are_named() -> None:
    homes = [node for task, node in asked().homes.items() if task.operator == VICTIM]
    assert len(homes) == len(set(homes)) == NODES


def test_a_node_dies_when_a_checkpoint_is_due_and_the_run_goes_on_after_that() -> None:
    for plan in (FULL, EXPERIMENT.quick):
        assert plan.killed_at % plan.interval == 0
        assert plan.killed_at >= 3 * plan.interval  # measured in the first, retained by the plan since the second
        assert plan.batches > plan.killed_at
        assert plan.settings("5s", BLOCKING).max_batches_per_round == plan.interval


def observed() -> list[Row]:
    """Two bounds, both kinds of recovery, two nodes; one loss of the tighter bound was not promised, one is late."""
    rows: list[Row] = [
        {"what": "steps", "side": None, "operator": "o1", "least_s": 0.8, "most_s": 0.9, "level_s": 0.02}
    ]
    for length, bound in ((1, 2.0), (4, 6.0)):
        for side in (BLOCKING, INCREMENTAL):
            for victim in (0, 1):
                promised = (length, victim) != (1, 0)
                late = (length, victim, side) == (1, 1, INCREMENTAL)
                rows.append(
                    {
                        "what": "loss",
                        "length": length,
                        "victim": victim,
                        "side": side,
                        "round": 1,
                        "bound_s": bound,
                        "backups": 14 if length == 1 else 0,
                        "promised": promised,
                        "retainers_live": promised,
                        "lost_tasks": named(GRAPH, (17, 21, 25)),
                        "predicted_s": 0.8 * bound if promised else 1.2 * bound,
                        "predicted_steps_s": 0.7 * bound,
                        "detection_s": 0.1,
                        "back_s": 1.1 * bound if late else 0.8 * bound,
                        "rounds": 1,
                        "rounds_s": 0.6 * bound,
                        "most_steps_s": 0.5,
                        "replayed": 8,
                        "share": 1.0,
                        "exact": True if victim == 0 else None,
                    }
                )
    return rows


def test_only_losses_of_which_the_bound_was_promised_can_break_it() -> None:
    findings = recovery_bound.report(FULL, frame(observed()))
    kept, near, gained = findings.claims
    assert kept.ours == pytest.approx(100 * 5 / 6)
    assert kept.over.startswith("5 of 6 losses")
    assert near.ours == pytest.approx(1.0)
    assert gained.ours > 1.0
    rows = rows_of(findings, "By bound")
    assert [(row["promised"], row["kept"]) for row in rows] == [(1, 1), (1, 0), (2, 2), (2, 2)]


def test_losses_are_shown_by_node_with_what_was_said_of_them() -> None:
    rows = rows_of(recovery_bound.report(FULL, frame(observed())), "Each loss")
    first = rows[0]
    assert (first["R"], first["node"], first["promised"], first["kept"], first["exact"]) == (2.0, 1, "no", "yes", "yes")
    assert first["lost tasks"] == "o1[1 5] o2[1]"
    assert {row["exact"] for row in rows} == {"yes", "–"}
