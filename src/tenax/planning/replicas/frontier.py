"""The best value of a formula for every number of replicas: exact where tasks appear once, else bounded from above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Floats, Ints
from tenax.planning.replicas.formula import Factors, Formula, Term

OVERHEAD = 400  # units of work that a step costs beside its cells
FACTOR = 200  # units of work that handling a factor of a formula costs


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """`values[k]` is the most that k replicas can keep.

    - More replicas than `values` has entries help no further.
    - `shared` is a task that stood in the way of an exact answer: then `values` are upper bounds; None means exact.
    - `origin` tells which tasks reach a value.
    """

    values: Floats
    origin: Ranked | Divided | Switched | Counted | Lowest
    shared: int | None = None

    def at(self, replicas: int) -> float:
        """The value of that many replicas."""
        return float(self.values[min(replicas, len(self.values) - 1)])

    def chosen(self, replicas: int) -> set[int]:
        """Tasks that reach the value of that many replicas (of an upper bound: tasks that it paid for)."""
        tasks: set[int] = set()
        open_parts: list[tuple[Frontier, int]] = [(self, replicas)]
        while open_parts:
            frontier, count = open_parts.pop()
            count = min(count, len(frontier.values) - 1)
            origin = frontier.origin
            match origin:
                case Ranked():
                    tasks.update(origin.tasks[:count])
                case Divided():
                    right = int(origin.right_count[count])
                    open_parts += [(origin.left, count - right), (origin.right, right)]
                case Switched():
                    if origin.kept[count]:
                        tasks.add(origin.task)
                        open_parts.append((origin.when_kept, count - 1))
                    else:
                        open_parts.append((origin.when_lost, count))
                case Counted():
                    spent = int(origin.inside_count[count])
                    open_parts += [(origin.inside, spent), (origin.outside[spent], count - spent)]
                case Lowest():
                    open_parts.append((origin.bounds[int(origin.which[count])], count))
        return tasks


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The first k of these tasks."""

    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Divided:
    """Replicas divided between two parts without a common task."""

    left: Frontier
    right: Frontier
    right_count: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Switched:
    """The better of keeping one task and losing it."""

    task: int
    when_kept: Frontier
    when_lost: Frontier
    kept: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Some replicas for a sum that many parts share, the others for the rest given its value."""

    inside: Frontier
    outside: tuple[Frontier, ...]
    inside_count: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Lowest:
    """The lowest of several upper bounds."""

    bounds: tuple[Frontier, ...]
    which: Ints


class OutOfWork(Exception):
    """The work allowed is spent: a signal inside the exact planner, never seen by a user."""


class Frontiers:
    """Frontiers of formulas, by dynamic programming over their sums and products.

    - Parts without a common task divide the replicas: (max, +) for sums, (max, ×) for products, O(budget²) a step.
    - Parts with a common task are told apart by the number of replicas of a sum that they share, or by that task, kept
      or lost, `depth` times; beyond that each task is paid for in one part and free in the others, or every part has
      all replicas for itself, which bounds the value from above.
    - Every result is remembered: formulas that come back, as in a search, cost nothing.
    - `work` counts cells and steps, the same on every machine; above `work_limit` it raises OutOfWork.
    """

    def __init__(self, formula: Formula, budget: int, depth: int, work_limit: float) -> None:
        self.formula = formula
        self.budget = budget
        self.depth = depth
        self.work = 0.0
        self.work_limit = work_limit
        self._known: dict[tuple[Factors, int], Frontier] = {}

    def of(self, term: Term) -> Frontier:
        """The frontier of a term."""
        return self._term(term, self.depth)

    def _term(self, term: Term, depth: int) -> Frontier:
        coefficient, factors = term
        if coefficient == 0 or not factors:
            return Frontier(np.array([coefficient]), Ranked(()))
        key = (factors, depth)
        if key not in self._known:
            self._known[key] = self._product(factors, depth)
        frontier = self._known[key]
        return (
            frontier if coefficient == 1 else Frontier(frontier.values * coefficient, frontier.origin, frontier.shared)
        )

    def _product(self, factors: Factors, depth: int) -> Frontier:
        formula = self.formula
        tasks = [atom for atom, _ in factors if atom < formula.tasks]
        needed = sum(1 << task for task in tasks)
        rest = tuple(factor for factor in factors if factor[0] >= formula.tasks)
        if needed and needed & formula.support(rest):  # without those tasks all is lost: suppose them kept
            coefficient, inside = formula.restrict((1.0, rest), needed, 0)
            return self._term((coefficient, tuple(sorted([*((task, 1) for task in tasks), *inside]))), depth)
        parts: list[Frontier] = []
        if tasks:
            values = np.zeros(len(tasks) + 1)
            values[-1] = 1.0
            parts.append(Frontier(values[: self.budget + 1], Ranked(tuple(tasks))))
        for group in self._groups([(1.0, (factor,)) for factor in rest]):
            if len(group) > 1:
                parts.append(self._entangled(group, depth, multiply=True))
            else:
                ((atom, exponent),) = group[0][1]
                bracket = self._total(atom, depth)
                parts.append(Frontier(bracket.values**exponent, bracket.origin, bracket.shared))
        return self._combined(parts, multiply=True)

    def _total(self, atom: int, depth: int) -> Frontier:
        key = (((atom, 1),), depth)
        if key in self._known:
            return self._known[key]
        total = self.formula.total_of(atom)
        singles: list[tuple[float, int]] = []
        parts: list[Frontier] = []
        for group in self._groups(total.terms):
            coefficient, factors = group[0]
            if len(group) > 1:
                parts.append(self._entangled(group, depth, multiply=False))
            elif len(factors) == 1 and factors[0][0] < self.formula.tasks:
                singles.append((coefficient, factors[0][0]))
            else:
                parts.append(self._term(group[0], depth))
        if singles:  # of tasks that matter by themselves, those that matter most
            singles.sort(key=lambda single: (-single[0], single[1]))
            kept = np.concatenate([[0.0], np.cumsum([coefficient for coefficient, _ in singles])])
            parts.append(Frontier(kept[: self.budget + 1], Ranked(tuple(task for _, task in singles))))
            self._count(len(singles))
        frontier = self._combined(parts, multiply=False)
        if total.constant:
            frontier = Frontier(frontier.values + total.constant, frontier.origin, frontier.shared)
        self._known[key] = frontier
        return frontier

    def _groups(self, terms: Sequence[Term]) -> list[list[Term]]:
        """Terms that depend on common tasks, together."""
        supports = [self.formula.support(factors) for _, factors in terms]
        union, disjoint = 0, True
        for support in supports:
            disjoint = disjoint and not union & support
            union |= support
        self._count(len(terms))
        if disjoint:
            return [[term] for term in terms]
        groups: list[tuple[int, list[Term]]] = []
        for term, support in zip(terms, supports, strict=True):
            touching = [group for group in groups if group[0] & support]
            merged, members = support, []
            for mask, group in touching:
                merged |= mask
                members += group
            groups = [group for group in groups if not group[0] & support]
            groups.append((merged, [*members, term]))
        return [members for _, members in groups]

    def _entangled(self, terms: Sequence[Term], depth: int, *, multiply: bool) -> Frontier:
        """Terms that cannot be told apart as they are."""
        task = self._most_shared(terms)
        if depth > 0:
            bracket = self._bracket(terms)
            if bracket is not None:
                return self._counted(terms, bracket, task, depth - 1, multiply=multiply)
            lost = self._term(self._joined(terms, 0, 1 << task, multiply=multiply), depth - 1)
            kept = self._term(self._joined(terms, 1 << task, 0, multiply=multiply), depth - 1)
            return self._switched(task, kept, lost)
        orders = [list(terms), list(reversed(terms))]
        if multiply:
            orders = [[first, *(term for term in terms if term is not first)] for first in terms]
        bounds = (
            self._paid_apart(terms, multiply=multiply),
            *(self._paid_once(order, multiply=multiply) for order in orders),
        )
        length = max(len(bound.values) for bound in bounds)
        table = np.array([_padded(bound.values, length) for bound in bounds])
        return Frontier(table.min(axis=0), Lowest(bounds, table.argmin(axis=0)), task)

    def _bracket(self, terms: Sequence[Term]) -> int | None:
        """A sum of several tasks that appear nowhere else: the most used, then the largest."""
        uses = self.formula.uses(terms)
        size = {atom: self.formula.atom_support(atom).bit_count() for atom in uses}
        for atom in sorted(uses, key=lambda atom: (-uses[atom], -size[atom], atom)):
            if uses[atom] < 2:
                return None
            if self.formula.only_within(terms, atom):
                return atom
        return None

    def _counted(self, terms: Sequence[Term], bracket: int, task: int, depth: int, *, multiply: bool) -> Frontier:
        """The best number of replicas for a shared sum: only its value matters to the rest, so the best one of each."""
        inside = self._total(bracket, depth)
        outside: list[Frontier] = []
        for value in inside.values:
            parts = [self.formula.substitute(term, bracket, float(value)) for term in terms]
            self._count(len(parts))
            joined = self.formula.product(parts) if multiply else self.formula.total(parts)
            outside.append(self._term(joined, depth))
        length = min(self.budget + 1, max(count + len(frontier.values) for count, frontier in enumerate(outside)))
        table = np.full((len(outside), length), -1.0)
        for count, frontier in enumerate(outside[:length]):
            table[count, count:] = _padded(frontier.values, length - count)
        exact = inside.shared is None and all(frontier.shared is None for frontier in outside)
        origin = Counted(inside, tuple(outside), table.argmax(axis=0))
        return Frontier(table.max(axis=0), origin, None if exact else task)

    def _most_shared(self, terms: Sequence[Term]) -> int:
        """The task that most terms depend on; the first of several."""
        counts: dict[int, int] = {}
        seen = 0
        repeated = 0
        supports = [self.formula.support(factors) for _, factors in terms]
        for support in supports:
            repeated |= seen & support
            seen |= support
        for support in supports:
            left = support & repeated
            while left:
                low = left & -left
                counts[low] = counts.get(low, 0) + 1
                left ^= low
        self._count(len(counts))
        return max(counts, key=lambda low: (counts[low], -low)).bit_length() - 1

    def _joined(self, terms: Sequence[Term], kept: int, lost: int, *, multiply: bool) -> Term:
        parts = [self.formula.restrict(term, kept, lost) for term in terms]
        self._count(len(parts))
        return self.formula.product(parts) if multiply else self.formula.total(parts)

    def _switched(self, task: int, kept: Frontier, lost: Frontier) -> Frontier:
        length = min(self.budget + 1, max(len(kept.values) + 1, len(lost.values)))
        without = _padded(lost.values, length)
        with_it = np.concatenate([[-1.0], _padded(kept.values, length)])[:length]
        better = with_it > without
        shared = task if kept.shared is not None or lost.shared is not None else None
        return Frontier(np.maximum(without, with_it), Switched(task, kept, lost, better), shared)

    def _paid_once(self, terms: Sequence[Term], *, multiply: bool) -> Frontier:
        """Each task paid for in the first term that holds it, free in the later ones: no less than the truth."""
        paid = 0
        parts: list[Frontier] = []
        for term in terms:
            support = self.formula.support(term[1])
            parts.append(self._term(self.formula.restrict(term, support & paid, 0), 0))
            paid |= support
        return self._combined(parts, multiply=multiply)

    def _paid_apart(self, terms: Sequence[Term], *, multiply: bool) -> Frontier:
        """Each term with all replicas for itself: close where the terms want the same tasks."""
        parts = [self._term(term, 0) for term in terms]
        length = min(self.budget + 1, max(len(part.values) for part in parts))
        table = np.array([_padded(part.values, length) for part in parts])
        values = table.prod(axis=0) if multiply else table.sum(axis=0)
        first = max(parts, key=lambda part: float(part.values[-1]))
        return Frontier(values, Lowest((first,), np.zeros(length, dtype=np.int64)))

    def _combined(self, parts: Sequence[Frontier], *, multiply: bool) -> Frontier:
        """Parts without a common task, two at a time, so that short ones meet short ones."""
        row = list(parts)
        while len(row) > 1:
            paired = [
                self._divided(left, right, multiply=multiply) for left, right in zip(row[0::2], row[1::2], strict=False)
            ]
            row = paired + (row[-1:] if len(row) % 2 else [])
        return row[0]

    def _divided(self, left: Frontier, right: Frontier, *, multiply: bool) -> Frontier:
        if len(left.values) < len(right.values):
            left, right = right, left
        longer, shorter = left.values, right.values
        length = min(self.budget + 1, len(longer) + len(shorter) - 1)
        self._count(len(shorter) * (len(longer) + OVERHEAD))
        best = np.full(length, -1.0)
        count = np.zeros(length, dtype=np.int64)
        for spent in range(min(len(shorter), length)):
            end = min(length, spent + len(longer))
            extended = longer[: end - spent]
            candidate = extended * shorter[spent] if multiply else extended + shorter[spent]
            better = candidate > best[spent:end]
            best[spent:end][better] = candidate[better]
            count[spent:end][better] = spent
        shared = left.shared if left.shared is not None else right.shared
        return Frontier(best, Divided(left, right, count), shared)

    def _count(self, cells: int) -> None:
        self.work += cells + OVERHEAD
        if self.work + FACTOR * self.formula.work > self.work_limit:
            raise OutOfWork


def _padded(values: Floats, length: int) -> Floats:
    return np.concatenate([values, np.full(max(0, length - len(values)), values[-1])])[:length]
