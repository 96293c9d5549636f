"""Examples that people can follow: the figures of Su, Zhou 2021, small outages, and requests that are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tenax.errors import InvalidRequest, TenaxError, TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.plans import RecoverySchedule
from tenax.model.queries import queries
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.planning.recovery import (
    ALGORITHMS,
    check_recovery,
    check_schedule,
    exact,
    plan_recovery,
    schedule_recovery,
)

SPLIT, MERGE, ONE_TO_ONE = Partitioning.SPLIT, Partitioning.MERGE, Partitioning.ONE_TO_ONE
QUERY_CENTRIC = (None, "exact", "best-density", "dp")


def two_joins() -> TaskGraph:
    """The topology of Figure 2.

    s1 ─split─▶ a[0..1] ─one-to-one─┐
                                    ├─▶ c[0..1] ─split─▶ d[0..3] ─▶ output
    s2 ─split─▶ b[0..1] ─one-to-one─┘
    """
    return TaskGraph(
        Topology(
            "two-joins",
            (
                Operator("s1"),
                Operator("s2"),
                Operator("a", 2, (Input("s1", SPLIT),)),
                Operator("b", 2, (Input("s2", SPLIT),)),
                Operator("c", 2, (Input("a", ONE_TO_ONE), Input("b", ONE_TO_ONE))),
                Operator("d", 4, (Input("c", SPLIT),), output=Output()),
            ),
        )
    )


def apart(priorities: tuple[float, ...], costs: tuple[float, ...]) -> TaskGraph:
    """Queries that share nothing.

    q[0] ─▶ output    q[1] ─▶ output    ...
    """
    return TaskGraph(Topology("apart", (Operator("q", len(costs), cost=costs, output=Output(priorities)),)))


def random_sharing(query_count: int, partition_count: int, most_sharing: int, seed: int) -> TaskGraph:
    """Single-task operators, each read by one to `most_sharing` outputs.

    p0 ─▶ q3, q7    p1 ─▶ q0    ...    q0, q1, ... ─▶ output
    """
    draw = random.Random(seed)
    readers: list[list[str]] = [["p0"] for _ in range(query_count)]
    sources = [Operator(f"p{number}", cost=float(draw.randint(1, 10))) for number in range(partition_count)]
    for source in sources[1:]:
        for query in draw.sample(range(query_count), draw.randint(1, most_sharing)):
            readers[query].append(source.name)
    outputs = [
        Operator(
            f"q{number}",
            inputs=tuple(Input(name) for name in names),
            cost=draw.randint(1, 100) / 10,
            output=Output(float(draw.randint(1, 10))),
        )
        for number, names in enumerate(readers)
    ]
    return TaskGraph(Topology("random-sharing", (*sources, *outputs)))


def names(tasks: object) -> list[str]:
    return [str(task) for task in tasks]  # type: ignore[attr-defined]


def table(schedule: RecoverySchedule) -> list[tuple[list[str], list[str]]]:
    return [(names(arrival.placed), names(arrival.completed)) for arrival in schedule.arrivals]


def test_eight_output_tasks_in_the_middle_and_at_the_end_are_eight_queries() -> None:
    """
    o1 ─split─▶ o3[0..3] ─merge──────┐      o3, o4 and o5 are outputs
                                     ├─▶ o5[0..1]
    o2 ─split─▶ o4[0..1] ─one-to-one─┘
    """
    graph = TaskGraph(
        Topology(
            "eight-queries",
            (
                Operator("o1"),
                Operator("o2"),
                Operator("o3", 4, (Input("o1", SPLIT),), output=Output()),
                Operator("o4", 2, (Input("o2", SPLIT),), output=Output()),
                Operator("o5", 2, (Input("o3", MERGE), Input("o4", ONE_TO_ONE)), output=Output()),
            ),
        )
    )
    assert len(queries(graph)) == 8
    failed = graph.failed(graph.parse("o1[0],o3[*],o4[1],o5[*]"))
    for algorithm in QUERY_CENTRIC:
        # Seven queries are cut off, all but o4[0]. o4[1] is one alone; o1 brings nothing back without tasks of o3.
        for capacity, most in ((0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6), (8, 7), (9, 7)):
            plan = plan_recovery(graph, failed, capacity, algorithm)
            check_recovery(graph, failed, plan, capacity)
            assert plan.priority == most, (algorithm, capacity)
    assert names(plan_recovery(graph, failed, 4).queries) == ["o3[0]", "o3[1]", "o3[2]"]  # ties: task order


@pytest.mark.parametrize("algorithm", QUERY_CENTRIC)
def test_query_centric_recovery_brings_the_first_query_back_at_the_second_node(algorithm: str | None) -> None:
    graph = two_joins()
    failed = graph.failed(graph.parse("a[*],b[*],c[*],d[*]"))
    nodes = [(f"n{number}", 2.5) for number in range(1, 8)]
    schedule = schedule_recovery(graph, failed, nodes, 0.8, algorithm)
    check_schedule(graph, failed, schedule, nodes, 0.8)
    assert table(schedule) == [
        (["a[0]", "b[0]"], []),
        (["c[0]", "d[0]"], ["d[0]"]),
        (["a[1]", "d[1]"], ["d[1]"]),
        (["b[1]", "c[1]"], []),
        (["d[2]", "d[3]"], ["d[2]", "d[3]"]),
    ]
    assert schedule.waiting == ()


def test_operator_centric_recovery_brings_no_query_back_before_the_fourth_node() -> None:
    graph = two_joins()
    failed = graph.failed(graph.parse("a[*],b[*],c[*],d[*]"))
    nodes = [(f"n{number}", 2.5) for number in range(1, 6)]
    schedule = schedule_recovery(graph, failed, nodes, 0.8, "operator-centric")
    check_schedule(graph, failed, schedule, nodes, 0.8)
    assert table(schedule) == [
        (["a[0]", "a[1]"], []),
        (["b[0]", "b[1]"], []),
        (["c[0]", "c[1]"], []),
        (["d[0]", "d[1]"], ["d[0]", "d[1]"]),
        (["d[2]", "d[3]"], ["d[2]", "d[3]"]),
    ]


@pytest.mark.parametrize("algorithm", QUERY_CENTRIC)
def test_a_dense_query_does_not_keep_out_a_valuable_one(algorithm: str | None) -> None:
    graph = apart((1.0, 10.0), (1.0, 100.0))
    plan = plan_recovery(graph, np.ones(2, dtype=np.bool_), 100.0, algorithm)
    assert plan.priority == 10.0


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_three_tasks_of_a_tenth_fit_three_tenths(algorithm: str | None) -> None:
    graph = apart((0.1, 0.1, 0.1), (0.1, 0.1, 0.1))
    plan = plan_recovery(graph, np.ones(3, dtype=np.bool_), 0.3, algorithm)
    check_recovery(graph, np.ones(3, dtype=np.bool_), plan, 0.3)
    assert (plan.cost, plan.priority, plan.optimal) == (0.3, 0.3, True)


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_nothing_failed_needs_no_plan(algorithm: str | None) -> None:
    graph = two_joins()
    failed = np.zeros(len(graph), dtype=np.bool_)
    plan = plan_recovery(graph, failed, 5.0, algorithm)
    check_recovery(graph, failed, plan, 5.0)
    assert (plan.recover, plan.queries, plan.priority, plan.optimal) == ((), (), 0.0, True)
    assert schedule_recovery(graph, failed, [("n1", 1.0)], 1.0, algorithm).arrivals == ()


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_a_capacity_above_everything_recovers_everything(algorithm: str | None) -> None:
    graph = two_joins()
    failed = np.ones(len(graph), dtype=np.bool_)
    for capacity in (12.0, 1e300):
        plan = plan_recovery(graph, failed, capacity, algorithm)
        check_recovery(graph, failed, plan, capacity)
        assert (len(plan.recover), plan.priority, plan.optimal) == (12, 4.0, True)


@pytest.mark.parametrize("algorithm", QUERY_CENTRIC)
def test_one_enormous_task_does_not_blur_the_others(algorithm: str | None) -> None:
    graph = apart((9.0, 1.0, 1.0), (1e300, 0.5, 0.25))
    plan = plan_recovery(graph, np.ones(3, dtype=np.bool_), 0.75, algorithm)
    assert names(plan.queries) == ["q[1]", "q[2]"]


def test_tasks_that_serve_no_query_come_back_last() -> None:
    """
    s ─▶ unread     s ─▶ shown ─▶ output
    """
    graph = TaskGraph(
        Topology(
            "unread",
            (
                Operator("s", safe=True),
                Operator("unread", inputs=(Input("s"),)),
                Operator("shown", inputs=(Input("s"),), output=Output()),
            ),
        )
    )
    failed = graph.failed(graph.parse("unread[0],shown[0]"))
    assert names(plan_recovery(graph, failed, 1.0).recover) == ["shown[0]"]
    assert names(plan_recovery(graph, failed, 2.0).recover) == ["unread[0]", "shown[0]"]


def test_what_fits_no_single_node_waits_and_keeps_nothing_else_waiting() -> None:
    graph = apart((10.0, 1.0, 1.0), (3.0, 1.0, 1.0))
    failed = np.ones(3, dtype=np.bool_)
    nodes = [("n1", 2.0), ("n2", 2.0), ("n3", 3.0)]
    schedule = schedule_recovery(graph, failed, nodes, 1.0)
    check_schedule(graph, failed, schedule, nodes, 1.0)
    assert table(schedule) == [(["q[1]", "q[2]"], ["q[1]", "q[2]"]), ([], []), (["q[0]"], ["q[0]"])]


def test_a_node_is_filled_to_its_limit_in_decimal_arithmetic() -> None:
    graph = apart((1.0,), (0.56,))
    schedule = schedule_recovery(graph, np.ones(1, dtype=np.bool_), [("n1", 0.7)], 0.8)
    assert schedule.waiting == ()  # as floats, 0.8 × 0.7 is below 0.56


@pytest.mark.parametrize("seed", range(4))
def test_solvers_and_enumeration_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_sharing(9, 40, 3, seed)
    failed = np.ones(len(graph), dtype=np.bool_)
    capacity = round(float(graph.cost.sum()) * (0.3 + 0.15 * seed), 1)
    best = plan_recovery(graph, failed, capacity, "dp").priority
    assert plan_recovery(graph, failed, capacity, "exact").priority == best
    monkeypatch.setattr(exact, "ENUMERATED_QUERIES", 0)
    for clear_units in (1_000_000, 0):  # SCIP's proof, then CP-SAT's
        monkeypatch.setattr(exact, "CLEAR_UNITS", clear_units)
        plan = plan_recovery(graph, failed, capacity, "exact")
        check_recovery(graph, failed, plan, capacity)
        assert (plan.priority, plan.optimal) == (best, True)
        assert plan == plan_recovery(graph, failed, capacity, "exact")


def test_where_nothing_is_proven_in_time_the_plan_says_so_and_is_the_better_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = random_sharing(40, 200, 6, 1)
    failed = np.ones(len(graph), dtype=np.bool_)
    capacity = float(graph.cost.sum()) * 0.4

    monkeypatch.setattr(exact, "find", lambda *_: (np.zeros(40, dtype=np.bool_), float("inf")))
    monkeypatch.setattr(exact, "prove", lambda *_: (np.zeros(40, dtype=np.bool_), 1e6))
    monkeypatch.setattr(exact, "one_density", lambda *_: np.zeros(40, dtype=np.bool_))
    density = plan_recovery(graph, failed, capacity, "best-density")
    plan = plan_recovery(graph, failed, capacity)
    check_recovery(graph, failed, plan, capacity)
    assert plan.priority == density.priority
    assert not plan.optimal
    assert plan.bound > plan.priority
    assert plan.algorithm == "best-density"


def test_dp_refuses_to_keep_too_many_plans() -> None:
    graph = apart((1.0,) * 20, tuple(float(2**number) for number in range(20)))
    with pytest.raises(TooLarge, match="use the algorithm exact"):
        plan_recovery(graph, np.ones(20, dtype=np.bool_), 2.0**20 - 2, "dp")


@pytest.mark.parametrize(
    ("capacity", "algorithm", "time_limit_s"),
    [(-1.0, None, 1.0), (float("nan"), None, 1.0), (float("inf"), None, 1.0), (1.0, "exakt", 1.0), (1.0, None, 0.0)],
)
def test_requests_out_of_range_are_refused_in_one_line(
    capacity: float, algorithm: str | None, time_limit_s: float
) -> None:
    graph = two_joins()
    with pytest.raises(InvalidRequest) as caught:
        plan_recovery(graph, np.ones(len(graph), dtype=np.bool_), capacity, algorithm, time_limit_s)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "limit"),
    [
        ([("n", 1.0)], 0.0),
        ([("n", 1.0)], 1.1),
        ([("n", 1.0)], float("nan")),
        ([("n", -1.0)], 0.8),
        ([("n", float("inf"))], 0.8),
        ([("n", 1.0), ("n", 2.0)], 0.8),
    ],
)
def test_nodes_out_of_range_are_refused_in_one_line(nodes: list[tuple[str, float]], limit: float) -> None:
    graph = two_joins()
    with pytest.raises(TenaxError) as caught:
        schedule_recovery(graph, np.ones(len(graph), dtype=np.bool_), nodes, limit)
    assert "\n" not in str(caught.value)
