"""Backup plans of worked examples, every algorithm judged by the one validator."""

from __future__ import annotations

import numpy as np
import pytest

from tenax.errors import Infeasible, InvalidRequest, TooLarge
from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.planning.backups import ALGORITHMS, check_backups, plan_backups, recovery_latencies


def graph_of(*operators: Operator) -> TaskGraph:
    return TaskGraph(Topology("example", operators))


def twitter_sentiment(hot: int, filters: int, sentiments: int) -> TaskGraph:
    """All streams full, T = 1.

    tweets(1) -> hot(h) -> merge(1) -> filter(f) -> sentiment(s) -> sink(1)
        |                                 ^
        +---------------------------------+
    """
    return graph_of(
        Operator("tweets"),
        Operator("hot", hot, (Input("tweets"),)),
        Operator("merge", 1, (Input("hot"),)),
        Operator("filter", filters, (Input("tweets"), Input("merge"))),
        Operator("sentiment", sentiments, (Input("filter"),)),
        Operator("sink", 1, (Input("sentiment"),)),
    )


def merges(sources: int) -> TaskGraph:
    """first(n) =merge=> (n/2) =merge=> (n/4) ... =merge=> (1)"""
    operators = [Operator("o0", sources)]
    for level in range(1, sources.bit_length()):
        before = Input(f"o{level - 1}", Partitioning.MERGE)
        operators.append(Operator(f"o{level}", sources >> level, (before,)))
    return graph_of(*operators)


def chain(*reprocess: float) -> TaskGraph:
    """o0 -> o1 -> ... -> on"""
    return graph_of(
        *(
            Operator(f"o{number}", 1, (Input(f"o{number - 1}"),) if number else (), reprocess=time)
            for number, time in enumerate(reprocess)
        )
    )


DIAMOND = graph_of(
    #   a -> b -> d
    #   a -> c -> d
    Operator("a"),
    Operator("b", 1, (Input("a"),)),
    Operator("c", 1, (Input("a"),)),
    Operator("d", 1, (Input("b"), Input("c"))),
)


@pytest.mark.parametrize(
    ("sizes", "latency_s", "count"),
    [
        (sizes, latency_s, count)
        for sizes, counts in {(50, 20, 20): (22, 2, 1, 1, 0), (30, 30, 30): (32, 2, 1, 1, 0)}.items()
        for latency_s, count in zip(range(2, 7), counts, strict=True)
    ],
)
def test_twitter_sentiment_needs_as_many_backups_as_known(
    sizes: tuple[int, int, int], latency_s: int, count: int
) -> None:
    graph = twitter_sentiment(*sizes)
    plan = plan_backups(graph, latency_s)
    check_backups(graph, plan, latency_s)
    assert (plan.algorithm, len(plan.backups), plan.optimal, plan.bound) == ("exact", count, True, count)


def test_the_heuristic_finds_the_bottlenecks_of_twitter_sentiment() -> None:
    assert len(plan_backups(twitter_sentiment(50, 20, 20), 3, "dag").backups) == 2


@pytest.mark.parametrize(("latency_s", "count"), [(2, 10), (3, 4), (4, 2), (5, 0)])
@pytest.mark.parametrize("algorithm", ["exact", "tree", "dag"])
def test_merges_of_sixteen_sources_need_as_many_backups_as_known(latency_s: int, count: int, algorithm: str) -> None:
    graph = merges(16)
    plan = plan_backups(graph, latency_s, algorithm)
    check_backups(graph, plan, latency_s)
    assert len(plan.backups) == count


