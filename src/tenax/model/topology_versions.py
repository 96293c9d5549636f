"""Versions of a topology: how many tasks every operator has, and which of them owns each key group, from a batch on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Table = tuple[int, ...]
"""The task that owns each key group."""


@dataclass(frozen=True, slots=True)
class TopologyVersion:
    """One version.

    - It has every batch behind `after`, up to that of the next version; a batch belongs to one version for ever.
    - `parallelism` is that of every operator; `tables` has an entry for every operator whose rows are shared by key.
      Operators that are paired, task by task, have the same table.
    - `nodes` is how many nodes the run is to have; None if that is as its settings say.
    - `cause` says why it was made, in words.
    """

    number: int
    after: int
    parallelism: Mapping[str, int]
    tables: Mapping[str, Table] = field(default_factory=dict)
    nodes: int | None = None
    cause: str = ""


def moved_groups(before: Sequence[int], now: Sequence[int]) -> int:
    """How many key groups have another owner."""
    return sum(old != new for old, new in zip(before, now, strict=True))
