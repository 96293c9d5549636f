"""Fidelity and completeness against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.replicas.definition import Definition, names
from planning.replicas.samples import FULL, MERGE, ONE, graph
from strategies import topologies

from tenax.model.graph import TaskGraph
from tenax.model.plans import Metric
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.fidelity import completeness, fidelity, losses


def fed_by_two(*, correlated: bool) -> TaskGraph:
    """a(2: rates 1, 2) ──> c(1) <── b(2: rates 3, 2)."""
    return graph(
        Operator("a", 2, rate=(1.0, 2.0)),
        Operator("b", 2, rate=(3.0, 2.0)),
        Operator("c", 1, (Input("a", MERGE), Input("b", MERGE)), correlated=correlated),
    )


@pytest.mark.parametrize(("correlated", "loss"), [(True, 2 / 5), (False, 1 / 4)])
def test_a_join_loses_more_of_a_failed_producer_than_a_union(correlated: bool, loss: float) -> None:
    task_graph = fed_by_two(correlated=correlated)
    failed = task_graph.failed(task_graph.parse("b[1]"))
    assert losses(task_graph, failed)[-1] == pytest.approx(loss)
    assert fidelity(task_graph, failed) == pytest.approx(1 - loss)


@given(topologies(), st.data())
@settings(deadline=None, max_examples=150)
def test_fidelity_and_completeness_are_what_they_are_defined_to_be(topology: Topology, data: st.DataObject) -> None:
    task_graph = TaskGraph(topology)
    definition = Definition(topology)
    free = [task for task in range(len(task_graph)) if not task_graph.safe[task]]
    rows = data.draw(st.lists(st.sets(st.sampled_from(free)) if free else st.just(set()), min_size=1, max_size=4))
    failed = np.zeros((len(rows), len(task_graph)), dtype=np.bool_)
    for row, tasks in enumerate(rows):
        failed[row, list(tasks)] = True
    values = {Metric.FIDELITY: fidelity(task_graph, failed), Metric.COMPLETENESS: completeness(task_graph, failed)}
    for row, tasks in enumerate(rows):
        alive = frozenset(definition.tasks) - names(task_graph, frozenset(tasks))
        for metric, measured in values.items():
            assert measured[row] == pytest.approx(definition.value(metric, alive), abs=1e-9)


def test_without_any_rate_every_producer_and_output_counts_alike() -> None:
    # a(2, rate 0) ──full──> b(2)
    task_graph = graph(Operator("a", 2, rate=0.0), Operator("b", 2, (Input("a", FULL),)))
    assert fidelity(task_graph, task_graph.failed(task_graph.parse("a[0]"))) == pytest.approx(0.5)
    assert fidelity(task_graph, task_graph.failed(task_graph.parse("a[0], b[1]"))) == pytest.approx(0.25)
    assert completeness(task_graph, task_graph.failed(task_graph.parse("a[0]"))) == pytest.approx(0.5)


def test_a_hundred_thousand_tasks_are_scored() -> None:
    # a(30,000) ──full──> b(30,000) ──one-to-one──> c(30,000) ──merge──> d(10,000)
    task_graph = graph(
        Operator("a", 30_000),
        Operator("b", 30_000, (Input("a", FULL),)),
        Operator("c", 30_000, (Input("b", ONE),)),
        Operator("d", 10_000, (Input("c", MERGE),)),
    )
    failed = np.zeros(len(task_graph), dtype=np.bool_)
    failed[:15_000] = True
    failed[-5_000:] = True
    assert len(task_graph) == 100_000
    assert fidelity(task_graph, failed) == pytest.approx(0.25)
    assert completeness(task_graph, failed) == pytest.approx((0.5 * 3 + 0.25) / 4)
