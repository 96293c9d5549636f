"""Sets of key groups: which of a task's rows belong to another task once its operator has been rescaled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.keys import KEY_GROUPS, key_groups

_TEXT = re.compile(rf"[0-9a-f]{{{KEY_GROUPS // 4}}}")


@dataclass(frozen=True, slots=True)
class Groups:
    """A set of key groups; group g is bit g of `bits`. Its text has 32 hexadecimal digits."""

    bits: int

    @classmethod
    def of(cls, table: Sequence[int], task: int) -> Groups:
        """Those that a task owns by a table."""
        return cls(sum(1 << group for group, owner in enumerate(table) if owner == task))

    @classmethod
    def parse(cls, text: str) -> Groups:
        """Read 32 hexadecimal digits."""
        if not _TEXT.fullmatch(text):
            raise InvalidRequest(
                f"a set of key groups has {KEY_GROUPS // 4} hexadecimal digits, found {text!r}: write it as it was"
            )
        return cls(int(text, 16))

    def __str__(self) -> str:
        return f"{self.bits:0{KEY_GROUPS // 4}x}"

    def __bool__(self) -> bool:
        return self.bits != 0

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __and__(self, other: Groups) -> Groups:
        return Groups(self.bits & other.bits)

    def __or__(self, other: Groups) -> Groups:
        return Groups(self.bits | other.bits)

    @property
    def lowest(self) -> int:
        """The first of them; there is one."""
        return (self.bits & -self.bits).bit_length() - 1

    def covers(self, other: Groups) -> bool:
        """Whether all of these are among them."""
        return self.bits & other.bits == other.bits

    def rows(self, frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
        """The rows of these groups, in their order. Cost: proportional to the rows."""
        if not frame.height:
            return frame
        if not keys:
            raise InvalidRequest("rows are told apart by key groups, found no key: key the stream before it is split")
        inside = np.array([self.bits >> group & 1 for group in range(KEY_GROUPS)], np.bool_)[key_groups(frame, keys)]
        return frame if inside.all() else frame[np.flatnonzero(inside)]


ALL = Groups((1 << KEY_GROUPS) - 1)
