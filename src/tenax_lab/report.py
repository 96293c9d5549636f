"""Tables, claims and panels by column: how a frame of observations becomes findings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl

from tenax.pictures.figures import Curve
from tenax_lab.findings import Claim, Table

Column: TypeAlias = str | pl.Expr
"""A column by name, or an expression over columns."""
MIDDLE = "median"
SPREADS = {
    "range": (pl.Expr.min, pl.Expr.max),
    "middle half": (lambda column: column.quantile(0.25, "linear"), lambda column: column.quantile(0.75, "linear")),
}
"""What a band around a curve shows, by name: its lower and its upper end."""
YES, NO = "yes", "NO"


def table(title: str, frame: pl.DataFrame, columns: str | Mapping[str, Column], **computed: pl.Expr) -> Table:
    """A row per row of a frame, each column under its heading.

    Columns are written as they are read, `"heading = column | column | …"`, those that are `computed` here among them;
    or as a mapping, where headings are.
    """
    if isinstance(columns, str):
        pairs = (part.split(" = ") for part in columns.split(" | "))
        columns = {heading: (column or [heading])[0] for heading, *column in pairs}
    chosen = frame.with_columns(**computed).select(**{heading: _expr(column) for heading, column in columns.items()})
    return Table(title, tuple(columns), tuple(chosen.iter_rows()))


def wide(frame: pl.DataFrame, value: Column, *, by: Sequence[str], across: str = "side") -> pl.DataFrame:
    """A row per value of `by`, a column per value of `across`, in order of appearance.

    The mean where there are several observations, null where there is none.
    """
    named = frame.select(*by, across, _expr(value).alias("value"))
    return named.pivot(across, index=list(by), values="value", aggregate_function="mean", maintain_order=True)


def yes_no(column: Column, *, otherwise: str = NO) -> pl.Expr:
    """A truth as people read it; null where there is none."""
    return pl.when(_expr(column)).then(pl.lit(YES)).when(~_expr(column)).then(pl.lit(otherwise))


def value(frame: pl.DataFrame, expression: Column) -> float:
    """One number of a frame."""
    number = frame.select(_expr(expression)).item()
    if number is None:
        raise ValueError(f"a claim is computed from observations, found none for {expression}")
    return float(number)


def values(frame: pl.DataFrame, expression: Column) -> list[float]:
    """All numbers of a column, without nulls."""
    return [float(each) for each in frame.select(_expr(expression)).to_series().drop_nulls().to_list()]


def percentile(column: str, percent: int) -> pl.Expr:
    """The smallest value that so many percent of the values do not exceed."""
    place = ((pl.len() * percent / 100).ceil() - 1).cast(pl.Int64).clip(lower_bound=0)
    return pl.col(column).sort().get(place)


def ratios(
    frame: pl.DataFrame, measure: Column, ours: pl.Expr | str, theirs: pl.Expr | str, on: Sequence[str]
) -> list[float]:
    """The measure of our rows over that of theirs, paired by columns that are alike; none without a partner."""
    named = frame.with_columns(_expr(measure).alias("_measure"))
    first, second = (named.filter(_side(each)).select(*on, "_measure") for each in (ours, theirs))
    pairs = first.join(second, on=list(on), how="inner", suffix="_theirs", nulls_equal=True, maintain_order="left")
    return values(pairs, pl.col("_measure") / pl.col("_measure_theirs"))


def claim_of_ratios(statement: str, said: str, compared: Sequence[float], of: str = "pairs") -> list[Claim]:
    """The median of ratios beside what a paper says; nothing if nothing was compared."""
    if not compared:
        return []
    over = f"median of {len(compared)} {of}, {spread(compared)}"
    return [Claim(statement, said, median(compared), "×", over)]


def median(numbers: Iterable[float]) -> float:
    """The middle of some numbers."""
    return statistics.median(numbers)


def spread(numbers: Iterable[float], digits: str = ".2f") -> str:
    """From the least to the most."""
    listed = list(numbers)
    return f"{min(listed):{digits}} to {max(listed):{digits}}"


def met(reached: bool) -> str:
    """Whether a goal is reached, in words."""
    return "met" if reached else "not met"


def curves(
    frame: pl.DataFrame,
    x: Column,
    y: Column,
    *,
    by: Column = "side",
    labels: Mapping[Any, str] | None = None,
    looks: Sequence[Any] | None = None,
    middle: str = MIDDLE,
    band: str | None = None,
    dashed: bool = False,
) -> tuple[Curve, ...]:
    """A curve for every value of `by`: at each x the median (or another middle) of y, and a band of its spread.

    `looks` says in which order values have colours where that is not the order of appearance; `labels` how they are
    called.
    """
    named = frame.select(_expr(x).alias("x"), _expr(y).alias("y"), _expr(by).alias("by")).drop_nulls()
    low, high = SPREADS[band or "range"]
    points = named.group_by("by", "x", maintain_order=True).agg(
        getattr(pl.col("y"), middle)().alias("y"), low(pl.col("y")).alias("low"), high(pl.col("y")).alias("high")
    )
    order = list(looks if looks is not None else named["by"].unique(maintain_order=True))
    made = []
    for look, name in enumerate(order):
        own = points.filter(pl.col("by") == name).sort("x")
        if own.is_empty():
            continue
        bounds = tuple(zip(own["low"].to_list(), own["high"].to_list(), strict=True)) if band else ()
        at, heights = (tuple(float(each) for each in own[column].to_list()) for column in ("x", "y"))
        made.append(Curve((labels or {}).get(name, str(name)), at, heights, look, dashed, bounds))
    return tuple(made)


def highest(drawn: Iterable[Curve]) -> float:
    """The highest point of curves and their bands."""
    drawn = list(drawn)
    return max([max(curve.y) for curve in drawn] + [top for curve in drawn for _, top in curve.spread], default=0.0)


def _expr(column: Column) -> pl.Expr:
    return pl.col(column) if isinstance(column, str) else column


def _side(chosen: pl.Expr | str) -> pl.Expr:
    return pl.col("side") == chosen if isinstance(chosen, str) else chosen
