"""Random and regular topologies from a seed: the same specification and seed give the same topology everywhere."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from random import Random

from tenax.errors import InvalidRequest
from tenax.model.topology import Input, Operator, Output, Partitioning, PerTask, Topology

_DIGITS = 6  # powers are rounded, because their last bits differ between platforms
_SAME_PARALLELISM = 0.4  # how often a structured operator copies its first input's parallelism, so one-to-one occurs
_SECOND_INPUT = 0.25  # how often an operator has one input more than it needs
_UNREAD_FIRST = 0.7  # how often an input is one that nobody reads yet: topologies grow deep instead of wide
_FULL = 0.5  # how often a stream that may be full is
_CHAINED = 0.5  # how often a shared partition reads another that all its queries have anyway


class Style(StrEnum):
    """Which partitionings a random topology has."""

    STRUCTURED = "structured"
    """One-to-one, merge and split; only streams into an output operator may be full."""
    FULL = "full"
    """Every stream is full."""
    MIXED = "mixed"
    """Any stream may be full: a general topology."""


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """What Figure 14 of Su, Zhou 2016 varies; ranges include both ends.

    - `skew` (a): the load of an operator's tasks follows Zipf's law with this parameter, 0.1 there; 0 is uniform.
    - `parallelism` (b): tasks per operator, drawn from different ranges there.
    - `style` (c): structured or full topologies.
    - `joins` (d): the part of all operators that join at least two inputs, 0 or 0.5 there; rounded, and kept low
      enough that two operators stay to be joined.
    - `operators` is 5 to 10 in all of them, with one sink. `rate` is the tuples/s of a source operator.

    Ours, because the paper does not tell: how operators are connected, that sources are alike unless `rate` says
    otherwise, and that which task of an operator gets which load is random. Merges and splits are those of the file
    format: where neither parallelism divides the other, their groups differ by one task.
    """

    operators: tuple[int, int] = (5, 10)
    parallelism: tuple[int, int] = (1, 10)
    skew: float = 0.0
    joins: float = 0.0
    style: Style = Style.MIXED
    sinks: int = 1
    rate: tuple[int, int] = (1_000, 1_000)

    def __post_init__(self) -> None:
        _check_range("operators", self.operators, 2)
        _check_range("parallelism", self.parallelism, 1)
        _check_range("rate", self.rate, 0)
        _check_number("skew", self.skew, 0)
        _check_number("joins", self.joins, 0, 1)
        _check_number("sinks", self.sinks, 1, self.operators[0] - 1)


@dataclass(frozen=True, slots=True)
class LayeredSpec:
    """A general graph of single tasks, as Figure 8 of Li et al. 2017 needs them; ranges include both ends.

    - `layers` × `width` tasks; sources are exactly the first layer, sinks exactly the last.
    - `edges` substreams in all: one into and out of every task first, the others anywhere between a layer and one of
      the `reach` layers before it.
    - `reprocess`: uniform 1, or integers from 1 to 10, are the paper's two weight settings.
    """

    layers: int = 5
    width: int = 4
    edges: int = 30
    reach: int = 1
    reprocess: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        _check_number("layers", self.layers, 1)
        _check_number("width", self.width, 1)
        _check_number("reach", self.reach, 1)
        _check_range("reprocess", self.reprocess, 0)
        _check_number("edges", self.edges, self.width * (self.layers - 1), sum(self.pairs()))

    def pairs(self) -> list[int]:
        """For every layer, how many pairs of an earlier task and one of its own may be connected."""
        return [self.width**2 * min(layer, self.reach) for layer in range(self.layers)]


class Priorities(StrEnum):
    """How queries get their priorities."""

    RANDOM = "random"
    """Integers from 1 to 10."""
    LINEAR = "linear"
    """From 1 for the query with the least load up to 10 for the one with the most."""


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """What Figure 15 of Su, Zhou 2021 varies; ranges include both ends.

    - `max_share` (a): the most queries that share a partition, 3 or 6 there.
    - `skew` (b): the parameter of Zipf's law for how many queries share a partition, 0.2 or 0.5 there.
    - `priorities` (c): random, or linear in the query's load.
    - `queries` is 18 in all of them. `size` is the mean number of partitions of a query, its output among them; it
      decides how many partitions there are, unless `partitions` states their number (outputs among them).

    Ours, because the paper does not tell: a partition is shared by k queries with probability proportional to
    k^−skew; the queries that share it are drawn uniformly; outputs are not shared; a partition reads another at
    random where the same queries need both; costs are drawn from `cost`, and a query's load is the sum of its costs.
    """

    queries: int = 18
    size: int = 8
    partitions: int | None = None
    max_share: int = 3
    skew: float = 0.2
    priorities: Priorities = Priorities.RANDOM
    cost: tuple[int, int] = (1, 10)

    def __post_init__(self) -> None:
        _check_number("queries", self.queries, 1)
        _check_number("size", self.size, 1)
        if self.partitions is not None:
            _check_number("partitions", self.partitions, self.queries)
        _check_number("max_share", self.max_share, 1, self.queries)
        _check_number("skew", self.skew, 0)
        _check_range("cost", self.cost, 0)


def random_topology(spec: TopologySpec, seed: int) -> Topology:
    """A connected topology of parallel operators: each one reaches an output. O(operators² + tasks)."""
    random = Random(seed)
    count = random.randint(*spec.operators)
    first_sink = count - spec.sinks
    joins = min(int(count * spec.joins + 0.5), count - 2) if first_sink >= 2 else 0
    fewest = 2 if joins else 1
    sources = random.randint(fewest, max(fewest, min(count // 2, count - max(joins, spec.sinks))))
    joining = set(random.sample(range(sources, count), joins))
    inputs = _connect(random, count, sources, first_sink, joining)
    operators: list[Operator] = []
    for number, producers in enumerate(inputs):
        parallelism = random.randint(*spec.parallelism)
        if producers and spec.style is Style.STRUCTURED and random.random() < _SAME_PARALLELISM:
            parallelism = operators[producers[0]].parallelism
        may_be_full = spec.style is Style.MIXED or number >= first_sink
        operators.append(
            Operator(
                name=f"o{number + 1}",
                parallelism=parallelism,
                inputs=tuple(
                    _input(random, spec.style, operators[producer], parallelism, may_be_full=may_be_full)
                    for producer in producers
                ),
                weights=_zipf_weights(random, parallelism, spec.skew),
                rate=1.0 if producers else float(random.randint(*spec.rate)),
                correlated=number in joining,
                output=Output() if number >= first_sink else None,
            )
        )
    return Topology(f"random-{spec.style}-{seed}", tuple(operators))


def random_layered(spec: LayeredSpec, seed: int) -> Topology:
    """A layered graph of operators of one task each. O(tasks + edges log edges)."""
    random = Random(seed)
    width = spec.width
    tasks = spec.layers * width
    producers: list[set[int]] = [set() for _ in range(tasks)]
    for start in range(width, tasks, width):
        before = random.sample(range(start - width, start), width)
        for consumer, producer in enumerate(before, start=start):
            producers[consumer].add(producer)
    missing = spec.edges - width * (spec.layers - 1)
    ends = list(accumulate(spec.pairs()))
    # As many pairs as edges: even if every edge made above is drawn again, enough new ones are among them.
    for pair in random.sample(range(ends[-1]), spec.edges):
        if missing == 0:
            break
        producer, consumer = _pair(pair, ends, width)
        if producer not in producers[consumer]:
            producers[consumer].add(producer)
            missing -= 1
    names = [f"layer{number // width + 1}-{number % width + 1}" for number in range(tasks)]
    operators = tuple(
        Operator(
            name,
            inputs=tuple(Input(names[producer]) for producer in sorted(before)),
            reprocess=float(random.randint(*spec.reprocess)),
        )
        for name, before in zip(names, producers, strict=True)
    )
    return Topology(f"layered-{seed}", operators)


def random_tree(tasks: int, seed: int) -> Topology:
    """A tree of operators of one task each, towards one sink; each task's consumer is drawn uniformly. O(tasks)."""
    _check_number("tasks", tasks, 1)
    random = Random(seed)
    inputs: list[list[Input]] = [[] for _ in range(tasks)]
    for task in range(1, tasks):
        inputs[random.randrange(task)].append(Input(f"t{task}"))
    operators = tuple(Operator(f"t{task}", inputs=tuple(before)) for task, before in enumerate(inputs))
    return Topology(f"tree-{seed}", operators)


