"""Columns of what operators make: those that were derived, in every batch and task, or the run is stopped there."""

from __future__ import annotations

import polars as pl

from tenax.operators.computation import Computation
from tenax.operators.stateless import Map, Stateless

SHOWN = 12  # columns of a long list


class ColumnsVary(Exception):
    """An operator made other columns than were derived or declared."""


def is_users(computation: Computation) -> bool:
    """Whether code of a user's decides which columns come out; expressions follow from the columns that go in."""
    if isinstance(computation, Stateless):
        return any(isinstance(transformation, Map) for transformation in computation.transformations)
    return not type(computation).__module__.startswith("tenax.")


def is_declared(computation: Computation) -> bool:
    """Whether the columns that users' code makes are declared, so that it need not be tried without rows."""
    if isinstance(computation, Stateless):
        return all(
            transformation.schema is not None
            for transformation in computation.transformations
            if isinstance(transformation, Map)
        )
    return type(computation).schema is not Computation.schema


def remedy_of(computation: Computation) -> str:
    """How a user declares the columns of a computation."""
    if isinstance(computation, Stateless):
        return "declare them with map(..., schema={...}), or return them for a frame without rows, too"
    return f"declare them in {type(computation).__name__} by schema(self, inputs), or give them for no rows, too"


def conformed(rows: pl.DataFrame, nothing: pl.DataFrame, computation: Computation) -> pl.DataFrame:
    """The rows, if they have the columns of `nothing`; no rows have these, whatever a function made of them."""
    if rows.schema == nothing.schema:
        return rows
    if not rows.height:
        return nothing
    origin, more = "", ""
    if is_users(computation) and is_declared(computation):
        origin, more = ", which are declared", ", or declare what it makes"
    elif is_users(computation):
        origin, more = ", which it gave for no rows", f", or {remedy_of(computation).partition(', or ')[0]}"
    raise ColumnsVary(
        f"its columns are the same in every batch, found {listed(rows.schema)} after {listed(nothing.schema)}{origin}: "
        f"give every frame the same columns in the same order, and cast those whose type follows from the rows{more}"
    )


def listed(schema: pl.Schema) -> str:
    """Columns and types on one line."""
    pairs = [f"{name} {_kind(kind)}" for name, kind in schema.items()]
    more = f", and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return f"({', '.join(pairs[:SHOWN])}{more})"


def _kind(kind: pl.DataType) -> str:
    """A type as people write it: a plain time needs no explanation."""
    return "Datetime" if kind == pl.Datetime("us") else str(kind)
