"""Aggregates of users, split into parts that can be merged: of a batch, of several parts, and the final value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.event_time import check_names
from tenax.operators.expressions import keeps_rows, row_wise, written
from tenax.operators.missing import missing

TIME = "tenax.time"  # the event time of a row in microseconds, for first and last
ORDERED = frozenset({"first", "last"})
SPREADS = frozenset({"std", "var"})
MEANS = frozenset({"mean", *SPREADS})
COUNTS = frozenset({"count", "len"})
COUNT = pl.Series(dtype=pl.get_index_type()).dtype
FLOAT = pl.Float64()  # what means and spreads are, unless a column of nulls says otherwise
TYPE = "type"  # the part that is this column: only its type counts


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One aggregate of one input expression; its parts are columns called `tenax.{position}.{part}`.

    - `partial` are expressions over rows, in the order of their event time if the kind is ordered.
    - `merged` are expressions over partials, in the order of arrival; merging merged parts is fine.
    - `final` is an expression over a merged part, and is cast to the type that Polars itself would give; `result_type`
      knows it from the types of the parts, and for means and spreads from a column of nulls if it is not Float64.

    Nothing is ever subtracted from a sum, so that parts of any age keep their precision.
    """

    name: str
    kind: str
    value: pl.Expr
    ddof: int
    position: int

    def part(self, part: str) -> str:
        """The name of a column."""
        return f"tenax.{self.position}.{part}"

    def partial(self) -> list[pl.Expr]:
        """From rows."""
        count = self.value.count().cast(pl.Int64).alias(self.part("count"))
        wide = self.value.cast(pl.Float64)
        if self.kind == "mean":
            return [wide.sum().alias(self.part("sum")), count]
        if self.kind in SPREADS:
            return [
                count,
                wide.mean().fill_null(0.0).alias(self.part("mean")),
                (wide.var(ddof=0).fill_null(0.0) * self.value.count()).alias(self.part("squares")),
            ]
        if self.kind == "len":
            return [self.value.len().cast(pl.Int64).alias(self.part("len"))]
        if self.kind == "count":
            return [count]
        if self.kind == "first":
            return [self.value.first().alias(self.part("first")), pl.col(TIME).first().alias(self.part("time"))]
        if self.kind == "last":
            return [self.value.last().alias(self.part("last")), pl.col(TIME).last().alias(self.part("time"))]
        return [getattr(self.value, self.kind)().alias(self.part(self.kind))]

    def merged(self) -> list[pl.Expr]:
        """From partials, and from what was merged before."""
        if self.kind in SPREADS:
            return self.merged_spread()
        if self.kind == "mean":
            return [pl.col(self.part("sum")).sum(), pl.col(self.part("count")).sum()]
        if self.kind in COUNTS:
            return [pl.col(self.part(self.kind)).sum()]
        column = pl.col(self.part(self.kind))
        if self.kind in ORDERED:
            by_time = column.sort_by(self.part("time"), maintain_order=True)  # then by arrival
            times = pl.col(self.part("time"))
            return [by_time.first(), times.min()] if self.kind == "first" else [by_time.last(), times.max()]
        return [getattr(column, self.kind)()]

    def merged_spread(self) -> list[pl.Expr]:
        """Squared distances from the common mean, for any number of parts at once.

        Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979:
        the squares of the parts, plus count × (mean of the part − common mean)². No large squares are subtracted.
        """
        count, mean, squares = (pl.col(self.part(part)) for part in ("count", "mean", "squares"))
        # the common mean by its distance from the first: products of large means would lose the last digits
        whole = mean.first() + (count * (mean - mean.first())).sum() / count.sum().clip(lower_bound=1)
        between = (count * (mean - whole).pow(2)).sum()
        return [
            count.sum(),
            whole.alias(self.part("mean")),
            (squares.sum() + between).alias(self.part("squares")),
        ]

    def result_type(self, parts: Mapping[str, pl.DataType]) -> pl.DataType:
        """The type that Polars gives this aggregate over rows, known from its parts alone."""
        if self.kind in COUNTS:
            return COUNT
        if self.kind in MEANS:
            return parts.get(self.part(TYPE), FLOAT)
        return parts[self.part(self.kind)]

    def final(self, kind: pl.DataType) -> pl.Expr:
        """From a merged part."""
        count = pl.col(self.part("count"))
        if self.kind == "mean":
            value: pl.Expr = pl.when(count > 0).then(pl.col(self.part("sum")) / count)
        elif self.kind in SPREADS:
            variance = pl.col(self.part("squares")) / (count - self.ddof)
            value = pl.when(count > self.ddof).then(variance.sqrt() if self.kind == "std" else variance)
        else:
            value = pl.col(self.part(self.kind))
        return value.cast(kind).alias(self.name)


def split_aggregates(expressions: Sequence[pl.Expr]) -> tuple[Aggregate, ...]:
    """Recognise the aggregates of a user, or say which one cannot be kept up over a stream."""
    if not expressions:
        raise InvalidRequest("aggregate takes at least one expression: found none; pass one such as pl.len()")
    aggregates = tuple(recognised(expression, position) for position, expression in enumerate(expressions))
    names = [aggregate.name for aggregate in aggregates]
    check_names(names, "an aggregate")
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"aggregates have different names: found {name!r} twice; give one another .alias(...)")
    return aggregates


def result_types(rows: pl.DataFrame, aggregates: Sequence[Aggregate], expressions: Sequence[pl.Expr]) -> pl.Schema:
    """The types that Polars gives the aggregates over rows like these."""
    for name in sorted({name for aggregate in aggregates for name in aggregate.value.meta.root_names()} - {TIME}):
        if name not in rows.columns:
            raise missing("aggregates need their columns", name, rows.columns)
    types = rows.clear().select(expressions).schema
    for aggregate in aggregates:
        if aggregate.kind in MEANS and not types[aggregate.name].is_float():
            raise InvalidRequest(
                f"a {aggregate.kind} is taken of numbers: {written(aggregate.value)} gives {types[aggregate.name]}; "
                "cast it to a number"
            )
    return types


def recognised(expression: pl.Expr, position: int) -> Aggregate:
    """The aggregate that an expression is, found by comparing it with each kind there is."""
    bare = expression.meta.undo_aliases()
    if bare.meta.eq(pl.len()):
        return Aggregate(expression.meta.output_name(), "len", pl.col(TIME), 0, position)
    inputs = bare.meta.pop()
    if len(inputs) == 1 and not expression.meta.has_multiple_outputs():
        value = inputs[0]
        kinds = {
            **{(kind, 0): getattr(value, kind)() for kind in ("sum", "mean", "min", "max", "count", "len")},
            **{(kind, 0): getattr(value, kind)() for kind in sorted(ORDERED)},
            **{(kind, ddof): getattr(value, kind)(ddof=ddof) for kind in sorted(SPREADS) for ddof in (0, 1)},
        }
        for (kind, ddof), known in kinds.items():
            if bare.meta.eq(known) and row_wise(value) and (kind not in ORDERED or keeps_rows(value)):
                return Aggregate(expression.meta.output_name(), kind, value, ddof, position)
    raise InvalidRequest(
        "an aggregate is sum, mean, min, max, count, len, first, last, std or var of what one row alone decides:"
        f" found {written(expression)}; aggregate first, then with_columns"
    )