def merge_tree(leaves: int, fan_in: int) -> Topology:
    """A balanced tree of merges down to one task, one operator per level; 500,000 leaves by 2 are 1,000,007 tasks."""
    _check_number("leaves", leaves, 1)
    _check_number("fan_in", fan_in, 2)
    widths = [leaves]
    while widths[-1] > 1:  # at most log2(leaves) levels
        widths.append(-(-widths[-1] // fan_in))
    operators = [Operator("level0", leaves, rate=float(leaves))]
    for level, width in enumerate(widths[1:], start=1):
        operators.append(Operator(f"level{level}", width, (Input(f"level{level - 1}", Partitioning.MERGE),)))
    return Topology(f"merge-tree-{leaves}-by-{fan_in}", tuple(operators))


def random_queries(spec: QuerySpec, seed: int) -> Topology:
    """Queries that share partitions: each partition an operator of one task, each query an output operator.

    Partitions `p1`, `p2`, … come from the most to the least shared, queries are `q1`, `q2`, …
    O(partitions × queries × size) at most.
    """
    random = Random(seed)
    sharing = _sharing(random, spec)
    members: list[list[int]] = [[] for _ in range(spec.queries)]
    upstream: list[int | None] = []
    for partition, sharers in enumerate(sharing):
        # A partition read by this one is needed by all its sharers, so reading it changes no query's members.
        choices = [other for other in members[min(sharers)] if sharers <= sharing[other]]
        upstream.append(random.choice(choices) if choices and random.random() < _CHAINED else None)
        for query in sorted(sharers):
            members[query].append(partition)
    costs = [float(random.randint(*spec.cost)) for _ in range(len(sharing) + spec.queries)]
    operators = [
        Operator(f"p{partition + 1}", inputs=() if source is None else (Input(f"p{source + 1}"),), cost=cost)
        for partition, (source, cost) in enumerate(zip(upstream, costs, strict=False))
    ]
    output_costs = costs[len(sharing) :]
    loads = [own + sum(costs[partition] for partition in mine) for own, mine in zip(output_costs, members, strict=True)]
    priorities = _priorities(random, spec.priorities, loads)
    for query, mine in enumerate(members):
        inner = {upstream[partition] for partition in mine}
        operators.append(
            Operator(
                f"q{query + 1}",
                inputs=tuple(Input(f"p{partition + 1}") for partition in mine if partition not in inner),
                cost=output_costs[query],
                output=Output(priorities[query]),
            )
        )
    return Topology(f"queries-{seed}", tuple(operators))


def with_random_reprocess(topology: Topology, seed: int, low: int = 1, high: int = 10) -> Topology:
    """The same topology with reprocess times that are integers from `low` to `high`, drawn for each task."""
    _check_range("reprocess", (low, high), 0)
    random = Random(seed)
    values = [float(value) for value in range(low, high + 1)]
    operators: list[Operator] = []
    for operator in topology.operators:
        drawn = tuple(random.choices(values, k=operator.parallelism))
        reprocess: PerTask = drawn if operator.parallelism > 1 else drawn[0]
        operators.append(dataclasses.replace(operator, reprocess=reprocess))
    return Topology(topology.name, tuple(operators))


def _connect(random: Random, count: int, sources: int, first_sink: int, joining: set[int]) -> list[list[int]]:
    """The inputs of every operator, among operators before it; afterwards, only sinks are read by nobody."""
    inputs: list[list[int]] = [[] for _ in range(count)]
    unread: list[int] = list(range(sources))
    for number in range(sources, count):
        choices = list(range(min(number, first_sink)))
        wanted = (2 if number in joining else 1) + (random.random() < _SECOND_INPUT)
        for _ in range(min(wanted, len(choices))):
            fresh = [producer for producer in unread if producer in choices]
            producer = random.choice(fresh if fresh and random.random() < _UNREAD_FIRST else choices)
            choices.remove(producer)
            inputs[number].append(producer)
            if producer in unread:
                unread.remove(producer)
        if number < first_sink:
            unread.append(number)
    for producer in unread:
        inputs[random.randrange(max(sources, producer + 1), count)].append(producer)
    return inputs


def _input(random: Random, style: Style, producer: Operator, consumers: int, *, may_be_full: bool) -> Input:
    if style is Style.FULL or (may_be_full and random.random() < _FULL):
        return Input(producer.name, Partitioning.FULL)
    if producer.parallelism == consumers:
        return Input(producer.name, Partitioning.ONE_TO_ONE)
    kind = Partitioning.MERGE if producer.parallelism > consumers else Partitioning.SPLIT
    return Input(producer.name, kind)


def _zipf_weights(random: Random, count: int, skew: float) -> tuple[float, ...] | None:
    """Shares by Zipf's law in random order; none for equal shares."""
    if skew == 0:
        return None
    weights = _zipf(count, skew)
    random.shuffle(weights)
    return tuple(weights)


def _zipf(count: int, skew: float) -> list[float]:
    """Zipf's law: what rank 1, 2, … weighs."""
    return [round(float(rank**-skew), _DIGITS) for rank in range(1, count + 1)]


def _pair(pair: int, ends: Sequence[int], width: int) -> tuple[int, int]:
    """The producer and consumer of a numbered pair; the pairs of a layer follow those of the layer before it."""
    layer = bisect_right(ends, pair)
    before, consumer = divmod(pair - ends[layer - 1], width)
    return layer * width - 1 - before, layer * width + consumer


def _sharing(random: Random, spec: QuerySpec) -> list[frozenset[int]]:
    """For each shared partition, its queries; the most shared first."""
    frequencies = range(1, spec.max_share + 1)
    odds = list(accumulate(_zipf(spec.max_share, spec.skew)))
    sharing: list[frozenset[int]] = []
    memberships = 0
    wanted = spec.queries * (spec.size - 1)
    while memberships < wanted if spec.partitions is None else len(sharing) < spec.partitions - spec.queries:
        frequency = random.choices(frequencies, cum_weights=odds)[0]
        sharing.append(frozenset(random.sample(range(spec.queries), frequency)))
        memberships += frequency
    return sorted(sharing, key=len, reverse=True)


def _priorities(random: Random, kind: Priorities, loads: Sequence[float]) -> list[float]:
    if kind is Priorities.RANDOM:
        return [float(random.randint(1, 10)) for _ in loads]
    low, high = min(loads), max(loads)
    if low == high:
        return [1.0] * len(loads)
    return [round(1.0 + 9.0 * (load - low) / (high - low), 2) for load in loads]


def _check_number(name: str, value: float, low: float, high: float | None = None) -> None:
    if not (value >= low and (high is None or value <= high)):
        rule = f"at least {low:,}" if high is None else f"between {low:,} and {high:,}"
        raise InvalidRequest(f"{name} is {rule}, found {value:,}: change it")


def _check_range(name: str, value: tuple[int, int], low: int) -> None:
    if not low <= value[0] <= value[1]:
        raise InvalidRequest(
            f"{name} is a range (from, to) that begins at {low:,} or above, found {value}: change or swap its ends"
        )
