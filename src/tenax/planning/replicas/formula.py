"""The value of a replica plan as a formula over its tasks, factored so that most tasks appear only once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tenax.model.graph import Floats, Stream, TaskGraph
from tenax.model.plans import Metric
from tenax.model.topology import Partitioning
from tenax.planning.fidelity import completeness_weights, output_weights

Factors = tuple[tuple[int, int], ...]
"""A product: (atom, exponent), sorted; an atom below the number of tasks is a task, any other a sum."""

Term = tuple[float, Factors]
"""A coefficient times a product."""

ZERO: Term = (0.0, ())
ONE: Term = (1.0, ())


@dataclass(frozen=True, slots=True)
class Total:
    """A weighted sum of products, scaled so that it is 1 when every task lives."""

    constant: float
    terms: tuple[Term, ...]


class Formula:
    """Sums and products over tasks that are 1 (kept) or 0 (lost), every distinct sum stored once.

    - Equal sums are one atom, so what all consumers of a full stream see is recognised as the same number.
    - A sum puts common factors outside brackets. A chain of operators, an in-tree, joins of disjoint inputs and
      streams that split and meet again so become formulas in which every task appears once.
    - A task is its own square; a sum is not, and keeps its exponent.
    - Coefficients that agree in `DIGITS` digits count as equal.
    - `work` counts the factors that were handled.
    """

    DIGITS = 12

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.totals: list[Total] = []
        self._supports: list[int] = []
        self._known: dict[tuple[object, ...], int] = {}
        self.work = 0

    def task(self, number: int) -> Term:
        """The task itself."""
        return 1.0, ((number, 1),)

    def total_of(self, atom: int) -> Total:
        """The sum that an atom stands for."""
        return self.totals[atom - self.tasks]

    def support(self, factors: Factors) -> int:
        """The tasks that a product depends on, as a bit set."""
        mask = 0
        for atom, _ in factors:
            mask |= self.atom_support(atom)
        return mask

    def atom_support(self, atom: int) -> int:
        """The tasks that an atom depends on, as a bit set."""
        return 1 << atom if atom < self.tasks else self._supports[atom - self.tasks]

    def product(self, terms: Iterable[Term]) -> Term:
        """The product of terms."""
        coefficient = 1.0
        exponents: dict[int, int] = {}
        for factor, factors in terms:
            coefficient *= factor
            self.work += len(factors) + 1
            for atom, exponent in factors:
                exponents[atom] = 1 if atom < self.tasks else exponents.get(atom, 0) + exponent
        if coefficient == 0:
            return ZERO
        return coefficient, tuple(sorted(exponents.items()))

    def total(self, terms: Iterable[Term]) -> Term:
        """The sum of terms, with common factors outside brackets."""
        merged: dict[Factors, float] = {}
        for coefficient, factors in terms:
            self.work += len(factors) + 1
            if coefficient > 0:
                merged[factors] = merged.get(factors, 0.0) + coefficient
        if not merged:
            return ZERO
        common = _common(merged)
        if common:
            inner = self.total((coefficient, _divide(factors, common)) for factors, coefficient in merged.items())
            return self.product([(1.0, common), inner])
        merged = self._grouped(merged)
        if len(merged) == 1:
            ((factors, coefficient),) = merged.items()
            return coefficient, factors
        return self._stored(merged)

    def restrict(self, term: Term, kept: int, lost: int) -> Term:
        """The term once some tasks are known to be kept and others to be lost (bit sets)."""
        return self._restrict(term, kept, lost, {})

    def substitute(self, term: Term, atom: int, value: float) -> Term:
        """The term once a sum is known to have a value; its tasks must not appear outside that sum."""
        return self._restrict(term, self.atom_support(atom), 0, {atom: (value, ())})

    def uses(self, terms: Iterable[Term]) -> dict[int, int]:
        """Every sum inside these terms, with the number of products that it is a factor of."""
        uses: dict[int, int] = {}
        waiting = [factors for _, factors in terms]
        while waiting:
            for atom, _ in waiting.pop():
                if atom >= self.tasks:
                    uses[atom] = uses.get(atom, 0) + 1
                    if uses[atom] == 1:
                        waiting += [factors for _, factors in self.total_of(atom).terms]
        self.work += sum(uses.values())
        return uses

    def only_within(self, terms: Iterable[Term], bracket: int) -> bool:
        """Whether the tasks of a sum appear nowhere in these terms but in that sum."""
        inside = self.atom_support(bracket)
        seen = {bracket}
        waiting = [factors for _, factors in terms]
        while waiting:
            for atom, _ in waiting.pop():
                if atom in seen or not self.atom_support(atom) & inside:
                    continue
                if atom < self.tasks:
                    return False
                seen.add(atom)
                waiting += [factors for _, factors in self.total_of(atom).terms]
        self.work += len(seen)
        return True

    def _restrict(self, term: Term, kept: int, lost: int, known: dict[int, Term]) -> Term:
        coefficient, factors = term
        touched = kept | lost
        parts: list[Term] = [
            (coefficient, tuple(factor for factor in factors if not self.atom_support(factor[0]) & touched))
        ]
        if len(parts[0][1]) == len(factors):
            return term
        for atom, exponent in factors:
            support = self.atom_support(atom)
            if not support & touched:
                continue
            if atom < self.tasks:
                if support & lost:
                    return ZERO
                continue
            if atom not in known:
                inside = self.total_of(atom)
                known[atom] = self.total(
                    [(inside.constant, ()), *(self._restrict(inner, kept, lost, known) for inner in inside.terms)]
                )
            parts += [known[atom]] * exponent
        return self.product(parts)

    def _grouped(self, merged: dict[Factors, float]) -> dict[Factors, float]:
        """Factor out what several terms share, the most shared atom first, until no two terms share one."""
        for _ in range(len(merged)):  # each round leaves fewer terms
            holders: dict[int, list[Factors]] = {}
            self.work += len(merged)
            for factors in merged:
                for atom, _ in factors:
                    holders.setdefault(atom, []).append(factors)
            shared = [atom for atom, terms in holders.items() if len(terms) > 1]
            if not shared:
                break
            shared.sort(key=lambda atom: (-len(holders[atom]), -self.atom_support(atom).bit_count(), atom))
            for atom in shared:
                group = [factors for factors in holders[atom] if factors in merged]
                if len(group) < 2:
                    continue
                outside: Factors = ((atom, 1),)
                inner = self.total([(merged.pop(factors), _divide(factors, outside)) for factors in group])
                coefficient, factors = self.product([(1.0, outside), inner])
                merged[factors] = merged.get(factors, 0.0) + coefficient
        return merged

    def _stored(self, merged: dict[Factors, float]) -> Term:
        scale = sum(merged.values())
        items = sorted(merged.items())
        key = tuple((factors, f"{coefficient / scale:.{self.DIGITS}g}") for factors, coefficient in items)
        if key not in self._known:
            self._known[key] = self.tasks + len(self.totals)
            constant = merged.get((), 0.0) / scale
            terms = tuple((coefficient / scale, factors) for factors, coefficient in items if factors)
            support = 0
            for _, factors in terms:
                support |= self.support(factors)
            self.totals.append(Total(constant, terms))
            self._supports.append(support)
        return scale, ((self._known[key], 1),)


def value_formula(graph: TaskGraph, metric: Metric) -> tuple[Formula, Term]:
    """The value of a plan as a formula over its tasks. O(tasks) plus the factoring; full streams stay implicit.

    Without joins the value is linear in every path, and is written from the outputs up: the worth of a task's output
    then holds only what lies below it, and what many paths share comes first. Joins need it from the sources down.
    """
    formula = Formula(len(graph))
    own = [ONE if safe else formula.task(number) for number, safe in enumerate(graph.safe)]
    weights = output_weights(graph) if metric is Metric.FIDELITY else completeness_weights(graph)
    fractions = [float(fraction) for fraction in weights / weights.sum()]
    if metric is Metric.COMPLETENESS or not _has_joins(graph):
        return formula, _from_outputs_up(graph, formula, own, fractions)
    return formula, _from_sources_down(graph, formula, own, fractions)


def _has_joins(graph: TaskGraph) -> bool:
    return any(
        operator.correlated and len(streams) > 1
        for operator, streams in zip(graph.operators, graph.streams, strict=True)
    )


def _from_sources_down(graph: TaskGraph, formula: Formula, own: Sequence[Term], fractions: Sequence[float]) -> Term:
    kept: list[Term] = []
    for number, operator in enumerate(graph.operators):
        streams = graph.streams[number]
        tasks = own[graph.span(number)]
        inputs = [_stream_terms(formula, stream, kept[graph.span(stream.producer)]) for stream in streams]
        if not streams:
            kept += tasks
        elif operator.correlated:
            kept += [
                formula.product([task, *(received[index] for received in inputs)]) for index, task in enumerate(tasks)
            ]
        else:
            shares = _stream_shares(streams)
            for index, task in enumerate(tasks):
                parts = [
                    _times(float(share[index]), received[index]) for share, received in zip(shares, inputs, strict=True)
                ]
                kept.append(formula.product([task, formula.total(parts)]))
    return formula.total(_times(fraction, term) for fraction, term in zip(fractions, kept, strict=True))


def _from_outputs_up(graph: TaskGraph, formula: Formula, own: Sequence[Term], fractions: Sequence[float]) -> Term:
    worth: list[list[Term]] = [[(fraction, ())] for fraction in fractions]
    at_sources: list[Term] = []
    for number in reversed(range(len(graph.operators))):
        span = graph.span(number)
        streams = graph.streams[number]
        kept = [
            formula.product([task, formula.total(parts)]) for task, parts in zip(own[span], worth[span], strict=True)
        ]
        if not streams:
            at_sources += kept
            continue
        for stream, shares in zip(streams, _stream_shares(streams), strict=True):
            received = [_times(float(share), term) for share, term in zip(shares, kept, strict=True)]
            start = int(graph.first[stream.producer])
            for index, parts in enumerate(_producer_terms(formula, stream, received)):
                worth[start + index] += parts
    return formula.total(at_sources)


def _times(factor: float, term: Term) -> Term:
    return factor * term[0], term[1]


def _producer_terms(formula: Formula, stream: Stream, worth: Sequence[Term]) -> list[list[Term]]:
    """What a stream adds to the worth of every producer, given what its consumers make of a whole input."""
    if stream.partitioning is Partitioning.FULL:
        idle = stream.share == 0
        busy = formula.total(term for term, unused in zip(worth, idle, strict=True) if not unused)
        still = formula.total(term for term, unused in zip(worth, idle, strict=True) if unused)
        weights = stream.weight / stream.weight.sum()
        return [[_times(float(weight), busy), _times(1 / stream.producers, still)] for weight in weights]
    if stream.producers < stream.consumers:
        return [[worth[consumer] for consumer in stream.consumers_of(index)] for index in range(stream.producers)]
    totals = np.add.reduceat(stream.weight, stream.starts)[stream.parents]
    return [
        [_times(float(weight / total), worth[int(parent)])]
        for weight, total, parent in zip(stream.weight, totals, stream.parents, strict=True)
    ]


def _stream_terms(formula: Formula, stream: Stream, producers: Sequence[Term]) -> list[Term]:
    """What every consumer of a stream still receives (equation 1)."""
    if stream.partitioning is Partitioning.ONE_TO_ONE:
        return list(producers)
    if stream.partitioning is Partitioning.SPLIT:
        return [producers[int(parent)] for parent in stream.parents]
    if stream.partitioning is Partitioning.FULL:
        mean = _mean(formula, producers, stream.weight)
        idle = stream.share == 0
        if not idle.any():
            return [mean] * stream.consumers
        plain = _mean(formula, producers, np.ones(stream.producers))
        return [plain if unused else mean for unused in idle]
    ends = [*(int(start) for start in stream.starts), stream.producers]
    return [_mean(formula, producers[start:end], stream.weight[start:end]) for start, end in pairwise(ends)]


def _mean(formula: Formula, terms: Sequence[Term], weights: Floats) -> Term:
    shares = weights / weights.sum()
    return formula.total(
        (float(share) * coefficient, factors) for share, (coefficient, factors) in zip(shares, terms, strict=True)
    )


def _stream_shares(streams: Sequence[Stream]) -> Floats:
    """Per stream and consumer: its part of the consumer's input rate (equation 3)."""
    rates = np.array([stream.rate for stream in streams])
    rates[:, rates.sum(axis=0) == 0] = 1.0
    return np.asarray(rates / rates.sum(axis=0))


def _common(merged: Iterable[Factors]) -> Factors:
    """The factors of all terms."""
    common: dict[int, int] | None = None
    for factors in merged:
        if common is None:
            common = dict(factors)
        else:
            own = dict(factors)
            common = {atom: min(count, own[atom]) for atom, count in common.items() if atom in own}
        if not common:
            return ()
    return tuple(sorted(common.items())) if common else ()


def _divide(factors: Factors, by: Factors) -> Factors:
    divisor = dict(by)
    left = ((atom, exponent - divisor.get(atom, 0)) for atom, exponent in factors)
    return tuple((atom, exponent) for atom, exponent in left if exponent)
