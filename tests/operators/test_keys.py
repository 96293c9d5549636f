"""The hash of keys is pinned: rows must find their task in every process and version."""

from __future__ import annotations

import datetime
import math
import struct
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.errors import InvalidRequest
from tenax.operators.keys import BASE, KEY_GROUPS, key_groups, key_hashes, owners, split

WORD = 2**64


def splitmix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % WORD
    return value ^ (value >> 31)


def one_hash(value: object) -> int:
    """The definition, value by value."""
    match value:
        case None:
            return splitmix(0x6E756C6C)
        case str():
            data = value.encode()
            return splitmix(
                (len(data) + sum((byte + 1) * pow(BASE, at + 1, WORD) for at, byte in enumerate(data))) % WORD
            )
        case float():
            bits = 0x7FF8000000000000 if math.isnan(value) else struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
            return splitmix(bits)
        case int():
            return splitmix(value % WORD)
    raise AssertionError(value)


def row_hash(values: tuple[object, ...]) -> int:
    combined = 0
    for value in values:
        combined = splitmix((combined * BASE + one_hash(value)) % WORD)
    return combined


VALUES = st.tuples(
    st.none() | st.text(max_size=20),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(VALUES, max_size=30), st.integers(0, 5))
def test_the_vectorised_hash_is_the_definition(
    rows: list[tuple[str | None, int | None, float | None]], cut: int
) -> None:
    schema = {"s": pl.String, "i": pl.Int64, "f": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")[cut:]
    assert key_hashes(frame, ["s", "i", "f"]).tolist() == [row_hash(row) for row in rows[cut:]]
    assert key_groups(frame, ["s"]).tolist() == [row_hash(row[:1]) >> 57 for row in rows[cut:]]


def test_pinned_hashes() -> None:
    frame = pl.DataFrame({"s": ["", "a", "segment 17", "Zürich", None], "i": [0, 1, -1, 2**40, None]})
    assert [f"{value:016x}" for value in key_hashes(frame, ["s"]).tolist()] == PINNED_TEXT
    assert [f"{value:016x}" for value in key_hashes(frame, ["i"]).tolist()] == PINNED_INTEGERS
    assert key_groups(frame, ["s", "i"]).tolist() == PINNED_GROUPS


def test_equal_keys_have_equal_groups_in_every_width_and_unit() -> None:
    numbers = pl.Series("k", [0, 1, 17, 100, None])
    whole = key_groups(numbers.to_frame(), ["k"]).tolist()
    for kind in (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64):
        assert key_groups(numbers.cast(kind).to_frame(), ["k"]).tolist() == whole
    halves = pl.Series("k", [0.5, -0.0, float("nan"), None])
    assert (key_groups(halves.cast(pl.Float32).to_frame(), ["k"]) == key_groups(halves.to_frame(), ["k"])).all()
    assert one_group(pl.Series("k", [0.0, -0.0]))
    assert one_group(pl.Series("k", [float("nan"), -float("nan")]))
    texts = pl.Series("k", ["x", "y", None])
    for same in (pl.Categorical(), pl.Enum(["y", "x"]), pl.Binary()):
        assert key_groups(texts.cast(same).to_frame(), ["k"]).tolist() == key_groups(texts.to_frame(), ["k"]).tolist()
    times = pl.Series("k", [datetime.datetime(2024, 1, 1), datetime.datetime(1960, 1, 1)], dtype=pl.Datetime("us"))
    for unit in (pl.Datetime("ms"), pl.Datetime("ns")):
        assert key_groups(times.cast(unit).to_frame(), ["k"]).tolist() == key_groups(times.to_frame(), ["k"]).tolist()


def one_group(column: pl.Series) -> bool:
    return len(set(key_groups(column.to_frame(), [column.name]).tolist())) == 1


@pytest.mark.parametrize("kind", ["text", "numbers", "times"])
def test_keys_spread_evenly_over_the_groups(kind: str) -> None:
    numbers = pl.Series("k", range(128 * 200))
    column = {"text": "page/" + numbers.cast(pl.String), "numbers": numbers, "times": numbers * 1_000_000}[kind]
    counts = Counter(key_groups(column.to_frame("k"), ["k"]).tolist())
    assert len(counts) == KEY_GROUPS
    assert 140 < min(counts.values()) <= max(counts.values()) < 270  # 200 expected, within five deviations


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 50).map(float), min_size=1, max_size=140))
def test_owners_are_contiguous_and_in_proportion(weights: list[float]) -> None:
    owner = owners(weights).tolist()
    assert len(owner) == KEY_GROUPS
    assert owner == sorted(owner)
    counts = Counter(owner)
    if len(weights) <= KEY_GROUPS:
        assert set(counts) == set(range(len(weights)))
    total = sum(weights) or len(weights)
    for task, weight in enumerate(weights if any(weights) else [1.0] * len(weights)):
        quota = KEY_GROUPS * weight / total
        assert counts[task] <= max(1, math.ceil(quota))
        if min(KEY_GROUPS * weight / total for weight in weights) >= 1:
            assert counts[task] >= math.floor(quota)


def test_equal_weights_share_the_groups_evenly() -> None:
    assert sorted(Counter(owners([1, 1, 1]).tolist()).values()) == [42, 43, 43]
    assert Counter(owners([3, 1]).tolist()) == {0: 96, 1: 32}
    assert Counter(owners([0, 0]).tolist()) == {0: 64, 1: 64}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers()), max_size=40), st.integers(1, 9))
def test_splitting_keeps_rows_keys_and_order(rows: list[tuple[str | None, int]], tasks: int) -> None:
    frame = pl.DataFrame(
        {"k": [row[0] for row in rows], "at": range(len(rows))}, schema={"k": pl.String, "at": pl.Int64}
    )
    owner = owners([1.0] * tasks)
    parts = split(frame, ["k"], owner, tasks)
    assert len(parts) == tasks
    assert sorted(row for part in parts for row in part["at"].to_list()) == list(range(len(rows)))
    for task, part in enumerate(parts):
        assert part["at"].to_list() == sorted(part["at"].to_list())
        assert part.schema == frame.schema
        if tasks > 1:
            assert (owner[key_groups(part, ["k"])] == task).all()


def test_wrong_keys_and_weights_are_refused_in_one_line() -> None:
    frame = pl.DataFrame({"a": [1], "l": [[1]]})
    for action in (
        lambda: key_groups(frame, ["b"]),
        lambda: key_groups(frame, ["l"]),
        lambda: owners([]),
        lambda: owners([-1.0]),
        lambda: owners([float("nan")]),
        lambda: split(frame, [], np.zeros(128, np.uint16), 2),
    ):
        with pytest.raises(InvalidRequest) as error:
            action()
        assert "\n" not in str(error.value)


PINNED_TEXT = ["a706dd2f4d197e6f", "c1c360ab508ab6fa", "e5a5b0c4e3fa53b0", "05665133d16ee535", "3d7d80026f4fa78f"]
PINNED_INTEGERS = ["a706dd2f4d197e6f", "5e41ab087439611e", "5dc20aa7b2a27137", "3329f979f9a0baa4", "3d7d80026f4fa78f"]
PINNED_GROUPS = [100, 111, 113, 3, 123]
