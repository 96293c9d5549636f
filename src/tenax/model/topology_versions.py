"""Versions of a topology: how many tasks every operator has, and which of them owns each key group, from a batch on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenax.errors import InvalidRequest

Table = tuple[int, ...]
"""The task that owns each key group."""


@dataclass(frozen=True, slots=True)
class TopologyVersion:
    """One version.

    - It has every batch behind `after`, up to that of the next version; a batch belongs to one version for ever.
    - `parallelism` is that of every operator; `tables` has an entry for every operator whose rows are shared by key.
      Operators that are paired, task by task, have the same table.
    - `nodes` is how many nodes the run is to have; None if that is as its settings say.
    - `cause` says why it was made, in words; `request` is the number under which the store knows who asked for it.
    """

    number: int
    after: int
    parallelism: Mapping[str, int]
    tables: Mapping[str, Table] = field(default_factory=dict)
    nodes: int | None = None
    cause: str = ""
    request: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What a rescale is to lead to.

    - `parallelism` is that of the operators that are to change, and `nodes` how many nodes there are to be; None if
      that is to stay as it is.
    - `request` is the number under which the store knows who asked for it; 0 if the run decided by itself.
    - `version` is the version that it leads to where that is recorded already: it begins behind a batch that the run
      has not come to yet, because it went back before it.
    """

    parallelism: Mapping[str, int] = field(default_factory=dict)
    nodes: int | None = None
    cause: str = ""
    request: int = 0
    version: TopologyVersion | None = None

    @classmethod
    def of(cls, version: TopologyVersion) -> Target:
        """A version that is recorded already."""
        return cls(version.parallelism, version.nodes, version.cause, version.request, version)

    @property
    def words(self) -> str:
        """What is to change: `speed to 4 tasks, 6 nodes`."""
        parts = [f"{name} to {count} task{'s' * (count != 1)}" for name, count in self.parallelism.items()]
        if self.nodes is not None:
            parts.append(f"{self.nodes} node{'s' * (self.nodes != 1)}")
        return ", ".join(parts) or "nothing"


def parse_tasks(words: Iterable[str]) -> dict[str, int]:
    """How many tasks operators are to have, as people write it: `speed=4,jams=2`."""
    wanted: dict[str, int] = {}
    for word in (part.strip() for text in words for part in text.split(",")):
        if not word:
            continue
        name, sign, count = (part.strip() for part in word.partition("="))
        if not (sign and name and count.isdecimal() and int(count)):
            raise InvalidRequest(f"a rescale is written OPERATOR=TASKS, found {word!r}: write it like speed=4,jams=2")
        if wanted.setdefault(name, int(count)) != int(count):
            raise InvalidRequest(f"an operator is named once, found {name!r} twice: leave one out")
    return wanted


def moved_groups(before: Sequence[int], now: Sequence[int]) -> int:
    """How many key groups have another owner."""
    return sum(old != new for old, new in zip(before, now, strict=True))
