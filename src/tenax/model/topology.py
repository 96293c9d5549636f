"""Topologies: operators, the partitionings between them, and the rules that make them valid."""

from __future__ import annotations

import difflib
import graphlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tenax.errors import InvalidTopology

NAME = re.compile(r"[a-z][a-z0-9_-]*")
MAX_TASKS = 10_000_000  # more than any cluster runs; keeps a mistyped parallelism from eating all memory

PerTask = float | tuple[float, ...]
"""One number for all tasks of an operator, or one for each."""


class Partitioning(StrEnum):
    """How the tasks of a producer reach the tasks of a consumer."""

    ONE_TO_ONE = "one-to-one"
    SPLIT = "split"
    MERGE = "merge"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Input:
    """A subscription to another operator's output."""

    operator: str
    partitioning: Partitioning = Partitioning.FULL


@dataclass(frozen=True, slots=True)
class Output:
    """Marks an operator whose results leave the topology, and how much they matter."""

    priority: PerTask = 1.0


@dataclass(frozen=True, slots=True)
class Operator:
    """A step of a topology, run by `parallelism` tasks.

    - An operator without inputs is a source; `rate` is its tuples per second, all tasks together, or per task.
    - `weights` are the shares of the keys that its tasks get; none means equal shares.
    - A task's output rate is `selectivity` times the sum of its input rates.
    - `correlated` operators join their inputs: a missing input stream makes the others worthless.
    - `reprocess` is the time in seconds to reprocess a task since its checkpoint, `cost` what it takes to recover it.
    - The tasks of a `safe` operator never fail.
    """

    name: str
    parallelism: int = 1
    inputs: tuple[Input, ...] = ()
    weights: tuple[float, ...] | None = None
    rate: PerTask = 1.0
    selectivity: float = 1.0
    correlated: bool = False
    output: Output | None = None
    reprocess: PerTask = 1.0
    cost: PerTask = 1.0
    safe: bool = False

    def __post_init__(self) -> None:
        check_name("operator", self.name)
        if self.parallelism < 1:
            raise self._error(f"parallelism is at least 1, found {self.parallelism}: give the number of its tasks")
        self._check_numbers("weights", () if self.weights is None else self.weights)
        self._check_numbers("rate", self.rate)
        self._check_numbers("selectivity", self.selectivity)
        self._check_numbers("reprocess", self.reprocess)
        self._check_numbers("cost", self.cost)
        if self.output is not None:
            self._check_numbers("priority", self.output.priority)
        if self.weights is not None and not any(self.weights):
            raise self._error("weights need at least one number above 0, found only zeros: give one task a share")
        if self.inputs and self.rate != 1.0:
            raise self._error(f"only sources have a rate, found rate {self.rate} beside inputs: remove one of the two")
        if not self.inputs and self.selectivity != 1.0:
            raise self._error(f"a source has no selectivity, found {self.selectivity}: state its rate instead")
        seen = set()
        for stream in self.inputs:
            if stream.operator in seen:
                raise self._error(f"each input is named once, found {stream.operator!r} twice: remove one")
            seen.add(stream.operator)

    @property
    def is_source(self) -> bool:
        """Whether it reads from outside the topology."""
        return not self.inputs

    def _check_numbers(self, name: str, value: PerTask) -> None:
        if isinstance(value, tuple):
            if value == () and name == "weights" and self.weights is None:
                return
            if len(value) != self.parallelism:
                raise self._error(
                    f"{name} needs one number per task ({self.parallelism}), found {len(value)}: "
                    "change the list or the parallelism"
                )
            numbers: Iterable[float] = value
        else:
            numbers = (value,)
        for number in numbers:
            if not math.isfinite(number) or number < 0:
                raise self._error(f"{name} is a finite number of at least 0, found {number}: correct it")

    def _error(self, text: str) -> InvalidTopology:
        return InvalidTopology(f"operator {self.name!r}: {text}")


