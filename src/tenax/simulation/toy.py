"""A toy computation: every output is a hash of all that led to it, so that any mistake changes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task

Digest = bytes
DIGEST_BYTES = 8
INITIAL: Digest = b"initial"


@dataclass(frozen=True)
class Toy:
    """A topology whose tasks hash: a wrong start version or input, a skipped or doubled batch change results."""

    graph: TaskGraph

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in task order."""
        return self.graph.tasks(range(len(self.graph)))

    @cached_property
    def outputs(self) -> tuple[Task, ...]:
        """The tasks whose results are published."""
        return tuple(task for number, task in enumerate(self.tasks) if self.graph.is_output[number])

    @cached_property
    def _inputs(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.graph.producers_of(number)) for number in range(len(self.graph)))

    def batch(self, states: Sequence[Digest], rows: tuple[int, int]) -> tuple[list[Digest], Mapping[Task, Digest]]:
        """One batch through all tasks: their states after it, and the results of the output tasks. O(substreams)."""
        after: list[Digest] = []
        chunks: list[Digest] = []
        source = repr(rows).encode()
        for number, (state, inputs) in enumerate(zip(states, self._inputs, strict=True)):
            hashed = hashlib.blake2b(state, digest_size=DIGEST_BYTES)
            hashed.update(number.to_bytes(4, "big"))
            for producer in inputs:
                hashed.update(chunks[producer])
            if not inputs:
                hashed.update(source)
            after.append(hashed.digest())
            hashed.update(b"chunk")
            chunks.append(hashed.digest())
        found = {self.tasks[number]: chunks[number] for number in range(len(chunks)) if self.graph.is_output[number]}
        return after, found
