"""The validator of recovery plans accepts what is right and refuses every damage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tenax.errors import InvalidPlan
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import Arrival, RecoveryPlan, RecoverySchedule
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.planning.recovery import check_recovery, check_schedule

A0, A1 = Task("a", 0), Task("a", 1)
D0, D1, D2, D3 = (Task("d", index) for index in range(4))


def outage() -> tuple[TaskGraph, Bools]:
    """
    s ─split─▶ a[0..1] ─split─▶ d[0..3] ─▶ output      all of a, d[0] and d[2] failed; cost 1, d 0.5
    """
    graph = TaskGraph(
        Topology(
            "tree",
            (
                Operator("s"),
                Operator("a", 2, (Input("s", Partitioning.SPLIT),)),
                Operator("d", 4, (Input("a", Partitioning.SPLIT),), cost=0.5, output=Output((1.0, 2.0, 3.0, 4.0))),
            ),
        )
    )
    return graph, graph.failed([A0, A1, D0, D2])


GOOD = RecoveryPlan("exact", (A1, D0, D2), (D2, D3), 7.0, 2.0, True, 7.0)


def test_a_right_plan_is_accepted() -> None:
    graph, failed = outage()
    check_recovery(graph, failed, GOOD, 2.0)
    check_recovery(graph, failed, replace(GOOD, optimal=False, bound=9.0), 2.5)


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        (replace(GOOD, recover=(A1, D0, Task("z", 0))), "unknown operator"),
        (replace(GOOD, recover=(A1, D0, Task("d", 9))), "unknown task"),
        (replace(GOOD, recover=(A1, D0, D0)), "each once"),
        (replace(GOOD, recover=(D0, A1, D2)), "task order"),
        (replace(GOOD, recover=(A1, D0, D1)), "only failed tasks"),
        (replace(GOOD, recover=(A0, A1, D0, D2), cost=3.0), "at most its capacity"),
        (replace(GOOD, cost=1.5), "cost is that"),
        (replace(GOOD, cost=float("nan")), "cost is that"),
        (replace(GOOD, queries=(D2,)), "queries are"),
        (replace(GOOD, queries=(D0, D2, D3)), "queries are"),
        (replace(GOOD, queries=(D3, D2)), "task order"),
        (replace(GOOD, priority=8.0, bound=8.0), "priority is that"),
        (replace(GOOD, bound=6.0), "no plan is worth more"),
        (replace(GOOD, bound=float("nan")), "no plan is worth more"),
        (replace(GOOD, bound=8.0), "reaches its bound"),
    ],
)
def test_a_damaged_plan_is_refused_in_one_line(damaged: RecoveryPlan, rule: str) -> None:
    graph, failed = outage()
    with pytest.raises(InvalidPlan, match=rule) as caught:
        check_recovery(graph, failed, damaged, 2.0)
    assert "\n" not in str(caught.value)


def test_a_query_that_was_never_cut_off_is_not_brought_back() -> None:
    graph, _ = outage()
    failed = graph.failed([D0])
    check_recovery(graph, failed, RecoveryPlan("exact", (D0,), (D0,), 1.0, 0.5, True, 1.0), 1.0)
    with pytest.raises(InvalidPlan, match="queries are"):
        check_recovery(graph, failed, RecoveryPlan("exact", (D0,), (D0, D1), 3.0, 0.5, True, 3.0), 1.0)


NODES = [("n1", 2.0), ("n2", 2.0), ("n3", 9.0)]
FIRST = Arrival("n1", {A1: "n1", D2: "n1"}, (D2, D3))
SECOND = Arrival("n2", {A0: "n2", D0: "n2"}, (D0, D1))
SCHEDULE = RecoverySchedule("exact", (FIRST, SECOND), ())


def test_a_right_schedule_is_accepted() -> None:
    graph, failed = outage()
    check_schedule(graph, failed, SCHEDULE, NODES, 0.75)
    check_schedule(graph, failed, RecoverySchedule("exact", (FIRST,), (A0, D0)), NODES[:1], 0.75)


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        (replace(SCHEDULE, arrivals=(SECOND, FIRST)), "in the order given"),
        (replace(SCHEDULE, arrivals=(*SCHEDULE.arrivals, Arrival("n3", {}, ()))), "ends when all is placed"),
        (replace(SCHEDULE, arrivals=(FIRST,), waiting=(A0, D0)), "ends when all is placed"),
        (replace(SCHEDULE, arrivals=(FIRST, replace(SECOND, placed={A0: "n2", A1: "n2"}))), "starts once"),
        (replace(SCHEDULE, arrivals=(FIRST, replace(SECOND, placed={A0: "n2", D1: "n2"}))), "only failed tasks"),
        (replace(SCHEDULE, arrivals=(FIRST, replace(SECOND, placed={A0: "n3", D0: "n2"}))), "has arrived"),
        (replace(SCHEDULE, arrivals=(FIRST, replace(SECOND, placed={A0: "n2", D0: "n1"}))), "within its limit"),
        (replace(SCHEDULE, arrivals=(FIRST, replace(SECOND, completed=(D0,)))), "completed are"),
        (replace(SCHEDULE, arrivals=(replace(FIRST, completed=()), SECOND)), "completed are"),
        (replace(SCHEDULE, waiting=(D0,)), "what is not placed waits"),
    ],
)
def test_a_damaged_schedule_is_refused_in_one_line(damaged: RecoverySchedule, rule: str) -> None:
    graph, failed = outage()
    with pytest.raises(InvalidPlan, match=rule) as caught:
        check_schedule(graph, failed, damaged, NODES, 0.75)
    assert "\n" not in str(caught.value)


def test_limits_are_kept_in_decimal_arithmetic() -> None:
    graph = TaskGraph(Topology("tenths", (Operator("q", 3, cost=0.1, output=Output()),)))
    failed = np.ones(3, dtype=np.bool_)
    every = graph.tasks(range(3))
    check_recovery(graph, failed, RecoveryPlan("exact", every, every, 3.0, 0.3, True, 3.0), 0.3)
    with pytest.raises(InvalidPlan, match="at most its capacity"):
        check_recovery(graph, failed, RecoveryPlan("exact", every, every, 3.0, 0.3, True, 3.0), 0.29999999999)
