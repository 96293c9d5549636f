"""What can be told about a user's Polars expression before it runs."""

from __future__ import annotations

import polars as pl


def row_wise(expression: pl.Expr) -> bool:
    """Whether the value of a row depends on that row alone, so that the cut into batches cannot show.

    Every part must be separable by rows: `a - a.mean()` is not, though Polars says so of its outermost part. What
    Polars cannot judge without data (functions in Python, selections of columns) is trusted.
    """
    parts = [expression]
    while parts:  # ends: an expression is a finite tree
        part = parts.pop()
        if not part.meta.is_literal(allow_aliasing=True):
            try:
                separable = part.meta.is_row_separable()
            except pl.exceptions.PolarsError:
                separable = True
            if not separable:
                return False
        parts += part.meta.pop()
    return True


def keeps_rows(expression: pl.Expr) -> bool:
    """Whether the expression has one value for each row; what Polars cannot judge is trusted."""
    try:
        return expression.meta.is_length_preserving()
    except pl.exceptions.PolarsError:
        return True


def written(expression: pl.Expr) -> str:
    """The expression on one line, for messages."""
    return " ".join(str(expression).split())
