"""Steps without Spark for recovery: again from retained outputs, as replay copies, as replicas, tentatively."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from engine.worker_cluster import Cluster, application, results

from tenax.control.copies import Role
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.engine.worker.orders import Order, ReadOrder, StepOrder
from tenax.engine.worker.steps import Worker
from tenax.model.tasks import Task
from tenax.planning.levels import layout

LOST = Task("window", 1)


def states_of(cluster: Cluster, task: Task, version: Version, node: int) -> dict[str, pl.DataFrame]:
    """A state as a process finds it that knows nothing."""
    worker = Worker(cluster.application, cluster.places, cluster.names[node])
    return dict(worker.states.load(version, None, worker.application.computations[task.operator]).state)


def same(left: dict[str, pl.DataFrame], right: dict[str, pl.DataFrame]) -> bool:
    return left.keys() == right.keys() and all(left[name].equals(right[name]) for name in left)


def again(cluster: Cluster, order: Order, steps: tuple[StepOrder, ...], readings: tuple[ReadOrder, ...]) -> Order:
    """The batches of an earlier order once more, for these steps."""
    homes = {step.task: (step.node,) for step in steps}
    read = frozenset(int(cluster.graph.operator_of[reading.task]) for reading in readings)
    laid = layout(cluster.graph, cluster.names, homes, read)
    return replace(order, pass_id=PassId(1, 99), layout=laid, steps=steps, readings=readings, retain=frozenset())


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(application(tmp_path), tmp_path, 2)


def retaining(cluster: Cluster, batches: int) -> Order:
    """A first pass in which everybody retains."""
    return replace(cluster.order(batches, 1), retain=frozenset(range(len(cluster.graph))))


def test_a_lost_task_comes_back_from_what_its_producers_retained(cluster: Cluster) -> None:
    order = retaining(cluster, 4)
    cluster.run(order)
    number = cluster.graph.number(LOST)
    before = states_of(cluster, LOST, cluster.heads[number], cluster.homes[number][0])
    readings = tuple(
        ReadOrder(producer, cluster.homes[producer][0], order.pass_id, order.first, order.last)
        for producer in cluster.graph.producers_of(number)
    )
    new_home = 1 - cluster.homes[number][0]
    steps = (StepOrder(number, new_home, Version(LOST, 0, NO_PASS)),)
    cluster.run(again(cluster, order, steps, readings))
    assert before
    assert same(before, states_of(cluster, LOST, Version(LOST, order.last, PassId(1, 99)), new_home))


def test_replay_copies_make_the_same_outputs_again_and_no_results(cluster: Cluster, tmp_path: Path) -> None:
    # rows ─► filter ─► keyed ─► window[1]: all above the lost task step again from the beginning
    order = retaining(cluster, 4)
    first = cluster.run(order)
    assert results(first, tmp_path)["sums"].height
    number = cluster.graph.number(LOST)
    before = states_of(cluster, LOST, cluster.heads[number], cluster.homes[number][0])
    above: set[int] = set()
    queue = [number]
    while queue:
        for producer in cluster.graph.producers_of(queue.pop()):
            if producer not in above:
                above.add(producer)
                queue.append(producer)
    start = tuple(Version(task, 0, NO_PASS) for task in cluster.graph.tasks(range(len(cluster.graph))))
    steps = tuple(replace(cluster.step(task), start=start[task], role=Role.REPLAY) for task in sorted(above))
    steps = tuple(replace(step, highest_us=order.steps[step.task].highest_us) for step in steps)
    lost = StepOrder(number, 1 - cluster.homes[number][0], start[number])
    reports = cluster.run(again(cluster, order, (*steps, lost), ()))
    assert not any(report.staged for report in reports)
    assert same(before, states_of(cluster, LOST, Version(LOST, order.last, PassId(1, 99)), lost.node))


def with_replicas(cluster: Cluster, order: Order, tasks: list[Task]) -> Order:
    """The same order with a second copy of these tasks on the other of two nodes."""
    steps = list(order.steps)
    homes: dict[int, tuple[int, ...]] = dict(cluster.homes)
    for task in map(cluster.graph.number, tasks):
        other = 1 - homes[task][0]
        homes[task] = (*homes[task], other)
        steps.append(replace(order.steps[task], node=other, role=Role.REPLICA))
    return replace(order, steps=tuple(steps), layout=layout(cluster.graph, cluster.names, homes))


def test_a_replica_has_the_state_of_its_primary_and_no_results(cluster: Cluster) -> None:
    # sums[0] is one-to-one behind window[0]: both have their replicas on the other node
    order = with_replicas(cluster, cluster.order(4, 1), [Task("window", 0), Task("sums", 0)])
    reports = cluster.run(order)
    assert len(reports) == len(order.steps)
    window, sums = (cluster.graph.number(Task(name, 0)) for name in ("window", "sums"))
    homes = [step.node for step in order.steps if step.task == window]
    primary, replica = (states_of(cluster, Task("window", 0), cluster.heads[window], node) for node in homes)
    assert primary
    assert same(primary, replica)
    staging = [report.node for report in reports if report.task == sums and report.staged]
    assert staging == [cluster.homes[sums][0]]


def test_where_both_copies_send_each_chunk_counts_once(tmp_path: Path) -> None:
    # window (3) ─► top-local (3) ─► top (1): it gets what each of the three has sent from two nodes
    copied = [Task(name, index) for name in ("window", "top-local-1") for index in range(3)]
    runs = {}
    for name in ("one", "active-active"):
        cluster = Cluster(application(tmp_path / name), tmp_path / name, 2)
        order = with_replicas(cluster, cluster.order(4, 1), copied)
        active_active = frozenset(map(cluster.graph.number, copied)) if name == "active-active" else frozenset()
        reports = cluster.run(replace(order, active_active=active_active))
        to_replicas = sum(report.sent.messages for report in reports if report.role is Role.REPLICA)
        runs[name] = (results(reports, tmp_path / name), to_replicas)
    (wanted, silent), (got, to_replicas) = runs["one"], runs["active-active"]
    assert silent == 0
    assert to_replicas > 0
    assert wanted.keys() == got.keys()
    assert all(got[name].equals(wanted[name]) for name in wanted)


def test_tentative_steps_do_without_missing_producers_and_leave_the_accurate_line_alone(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path / "a"), tmp_path / "a", 2)
    straight = Cluster(application(tmp_path / "b"), tmp_path / "b", 2)
    for number in (1, 2):
        cluster.run(cluster.order(2, number))
        straight.run(straight.order(2, number))
    heads = cluster.heads
    following = cluster.order(2, 3)
    missing = cluster.graph.number(LOST)
    steps = tuple(replace(step, tentative=True) for step in following.steps if step.task != missing)
    homes = {step.task: (step.node,) for step in steps}
    laid = layout(cluster.graph, cluster.names, homes)
    tentative = replace(following, pass_id=PassId(1, 50), layout=laid, steps=steps)
    guessed = results(cluster.run(tentative), tmp_path / "a")
    cluster.heads = heads
    accurate = results(cluster.run(following), tmp_path / "a")
    wanted = results(straight.run(straight.order(2, 3)), tmp_path / "b")
    assert accurate.keys() == wanted.keys()
    assert all(accurate[name].equals(wanted[name]) for name in wanted)
    assert 0 < guessed["sums"].height < wanted["sums"].height


def test_an_accurate_step_refuses_where_a_tentative_one_goes_on(cluster: Cluster) -> None:
    order = cluster.order(1, 1)
    missing = cluster.graph.number(Task("rows", 0))
    steps = tuple(step for step in order.steps if step.task != missing)
    laid = layout(cluster.graph, cluster.names, {step.task: (step.node,) for step in steps})
    broken = replace(order, steps=steps, layout=laid)
    kinds = {failure.kind for bundle in cluster.attempt(broken) for failure in bundle.failures}
    assert kinds == {"chunk"}
