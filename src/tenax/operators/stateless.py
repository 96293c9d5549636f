"""Transformations that need no state: filter, select, with_columns, map; a chain of them is one computation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.computation import Computation, State, StepInput, StepOutput
from tenax.operators.expressions import keeps_rows, row_wise, written
from tenax.operators.parameters import attributes


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Keep the rows for which all predicates are true."""

    predicates: tuple[pl.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """These columns and no others."""

    columns: tuple[pl.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WithColumns:
    """These columns beside those that are there, or in their place."""

    columns: tuple[pl.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Any pure function from frame to frame that treats each row by itself and gives the same columns each time.

    Where its user has declared these, the `schema`, it is never called without rows.
    """

    function: Callable[[pl.DataFrame], pl.DataFrame]
    schema: pl.Schema | None = None


Transformation = Filter | Select | WithColumns | Map


@dataclass(frozen=True, slots=True, eq=False)
class Stateless(Computation):
    """Transformations one after the other; rows keep their order.

    - Neighbouring expressions run as one Polars query, a map by itself.
    - Expressions look at one row at a time, so that the results do not depend on where batches are cut.

    Cost: proportional to the rows.
    """

    stateless = True

    transformations: tuple[Transformation, ...]

    def parameters(self) -> Mapping[str, object]:
        """What each transformation was given, by its verb; with a number, if there are several."""
        several = len(self.transformations) > 1
        given: dict[str, object] = {}
        for number, transformation in enumerate(self.transformations, start=1):
            verb = f"{number} {verb_of(transformation)}" if several else verb_of(transformation)
            given[verb] = next(iter(attributes(transformation).values()))
            if isinstance(transformation, Map) and transformation.schema is not None:
                given[f"{verb} schema"] = transformation.schema
        return given

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:
        """As Polars resolves the queries for no rows; a declared map gives what it declares."""
        columns = inputs[0]
        for transformation in self.transformations:
            declared = transformation.schema if isinstance(transformation, Map) else None
            query = pl.LazyFrame(schema=columns)
            columns = declared or collected(transformed(query, transformation)).schema
        return columns

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Transform the rows of the batch."""
        query = given.frames[0].lazy()
        for transformation in self.transformations:
            query = transformed(query, transformation)
        return StepOutput(state, collected(query))

    def then(self, other: Stateless) -> Stateless:
        """Both as one computation."""
        return Stateless((*self.transformations, *other.transformations))


def transformed(query: pl.LazyFrame, transformation: Transformation) -> pl.LazyFrame:
    """A query with one transformation more."""
    match transformation:
        case Filter(predicates):
            return query.filter(*predicates)
        case Select(columns):
            return query.select(*columns)
        case WithColumns(columns):
            return query.with_columns(*columns)
        case Map(function):
            return mapped(function, collected(query)).lazy()


def verb_of(transformation: Transformation) -> str:
    """What a user calls it."""
    match transformation:
        case Filter():
            return "filter"
        case Select():
            return "select"
        case WithColumns():
            return "with_columns"
        case Map():
            return "map"


def filter_rows(*predicates: pl.Expr) -> Stateless:
    """Keep the rows for which all predicates are true."""
    return Stateless((Filter(checked(predicates, "filter")),))


def select_columns(*columns: pl.Expr) -> Stateless:
    """These columns and no others."""
    return Stateless((Select(checked(columns, "select")),))


def with_columns(*columns: pl.Expr) -> Stateless:
    """These columns beside those that are there."""
    return Stateless((WithColumns(checked(columns, "with_columns")),))


def map_frames(function: Callable[[pl.DataFrame], pl.DataFrame], schema: pl.Schema | None = None) -> Stateless:
    """A function of the user's; each row by itself, or the results depend on where batches are cut."""
    return Stateless((Map(function, schema),))


def checked(expressions: Sequence[pl.Expr], operator: str) -> tuple[pl.Expr, ...]:
    """The expressions, if each gives one value for each row and looks at that row only."""
    if not expressions:
        raise InvalidRequest(f"{operator} takes at least one expression: found none; pass one such as pl.col('speed')")
    for expression in expressions:
        if not row_wise(expression) or not (keeps_rows(expression) or expression.meta.is_literal(allow_aliasing=True)):
            raise InvalidRequest(
                f"{operator} looks at one row at a time: found {written(expression)}; aggregate over a window instead"
            )
    return tuple(expressions)


def collected(query: pl.LazyFrame) -> pl.DataFrame:
    """Run a query in memory: the streaming engine does not keep the order of float sums."""
    return query.collect(engine="in-memory")


def mapped(function: Callable[[pl.DataFrame], pl.DataFrame], rows: pl.DataFrame) -> pl.DataFrame:
    """What the function makes of the rows."""
    result: object = function(rows)
    if not isinstance(result, pl.DataFrame):
        raise InvalidRequest(
            f"the function of a map returns a pl.DataFrame: found {type(result).__name__}; return the frame it makes"
        )
    return result
