"""The first placement of a run: tasks spread evenly, one-to-one chains together.

Consumers are placed away from the outputs that are retained for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tenax.errors import Infeasible
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task
from tenax.model.topology import Partitioning

SLACK = 1e-9  # what sums of floats may be off


def place_tasks(
    graph: TaskGraph, nodes: Sequence[Node], limits: Mapping[str, float], retain: Collection[Task] = ()
) -> Placement:
    """Greedy, in task order: a chain goes to the node with the lowest costs, then the fewest of its operator.

    Nodes take costs up to their `limits`; those without one take everything.

    - A chain stays together, because the levels of a pass run one after the other: cutting it spreads no work and adds
      a shuffle for all. Only where no node has room for all of it is it placed task by task.
    - Tasks that `retain` their outputs end a chain, and their consumers go elsewhere if they can: what is retained on
      the node of the task that will need it is lost with it. O(tasks × nodes + substreams).
    """
    retaining = set(graph.numbers(retain))
    nodes = [node for node in nodes if not node.standby] or nodes
    load = dict.fromkeys((node.name for node in nodes), 0.0)
    of_operator: dict[tuple[str, int], int] = {}
    primaries: dict[Task, str] = {}

    def put(numbers: Sequence[int]) -> bool:
        operator = int(graph.operator_of[numbers[0]])
        producers = (producer for number in numbers if retaining for producer in graph.producers_of(number))
        feeding = (producer for producer in producers if producer in retaining)
        held = Counter(primaries[task] for task in map(graph.task, feeding) if task in primaries)
        cost = float(graph.cost[numbers].sum())
        free = [node for node in nodes if load[node.name] + cost <= limits.get(node.name, math.inf) + SLACK]
        if not free:
            return False
        name = min(
            free, key=lambda node: (held[node.name], load[node.name], of_operator.get((node.name, operator), 0))
        ).name
        load[name] += cost
        for number in numbers:
            primaries[graph.task(number)] = name
            key = name, int(graph.operator_of[number])
            of_operator[key] = of_operator.get(key, 0) + 1
        return True

    for chain in chains(graph, retaining):
        if not put(chain) and not all(put([number]) for number in chain):
            raise Infeasible(
                f"{len(graph)} tasks need room for costs of {graph.cost.sum():g}, found less on {len(nodes)} nodes: "
                "add nodes or slots"
            )
    return Placement({task: primaries[task] for task in graph.tasks(range(len(graph)))}, {})


def chains(graph: TaskGraph, ends: Collection[int] = ()) -> list[list[int]]:
    """The tasks in chains that can step without a shuffle between them, in the order of their first task. O(tasks).

    A task continues a chain if its only input is a one-to-one stream of an operator that nothing else reads, unless
    the task before it is among the `ends`.
    """
    chain_of: list[list[int]] = []
    all_chains: list[list[int]] = []
    for operator, streams in enumerate(graph.streams):
        span = graph.span(operator)
        continues = (
            len(streams) == 1
            and streams[0].partitioning is Partitioning.ONE_TO_ONE
            and len(graph.consumers[streams[0].producer]) == 1
        )
        for number in range(span.start, span.stop):
            before = int(graph.first[streams[0].producer]) + number - span.start if continues else number
            if continues and before not in ends:
                chain = chain_of[before]
            else:
                chain = []
                all_chains.append(chain)
            chain.append(number)
            chain_of.append(chain)
    return all_chains