@pytest.mark.parametrize("algorithm", [None, "exact", "tree", "exhaustive"])
def test_the_tree_that_the_paper_gets_wrong_takes_two(algorithm: str | None) -> None:
    #   n3(3) \
    #          n2(8) -> n1(6) -> n0(6)
    #   n4(10)/
    times, parents = [6, 6, 8, 3, 10], [-1, 0, 1, 2, 2]
    graph = graph_of(
        *(
            Operator(
                f"n{node}",
                1,
                tuple(Input(f"n{child}") for child, parent in enumerate(parents) if parent == node),
                reprocess=times[node],
            )
            for node in range(5)
        )
    )
    plan = plan_backups(graph, 16, algorithm)
    check_backups(graph, plan, 16)
    assert len(plan.backups) == 2
    assert plan.optimal


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_tasks_of_a_tenth_meet_three_tenths(algorithm: str) -> None:
    plan = plan_backups(chain(0.1, 0.1, 0.1), 0.3, algorithm)
    assert (plan.backups, plan.recovery_latency_s, plan.optimal, plan.bound) == ((), 0.3, True, 0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_task_may_take_all_of_a_bound_with_endless_decimals(algorithm: str) -> None:
    graph = chain(1 / 3, 1 / 3)
    plan = plan_backups(graph, 1 / 3, algorithm)
    check_backups(graph, plan, 1 / 3)
    assert [str(task) for task in plan.backups] == ["o0[0]"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tasks_that_take_no_time_need_no_backups(algorithm: str) -> None:
    plan = plan_backups(chain(0, 0, 0), 1e-9, algorithm)
    assert (plan.backups, plan.recovery_latency_s) == ((), 0.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_bound_beyond_all_paths_does_not_blur_the_latency(algorithm: str) -> None:
    assert plan_backups(chain(0.1, 0.2), 1e300, algorithm).recovery_latency_s == 0.3


def test_of_equally_many_backups_exact_takes_those_of_least_latency() -> None:
    # o0 -> o1 -> o2 -> o3, one backup meets 3 after o0 or o1; after o1 both halves take 2
    assert plan_backups(chain(1, 1, 1, 1), 3).recovery_latency_s == 2.0
    plan = plan_backups(twitter_sentiment(3, 3, 3), 5)
    assert (len(plan.backups), plan.recovery_latency_s) == (1, 4.0)


def test_exact_keeps_twins_of_different_operators_together() -> None:
    #         +-> left(1) --+
    #   a(3) =+             +=> d(2)   left and right are twins, and so are the tasks of a
    #         +-> right(1) -+
    graph = graph_of(
        Operator("a", 3),
        Operator("left", 1, (Input("a"),)),
        Operator("right", 1, (Input("a"),)),
        Operator("d", 2, (Input("left"), Input("right"))),
    )
    plan = plan_backups(graph, 2)
    check_backups(graph, plan, 2)
    assert [str(task) for task in plan.backups] == ["left[0]", "right[0]"]


def test_a_million_tasks_take_a_few_array_operations() -> None:
    graph = merges(2**19)
    plan = plan_backups(graph, 5, "tree")
    backups = graph.mask(plan.backups)
    assert float(recovery_latencies(graph, backups).max()) == plan.recovery_latency_s == 5.0
    assert len(plan.backups) == 33_824


@pytest.mark.parametrize("algorithm", [None, "exact", "dag", "share"])
def test_full_streams_of_many_substreams_are_planned_without_listing_them(algorithm: str | None) -> None:
    # a(2000) =full=> b(2000) =full=> c(2000) =full=> d(1): eight million substreams, times of 1 and 2
    times = tuple(float(1 + index % 2) for index in range(2000))
    graph = graph_of(
        Operator("a", 2000, reprocess=times),
        Operator("b", 2000, (Input("a"),), reprocess=times),
        Operator("c", 2000, (Input("b"),), reprocess=times),
        Operator("d", 1, (Input("c"),)),
    )
    plan = plan_backups(graph, 6, algorithm)
    check_backups(graph, plan, 6)
    if algorithm != "share":
        assert len(plan.backups) == 1000  # 2 + 2 + 2 + 1 is too long: without the slow tasks of one operator it is 6


def test_lines_may_join_in_a_sink() -> None:
    # a(3) =one-to-one=> b(3) =merge=> c(1)
    graph = graph_of(
        Operator("a", 3), Operator("b", 3, (Input("a", Partitioning.ONE_TO_ONE),)), Operator("c", 1, (Input("b"),))
    )
    plan = plan_backups(graph, 2, "line")
    check_backups(graph, plan, 2)
    assert [str(task) for task in plan.backups] == ["b[0]", "b[1]", "b[2]"]


def test_plans_are_the_same_every_time() -> None:
    graph = twitter_sentiment(5, 4, 3)
    for algorithm in ("exact", "dag", "share"):
        assert plan_backups(graph, 3, algorithm) == plan_backups(graph, 3, algorithm)


@pytest.mark.parametrize("latency_s", [0, -1, float("nan"), float("inf")])
def test_a_bound_is_a_positive_number(latency_s: float) -> None:
    with pytest.raises(InvalidRequest, match="a latency bound is a finite number of seconds above 0"):
        plan_backups(DIAMOND, latency_s)


@pytest.mark.parametrize("time_limit_s", [0, -1, float("nan")])
def test_a_time_limit_is_a_positive_number(time_limit_s: float) -> None:
    with pytest.raises(InvalidRequest, match="a time limit is a number of seconds above 0"):
        plan_backups(DIAMOND, 2, time_limit_s=time_limit_s)


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_a_task_slower_than_the_bound_is_named(algorithm: str | None) -> None:
    graph = chain(1, 2.5, 2.5)
    with pytest.raises(Infeasible) as caught:
        plan_backups(graph, 2, algorithm)
    assert "o1[0] with 2.5 s above 2 s: raise --latency to at least 2.5 or checkpoint o1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_algorithm_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(InvalidRequest, match="unknown backup algorithm 'exhaustiv': did you mean 'exhaustive'"):
        plan_backups(DIAMOND, 2, "exhaustiv")


@pytest.mark.parametrize(
    ("graph", "algorithm", "message"),
    [
        (DIAMOND, "tree", r"at most one consumer per task, found a\[0\] with 2: use 'exact' or 'dag'"),
        (DIAMOND, "line", r"at most one consumer per task, found a\[0\] with 2: use 'exact' or 'dag'"),
        (merges(4), "line", r"join in a sink only, found o1\[0\] with 2 producers and a consumer: use 'tree'"),
        (
            graph_of(Operator("a", 2), Operator("b", 3, (Input("a", Partitioning.SPLIT),))),
            "tree",
            r"found a\[0\] with 2",
        ),
        (
            graph_of(Operator("a", 3), Operator("b", 4, (Input("a", Partitioning.SPLIT),))),
            "line",
            r"found a\[0\] with 2",
        ),
        (graph_of(Operator("a", 2), Operator("b", 2, (Input("a"),))), "tree", r"found a\[0\] with 2"),
    ],
)
def test_the_task_that_breaks_a_shape_is_named(graph: TaskGraph, algorithm: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        plan_backups(graph, 4, algorithm)


def test_exhaustive_search_has_an_end() -> None:
    with pytest.raises(TooLarge, match=r"at most 2,000,000 sets, found .* among 92 tasks: use 'exact'"):
        plan_backups(twitter_sentiment(30, 30, 30), 2, "exhaustive")


def test_a_lost_backup_makes_its_consumers_wait() -> None:
    # o0 -> o1 -> o2, o1 is a backup
    graph = chain(0.1, 0.2, 0.4)
    backups = np.array([False, True, False])
    assert recovery_latencies(graph, backups).tolist() == [0.1, 0.3, 0.4]
    assert recovery_latencies(graph, backups, np.array([True, False, True])).tolist() == [0.1, 0.3, 0.4]
    assert recovery_latencies(graph, backups, np.array([False, True, True])).tolist() == [0.1, 0.3, 0.7]
