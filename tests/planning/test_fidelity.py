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
    one = fed_by_two(correlated=correlated)
    failed = one.failed(one.parse("b[1]"))
    assert losses(one, failed)[-1] == pytest.approx(loss)
    assert fidelity(one, failed) == pytest.approx(1 - loss)


@given(topologies(), st.data())
@settings(deadline=None, max_examples=150)
def test_fidelity_and_completeness_are_what_they_are_defined_to_be(topology: Topology, data: st.DataObject) -> None:
    one = TaskGraph(topology)
    definition = Definition(topology)
    free = [task for task in range(len(one)) if not one.safe[task]]
    rows = data.draw(st.lists(st.sets(st.sampled_from(free)) if free else st.just(set()), min_size=1, max_size=4))
    failed = np.zeros((len(rows), len(one)), dtype=np.bool_)
    for row, tasks in enumerate(rows):
        failed[row, list(tasks)] = True
    values = {Metric.FIDELITY: fidelity(one, failed), Metric.COMPLETENESS: completeness(one, failed)}
    for row, tasks in enumerate(rows):
        alive = frozenset(definition.tasks) - names(one, frozenset(tasks))
        for metric, found in values.items():
            assert found[row] == pytest.approx(definition.value(metric, alive), abs=1e-9)


def test_without_any_rate_every_producer_and_output_counts_alike() -> None:
    # a(2, rate 0) ──full──> b(2)
    one = graph(Operator("a", 2, rate=0.0), Operator("b", 2, (Input("a", FULL),)))
    assert fidelity(one, one.failed(one.parse("a[0]"))) == pytest.approx(0.5)
    assert fidelity(one, one.failed(one.parse("a[0], b[1]"))) == pytest.approx(0.25)
    assert completeness(one, one.failed(one.parse("a[0]"))) == pytest.approx(0.5)


def test_a_hundred_thousand_tasks_are_scored() -> None:
    # a(30,000) ──full──> b(30,000) ──one-to-one──> c(30,000) ──merge──> d(10,000)
    one = graph(
        Operator("a", 30_000),
        Operator("b", 30_000, (Input("a", FULL),)),
        Operator("c", 30_000, (Input("b", ONE),)),
        Operator("d", 10_000, (Input("c", MERGE),)),
    )
    failed = np.zeros(len(one), dtype=np.bool_)
    failed[:15_000] = True
    failed[-5_000:] = True
    assert len(one) == 100_000
    assert fidelity(one, failed) == pytest.approx(0.25)
    assert completeness(one, failed) == pytest.approx((0.5 * 3 + 0.25) / 4)
