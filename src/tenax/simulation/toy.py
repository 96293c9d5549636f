"""A toy computation: every output is a hash of all that led to it, so that any mistake changes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task

Digest = bytes
DIGEST_BYTES = 8
INITIAL: Digest = b"initial"
MISSING: Digest = b"missing"  # stands for the chunk of a producer that a tentative step does without


@dataclass(frozen=True)
class Toy:
    """A topology whose tasks hash: a wrong start version or input, a skipped or doubled batch change results.

    The state of a task is a hash of all its inputs; that of an operator with a `memory` those of the last few batches,
    of none at all if it is 0.
    """

    graph: TaskGraph
    memory: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in task order."""
        return self.graph.tasks(range(len(self.graph)))

    @cached_property
    def number(self) -> dict[Task, int]:
        """The numbers of the tasks."""
        return {task: number for number, task in enumerate(self.tasks)}

    @cached_property
    def outputs(self) -> tuple[Task, ...]:
        """The tasks whose results are published."""
        return tuple(task for number, task in enumerate(self.tasks) if self.graph.is_output[number])

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The producers of every task."""
        return tuple(tuple(self.graph.producers_of(number)) for number in range(len(self.graph)))

    def step(
        self, number: int, state: Digest, rows: tuple[int, int], chunks: Mapping[int, Digest]
    ) -> tuple[Digest, Digest]:
        """One task through one batch: its state after it and what it sends; a source has no state but its log."""
        memory = self.memory_of(number)
        if memory is not None:
            return self._remembered(number, state, chunks, memory)
        hashed = hashlib.blake2b(number.to_bytes(4, "big"), digest_size=DIGEST_BYTES)
        if self.inputs[number]:
            hashed.update(state)
            for producer in self.inputs[number]:
                hashed.update(chunks[producer])
        else:
            hashed.update(repr(rows).encode())
        after = hashed.digest()
        hashed.update(b"chunk")
        return after, hashed.digest()

    def memory_of(self, number: int) -> int | None:
        """Of how many batches a task knows; None if of all."""
        return self.memory.get(self.tasks[number].operator) if self.inputs[number] else None

    def rebuild_from(self, number: int, batch: int) -> int:
        """The batch from which on a task is stepped to have its state after another one; 0 if that is not enough.

        What it takes of the first of these is nothing, so that is the one before the oldest it remembers.
        """
        memory = self.memory_of(number)
        if memory is None:
            return 0
        return max(1, batch - memory) if memory else batch + 1

    def _remembered(
        self, number: int, state: Digest, chunks: Mapping[int, Digest], memory: int
    ) -> tuple[Digest, Digest]:
        hashed = hashlib.blake2b(number.to_bytes(4, "big"), digest_size=DIGEST_BYTES)
        for producer in self.inputs[number]:
            hashed.update(chunks[producer])
        known = (b"" if state == INITIAL else state) + hashed.digest()
        sent = hashlib.blake2b(known, digest_size=DIGEST_BYTES, person=b"chunk").digest()
        return (known[-memory * DIGEST_BYTES :] if memory else INITIAL), sent

    def batch(self, states: Sequence[Digest], rows: tuple[int, int]) -> tuple[list[Digest], Mapping[Task, Digest]]:
        """One batch through all tasks: their states after it, and the results of the output tasks. O(substreams)."""
        after: list[Digest] = []
        chunks: dict[int, Digest] = {}
        for number, state in enumerate(states):
            made, chunks[number] = self.step(number, state, rows, chunks)
            after.append(made)
        return after, {task: chunks[self.number[task]] for task in self.outputs}
