"""BestDensity: grow many small plans by the query with most priority per shared cost, and keep the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tenax.model.graph import Bools, Floats, Ints
from tenax.planning.recovery.outage import Candidates, Outage

MAX_WORK = 1_000_000_000
"""Seeds × queries × steps that are looked at: every single and every pair of 210 queries, a matter of seconds."""
CELLS = 200_000
"""Seeds × queries that are grown together: few enough to stay in the processor's cache."""
CHECK_EVERY = 4
"""Steps between two searches for plans that need not be grown any more."""

Densities = npt.NDArray[np.float32]
"""Single precision: densities that are equal stay equal, so that task order breaks the tie and not rounding."""


def best_density(outage: Outage, capacity: int) -> Bools:
    """Choose partitions by Algorithm 4, mended: seeds are every single and every pair of queries that fits.

    At least 1 − e^(−1/d) of the optimum, d being the most queries that share a partition, as long as all pairs are
    tried. With more queries than `MAX_WORK` allows, the seeds are those whose queries are densest at the start.
    O(seeds × (needs + queries × steps)), vectorised over seeds.
    """
    candidates = Candidates.of(outage, capacity)
    if int(candidates.cost.sum()) <= capacity:
        return candidates.partitions(outage, np.ones(len(candidates), dtype=np.bool_))
    return candidates.partitions(outage, _Growth(candidates, capacity).best(_seeds(candidates)))


def one_density(candidates: Candidates, capacity: int) -> Bools:
    """Grow the empty plan alone: a quick start for other searches, as a boolean per candidate. O(queries²)."""
    return _Growth(candidates, capacity).best(np.full((1, 2), -1, dtype=np.int64))


