"""Which key group a row belongs to, which task owns a key group, and how rows are split among tasks.

The hash is our own, so that a row goes to the same task in every process, on every platform and with every version of
the libraries below. It is made of unsigned 64-bit arithmetic that wraps around:

- `mix(x)` is splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
- Integers, booleans, dates, times of day: `mix` of their physical value in two's complement, whatever their width.
  Datetimes and durations count microseconds.
- Floats: `mix` of the bits of the 64-bit value; −0.0 counts as 0.0, and every NaN as one.
- Strings, categories, binary: `mix(length + Σ (byte_j + 1) · BASE^(j+1))` over their bytes, j from 0.
- Null: `mix(NULL)`.
- Several columns, in their order: `h = mix(h · BASE + hash of the column)` from h = 0; so it is for one column, too.

The key group is the upper 7 bits of the hash: rows sorted by hash are sorted by key group.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.missing import missing

KEY_GROUPS = 128
GROUP_SHIFT = np.uint64(57)  # 64 bits less the 7 of a key group

BASE = 0x9E6C63D0876A9A8F  # any odd number has an inverse modulo 2^64; this one has bits set evenly
BASE_INVERSE = pow(BASE, -1, 2**64)
NULL = np.uint64(0x6E756C6C)
KEPT_POWERS = 2**20  # two tables of 8 MB in each process
ONE_NAN = np.uint64(0x7FF8000000000000)

Hashes = npt.NDArray[np.uint64]


def key_groups(frame: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.uint8]:
    """The key group of every row, 0 to KEY_GROUPS − 1. Cost: proportional to the bytes of the key columns."""
    return (key_hashes(frame, keys) >> GROUP_SHIFT).astype(np.uint8)


def key_hashes(frame: pl.DataFrame, keys: Sequence[str]) -> Hashes:
    """The 64-bit hash of every row's key, as the module says."""
    combined = np.zeros(frame.height, np.uint64)
    for key in keys:
        if key not in frame.columns:
            raise missing("a key must be a column", key, frame.columns)
        combined = mix(combined * np.uint64(BASE) + column_hashes(frame[key]))
    return combined


def owners(weights: Sequence[float]) -> npt.NDArray[np.uint16]:
    """The task that owns each key group: contiguous ranges in proportion to weights, by largest remainder.

    Every task owns at least one group while there are no more tasks than groups. All weights 0 means all equal.
    """
    if not weights or len(weights) >= 2**16 or not all(0 <= weight < float("inf") for weight in weights):
        raise InvalidRequest(f"weights must be finite numbers, at least one, none below 0: found {list(weights)}")
    exact = [Fraction(weight) for weight in weights] if any(weights) else [Fraction(1)] * len(weights)
    quotas = [KEY_GROUPS * weight / sum(exact) for weight in exact]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda task: (counts[task] - quotas[task], task))
    for task in by_remainder[: KEY_GROUPS - sum(counts)]:
        counts[task] += 1
    if len(counts) <= KEY_GROUPS:
        for task in [task for task, count in enumerate(counts) if count == 0]:
            able = [task for task, count in enumerate(counts) if count > 1]
            richest = max(able, key=lambda task: (counts[task] - quotas[task], -task))
            counts[richest] -= 1
            counts[task] = 1
    return np.repeat(np.arange(len(counts), dtype=np.uint16), counts)


def split(frame: pl.DataFrame, keys: Sequence[str], owner: npt.NDArray[np.uint16], tasks: int) -> list[pl.DataFrame]:
    """The rows of each task, in their order.

    One stable radix sort and one gather, whatever the number of tasks: cost proportional to the rows, plus the tasks.
    """
    if tasks == 1:
        return [frame]
    if not keys:
        raise InvalidRequest(f"rows without a key go to one task: found {tasks} tasks; key the stream, or use one task")
    task = owner[key_groups(frame, keys)]
    together = frame[np.argsort(task, kind="stable")]
    ends = np.cumsum(np.bincount(task, minlength=tasks)).tolist()
    return [together[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def mix(values: Hashes) -> Hashes:
    """splitmix64 of every value."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def column_hashes(column: pl.Series) -> Hashes:
    """The hash of every value of one column."""
    kind = column.dtype
    if isinstance(kind, pl.String | pl.Binary | pl.Categorical | pl.Enum):
        hashes = byte_hashes(column if isinstance(kind, pl.Binary) else column.cast(pl.String))
    elif kind.is_float():
        values = column.fill_null(0.0).cast(pl.Float64).to_numpy() + 0.0  # −0.0 + 0.0 is 0.0
        hashes = mix(np.where(np.isnan(values), ONE_NAN, values.view(np.uint64)))
    elif kind == pl.UInt64:
        hashes = mix(column.fill_null(0).to_numpy())
    elif kind.is_integer() and not isinstance(kind, pl.Int128 | pl.UInt128):
        hashes = mix(integers(column))
    elif isinstance(kind, pl.Datetime | pl.Duration):
        hashes = mix(integers(column.dt.cast_time_unit("us")))
    elif isinstance(kind, pl.Boolean | pl.Date | pl.Time):
        hashes = mix(integers(column))
    elif isinstance(kind, pl.Null):
        hashes = np.zeros(len(column), np.uint64)
    else:
        raise InvalidRequest(
            f"a key is a number, text, a time or a boolean: {column.name!r} is {kind}; cast it, or key by its parts"
        )
    if column.null_count():
        hashes = np.where(column.is_null().to_numpy(), mix(np.array([NULL]))[0], hashes)
    return hashes


def integers(column: pl.Series) -> Hashes:
    """The physical values as 64-bit integers, by their bits."""
    values = column if column.dtype == pl.Int64 else column.to_physical().cast(pl.Int64)
    return (values.fill_null(0) if values.null_count() else values).to_numpy().view(np.uint64)


def byte_hashes(column: pl.Series) -> Hashes:
    """The hash of every string, from prefix sums over all bytes of the column.

    With S(k) = Σ over positions j < k of (byte_j + 1) · BASE^(j+1), a string at [start, end) has the sum
    (S(end) − S(start)) · BASE^(−start). Cost: a few operations for each byte.
    """
    array = column.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    if not len(array):
        return np.zeros(0, np.uint64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, np.uint8)[first:last] if data_buffer is not None else np.zeros(0, np.uint8)
    powers, inverses = power_tables(len(data))
    terms = data.astype(np.uint64)
    terms += np.uint64(1)
    terms *= powers[1 : len(data) + 1]
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    starts, ends = offsets[:-1] - first, offsets[1:] - first
    return mix((ends - starts).astype(np.uint64) + (sums[ends] - sums[starts]) * inverses[starts])


def power_tables(length: int) -> tuple[Hashes, Hashes]:
    """BASE^j and BASE^(−j) for j from 0 to the length; tables of usual length are kept."""
    if length >= KEPT_POWERS:
        return powers_of(BASE, length + 1), powers_of(BASE_INVERSE, length + 1)
    return kept_powers()


@cache
def kept_powers() -> tuple[Hashes, Hashes]:
    """The tables for columns of fewer than KEPT_POWERS bytes."""
    return powers_of(BASE, KEPT_POWERS), powers_of(BASE_INVERSE, KEPT_POWERS)


def powers_of(base: int, count: int) -> Hashes:
    """base^0, base^1, … modulo 2^64."""
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
