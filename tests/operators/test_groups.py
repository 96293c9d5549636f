"""Sets of key groups: sets, written in 32 digits, that part rows without losing any."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenax.errors import InvalidRequest
from tenax.operators.groups import ALL, Groups
from tenax.operators.keys import KEY_GROUPS, owners


@given(
    st.integers(0, ALL.bits),
    st.integers(0, ALL.bits),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30),
)
def test_sets_of_key_groups_are_sets(first: int, second: int, values: list[int | None]) -> None:
    mine, other = Groups(first), Groups(second)
    assert Groups.parse(str(mine)) == mine
    assert (mine | other).covers(mine)
    assert mine.covers(mine & other)
    assert len(mine & other) + len(mine | other) == len(mine) + len(other)
    frame = pl.DataFrame({"k": pl.Series(values, dtype=pl.Int64)})
    rest = Groups(ALL.bits & ~first)
    together = pl.concat([mine.rows(frame, ["k"]), rest.rows(frame, ["k"])])
    assert together.sort("k").equals(frame.sort("k"))
    with pytest.raises(InvalidRequest):
        Groups.parse("12")


def test_the_groups_of_tasks_are_those_of_the_table() -> None:
    table = owners([1.0, 2.0, 1.0]).tolist()
    parts = [Groups.of(table, task) for task in range(3)]
    assert [len(part) for part in parts] == [32, 64, 32]
    assert parts[0] | parts[1] | parts[2] == ALL
    assert not parts[0] & parts[1]
    assert [part.lowest for part in parts] == [0, 32, 96]
    assert not Groups.of(table, 3)
    assert len(ALL) == KEY_GROUPS


def test_rows_without_a_key_have_no_group() -> None:
    with pytest.raises(InvalidRequest, match="found no key"):
        ALL.rows(pl.DataFrame({"k": [1]}), [])
    assert ALL.rows(pl.DataFrame({"k": []}), []).height == 0
