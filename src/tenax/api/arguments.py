"""Arguments as Polars users write them, lists and named columns among them, as the plain ones that operators take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta

import polars as pl

from tenax.api import checks
from tenax.errors import InvalidRequest

Column = pl.Expr | str
"""A Polars expression, or the name of a column where that will do."""

Value = pl.Expr | str | int | float | bool | date | datetime | time | timedelta | None
"""What `x=...` may be: an expression, the name of a column, or a constant for every row."""

CONSTANTS = (int, float, bool, date, datetime, time, timedelta, type(None))


def flat(given: Sequence[object]) -> tuple[object, ...]:
    """The arguments of a call, those within a list or a tuple each by itself: `f(a, [b, c])` is `f(a, b, c)`."""
    return tuple(
        part for argument in given for part in (argument if isinstance(argument, list | tuple) else (argument,))
    )


def expressions(
    verb: str,
    positional: Sequence[object],
    named: Mapping[str, object],
    *,
    example: str,
    columns: bool = False,
) -> list[pl.Expr]:
    """The expressions of a call: first those by position, then `name=expression` ones under their names."""
    plain = flat(positional)
    checks.expressions(verb, plain, example=example, columns=columns)
    taken = [pl.col(argument) if isinstance(argument, str) else argument for argument in plain]
    return [*taken, *(_named(verb, name, value) for name, value in named.items())]  # type: ignore[list-item]  # checked


def equalities(named: Mapping[str, object]) -> list[pl.Expr]:
    """`filter(page="home")`: the column is the value."""
    for name, value in named.items():
        if not isinstance(value, (pl.Expr, str, *CONSTANTS)):
            raise InvalidRequest(
                f"filter({name}=...) takes the value that the column has, found {checks.shown(value)}: "
                f"write pl.col({name!r}) with what holds for it"
            )
    return [pl.col(name).eq(value) for name, value in named.items()]


def operator_name(verb: str, given: object) -> str | None:
    """The name of an operator; a column that is to be called `name` cannot be written `name=...`."""
    if isinstance(given, pl.Expr):
        raise InvalidRequest(
            f"name is the name of the operator, found {checks.shown(given)}: "
            f"write {verb}((...).alias('name')) for a column of that name"
        )
    return given  # type: ignore[return-value]  # its kind is checked where the operator is added


def _named(verb: str, name: str, value: object) -> pl.Expr:
    if isinstance(value, pl.Expr):
        return value.alias(name)
    if isinstance(value, str) and verb != "aggregate":
        return pl.col(value).alias(name)
    if isinstance(value, CONSTANTS) and verb != "aggregate":
        return pl.lit(value).alias(name)
    kinds, example = "a Polars expression, the name of a column or a constant", "pl.col('speed') * 2"
    if verb == "aggregate":
        kinds, example = "a Polars expression", "pl.col('speed').mean()"
    raise InvalidRequest(f"{verb}({name}=...) takes {kinds}, found {checks.shown(value)}: write {name}={example}")
