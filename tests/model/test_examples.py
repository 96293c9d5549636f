"""Every example file loads, says what it is, and has the shape and the worked figures that the papers give."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pytest

from tenax.errors import InvalidRequest
from tenax.examples import EXAMPLES, describe, example_path
from tenax.model.files import read_topology
from tenax.model.graph import TaskGraph
from tenax.model.queries import queries
from tenax.model.topology import Operator, Partitioning
from tenax.planning.fidelity import fidelity, losses

TASKS_EDGES_OUTPUTS = {
    "chain-of-eight": (8, 7, 1),
    "four-queries": (12, 12, 4),
    "hashtag-aggregates": (17, 27, 15),
    "hashtag-windows": (7, 10, 4),
    "line": (10, 9, 1),
    "lines": (20, 19, 1),
    "one-task-join": (5, 4, 1),
    "one-task-union": (5, 4, 1),
    "road-conditions": (10, 12, 8),
    "signal-guru": (55, 156, 1),
    "top-pages": (17, 44, 1),
    "traffic": (13, 24, 5),
    "traffic-incidents": (17, 32, 1),
    "tree": (20, 19, 1),
    "twitter-sentiment-30-30-30": (93, 1_050, 1),
    "twitter-sentiment-50-20-20": (93, 560, 1),
    "two-sources-join": (14, 16, 2),
    "two-sources-union": (14, 16, 2),
    "window-tree": (31, 30, 1),
}
LONGEST_LINE = 120


def load(name: str) -> TaskGraph:
    return TaskGraph(read_topology(example_path(name)))


def keep(graph: TaskGraph, alive: str) -> float:
    """Fidelity when only these tasks live."""
    return float(fidelity(graph, ~graph.mask(graph.parse(alive))))


def test_every_example_is_listed_in_the_table_above() -> None:
    assert set(EXAMPLES) == set(TASKS_EDGES_OUTPUTS)
    assert list(EXAMPLES) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_its_tasks_edges_and_outputs(name: str) -> None:
    graph = load(name)
    assert graph.topology.name == name
    assert (len(graph), graph.edge_count, int(graph.is_output.sum())) == TASKS_EDGES_OUTPUTS[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_opens_with_what_it_is_a_sketch_its_origin_and_what_is_ours(name: str) -> None:
    lines = example_path(name).read_text(encoding="utf-8").splitlines()
    header = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    assert lines[0] == f"# {describe(name)}"
    assert describe(name)[-1] in ".?"
    assert any("-->" in line for line in header)
    text = " ".join(header)
    assert re.search(r"No figure of a paper|(Su, Zhou|Li et al\.|Gu et al\.) 20\d\d", text)
    assert "ours" in text.lower()
    assert max(len(line) for line in lines) <= LONGEST_LINE


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operator_of_an_example_reaches_an_output_and_has_a_rate(name: str) -> None:
    graph = load(name)
    needed = {member for query in queries(graph) for member in query.members}
    assert needed == set(graph.tasks(range(len(graph))))
    assert (graph.output_rate > 0).all()


def test_an_unknown_example_is_told_with_the_nearest_name() -> None:
    with pytest.raises(InvalidRequest, match="unknown example 'trafic': did you mean 'traffic'"):
        example_path("trafic")


def test_a_failed_task_costs_a_join_more_than_a_union() -> None:
    """a (2) --merge--> c (1) <--merge-- b (2); rates 1, 2 and 3, 2; b[1] fails"""
    for name, expected in (("one-task-join", 2 / 5), ("one-task-union", 1 / 4)):
        graph = load(name)
        failed = graph.failed(graph.parse("b[1]"))
        assert losses(graph, failed)[-1] == pytest.approx(expected)
        assert fidelity(graph, failed) == pytest.approx(1 - expected)


@pytest.mark.parametrize(
    ("name", "trees", "size", "kept"), [("two-sources-union", 16, 3, 1 / 16), ("two-sources-join", 8, 4, 1 / 8)]
)
def test_two_sources_have_the_minimal_complete_trees_of_the_paper(
    name: str, trees: int, size: int, kept: float
) -> None:
    """o1 (4) --one-to-one--> o3 (4) --full--> o4 (2), and o2 (4) --one-to-one--> o3 (4)"""
    graph = load(name)
    plans = (np.arange(2 ** len(graph))[:, None] >> np.arange(len(graph)) & 1).astype(np.bool_)
    value = fidelity(graph, ~plans)
    works = value > 1e-12
    one_less = np.arange(len(plans))[:, None] & ~(1 << np.arange(len(graph)))
    # Minimal: it works, and without any of its tasks it does not.
    minimal = works & ~(works[one_less] & plans).any(axis=1)
    assert int(minimal.sum()) == trees
    assert set(plans[minimal].sum(axis=1)) == {size}
    assert value[minimal] == pytest.approx(kept)


def test_one_replicated_tree_of_three_tasks_keeps_a_sixteenth() -> None:
    """o1 (4) --one-to-one--> o3 (4) --full--> o4 (2), and o2 (4) --one-to-one--> o3 (4)"""
    assert keep(load("two-sources-union"), "o1[0],o3[0],o4[0]") == pytest.approx(0.0625)
    assert keep(load("two-sources-join"), "o1[0],o3[0],o4[0]") == 0
    assert keep(load("two-sources-join"), "o1[0],o2[0],o3[0],o4[0]") == pytest.approx(0.125)


def test_the_window_tree_halves_tasks_and_rates_and_never_loses_a_source() -> None:
    """sources (16) --merge--> o1 (8) --merge--> o2 (4) --merge--> o3 (2) --merge--> o4 (1)"""
    graph = load("window-tree")
    assert [operator.parallelism for operator in graph.operators] == [16, 8, 4, 2, 1]
    assert graph.output_rate == pytest.approx(1_000)
    assert graph.safe.tolist() == [True] * 16 + [False] * 15
    assert all(len(graph.producers_of(number)) == 2 for number in range(16, 31))


def test_the_queries_on_pages_and_incidents_run_at_the_rates_of_the_paper() -> None:
    """requests --> slices --> merged --> top; locations --> speed --> jams <-- incidents <-- reports"""
    pages, incidents = load("top-pages"), load("traffic-incidents")
    assert pages.output_rate[pages.span(0)].sum() == pytest.approx(73_291_868 * 48 / 86_400, abs=1)
    assert incidents.output_rate[incidents.mask(incidents.parse("locations[*]"))].sum() == pytest.approx(20_000)
    assert incidents.output_rate[incidents.mask(incidents.parse("incidents[*]"))].sum() == pytest.approx(0.5, rel=0.01)
    assert [operator.name for operator in incidents.operators if operator.correlated] == ["jams"]
    assert all(operator.safe == operator.is_source for graph in (pages, incidents) for operator in graph.operators)


def test_the_signal_guru_has_nine_steps_of_different_parallelism() -> None:
    """phones --> dispatch --> colour --> shape --> motion --> vote --> group --> predict --> sink"""
    graph = load("signal-guru")
    assert len(graph.operators) == 9
    assert len({operator.parallelism for operator in graph.operators}) == 9
    assert (graph.reprocess == 1).all()


@pytest.mark.parametrize("name", ["line", "lines", "tree", "window-tree", "chain-of-eight"])
def test_every_task_of_a_line_or_tree_has_one_consumer_but_the_sink(name: str) -> None:
    graph = load(name)
    assert [len(graph.consumers_of(number)) for number in range(len(graph))] == [1] * (len(graph) - 1) + [0]


def test_road_conditions_have_eight_queries_that_share_partitions() -> None:
    """o1 (1) --split--> o3 (4) --merge--> o5 (2) <--one-to-one-- o4 (2) <--split-- o2 (1)"""
    members = {
        str(query.output): {str(member) for member in query.members} for query in queries(load("road-conditions"))
    }
    assert len(members) == 8
    assert members["o5[0]"] == {"o1[0]", "o2[0]", "o3[0]", "o3[1]", "o4[0]", "o5[0]"}
    assert members["o3[3]"] == {"o1[0]", "o3[3]"}


def test_the_first_two_of_four_queries_need_the_same_six_partitions_but_one() -> None:
    """s1 (1) --split--> a (2) --> c (2) --split--> d (4), and s2 (1) --split--> b (2) --> c (2)"""
    members = [{str(member) for member in query.members} for query in queries(load("four-queries"))]
    upstream = {"s1[0]", "s2[0]", "a[0]", "b[0]", "c[0]"}
    assert members[0] == upstream | {"d[0]"}
    assert members[1] == upstream | {"d[1]"}
    assert members[2] & members[1] == {"s1[0]", "s2[0]"}


def test_hashtag_aggregates_grow_downstream_and_all_depend_on_the_first_four() -> None:
    """source --> parser --> o0..o3 --> o4..o7 --> o8..o11 --> o12..o14"""
    graph = load("hashtag-aggregates")
    names = [operator.name for operator in graph.operators]
    assert names == ["source", "parser"] + [f"o{number}" for number in range(15)]
    assert (np.diff(graph.input_rate) >= 0).all()
    first = {"o0[0]", "o1[0]", "o2[0]", "o3[0]"}
    assert all(first & {str(member) for member in query.members} for query in queries(graph))
    unread = [names[number] for number in range(len(graph)) if not graph.consumers_of(number)]
    assert unread == ["o12", "o13", "o14"]


def test_the_traffic_example_uses_every_field_of_the_format() -> None:
    """locations (4) --full--> speed (3) --full--> jams (2) <--one-to-one-- incidents (2) <--full-- reports (2)"""
    text = example_path("traffic").read_text(encoding="utf-8")
    assert all(f"{field.name}: " in text for field in fields(Operator))
    graph = load("traffic")
    assert {stream.partitioning for operator in graph.operators for stream in operator.inputs} == {
        Partitioning.FULL,
        Partitioning.ONE_TO_ONE,
    }
    assert list(graph.topology.outputs) == ["speed", "jams"]
