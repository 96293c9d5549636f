"""Event times of files: which columns are read as such, in which unit and zone, and which times are believed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from tenax.connectors.schemas import INTEGERS
from tenax.errors import InvalidSource, UnreadableSource

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
"""How many microseconds whole numbers count, but for nanoseconds, a thousand of which are one."""

EARLIEST_US = 631_152_000_000_000  # 1990: what lies before was hardly ever meant
AHEAD_US = 86_400_000_000  # a day: clocks and zones differ by less
_NANOSECONDS = 1_000
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The column of event times: whole numbers in a `unit`, texts in ISO 8601, dates or times.

    Without `anytime`, a time before 1990 or after `until_us`, which is logged with each range, is refused.
    """

    column: str
    unit: str | None = None
    anytime: bool = False

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in UNITS:
            raise InvalidSource(f"a time_unit is one of {', '.join(UNITS)}, found {self.unit!r}: write time_unit='ms'")

    def check(self, kind: pl.DataType, where: str) -> None:
        """Refuse a column that does not say when its rows were."""
        whole = str(kind) in INTEGERS
        if not whole and not isinstance(kind, pl.Datetime | pl.String | pl.Date):
            raise UnreadableSource(
                f"{where}: event times are times, dates, ISO 8601 texts or whole numbers, found {kind} in column "
                f"{self.column!r}: name another column"
            )
        if whole and self.unit is None:
            raise UnreadableSource(
                f"{where}: whole numbers as event times need a unit, found {kind} in column {self.column!r}: "
                "write time_unit='s', 'ms', 'us' or 'ns'"
            )
        if not whole and self.unit is not None:
            raise UnreadableSource(
                f"{where}: a time_unit is for whole numbers, found {kind} in column {self.column!r}: leave it out"
            )

    def until(self, now_us: int) -> int | None:
        """The latest time that is believed of what is read now; None if any is."""
        return None if self.anytime else now_us + AHEAD_US

    def apply(self, rows: pl.DataFrame, file: str, first_row: int, until_us: int | None) -> pl.DataFrame:
        """The rows with their event times as Datetime in microseconds, UTC."""
        kind = rows.schema[self.column]
        self.check(kind, file)
        whole = str(kind) in INTEGERS
        column = self._counted(rows, file, first_row) if whole else _written(pl.col(self.column), kind)
        timed = rows.with_columns(column.alias(self.column))
        instants = timed[self.column]
        if instants.null_count():
            row = int(instants.is_null().arg_max() or 0)
            raise UnreadableSource(
                f"{file}, row {first_row + row + 1}: every row has an event time, found {rows[self.column][row]!r} in "
                f"column {self.column!r}: correct the row, or remove it"
            )
        if until_us is not None and not self.anytime:  # once allowed, so is what was refused before
            self._believe(rows, instants.cast(pl.Int64), file, first_row, until_us)
        return timed

    def _counted(self, rows: pl.DataFrame, file: str, first_row: int) -> pl.Expr:
        assert self.unit is not None
        most = _MOST // UNITS[self.unit]
        wrong = ~rows[self.column].is_between(-most, most)
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise UnreadableSource(
                f"{file}, row {first_row + row + 1}: event times fit into 64 bits of microseconds, found "
                f"{rows[self.column][row]!r} {self.unit} in column {self.column!r}: state another time_unit"
            )
        counted = pl.col(self.column).cast(pl.Int64)
        counted = counted // _NANOSECONDS if self.unit == "ns" else counted * UNITS[self.unit]
        return counted.cast(pl.Datetime("us"))

    def _believe(self, rows: pl.DataFrame, times: pl.Series, file: str, first_row: int, until_us: int) -> None:
        wrong = ~times.is_between(EARLIEST_US, until_us)
        if not wrong.any():
            return
        row = int(wrong.arg_max() or 0)
        when = "before 1990" if times[row] < EARLIEST_US else f"after {_shown(until_us)}, a day ahead of the clock"
        unit = "" if self.unit is None else f" {self.unit}"
        remedy = "correct the row" if self.unit is None else "correct the row, or the time_unit"
        raise UnreadableSource(
            f"{file}, row {first_row + row + 1}: event times lie between 1990 and tomorrow, found "
            f"{rows[self.column][row]!r}{unit} in column {self.column!r}, which is {when}: {remedy}, or allow it with "
            "any_time=True"
        )


def _written(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Times, dates and texts as Datetime in microseconds; what has no zone is taken as UTC."""
    if isinstance(kind, pl.String):
        # With an offset or a Z the text is converted to UTC; without, it is taken as UTC.
        offset = r"(?:[Zz]|[+-]\d{2}:?\d{2})$"
        text = column.str.replace(" ", "T", literal=True).str.replace(r"[zZ]$", "+00:00")
        zoned = text.str.to_datetime("%+", time_unit="us", strict=False).dt.replace_time_zone(None)
        plain = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
        return pl.when(column.str.contains(offset)).then(zoned).otherwise(plain)
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.cast(pl.Datetime("us"))


def _shown(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
