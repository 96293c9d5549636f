"""A keyed toy computation: states are of key groups, so that results are the same however groups lie on tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.model.topology_versions import Table, TopologyVersion
from tenax.simulation.toy import DIGEST_BYTES, INITIAL, MISSING, Digest, Toy

KEY_GROUPS = 8
MOST_TASKS = 4  # of an operator
OPERATORS = 3, 6
ONE_TO_ONE, OUTPUT, TWO_INPUTS, TWO_SOURCES = 0.4, 0.2, 0.3, 0.3  # how often a drawn operator has this

Groups = dict[int, bytes]
"""What there is of every key group: of a state, or of what a task sends."""


@dataclass(frozen=True)
class KeyedToy(Toy):
    """One version of a topology whose tasks hash by key group.

    - A digest names its operator and group, not its task: so it stays what it is when groups move.
    - A group of an operator takes in all groups of a producer, and of a one-to-one producer only its own.
    - `chains` are operators that have as many tasks as each other; those of the first `fixed` of them never change.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    chains: tuple[tuple[str, ...], ...] = ()
    fixed: int = 0

    @cached_property
    def owned(self) -> tuple[tuple[int, ...], ...]:
        """The groups of every task."""
        return tuple(
            tuple(group for group in range(KEY_GROUPS) if self.tables[task.operator][group] == task.index)
            for task in self.tasks
        )

    @property
    def scalable(self) -> tuple[tuple[str, ...], ...]:
        """The chains whose parallelism may change."""
        return self.chains[self.fixed :]

    def state_of(self, number: int, state: Digest) -> Groups:
        """The state of a task by group."""
        return dict.fromkeys(self.owned[number], b"") if state == INITIAL else unpacked(state)

    def step(
        self, number: int, state: Digest, rows: tuple[int, int], chunks: Mapping[int, Digest]
    ) -> tuple[Digest, Digest]:
        """One task through one batch: its state after it and what it sends, by group."""
        operator = int(self.graph.operator_of[number])
        known, memory = self.state_of(number, state), self.memory_of(number)
        inputs = [self._input(number, place, chunks) for place in range(len(self.graph.streams[operator]))]
        after: Groups = {}
        sent: Groups = {}
        for group in self.owned[number]:
            hashed = hashlib.blake2b(bytes([operator, group]), digest_size=DIGEST_BYTES)
            for every, of_group in inputs:
                hashed.update(every or of_group.get(group, MISSING))
            if not inputs:
                hashed.update(repr(rows).encode())
            if memory is None:
                hashed.update(known[group])
                after[group] = hashed.digest()
                hashed.update(b"chunk")
                sent[group] = hashed.digest()
            else:
                remembered = known[group] + hashed.digest()
                after[group] = remembered[-memory * DIGEST_BYTES :] if memory else b""
                sent[group] = hashlib.blake2b(remembered, digest_size=DIGEST_BYTES, person=b"chunk").digest()
        return (packed(after) if inputs else INITIAL), packed(sent)

    def _input(self, number: int, place: int, chunks: Mapping[int, Digest]) -> tuple[bytes, Groups]:
        """What comes by one stream: of all groups together, or, one-to-one, of every group."""
        operator = int(self.graph.operator_of[number])
        stream = self.graph.streams[operator][place]
        first = int(self.graph.first[stream.producer])
        index = number - int(self.graph.first[operator])
        of_group: Groups = {}
        for producer in stream.producers_of(index):
            chunk = chunks[first + producer]
            of_group |= {} if chunk == MISSING else unpacked(chunk)
        if self.graph.operators[operator].inputs[place].partitioning is Partitioning.ONE_TO_ONE:
            return b"", of_group
        return b"".join(of_group.get(group, MISSING) for group in range(KEY_GROUPS)), of_group

    def of_version(self, version: TopologyVersion) -> KeyedToy:
        """The same computation in another version of its topology."""
        topology = self.graph.topology
        operators = (replace(each, parallelism=version.parallelism[each.name]) for each in topology.operators)
        graph = TaskGraph(replace(topology, operators=tuple(operators)))
        return replace(self, graph=graph, tables=version.tables)

    def version(self, number: int = 1, after: int = 0) -> TopologyVersion:
        """What this is a version of."""
        parallelism = {operator.name: operator.parallelism for operator in self.graph.topology.operators}
        return TopologyVersion(number, after, parallelism, self.tables)

    def whole(self) -> KeyedToy:
        """The same computation with one task for each operator: no groups move, and nothing is shared out."""
        names = [operator.name for operator in self.graph.operators]
        tables = dict.fromkeys(names, (0,) * KEY_GROUPS)
        return self.of_version(TopologyVersion(1, 0, dict.fromkeys(names, 1), tables))

    def part(self, chunk: Digest, task: Task) -> Digest:
        """What a task of this version has of what an operator sends."""
        groups = unpacked(chunk)
        return packed({group: groups[group] for group in self.owned[self.number[task]]})


