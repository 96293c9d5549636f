"""What a failure took away: the failed partitions, the queries that they cut off, and who needs what."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

import numpy as np

from tenax.model.graph import Bools, Floats, Ints, TaskGraph
from tenax.model.queries import membership
from tenax.planning.ticks import Ticks

DECIMAL_DIGITS = 700  # sums of floats have fewer digits than this, whatever their exponents


@dataclass(frozen=True, slots=True, eq=False)
class Outage:
    """A recovery problem: bring back queries of high priority by recovering partitions of low cost.

    - `partitions` are the failed tasks and `queries` the output tasks cut off by them, as numbers in task order.
    - `needs[q, p]` says that query `q` is cut off as long as partition `p` is not recovered; every row has a need.
    - `cost` and `priority` count ticks, so that sums are exact.
    """

    partitions: Ints
    queries: Ints
    needs: Bools
    cost: Ints
    priority: Ints

    @classmethod
    def of(cls, graph: TaskGraph, failed: Bools, cost: Ints) -> Outage:
        """Collect what `failed` cuts off; `cost` has one entry per failed task. O(output tasks × tasks)."""
        partitions = np.flatnonzero(failed)
        outputs = np.flatnonzero(graph.is_output)
        needs = membership(graph, outputs)[:, partitions]
        cut_off = needs.any(axis=1)
        queries = outputs[cut_off]
        return cls(partitions, queries, needs[cut_off], cost, priority_ticks(graph).up(graph.priority[queries]))

    def after(self, recovered: Bools) -> Outage:
        """What is left to do once these partitions are recovered."""
        needs = self.needs[:, ~recovered]
        open_queries = needs.any(axis=1)
        return Outage(
            self.partitions[~recovered],
            self.queries[open_queries],
            needs[open_queries],
            self.cost[~recovered],
            self.priority[open_queries],
        )

    def without(self, blocked: Bools) -> Outage:
        """The same problem where these partitions cannot come back, nor any query that needs one of them."""
        possible = ~self.needs[:, blocked].any(axis=1)
        return Outage(
            self.partitions[~blocked],
            self.queries[possible],
            self.needs[possible][:, ~blocked],
            self.cost[~blocked],
            self.priority[possible],
        )

    @property
    def sharing(self) -> Ints:
        """How many cut-off queries need each partition.

        A query that is back has no unchosen partition, so for an unchosen one this is also the number of open queries
        that share it, however far a plan has grown.
        """
        return np.asarray(self.needs.sum(axis=0), dtype=np.int64)

    @property
    def shared_cost(self) -> Floats:
        """Each partition's cost divided among the queries that need it; 0 where nobody does."""
        return np.asarray(self.cost / np.maximum(self.sharing, 1) * (self.sharing > 0))

    def completed(self, chosen: Bools) -> Bools:
        """Per query: whether it is back when the chosen partitions are recovered."""
        return np.asarray(~self.needs[:, ~chosen].any(axis=1))

    def worth(self, chosen: Bools) -> int:
        """The priority of all queries that the chosen partitions bring back, in ticks."""
        return int(self.priority[self.completed(chosen)].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The queries of an outage that a plan may choose, with the partitions that they need merged into groups.

    - `rows` are their rows in the outage: those that alone fit the capacity and have a priority above 0.
    - A group holds all partitions that the same candidates need: a plan recovers all of it or nothing.
      Partitions that cost nothing or that no candidate needs are in no group.
    - `weight` of a group is the sum of its partitions' shared costs, what profit density divides by.
    """

    rows: Ints
    needs: Bools
    cost: Ints
    weight: Floats
    priority: Ints

    @classmethod
    def of(cls, outage: Outage, capacity: int) -> Candidates:
        """Merge the partitions of the queries that fit. O(queries × partitions), and a sort of the partitions."""
        own_cost = outage.needs @ outage.cost
        rows = np.flatnonzero((own_cost <= capacity) & (outage.priority > 0))
        needs = outage.needs[rows]
        used = np.flatnonzero(needs.any(axis=0) & (outage.cost > 0))
        first, group = merge(needs[:, used].T)
        cost = np.zeros(len(first), dtype=np.int64)
        np.add.at(cost, group, outage.cost[used])
        weight = np.zeros(len(first))
        np.add.at(weight, group, outage.shared_cost[used])
        return cls(rows, needs[:, used[first]], cost, weight, outage.priority[rows])

    def __len__(self) -> int:
        return len(self.rows)

    def partitions(self, outage: Outage, chosen: Bools) -> Bools:
        """The partitions that the chosen candidates need, as a boolean per partition of the outage."""
        return np.asarray(outage.needs[self.rows[chosen]].any(axis=0))


def merge(rows: Bools) -> tuple[Ints, Ints]:
    """Equal rows as one: the first row of each kind, in order, and the kind of every row."""
    if not rows.size:
        return np.zeros(min(len(rows), 1), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[kind.ravel()].astype(np.int64)


def priority_ticks(graph: TaskGraph) -> Ticks:
    """The unit in which priorities are counted."""
    return Ticks.of(graph.priority)


def exact_sum(numbers: Floats) -> float:
    """The float nearest to the sum of decimal numbers as people write them: 0.1 and 0.2 make 0.3."""
    return float(_decimal_sum(numbers))


def fits(costs: Floats, capacity: float) -> bool:
    """Whether all costs fit together, by decimal arithmetic."""
    return _decimal_sum(costs) <= Decimal(repr(capacity))


def _decimal_sum(numbers: Floats) -> Decimal:
    with localcontext(Context(prec=DECIMAL_DIGITS)):
        return sum((Decimal(repr(number)) for number in numbers.tolist()), start=Decimal(0))
