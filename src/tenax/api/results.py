"""Results of bounded runs as frames: the same rows give the same frame, however batches were cut."""

from __future__ import annotations

import polars as pl

from tenax.operators.event_time import WINDOW_END, WINDOW_START


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows in the order in which results are returned.

    By `window_end` and `window_start`, if they have these, then by the other columns of times, then by all others, each
    from left to right; nulls come first. What cannot be compared (Python objects) keeps the order of arrival.
    """
    windows = [name for name in (WINDOW_END, WINDOW_START) if name in rows.columns]
    times = [name for name, kind in rows.schema.items() if kind.is_temporal() and name not in windows]
    others = [name for name, kind in rows.schema.items() if name not in {*windows, *times} and kind != pl.Object]
    columns = [*windows, *times, *others]
    return rows.sort(columns, maintain_order=True) if columns else rows