def _seeds(candidates: Candidates) -> Ints:
    """Pairs of candidates, densest first; -1 stands for none. The first row is the empty plan."""
    count = len(candidates)
    with np.errstate(divide="ignore"):
        density = candidates.priority / (candidates.needs @ candidates.weight)
    order = np.lexsort((np.arange(count), -density.astype(np.float32)))
    most = min(1 + count + count * (count - 1) // 2, max(1, MAX_WORK // max(1, count * count)))
    singles = order[: most - 1]
    # As many as have all their pairs among what is left of the seeds.
    paired = min(count, int((1 + np.sqrt(1 + 8 * (most - 1 - len(singles)))) // 2))
    second, first = np.tril_indices(paired, -1)
    return np.concatenate(
        [
            np.full((1, 2), -1, dtype=np.int64),
            np.column_stack([singles, np.full(len(singles), -1)]),
            np.column_stack([order[first], order[second]]),
        ]
    )


@dataclass(slots=True, eq=False)
class _Plans:
    """Plans that grow side by side: one row each, one column per candidate (or per group)."""

    taken: Bools
    recovered: Bools
    cost: Ints
    """What each query still costs, in ticks."""
    weight: Floats
    """What its density divides by: the shared costs of its groups that are not recovered."""
    density: Densities
    """Below 0 for queries that are taken."""
    room: Ints

    def keep(self, rows: Bools) -> None:
        """Drop the other rows."""
        self.taken, self.recovered, self.cost = self.taken[rows], self.recovered[rows], self.cost[rows]
        self.weight, self.density, self.room = self.weight[rows], self.density[rows], self.room[rows]


class _Growth:
    """Grows plans from seeds.

    - Taking a query changes only those that share a group with it, so over a whole plan every need is visited once.
    - A query whose cost has come down to 0 is taken with it.
    - A plan is dropped once an earlier seed has led to it, or once it cannot become better than the best one:
      no addition is worth more than the room times the highest density.
    """

    def __init__(self, candidates: Candidates, capacity: int) -> None:
        self.capacity = capacity
        self.priority = candidates.priority
        self.own_cost = candidates.needs @ candidates.cost
        self.own_weight = candidates.needs @ candidates.weight
        shared = np.flatnonzero(candidates.needs.sum(axis=0) > 1)
        self.groups_of = _Lists.of(candidates.needs[:, shared])
        self.users_of = _Lists.of(candidates.needs[:, shared].T)
        self.cost = candidates.cost[shared]
        self.weight = candidates.weight[shared]
        self.best_plan = np.zeros(len(candidates), dtype=np.bool_)
        self.best_key = (-1, 0)
        self.known: set[bytes] = set()

    def best(self, seeds: Ints) -> Bools:
        """The best plan of all seeds: highest priority, then lowest cost, then first."""
        count = len(self.priority)
        if not count:
            return self.best_plan
        together = max(1, CELLS // count)
        for start in range(0, len(seeds), together):
            plans = self._start(seeds[start : start + together])
            for step in range(count + 1):
                fitting = np.where(plans.cost <= plans.room[:, None], plans.density, np.float32(-1))
                query = fitting.argmax(axis=1)
                growing = fitting[np.arange(len(query)), query] >= 0
                self._record(plans, ~growing)
                if step % CHECK_EVERY == 0:
                    growing &= self._is_promising(plans) & self._is_new(plans)
                if not growing.all():
                    plans.keep(growing)
                    query = query[growing]
                if not query.size:
                    break
                self._take(plans, np.arange(len(query)), query)
        return self.best_plan

    def _start(self, seeds: Ints) -> _Plans:
        rows = len(seeds)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = (self.priority / self.own_weight).astype(np.float32)
        free = self.own_cost == 0
        density[free] = -1
        plans = _Plans(
            taken=np.tile(free, (rows, 1)),
            recovered=np.zeros((rows, len(self.cost)), dtype=np.bool_),
            cost=np.tile(self.own_cost, (rows, 1)),
            weight=np.tile(self.own_weight, (rows, 1)),
            density=np.tile(density, (rows, 1)),
            room=np.full(rows, self.capacity, dtype=np.int64),
        )
        for column in range(seeds.shape[1]):
            stated = np.flatnonzero(seeds[:, column] >= 0)
            stated = stated[~plans.taken[stated, seeds[stated, column]]]
            self._take(plans, stated, seeds[stated, column])
        plans.keep(plans.room >= 0)
        return plans

    def _take(self, plans: _Plans, rows: Ints, query: Ints) -> None:
        plans.room[rows] -= plans.cost[rows, query]
        plans.taken[rows, query] = True
        plans.density[rows, query] = -1
        group, position = self.groups_of.expand(query)
        row = rows[position]
        fresh = ~plans.recovered[row, group]
        row, group = row[fresh], group[fresh]
        plans.recovered[row, group] = True
        user, position = self.users_of.expand(group)
        place = row[position] * len(self.priority) + user
        cost, weight, density = plans.cost.reshape(-1), plans.weight.reshape(-1), plans.density.reshape(-1)
        still_open = np.flatnonzero(density[place] >= 0)
        place, user, group = place[still_open], user[still_open], group[position[still_open]]
        np.subtract.at(cost, place, self.cost[group])
        np.subtract.at(weight, place, self.weight[group])
        free = cost[place] <= 0
        with np.errstate(divide="ignore"):
            density[place] = np.where(free, -1.0, self.priority[user] / weight[place])
        plans.taken.reshape(-1)[place[free]] = True

    def _record(self, plans: _Plans, finished: Bools) -> None:
        rows = np.flatnonzero(finished)
        if not rows.size:
            return
        worth, room = plans.taken[rows] @ self.priority, plans.room[rows]
        first = int(np.lexsort((rows, -room, -worth))[0])
        key = (int(worth[first]), int(room[first]))
        if key > self.best_key:
            self.best_key, self.best_plan = key, plans.taken[rows[first]].copy()

    def _is_promising(self, plans: _Plans) -> Bools:
        # The margin covers single precision: a plan that could tie is kept.
        highest = plans.density.max(axis=1).astype(np.float64) * (1 + 1e-5)
        return np.asarray(plans.taken @ self.priority + plans.room * np.maximum(highest, 0.0) >= self.best_key[0])

    def _is_new(self, plans: _Plans) -> Bools:
        new = np.zeros(len(plans.room), dtype=np.bool_)
        for row, packed in enumerate(np.packbits(plans.taken, axis=1)):
            key = packed.tobytes()
            new[row] = key not in self.known
            self.known.add(key)
        return new


@dataclass(frozen=True, slots=True, eq=False)
class _Lists:
    """For each row of a boolean matrix the columns that are set, one row's after the other's."""

    columns: Ints
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, matrix: Bools) -> _Lists:
        lengths = matrix.sum(axis=1).astype(np.int64)
        return cls(np.nonzero(matrix)[1].astype(np.int64), np.cumsum(lengths) - lengths, lengths)

    def expand(self, rows: Ints) -> tuple[Ints, Ints]:
        """The columns of many rows in one list, and for each the position of its row."""
        lengths = self.lengths[rows]
        position = np.repeat(np.arange(len(rows)), lengths)
        offset = np.arange(len(position)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self.columns[self.starts[rows][position] + offset], position
