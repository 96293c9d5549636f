"""The event time of a row, and the columns by which a row says which window it stands for.

The result of a window is a row with `window_start` and `window_end`. Its event time is the last instant of the window,
`window_end` − 1 µs, so that a window over windows puts it where the rows behind it were: the result of [0 s, 10 s) lies
in the pane [0 s, 10 s), not in the next. No extra column says so, the name does: **a stream whose time column is called
`window_end` has the event time `window_end` − 1 µs; every other time column is the event time itself.** Hence
`window_start` and `window_end` are reserved: keys and aggregates cannot have these names.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.missing import missing

WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW = (WINDOW_START, WINDOW_END)


def event_times(rows: pl.DataFrame, time: str) -> npt.NDArray[np.int64]:
    """The event time of every row in microseconds; the time column has no nulls."""
    times: npt.NDArray[np.int64] = rows[time].to_numpy().view(np.int64)
    return times - 1 if time == WINDOW_END else times


def check_time(rows: pl.DataFrame, time: str) -> None:
    """A time column is there and counts microseconds."""
    if time not in rows.columns:
        raise missing("the time column must be there", time, rows.columns)
    kind = rows.schema[time]
    if not isinstance(kind, pl.Datetime) or kind.time_unit != "us":
        raise InvalidRequest(f"a time column is Datetime('us'): {time!r} is {kind}; cast it to pl.Datetime('us')")


def check_windows(rows: pl.DataFrame, operator: str) -> None:
    """The rows are results of windows."""
    for name in WINDOW:
        if name not in rows.columns:
            raise InvalidRequest(
                f"{operator} takes rows of windows: {name!r} is not among {rows.columns}; use it after window(...)"
            )
        check_time(rows, name)


def check_names(names: Iterable[str], what: str) -> None:
    """None of these names is reserved for windows."""
    for name in names:
        if name in WINDOW:
            raise InvalidRequest(f"{what} cannot be called {name!r}, a column that windows add; rename it")
