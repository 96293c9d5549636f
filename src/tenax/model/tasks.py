"""Tasks, by name: an operator and an index, written `speed[2]`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tenax.errors import InvalidRequest

SHOWN_TASKS = 8  # of many in a line for people
_TASK = re.compile(r"\s*([a-z][a-z0-9_-]*)\[(\d{1,9})\]\s*")


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One of the parallel parts of an operator."""

    operator: str
    index: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]"

    @classmethod
    def parse(cls, text: str) -> Task:
        """Read `speed[2]`."""
        match = _TASK.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"a task is written operator[index], found {text!r}: write it like speed[2]")
        return cls(match[1], int(match[2]))


def in_groups(tasks: Iterable[Task]) -> str:
    """Tasks for people, by operator: `speed[0 2], jams[0..3]`; the first of them if they are many."""
    by_operator: dict[str, list[int]] = {}
    for task in tasks:
        by_operator.setdefault(task.operator, []).append(task.index)
    shown = [f"{name}[{_indices(indices)}]" for name, indices in by_operator.items()]
    more = f" and {len(shown) - SHOWN_TASKS} more operators" if len(shown) > SHOWN_TASKS else ""
    return ", ".join(shown[:SHOWN_TASKS]) + more


def _indices(indices: list[int]) -> str:
    if len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1)):
        return f"{indices[0]}..{indices[-1]}"
    return " ".join(map(str, indices[:SHOWN_TASKS])) + (" ..." if len(indices) > SHOWN_TASKS else "")
