"""The validator of replica plans accepts what is true and rejects everything else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.replicas.definition import Definition
from planning.replicas.samples import MERGE, graph
from strategies import topologies

from tenax.errors import InvalidPlan
from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric, ReplicaPlan
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.replicas import check_replicas

# log(2, safe) ──merge──> sum(1) and a(3) ──merge──> sum
GRAPH = graph(
    Operator("log", 2, safe=True, rate=(1.0, 1.0)),
    Operator("a", 3, rate=(1.0, 2.0, 3.0)),
    Operator("sum", 1, (Input("log", MERGE), Input("a", MERGE))),
)
# kept: log all of 2, a[1] 2 of 6, so sum 4 of 8; processed: 2 + 2 + 4 of 2 + 6 + 8
PLAN = ReplicaPlan("greedy", Metric.FIDELITY, (Task("a", 1), Task("sum", 0)), 0.5, 0.5, False, 0.9)


def test_a_true_plan_is_accepted() -> None:
    check_replicas(GRAPH, PLAN, 2)
    check_replicas(GRAPH, replace(PLAN, optimal=True, bound=0.5), 3)


@pytest.mark.parametrize(
    ("corrupted", "budget", "rule"),
    [
        (PLAN, 1, "at most 1 replicas, found 2"),
        (replace(PLAN, replicas=(Task("a", 1), Task("b", 0))), 2, r"tasks of the topology, found b\[0\]"),
        (replace(PLAN, replicas=(Task("a", 3),)), 2, r"tasks of the topology, found a\[3\]"),
        (replace(PLAN, replicas=(Task("sum", 0), Task("a", 1))), 2, "unique and in task order"),
        (replace(PLAN, replicas=(Task("a", 1), Task("a", 1), Task("sum", 0))), 3, "unique and in task order"),
        (replace(PLAN, replicas=(Task("log", 0), Task("a", 1), Task("sum", 0))), 3, "safe tasks need no replica"),
        (replace(PLAN, replicas=(Task("a", 1),)), 2, "fidelity is 0.0, found 0.5"),
        (replace(PLAN, fidelity=0.5 + 1e-8), 2, "fidelity is 0.5"),
        (replace(PLAN, fidelity=float("nan")), 2, "fidelity is 0.5, found nan"),
        (replace(PLAN, completeness=0.6), 2, "completeness is 0.5, found 0.6"),
        (replace(PLAN, bound=0.4), 2, "worth more than its bound, found 0.5 above 0.4"),
        (replace(PLAN, bound=float("nan")), 2, "worth more than its bound"),
        (replace(PLAN, optimal=True), 2, "reaches its bound, found 0.5 below 0.9"),
    ],
)
def test_a_corrupted_plan_is_rejected_in_one_line(corrupted: ReplicaPlan, budget: int, rule: str) -> None:
    with pytest.raises(InvalidPlan, match=rule) as error:
        check_replicas(GRAPH, corrupted, budget)
    assert "\n" not in str(error.value)


@given(topologies(), st.data(), st.sampled_from(Metric))
@settings(deadline=None, max_examples=60)
def test_values_from_the_definition_are_accepted_and_others_rejected(
    topology: Topology, data: st.DataObject, metric: Metric
) -> None:
    task_graph = TaskGraph(topology)
    definition = Definition(topology)
    free = [task for task in definition.tasks if task not in definition.safe]
    chosen = data.draw(st.sets(st.sampled_from(free))) if free else set()
    alive = definition.safe | chosen
    replicas = tuple(Task(*task) for task in definition.tasks if task in chosen)
    plan = ReplicaPlan(
        "exact",
        metric,
        replicas,
        definition.value(Metric.FIDELITY, alive),
        definition.value(Metric.COMPLETENESS, alive),
        False,
        1.0,
    )
    check_replicas(task_graph, plan, len(replicas))
    for wrong in (replace(plan, fidelity=plan.fidelity - 1e-6), replace(plan, completeness=plan.completeness + 1e-6)):
        with pytest.raises(InvalidPlan):
            check_replicas(task_graph, wrong, len(replicas))