@dataclass(frozen=True, slots=True)
class Topology:
    """A directed acyclic graph of operators, checked when it is built.

    - Operators keep the order in which they were given; `in_order` is the topological one.
    - `outputs` are the operators that say so; if none does, those that nobody consumes, with priority 1.
    - Building a topology runs nothing.
    """

    name: str
    operators: tuple[Operator, ...]
    in_order: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("topology", self.name)
        if not self.operators:
            raise InvalidTopology("a topology has at least one operator, found none: add a source")
        named = self._named()
        total = sum(operator.parallelism for operator in self.operators)
        if total > MAX_TASKS:
            raise InvalidTopology(f"a topology has at most {MAX_TASKS:,} tasks, found {total:,}: lower a parallelism")
        for operator in self.operators:
            for stream in operator.inputs:
                _check_input(named, operator, stream)
        object.__setattr__(self, "in_order", _topological_order(self.operators))

    def operator(self, name: str) -> Operator:
        """The operator of that name."""
        for operator in self.operators:
            if operator.name == name:
                return operator
        known = tuple(operator.name for operator in self.operators)
        raise InvalidTopology(f"unknown operator {name!r}{suggestion(name, known)}")

    @property
    def outputs(self) -> Mapping[str, Output]:
        """Output operators and their priorities, in declared order."""
        stated = {operator.name: operator.output for operator in self.operators if operator.output is not None}
        if stated:
            return stated
        consumed = {stream.operator for operator in self.operators for stream in operator.inputs}
        return {operator.name: Output() for operator in self.operators if operator.name not in consumed}

    @property
    def task_count(self) -> int:
        """The number of tasks of all operators."""
        return sum(operator.parallelism for operator in self.operators)

    def _named(self) -> Mapping[str, Operator]:
        named: dict[str, Operator] = {}
        for operator in self.operators:
            if operator.name in named:
                raise InvalidTopology(f"operator names are unique, found {operator.name!r} twice: rename one")
            named[operator.name] = operator
        return named


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: the nearest known one, or all of them."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1)
    if near:
        return f": did you mean {near[0]!r}?"
    shown = ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")
    return f": use one of {shown}"


def check_name(what: str, name: str) -> None:
    """Refuse a name that files, folders and command lines could not carry."""
    if not NAME.fullmatch(name):
        raise InvalidTopology(
            f"{what} names are lower-case letters, digits, '-' and '_', a letter first; found {name!r}: rename it"
        )


def _check_input(named: Mapping[str, Operator], consumer: Operator, stream: Input) -> None:
    """The partitioning rules of the file format; an edge to or from a single task may have any name but one-to-one."""
    if stream.operator not in named:
        raise InvalidTopology(
            f"operator {consumer.name!r}: unknown input {stream.operator!r}{suggestion(stream.operator, named)}"
        )
    before, after = named[stream.operator].parallelism, consumer.parallelism
    match stream.partitioning:
        case Partitioning.ONE_TO_ONE:
            fits, rule = before == after, "as many producers as consumers"
        case Partitioning.MERGE:
            fits, rule = before > after or 1 in (before, after), "more producers than consumers"
        case Partitioning.SPLIT:
            fits, rule = before < after or 1 in (before, after), "fewer producers than consumers"
        case Partitioning.FULL:
            fits, rule = True, ""
    if not fits:
        raise InvalidTopology(
            f"operator {consumer.name!r}: {stream.partitioning} needs {rule}, found {before} tasks of "
            f"{stream.operator!r} for {after}: change a parallelism or use full"
        )


def _topological_order(operators: tuple[Operator, ...]) -> tuple[str, ...]:
    """Producers first; among those that could come next, the one declared first."""
    sorter = graphlib.TopologicalSorter(
        {operator.name: [stream.operator for stream in operator.inputs] for operator in operators}
    )
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise InvalidTopology(f"a topology has no cycles, found {cycle}: remove one of these inputs") from None
    position = {operator.name: number for number, operator in enumerate(operators)}
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=position.__getitem__)
        order += ready
        sorter.done(*ready)
    return tuple(order)
