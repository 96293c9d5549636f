"""Rates that were measured stand in for those that are declared."""

from __future__ import annotations

import numpy as np

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.rates import Rows, with_rates

TOPOLOGY = Topology("two", (Operator("a", 2), Operator("b", 2, (Input("a"),)), Operator("c", 1, (Input("b"),))))


def test_a_graph_with_measured_rates_has_the_rows_that_were_counted() -> None:
    graph = TaskGraph(with_rates(TOPOLOGY, Rows((30.0, 10.0, 36.0, 4.0, 20.0), (30.0, 10.0, 18.0, 2.0, 5.0))))
    assert np.allclose(graph.input_rate, [30.0, 10.0, 36.0, 4.0, 20.0])
    assert np.allclose(graph.output_rate, [30.0, 10.0, 18.0, 2.0, 5.0])


def test_where_nothing_came_all_tasks_count_alike() -> None:
    graph = TaskGraph(with_rates(TOPOLOGY, Rows((0.0,) * 5, (0.0,) * 5)))
    assert np.allclose(graph.input_rate, 0.0)
    assert graph.operators[1].weights is None
