"""How soon the tasks of a lost node are back: what steps, where, and who waits for whom."""

from __future__ import annotations

import numpy as np
import pytest

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.planning.node_losses import NodeLoss, Rounds, node_losses

MERGE = Partitioning.MERGE

# a (4) ══▶ b (2) ══▶ c (1) ──▶ d (1)       tasks: a 0 to 3, b 4 and 5, c 6, d 7; the last writes results
GRAPH = TaskGraph(
    Topology(
        "merges",
        (
            Operator("a", 4, reprocess=0.0),
            Operator("b", 2, (Input("a", MERGE),), reprocess=1.0),
            Operator("c", 1, (Input("b", MERGE),), reprocess=0.5),
            Operator("d", 1, (Input("c", Partitioning.ONE_TO_ONE),), output=Output(), reprocess=0.0),
        ),
    )
)
HOMES = {0: "x", 1: "y", 2: "z", 3: "x", 4: "x", 5: "y", 6: "z", 7: "z"}
NONE = np.zeros(8, dtype=np.bool_)


def losses(
    homes: dict[int, str] = HOMES, backups: tuple[int, ...] = (), covered: tuple[int, ...] = (), level_s: float = 0.0
) -> dict[str, NodeLoss]:
    """What the loss of every node takes, by node."""
    marked = [np.isin(np.arange(8), list(tasks)) for tasks in (covered, backups)]
    made = node_losses(GRAPH, homes, marked[0], marked[1], Rounds(2, level_s, 0.1))
    return {loss.node: loss for loss in made}


def test_a_task_that_sources_feed_steps_alone() -> None:
    assert losses()["x"] == NodeLoss("x", 1.0, 0.1)


def test_producers_that_retain_nothing_step_first() -> None:
    assert losses()["z"] == NodeLoss("z", 1.0 + 0.5, 0.1, retainers_live=False)  # d is fed by c, which is lost as well
    assert losses(backups=(4, 5))["z"].steps_s == 0.5


def test_levels_have_a_fixed_part_in_every_round() -> None:
    # a, then b; or a, b, c, d: c and d on different nodes; what b retained is read in the first of two levels
    assert losses(level_s=0.01)["x"].scheduling_s == pytest.approx(0.1 + 2 * 2 * 0.01)
    assert losses(level_s=0.01)["z"].scheduling_s == pytest.approx(0.1 + 2 * 4 * 0.01)
    assert losses(level_s=0.01, backups=(4, 5))["z"].scheduling_s == pytest.approx(0.1 + 2 * 3 * 0.01)


def test_tasks_that_were_lost_together_step_together_unless_one_node_gets_them() -> None:
    together = {**HOMES, 4: "x", 5: "x"}
    assert losses(together)["x"].steps_s == 1.0
    assert losses({**dict.fromkeys(range(8), "y"), 4: "x", 5: "x"})["x"].steps_s == 2.0
    assert losses(dict.fromkeys(range(8), "x"))["x"].steps_s == 2.5  # on the node that comes in its place


def test_backups_do_not_help_the_tasks_that_are_lost_with_them() -> None:
    beside = {**HOMES, 5: "z"}
    alone, together = losses(HOMES, backups=(4, 5))["z"], losses(beside, backups=(4, 5))["z"]
    assert (alone.steps_s, together.steps_s) == (0.5, 1.5)
    assert not together.retainers_live


def test_tasks_that_have_a_replica_are_not_missed() -> None:
    assert "x" not in losses(covered=(4,))