def recut(before: KeyedToy, states: Sequence[Digest], now: KeyedToy) -> list[Digest]:
    """The states of the tasks of one version, made of those of another: every group goes to its new owner."""
    by_operator: dict[str, Groups] = {}
    for number, (task, state) in enumerate(zip(before.tasks, states, strict=True)):
        by_operator.setdefault(task.operator, {}).update(before.state_of(number, state))
    return [
        packed({group: by_operator[task.operator][group] for group in now.owned[number]})
        if now.inputs[number]
        else INITIAL
        for number, task in enumerate(now.tasks)
    ]


def packed(groups: Groups) -> Digest:
    """Groups as bytes, always the same ones."""
    return b"".join(bytes([group, len(content)]) + content for group, content in sorted(groups.items()))


def unpacked(content: Digest) -> Groups:
    """The groups in these bytes."""
    groups: Groups = {}
    place = 0
    while place < len(content):  # ends: every group takes at least its two first bytes
        group, length = content[place], content[place + 1]
        groups[group] = content[place + 2 : place + 2 + length]
        place += 2 + length
    return groups


def drawn(random: Random) -> KeyedToy:
    """A computation of a few operators, joined by full streams and in one-to-one chains."""
    count = random.randint(*OPERATORS)
    sources = 2 if count > 3 and random.random() < TWO_SOURCES else 1
    chains: list[list[str]] = []
    chain_of: dict[str, int] = {}
    operators: list[Operator] = []
    read: set[str] = set()
    parallelism = [random.randint(1, MOST_TASKS - 1) for _ in range(count)]
    for number in range(count):
        name = f"o{number}"
        if number < sources:
            chains.append([name])
            chain_of[name] = number
            operators.append(Operator(name, parallelism[number]))
            continue
        unread = [each.name for each in operators if each.name not in read]
        first = random.choice(unread if unread and random.random() < 0.8 else [each.name for each in operators])
        others = [each.name for each in operators if each.name != first]
        chained = random.random() < ONE_TO_ONE
        inputs = [Input(first, Partitioning.ONE_TO_ONE if chained else Partitioning.FULL)]
        if others and random.random() < TWO_INPUTS:
            inputs.append(Input(random.choice(others)))
        if chained:
            chain_of[name] = chain_of[first]
            chains[chain_of[first]].append(name)
        else:
            chain_of[name] = len(chains)
            chains.append([name])
        read.update(each.operator for each in inputs)
        tasks = parallelism[int(chains[chain_of[name]][0][1:])]
        output = Output() if random.random() < OUTPUT else None
        operators.append(Operator(name, tasks, tuple(inputs), output=output))
    operators = [
        replace(each, output=each.output or Output()) if each.inputs and each.name not in read else each
        for each in operators
    ]
    graph = TaskGraph(Topology("keyed", tuple(operators)))
    tables = {each.name: spread(each.parallelism) for each in operators}
    return KeyedToy(graph, tables=tables, chains=tuple(map(tuple, chains)), fixed=sources)


def spread(tasks: int) -> Table:
    """Neighbouring groups to each task."""
    return tuple(group * tasks // KEY_GROUPS for group in range(KEY_GROUPS))


def moved(random: Random, before: Table, tasks: int) -> Table:
    """Another table: neighbouring groups together, as few as may be moved, or any."""
    kind = random.random()
    if kind < 0.3:
        return spread(tasks)
    if kind < 0.6:
        return tuple(random.randrange(tasks) for _ in before)
    most = -(-KEY_GROUPS // tasks)
    kept = [[group for group in range(KEY_GROUPS) if before[group] == task][:most] for task in range(tasks)]
    table = [-1] * KEY_GROUPS
    for task, groups in enumerate(kept):
        for group in groups:
            table[group] = task
    for group, owner in enumerate(table):
        if owner < 0:
            table[group] = min(range(tasks), key=table.count)
    return tuple(table)
