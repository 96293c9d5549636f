"""What was measured stands in for what is declared: rates, costs, and the time to reprocess a task."""

from __future__ import annotations

import numpy as np
import pytest

from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Output, Topology
from tenax.planning.measured import Measures, with_measures
from tenax.planning.rates import Rows

# a[0] ──▶ b[0] ──╲
# a[1] ──▶ b[1] ───▶ c[0] ──▶ d[0] (output)
TOPOLOGY = Topology(
    "measured",
    (
        Operator("a", 2, reprocess=0.0, safe=True),
        Operator("b", 2, (Input("a"),), reprocess=7.0, cost=7.0),
        Operator("c", 1, (Input("b"),)),
        Operator("d", 1, (Input("c"),), output=Output(2.0)),
    ),
)
MEASURES = Measures(
    Rows((30.0, 10.0, 36.0, 4.0, 20.0, 5.0), (30.0, 10.0, 18.0, 2.0, 5.0, 5.0)),
    busy_s=(0.01, 0.02, 0.2, 0.1, 0.05, 0.3),
    batches=(10, 10, 10, 10, 12, 10),
    state_bytes=(0.0, 0.0, 5e6, 1e6, 0.0, 0.0),
    restore_s=1e-7,
)


def test_rates_costs_and_names_are_those_that_were_measured() -> None:
    topology = with_measures(TOPOLOGY, MEASURES)
    graph = TaskGraph(topology)
    assert np.allclose(graph.input_rate, MEASURES.rows.taken)
    assert np.allclose(graph.output_rate, MEASURES.rows.given)
    assert graph.cost.tolist() == list(MEASURES.busy_s)
    assert [operator.name for operator in topology.operators] == list("abcd")
    assert topology.outputs["d"] == Output(2.0)
    assert graph.safe.tolist() == [True, True] + [False] * 4


def test_a_task_reads_its_state_and_the_log_of_its_sources_and_steps_through_what_is_behind_its_checkpoint() -> None:
    times = TaskGraph(with_measures(TOPOLOGY, MEASURES)).reprocess
    log_s = 10 * 0.02  # sources are read side by side
    assert times.tolist() == pytest.approx([0.0, 0.0, 10 * 0.2 + log_s + 0.5, 10 * 0.1 + log_s + 0.1, 12 * 0.05, 0.0])


def test_times_are_rounded_up_to_milliseconds() -> None:
    busy_s = (0.0, 0.0, 0.000_01, 0.000_19, 0.000_2, 0.0)
    times = TaskGraph(with_measures(TOPOLOGY, Measures(MEASURES.rows, busy_s, (10,) * 6, (0.0,) * 6))).reprocess
    assert times.tolist() == [0.0, 0.0, 0.001, 0.002, 0.002, 0.0]
