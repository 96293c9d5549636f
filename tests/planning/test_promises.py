"""Backups follow what is measured: the present ones stay unless others are needed or fewer are enough."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from tenax.model.graph import TaskGraph
from tenax.model.plans import BackupPlan
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.backups import check_backups
from tenax.planning.backups.problem import LEAST_LATENCY_S
from tenax.planning.node_losses import NodeLoss
from tenax.planning.promises import followed, promised


def line(*times: float) -> TaskGraph:
    """a ──▶ b ──▶ c ──▶ ..., each with its reprocess time; a is a source."""
    names = "abcdefgh"[: len(times)]
    operators = [
        Operator(name, inputs=(Input(names[number - 1]),) if number else (), reprocess=time)
        for number, (name, time) in enumerate(zip(names, times, strict=True))
    ]
    return TaskGraph(Topology("line", tuple(operators)))


A, B, C, D = (Task(name, 0) for name in "abcd")


def follow(graph: TaskGraph, present: tuple[Task, ...], bound_s: float, scheduling_s: float = 0.0) -> tuple[Task, ...]:
    return followed(graph, present, bound_s, scheduling_s, margin=0.1, time_limit_s=5.0)


def test_a_promise_is_the_longest_latency_and_scheduling_and_says_who_breaks_it() -> None:
    graph = line(0.0, 1.0, 2.0, 1.5)
    kept = promised(graph, (B,), 4.0, 0.5)
    assert (kept.steps_s, kept.total_s, kept.holds, kept.broken_by) == (3.5, 4.0, True, ())
    broken = promised(graph, (), 4.0, 0.5)
    assert (broken.steps_s, broken.total_s, broken.holds, broken.broken_by) == (4.5, 5.0, False, (D,))


def test_backups_that_keep_the_bound_stay() -> None:
    graph = line(0.0, 1.0, 1.0, 1.0)
    assert follow(graph, (C,), 2.0) == (C,)
    assert follow(graph, (B,), 2.0) == (B,)


def test_more_are_planned_when_the_bound_is_broken_and_scheduling_is_part_of_it() -> None:
    graph = line(0.0, 1.0, 1.0, 1.0)
    assert follow(graph, (), 3.0) == ()
    assert len(follow(graph, (), 3.0, 0.5)) == 1
    assert follow(graph, (), 1.6, 0.5) == (B, C)


def slowest(*seconds: float) -> Callable[[Collection[Task]], tuple[NodeLoss, ...]]:
    """Losses of one node that take so long, by the number of backups."""
    return lambda backups: (NodeLoss("n", seconds[len(tuple(backups))], 0.0),)


def followed_by_nodes(present: tuple[Task, ...], losses: Callable[[Collection[Task]], tuple[NodeLoss, ...]]) -> int:
    """How many backups there are of a line of three seconds, in which a single task is back within 3 s of 3.5."""
    graph = line(0.0, 1.0, 1.0, 1.0)
    return len(followed(graph, present, 3.5, 0.0, margin=0.1, time_limit_s=5.0, losses=losses))


def test_more_are_planned_until_the_loss_of_every_node_is_in_time() -> None:
    assert followed_by_nodes((), slowest(3.4, 3.0, 2.0)) == 0
    assert followed_by_nodes((), slowest(4.0, 3.0, 2.0)) == 1
    assert followed_by_nodes((), slowest(4.0, 3.4, 2.0)) == 2  # 3.4 s would do, but hardly
    assert followed_by_nodes((B,), slowest(4.0, 3.4, 2.0)) == 1  # what is there and enough stays


def test_where_no_backups_bring_a_node_back_in_time_only_those_that_help_are_kept() -> None:
    assert followed_by_nodes((), slowest(9.0, 9.0, 8.9)) == 0
    assert followed_by_nodes((), slowest(9.0, 6.0, 5.9)) == 2
    assert followed_by_nodes((B,), slowest(9.0, 6.0, 5.9)) == 1


def test_fewer_are_kept_only_if_they_leave_a_margin() -> None:
    assert follow(line(0.0, 1.0, 1.0, 0.95), (C,), 3.0) == (C,)  # 2.95 s would do, but hardly
    assert follow(line(0.0, 1.0, 1.0, 0.5), (C,), 3.0) == ()


def test_where_nothing_helps_the_best_that_can_be_had_is_planned() -> None:
    graph = line(0.0, 5.0, 1.0, 1.0)
    backups = follow(graph, (), 3.0)
    assert promised(graph, backups, 3.0, 0.0).steps_s == 5.0  # b alone takes that
    assert backups == (B,)
    assert follow(graph, backups, 3.0) == backups
    assert follow(graph, (), 3.0, scheduling_s=9.0) == backups  # scheduling alone is too long


def test_where_nothing_takes_any_time_nobody_retains() -> None:
    assert follow(line(0.0, 0.0, 0.0), (B,), 1.0) == ()


@settings(deadline=None, max_examples=60)
@given(topology=topologies(), bound=st.floats(0.5, 20.0), scheduling=st.floats(0.0, 2.0), data=st.data())
def test_what_is_followed_keeps_the_bound_or_comes_as_near_as_one_task_allows(
    topology: Topology, bound: float, scheduling: float, data: st.DataObject
) -> None:
    graph = TaskGraph(topology)
    present = data.draw(st.sets(st.sampled_from(graph.tasks(range(len(graph))))))
    backups = follow(graph, tuple(sorted(present)), bound, scheduling)
    kept = promised(graph, backups, bound, scheduling)
    goal_s = max(bound - scheduling, float(graph.reprocess.max()), LEAST_LATENCY_S)
    check_backups(graph, BackupPlan("followed", backups, kept.steps_s, optimal=False, bound=0), goal_s)
    assert len(follow(graph, backups, bound, scheduling)) == len(backups), "what was followed stays"
