"""Columns of what users' code makes: the same in every batch and task, or the run is stopped there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import polars as pl

from tenax.operators.chunks import decode, encode
from tenax.operators.computation import NO_WATERMARK_US, Computation
from tenax.operators.stateless import Map, Stateless

KNOWN = 256  # outputs whose columns a process remembers
SHOWN = 12  # columns of a long list


class ColumnsVary(Exception):
    """Code of a user's made other columns than before."""


def is_users(computation: Computation) -> bool:
    """Whether code of a user's decides which columns come out; expressions follow from the columns that go in."""
    if isinstance(computation, Stateless):
        return any(isinstance(one, Map) for one in computation.transformations)
    return not type(computation).__module__.startswith("tenax.")


def is_declared(computation: Computation) -> bool:
    """Whether the columns that users' code makes are declared, so that it need not be tried without rows."""
    if isinstance(computation, Stateless):
        return all(one.schema is not None for one in computation.transformations if isinstance(one, Map))
    return type(computation).schema is not Computation.schema


def remedy_of(computation: Computation) -> str:
    """How a user declares the columns of a computation."""
    if isinstance(computation, Stateless):
        return "declare them with map(..., schema={...}), or return them for a frame without rows, too"
    return f"declare them in {type(computation).__name__} by schema(self, inputs), or give them for no rows, too"


def described(rows: pl.DataFrame) -> bytes:
    """The columns of a frame as they travel: a chunk without rows."""
    return encode(rows.clear(), NO_WATERMARK_US)


@lru_cache(maxsize=KNOWN)
def empty(known: bytes) -> pl.DataFrame:
    """No rows, with columns that were described."""
    return decode(known)[0]


def conformed(rows: pl.DataFrame, known: bytes) -> pl.DataFrame:
    """The rows, if their columns are the known ones; no rows have these whatever a function made of nothing."""
    expected = empty(known)
    if not rows.height:
        return expected
    if rows.schema != expected.schema:
        raise ColumnsVary(difference(expected, rows))
    return rows


def difference(before: pl.DataFrame, now: pl.DataFrame) -> str:
    """What to tell of two frames whose columns differ."""
    return (
        f"its columns are the same in every batch, found {listed(now.schema)} after {listed(before.schema)}: "
        "give every frame the same columns in the same order, and cast those whose type follows from the rows"
    )


def unfit(rows: pl.DataFrame, consumer: str, cause: str) -> str:
    """What to tell of a frame without rows that its consumer cannot take."""
    return (
        f"its columns are the same for no rows, found {listed(rows.schema)}, which {consumer!r} cannot take ({cause}): "
        "give a frame without rows the same columns and types as others"
    )


def listed(schema: pl.Schema) -> str:
    """Columns and types on one line."""
    pairs = [f"{name} {_kind(kind)}" for name, kind in schema.items()]
    more = f", and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return f"({', '.join(pairs[:SHOWN])}{more})"


def odd_one(parts: Sequence[pl.DataFrame]) -> int | None:
    """The first part whose columns differ from those of the first; None if all are alike."""
    return next((at for at, part in enumerate(parts) if part.schema != parts[0].schema), None)


def _kind(kind: pl.DataType) -> str:
    """A type as people write it: a plain time needs no explanation."""
    return "Datetime" if kind == pl.Datetime("us") else str(kind)
