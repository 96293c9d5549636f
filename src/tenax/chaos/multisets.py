"""Rows against rows, in any order, by key and window: what is lost, what is there besides, what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

RELATIVE, RELATIVE_SINGLE = 1e-9, 1e-4  # of a float, in double or single precision: sums depend on their order
ABSOLUTE, ABSOLUTE_SINGLE = 1e-12, 1e-6  # of the largest of a column, or of 1: what is left where parts cancel out
MAX_SHOWN = 5  # examples of each kind
PLACE, OURS, THEIRS = "tenax.place", "tenax.ours", "tenax.theirs"


@dataclass(frozen=True, slots=True)
class Difference:
    """How many rows of an output are lost, extra or different, and some of them in words."""

    lost: int = 0
    extra: int = 0
    different: int = 0
    examples: tuple[str, ...] = ()


def difference(made: pl.DataFrame, expected: pl.DataFrame, keys: Sequence[str]) -> Difference:
    """Hold rows against those that are expected, as multisets.

    Rows belong together if they agree in `keys`; without these, in all columns that are no floats. Floats agree within
    the tolerances above. Cost: a join, and a sort where several rows have one key.
    """
    if not made.columns:
        made = expected.clear()
    if set(made.columns) != set(expected.columns):
        said = f"columns {sorted(made.columns)} for {sorted(expected.columns)}"
        return Difference(expected.height, made.height, 0, (said,))
    ours, theirs = _alike(made.select(expected.columns), expected)
    by = [name for name in keys if name in expected.columns]
    by = by or [name for name, kind in theirs.schema.items() if not kind.is_float()]
    others = [name for name in expected.columns if name not in by]
    pairs = _placed(ours, by, others, OURS).join(
        _placed(theirs, by, others, THEIRS), on=[*by, PLACE], how="full", coalesce=True, nulls_equal=True, suffix=THEIRS
    )
    here, there = pl.col(OURS).is_not_null(), pl.col(THEIRS).is_not_null()
    unequal = pl.any_horizontal([~_close(name, theirs) for name in others] or [pl.lit(False)])
    lost, extra, different = (
        pairs.filter(condition) for condition in (there & ~here, here & ~there, here & there & unequal)
    )
    examples = [
        *(f"{_named(row, by)} is lost" for row in _first(lost, by)),
        *(f"{_named(row, by)} is there besides" for row in _first(extra, by)),
        *(f"{_named(row, by)}: {_contrast(row, others)}" for row in _first(different, [])),
    ]
    return Difference(lost.height, extra.height, different.height, tuple(examples))


def close(own: pl.Expr, other: pl.Expr, kind: pl.DataType, largest: float) -> pl.Expr:
    """Whether two floats agree within the tolerances."""
    single = isinstance(kind, pl.Float32)
    relative, absolute = (RELATIVE_SINGLE, ABSOLUTE_SINGLE) if single else (RELATIVE, ABSOLUTE)
    within = relative * pl.max_horizontal(own.abs(), other.abs()) + absolute * max(1.0, largest)
    return own.eq_missing(other) | ((own - other).abs() <= within).fill_null(False)


def largest_of(column: pl.Series) -> float:
    """The largest finite value of a column of floats, without its sign."""
    highest = column.filter(column.is_finite().fill_null(False)).abs().max()
    return float(highest) if isinstance(highest, int | float) else 0.0


def _close(name: str, expected: pl.DataFrame) -> pl.Expr:
    own, other = pl.col(name), pl.col(f"{name}{THEIRS}")
    kind = expected.schema[name]
    return close(own, other, kind, largest_of(expected[name])) if kind.is_float() else own.eq_missing(other)


def _alike(made: pl.DataFrame, expected: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with columns that can be compared: numbers by value, what is nested or odd as text."""
    ours, theirs = [], []
    for name, kind in expected.schema.items():
        other, column = made.schema[name], pl.col(name)
        if kind.is_nested() or other.is_nested():
            text = pl.struct(name).struct.json_encode().alias(name)
            ours.append(text)
            theirs.append(text)
        elif kind.is_numeric() and other.is_numeric() and kind != other:
            ours.append(column.cast(pl.Float64))
            theirs.append(column.cast(pl.Float64))
        elif kind != other or isinstance(kind, pl.Categorical | pl.Enum):
            ours.append(column.cast(pl.String))
            theirs.append(column.cast(pl.String))
        else:
            ours.append(column)
            theirs.append(column)
    return made.select(ours), expected.select(theirs)


def _placed(rows: pl.DataFrame, by: Sequence[str], others: Sequence[str], mark: str) -> pl.DataFrame:
    """The rows numbered within their key, in an order of all their columns, floats last."""
    if by and not rows.select(by).is_duplicated().any():
        return rows.with_columns(pl.lit(0, pl.Int64).alias(PLACE), pl.lit(True).alias(mark))
    order = [*by, *sorted(others, key=lambda name: rows.schema[name].is_float())]
    rows = rows.sort(order, nulls_last=True) if order else rows
    place = pl.int_range(pl.len(), dtype=pl.Int64)
    return rows.with_columns((place.over(by) if by else place).alias(PLACE), pl.lit(True).alias(mark))


def _first(rows: pl.DataFrame, by: Sequence[str]) -> list[dict[str, object]]:
    return (rows.sort(by, nulls_last=True) if by else rows).head(MAX_SHOWN).to_dicts()


def _named(row: dict[str, object], by: Sequence[str]) -> str:
    return ", ".join(f"{name}={row[name]}" for name in by) or "a row"


def _contrast(row: dict[str, object], others: Sequence[str]) -> str:
    """The columns in which a row is not as expected."""
    return ", ".join(
        f"{name} {row[name]} for {row[f'{name}{THEIRS}']}" for name in others if row[name] != row[f"{name}{THEIRS}"]
    )
