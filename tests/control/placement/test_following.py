"""Replicas follow the load: when a plan is asked for, when replicas move, and that nothing pauses meanwhile."""

from __future__ import annotations

import pytest
from dialogues import SETTINGS, TREE, A, B, C, D, Dialogue, after, goes_on, tree_at

from tenax.control.events import PassFinished, PlanningFailed, ReplicasPlanned, TaskReport
from tenax.control.instructions import PlanReplicas, Step
from tenax.control.recovery.standing import qualities
from tenax.control.run import Run
from tenax.control.versions import NO_PASS, Version
from tenax.errors import InvalidRequest
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.rates import Rows

FOLLOWING = SETTINGS.but(checkpoint_every=4, measure_every=4, replicas=1, follow_load=0.1)


def replicas(talk: Dialogue) -> dict[Task, bool]:
    """The tasks that have a replica, and whether it is in step."""
    tasks = zip(TREE.tasks(range(len(TREE))), talk.coordinator.state.tasks, strict=True)
    return {name: task.in_step is not None for name, task in tasks if task.replica is not None}


def moves(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("move replicas")]


def test_a_plan_is_asked_for_once_enough_batches_are_counted() -> None:
    talk = tree_at(2, FOLLOWING, replicas=[B])
    assert "plan replicas by batches up to 4" in goes_on(talk, 2)
    assert "plan replicas by batches up to 8" not in goes_on(talk, 4)  # the first is not answered yet
    assert "plan replicas by batches up to 8" in talk.tell(PlanningFailed(4, "no memory"))


def test_nobody_plans_where_replicas_stay() -> None:
    talk = tree_at(2, FOLLOWING.but(follow_load=1.0), replicas=[B])
    assert not [line for line in goes_on(talk, 12) if line.startswith("plan replicas")]


def test_the_rows_of_each_task_are_counted_once_even_if_it_has_a_replica() -> None:
    talk = tree_at(0, FOLLOWING.but(measure_every=2), replicas=[B])
    order = talk.live
    assert order is not None
    assert (order.first, order.last) == (1, 2)
    reports = tuple(
        TaskReport(Version(step.task, 2, order.pass_id), step.node, rows=7, rows_out=3) for step in order.steps
    )
    asked = [
        each for each in talk.coordinator.handle(PassFinished(order.pass_id, reports)) if isinstance(each, PlanReplicas)
    ]
    assert [(request.batch, request.replicas) for request in asked] == [(2, frozenset([B]))]
    assert (asked[0].rows.taken, asked[0].rows.given) == ((7.0,) * 5, (3.0,) * 5)


def test_replicas_move_if_that_gains_enough_and_the_old_ones_stay_until_the_new_ones_are_in_step() -> None:
    talk = tree_at(4, FOLLOWING, replicas=[B])
    assert replicas(talk) == {B: True}
    said = talk.tell(ReplicasPlanned(4, (C,), 0.2, 0.5))
    assert moves(said) == [
        "move replicas from b[0] to c[0]: by the rows of the batches before 5, what outputs keep if all else fails "
        "grows from 0.20 to 0.50"
    ]
    assert replicas(talk) == {B: True}
    seen = []
    for _ in range(8):
        goes_on(talk, 2)
        seen.append(replicas(talk))
    assert seen[-1] == {C: True}
    assert all(replicas.get(B) or replicas.get(C) for replicas in seen)  # at no time none


def test_where_room_is_short_the_old_ones_end_first() -> None:
    nodes = [Node(f"n{number}", slots=2 if number == 6 else 1) for number in range(1, 7)]
    talk = tree_at(4, FOLLOWING, nodes, replicas=[B, C])
    assert replicas(talk) == {B: True, C: True}
    talk.tell(ReplicasPlanned(4, (C, D), 0.2, 0.5))
    goes_on(talk, 2)
    assert replicas(talk) == {C: True}
    goes_on(talk, 8)
    assert replicas(talk) == {C: True, D: True}


def test_replicas_stay_if_too_little_is_gained_or_nobody_asked() -> None:
    talk = tree_at(4, FOLLOWING, replicas=[B])
    assert not moves(talk.tell(ReplicasPlanned(3, (C,), 0.2, 0.9)))
    assert not moves(talk.tell(ReplicasPlanned(4, (C,), 0.5, 0.6)))
    goes_on(talk, 8)
    assert replicas(talk) == {B: True}


def test_a_plan_that_comes_during_an_outage_is_followed_after_it() -> None:
    talk = tree_at(4, FOLLOWING, replicas=[B])
    talk.loses("n4")
    assert moves(talk.tell(ReplicasPlanned(4, (C,), 0.2, 0.5)))
    talk.comes_back()
    for _ in range(8):
        goes_on(talk, 2)
    assert replicas(talk) == {C: True}


def test_a_story_tells_who_got_a_replica_and_why() -> None:
    talk = tree_at(4, FOLLOWING, replicas=[B])
    talk.tell(ReplicasPlanned(4, (C,), 0.2, 0.5))
    of_c, of_b = ([line.text for line in talk.coordinator.story(task)] for task in (C, B))
    assert any(text.startswith("gets a replica: by the rows") for text in of_c)
    assert any(text.startswith("has no replica any more") for text in of_b)
    assert not any("replica" in line.text for line in talk.coordinator.story(A))


def test_settings_for_following_are_checked() -> None:
    with pytest.raises(InvalidRequest, match="measure_every is a whole number of at least 1, found 0"):
        FOLLOWING.but(measure_every=0)
    with pytest.raises(InvalidRequest, match="follow_load is a number from 0 to 1"):
        FOLLOWING.but(follow_load=2.0)


def test_the_quality_of_tentative_results_goes_by_the_rows_that_were_counted() -> None:
    graph = TaskGraph(Topology("two", (Operator("a", 2), Operator("b", inputs=(Input("a"),)), after("c", "b"))))
    homes = {task: f"n{number}" for number, task in enumerate(graph.tasks(range(len(graph))), start=1)}
    run = Run(graph, SETTINGS, lambda *_: Placement(homes, {}), publishers=frozenset([Task("c", 0)]))
    live = [Step(Task(name, 0), "n1", Version(Task(name, 0), 0, NO_PASS)) for name in "abc"]  # a[1] is missing
    assert qualities(run, live, None) == {Task("c", 0): 0.5}
    rows = Rows((90.0, 10.0, 100.0, 100.0), (90.0, 10.0, 100.0, 100.0))
    assert qualities(run, live, rows)[Task("c", 0)] == pytest.approx(0.9)
