"""Generated topologies have the properties that their specifications state, and depend on the seed alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.errors import InvalidRequest
from tenax.model.generators import (
    LayeredSpec,
    Priorities,
    QuerySpec,
    Style,
    TopologySpec,
    merge_tree,
    random_layered,
    random_queries,
    random_topology,
    random_tree,
    with_random_reprocess,
)
from tenax.model.graph import TaskGraph
from tenax.model.topology import Partitioning, PerTask, Topology

SEEDS = st.integers(0, 10**9)

SPECS = st.builds(
    TopologySpec,
    operators=st.tuples(st.integers(2, 5), st.integers(5, 10)),
    parallelism=st.tuples(st.integers(1, 4), st.integers(4, 12)),
    skew=st.sampled_from([0.0, 0.1, 1.0]),
    joins=st.sampled_from([0.0, 0.5, 1.0]),
    style=st.sampled_from(Style),
    rate=st.sampled_from([(1, 9), (1_000, 1_000)]),
)
QUERIES = st.builds(
    QuerySpec,
    queries=st.integers(6, 20),
    size=st.integers(1, 10),
    partitions=st.none() | st.integers(20, 80),
    max_share=st.sampled_from([1, 3, 6]),
    skew=st.sampled_from([0.0, 0.2, 0.5]),
    priorities=st.sampled_from(Priorities),
)


def ancestors(topology: Topology) -> dict[str, set[str]]:
    """Every operator with itself and all operators upstream of it, by the definition."""
    inputs = {operator.name: [stream.operator for stream in operator.inputs] for operator in topology.operators}
    upstream_of: dict[str, set[str]] = {}
    for start in inputs:
        reached, waiting = {start}, [start]
        while waiting:
            for name in inputs[waiting.pop()]:
                if name not in reached:
                    reached.add(name)
                    waiting.append(name)
        upstream_of[start] = reached
    return upstream_of


def single(value: PerTask) -> float:
    """A number that is stated once for all tasks."""
    assert not isinstance(value, tuple)
    return value


def consumed(topology: Topology) -> set[str]:
    return {stream.operator for operator in topology.operators for stream in operator.inputs}


def sharers(topology: Topology) -> dict[str, set[str]]:
    """For every operator, the output operators that need it."""
    upstream = ancestors(topology)
    return {
        operator.name: {output for output in topology.outputs if operator.name in upstream[output]}
        for operator in topology.operators
    }


# Random topologies of parallel operators


@settings(deadline=None, max_examples=150)
@given(SPECS, SEEDS)
def test_a_random_topology_keeps_to_its_ranges_and_reaches_its_only_output(spec: TopologySpec, seed: int) -> None:
    topology = random_topology(spec, seed)
    assert spec.operators[0] <= len(topology.operators) <= spec.operators[1]
    assert all(spec.parallelism[0] <= operator.parallelism <= spec.parallelism[1] for operator in topology.operators)
    assert all(
        spec.rate[0] <= single(operator.rate) <= spec.rate[1] for operator in topology.operators if operator.is_source
    )
    names = {operator.name for operator in topology.operators}
    (sink,) = topology.outputs
    assert names - consumed(topology) == {sink}
    assert ancestors(topology)[sink] == names
    assert len(TaskGraph(topology)) == topology.task_count


@settings(deadline=None, max_examples=150)
@given(SPECS, SEEDS)
def test_joins_are_the_stated_part_of_the_operators_and_have_two_inputs(spec: TopologySpec, seed: int) -> None:
    topology = random_topology(spec, seed)
    count = len(topology.operators)
    joins = [operator for operator in topology.operators if operator.correlated]
    assert len(joins) == min(int(count * spec.joins + 0.5), count - 2)
    assert all(len(join.inputs) >= 2 for join in joins)


@settings(deadline=None, max_examples=150)
@given(SPECS, SEEDS)
def test_partitionings_are_of_the_stated_style(spec: TopologySpec, seed: int) -> None:
    topology = random_topology(spec, seed)
    for operator in topology.operators:
        for stream in operator.inputs:
            if spec.style is Style.FULL:
                assert stream.partitioning is Partitioning.FULL
            if spec.style is Style.STRUCTURED and operator.name not in topology.outputs:
                assert stream.partitioning is not Partitioning.FULL


def test_every_style_but_full_has_all_four_partitionings() -> None:
    for style in (Style.STRUCTURED, Style.MIXED):
        for parallelism in ((1, 4), (10, 20)):
            spec = TopologySpec(parallelism=parallelism, style=style)
            topologies = [random_topology(spec, seed) for seed in range(30)]
            kinds = {
                stream.partitioning for topology in topologies for two in topology.operators for stream in two.inputs
            }
            assert kinds == set(Partitioning)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([0.1, 0.5, 2.0]), SEEDS)
def test_skewed_weights_follow_zipfs_law(skew: float, seed: int) -> None:
    for operator in random_topology(TopologySpec(skew=skew), seed).operators:
        assert operator.weights is not None
        expected = [1 / rank**skew for rank in range(1, operator.parallelism + 1)]
        assert sorted(operator.weights, reverse=True) == pytest.approx(expected, abs=1e-6)


def test_uniform_load_states_no_weights() -> None:
    assert all(operator.weights is None for operator in random_topology(TopologySpec(), 1).operators)


@settings(deadline=None, max_examples=100)
@given(st.integers(3, 8), st.integers(1, 7), st.sampled_from([0.0, 0.5]), SEEDS)
def test_as_many_sinks_as_asked_for_and_nothing_is_unread_but_them(
    count: int, sinks: int, joins: float, seed: int
) -> None:
    sinks = min(sinks, count - 1)
    topology = random_topology(TopologySpec((count, count), (1, 4), joins=joins, sinks=sinks), seed)
    names = {operator.name for operator in topology.operators}
    assert len(topology.outputs) == sinks
    assert names - consumed(topology) == set(topology.outputs)
    assert all(sharers(topology).values())


def test_two_operators_and_ten_by_a_hundred_tasks_are_both_possible() -> None:
    assert random_topology(TopologySpec((2, 2), (1, 1), joins=0.5), 0).task_count == 2
    large = random_topology(TopologySpec((10, 10), (100, 100), 0.1, 0.5, Style.FULL), 0)
    assert large.task_count == len(TaskGraph(large)) == 1_000


# Layered graphs and trees of single tasks


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 7), st.integers(1, 6), st.integers(1, 3), st.floats(0, 1), SEEDS)
def test_a_layered_graph_has_its_tasks_edges_and_layers(
    layers: int, width: int, reach: int, density: float, seed: int
) -> None:
    fewest = width * (layers - 1)
    most = sum(width * width * min(layer, reach) for layer in range(layers))
    edges = fewest + round(density * (most - fewest))
    topology = random_layered(LayeredSpec(layers, width, edges, reach, (1, 10)), seed)
    graph = TaskGraph(topology)
    assert (len(graph), graph.edge_count) == (layers * width, edges)
    layer = {operator.name: number // width for number, operator in enumerate(topology.operators)}
    for operator in topology.operators:
        assert operator.parallelism == 1
        assert operator.reprocess in range(1, 11)
        assert operator.is_source == (layer[operator.name] == 0)
        assert all(1 <= layer[operator.name] - layer[stream.operator] <= reach for stream in operator.inputs)
    assert {layer[name] for name in topology.outputs} == {layers - 1}
    assert len(topology.outputs) == width


def test_reprocess_times_are_uniform_unless_a_range_is_given() -> None:
    assert {operator.reprocess for operator in random_layered(LayeredSpec(), 3).operators} == {1.0}
    times = {
        operator.reprocess for operator in random_layered(LayeredSpec(20, 20, 800, reprocess=(1, 10)), 3).operators
    }
    assert times == {float(time) for time in range(1, 11)}


def test_ten_thousand_tasks_with_a_hundred_thousand_edges_are_generated() -> None:
    topology = random_layered(LayeredSpec(100, 100, 100_000, reach=3), 1)
    assert topology.task_count == 10_000
    assert sum(len(operator.inputs) for operator in topology.operators) == 100_000


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), SEEDS)
def test_a_random_tree_has_one_sink_and_one_consumer_for_every_other_task(tasks: int, seed: int) -> None:
    topology = random_tree(tasks, seed)
    read = [stream.operator for operator in topology.operators for stream in operator.inputs]
    assert topology.task_count == tasks
    assert len(read) == len(set(read)) == tasks - 1
    assert len(topology.outputs) == 1


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 200), st.integers(2, 9))
def test_a_merge_tree_merges_at_most_its_fan_in_down_to_one_task(leaves: int, fan_in: int) -> None:
    """leaves (n) --merge--> (n / f) --merge--> ... --merge--> (1)"""
    graph = TaskGraph(merge_tree(leaves, fan_in))
    fan_ins = [len(graph.producers_of(number)) for number in range(leaves, len(graph))]
    assert all(1 <= count <= fan_in for count in fan_ins)
    assert graph.edge_count == len(graph) - 1
    assert graph.operators[0].parallelism == leaves
    assert graph.operators[-1].parallelism == 1


def test_a_merge_tree_of_a_million_tasks_has_few_operators() -> None:
    topology = merge_tree(500_000, 2)
    assert topology.task_count == 1_000_007
    assert len(topology.operators) == 20


# Queries that share partitions


@settings(deadline=None, max_examples=120)
@given(QUERIES, SEEDS)
def test_no_partition_is_shared_by_more_queries_than_allowed_and_each_by_one(spec: QuerySpec, seed: int) -> None:
    topology = random_queries(spec, seed)
    assert len(topology.outputs) == spec.queries
    assert all(operator.parallelism == 1 for operator in topology.operators)
    assert all(spec.cost[0] <= single(operator.cost) <= spec.cost[1] for operator in topology.operators)
    shares = {name: len(queries) for name, queries in sharers(topology).items()}
    assert all(1 <= share <= spec.max_share for share in shares.values())
    assert all(shares[name] == 1 for name in topology.outputs)
    if spec.partitions is not None:
        assert topology.task_count == spec.partitions
    else:
        memberships = sum(shares.values())
        assert spec.queries * spec.size <= memberships < spec.queries * spec.size + spec.max_share


@settings(deadline=None, max_examples=60)
@given(QUERIES, SEEDS)
def test_priorities_are_integers_or_grow_linearly_with_the_load(spec: QuerySpec, seed: int) -> None:
    topology = random_queries(spec, seed)
    upstream = ancestors(topology)
    priorities = {name: output.priority for name, output in topology.outputs.items()}
    if spec.priorities is Priorities.RANDOM:
        assert set(priorities.values()) <= {float(number) for number in range(1, 11)}
        return
    cost = {operator.name: single(operator.cost) for operator in topology.operators}
    load = {name: sum(cost[member] for member in upstream[name]) for name in priorities}
    low, high = min(load.values()), max(load.values())
    for name, priority in priorities.items():
        expected = 1 + 9 * (load[name] - low) / (high - low) if high > low else 1
        assert priority == pytest.approx(expected, abs=0.01)


def test_more_skew_means_less_sharing() -> None:
    def mean_share(skew: float) -> float:
        shares = [
            len(queries)
            for seed in range(20)
            for queries in sharers(random_queries(QuerySpec(partitions=80, max_share=6, skew=skew), seed)).values()
        ]
        return sum(shares) / len(shares)

    assert mean_share(0.0) > mean_share(0.5) > mean_share(2.0)


def test_some_partitions_are_upstream_of_others() -> None:
    topology = random_queries(QuerySpec(), 1)
    assert any(operator.inputs for operator in topology.operators if operator.name not in topology.outputs)


def test_two_hundred_queries_over_two_thousand_partitions_are_possible() -> None:
    topology = random_queries(QuerySpec(queries=200, partitions=2_000, max_share=6), 1)
    assert (topology.task_count, len(topology.outputs)) == (2_000, 200)


# Reprocess times for a topology at hand


def test_random_reprocess_times_change_nothing_else_and_stay_in_their_range() -> None:
    """level0 (40) --merge--> level1 (20) --merge--> ... --merge--> level6 (1)"""
    plain = merge_tree(40, 2)
    weighted = with_random_reprocess(plain, 7)
    assert set(TaskGraph(weighted).reprocess) == {float(time) for time in range(1, 11)}
    assert with_random_reprocess(weighted, 0, low=1, high=1) == with_random_reprocess(plain, 1, low=1, high=1)
    assert weighted == with_random_reprocess(plain, 7) != with_random_reprocess(plain, 8)
    assert [(operator.name, operator.parallelism, operator.inputs) for operator in weighted.operators] == [
        (operator.name, operator.parallelism, operator.inputs) for operator in plain.operators
    ]


# Seeds and errors

GENERATORS: dict[str, Callable[[int], Topology]] = {
    "topology": lambda seed: random_topology(TopologySpec(skew=0.1, joins=0.5), seed),
    "layered": lambda seed: random_layered(LayeredSpec(), seed),
    "tree": lambda seed: random_tree(30, seed),
    "queries": lambda seed: random_queries(QuerySpec(), seed),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_topology_and_another_seed_another(name: str) -> None:
    generate = GENERATORS[name]
    for seed in range(20):
        assert generate(seed) == generate(seed)
    assert len({generate(seed).operators for seed in range(20)}) == 20


def test_a_topology_does_not_depend_on_how_strings_hash() -> None:
    code = (
        "from tenax.model.generators import *\n"
        "print(random_queries(QuerySpec(), 5), random_topology(TopologySpec(joins=0.5), 5),"
        " random_layered(LayeredSpec(), 5))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": hashing}, capture_output=True, text=True, check=True
        ).stdout
        for hashing in ("1", "2")
    }
    assert len(shown) == 1


def test_a_seed_means_the_same_topology_on_every_machine() -> None:
    """o1 (4) --merge--> o3 (3) --split--> o4 (4), and o2 (1) --split--> both"""
    topology = random_topology(TopologySpec((4, 4), (1, 4), 0.5, 0.5, Style.STRUCTURED), 2)
    shown = [
        (operator.parallelism, operator.weights, [stream.operator for stream in operator.inputs])
        for operator in topology.operators
    ]
    assert shown == [
        (4, (1.0, 0.707107, 0.5, 0.57735), []),
        (1, (1.0,), []),
        (3, (1.0, 0.57735, 0.707107), ["o2", "o1"]),
        (4, (0.5, 0.57735, 1.0, 0.707107), ["o3", "o2"]),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: TopologySpec(operators=(1, 5)), r"operators is a range .* found \(1, 5\)"),
        (lambda: TopologySpec(parallelism=(5, 2)), r"parallelism is a range .* found \(5, 2\)"),
        (lambda: TopologySpec(joins=1.5), "joins is between 0 and 1, found 1.5"),
        (lambda: TopologySpec(skew=float("nan")), "skew is at least 0, found nan"),
        (lambda: TopologySpec(operators=(3, 9), sinks=3), "sinks is between 1 and 2, found 3"),
        (lambda: LayeredSpec(3, 4, 7), "edges is between 8 and 32, found 7"),
        (lambda: LayeredSpec(3, 4, 33), "edges is between 8 and 32, found 33"),
        (lambda: QuerySpec(queries=2, max_share=3), "max_share is between 1 and 2, found 3"),
        (lambda: QuerySpec(partitions=17), "partitions is at least 18, found 17"),
        (lambda: random_tree(0, 1), "tasks is at least 1, found 0"),
        (lambda: merge_tree(4, 1), "fan_in is at least 2, found 1"),
        (lambda: with_random_reprocess(merge_tree(4, 2), 1, 3, 2), r"reprocess is a range .* found \(3, 2\)"),
    ],
)
def test_a_wrong_specification_is_told_in_one_line(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        wrong()
    assert "\n" not in str(caught.value)
