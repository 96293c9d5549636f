"""Tasks, by name: an operator and an index, written `speed[2]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenax.errors import InvalidRequest

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
