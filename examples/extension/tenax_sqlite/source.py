"""A SQLite table as a source: rows by their growing id."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import polars as pl

import tenax as tx
from tenax_sqlite.columns import PASSING, connect, from_rows, quoted, schema_of


class SqliteSource(tx.Source):
    """The rows of a table in the order of `key`, a column of whole numbers that only grow (AUTOINCREMENT).

    - Rows are added at the end, never changed, and stay until the run has released them. A range knows how many rows
      it had, and refuses if some are gone.
    - `time` is a column of microseconds since 1970.
    - With `follow`, rows that are added while the topology runs are read too; without, the source ends with the last.
    - With `prune`, rows are deleted when the run will never ask for them again.

    A position is the last key that was planned; a range is (after this key, up to this one, so many rows).
    """

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        time: str,
        key: str = "id",
        follow: bool = False,
        prune: bool = False,
        lateness: timedelta = timedelta(0),
    ) -> None:
        self.path = str(Path(path).absolute())
        self.table = table
        self.time = time
        self.key = key
        self.prune = prune
        self.bounded = not follow
        self.lateness_us = lateness // timedelta(microseconds=1)
        self._connection: sqlite3.Connection | None = None

    def schema(self) -> pl.Schema:
        """The columns of the table, with event times as such."""
        if not Path(self.path).exists():
            raise tx.UnreadableSource(f"{self.path}: a source reads what is there, found no file: correct the path")
        with closing(connect(self.path)) as connection:
            columns = schema_of(connection, self.table)
        for name in (self.key, self.time):
            if name not in columns:
                raise tx.UnreadableSource(
                    f"{self.path}: table {self.table!r} has a column {name!r}, found {list(columns)}: name another"
                )
        return pl.Schema({**columns, self.time: pl.Datetime("us")})

    def open(self) -> None:
        """Connect; once in a process."""
        self._connection = connect(self.path)

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:  # noqa: ARG002
        """The next rows, in equal parts."""
        after = position if isinstance(position, int) else 0
        count, last, newest = self._ask(
            f"SELECT count(*), max({self._key}), (SELECT max({self._key}) FROM {self._table}) FROM "
            f"(SELECT {self._key} FROM {self._table} WHERE {self._key} > ? ORDER BY {self._key} LIMIT ?)",
            (after, limits.rows),
        )[0]
        if not count:
            return tx.NothingNew(ended=self.bounded)
        ranges = []
        for partition in range(partitions):
            rows = count * (partition + 1) // partitions - count * partition // partitions
            upto = after
            if rows:
                nth = (
                    f"SELECT {self._key} FROM {self._table} WHERE {self._key} > ? ORDER BY {self._key} LIMIT 1 OFFSET ?"
                )
                upto = self._ask(nth, (after, rows - 1))[0][0]
            ranges.append([after, upto, rows])
            after = upto
        quiet = tuple(number for number, (_, _, rows) in enumerate(ranges) if not rows)
        return tx.Planned(tuple(ranges), last, count, ended=self.bounded and last == newest, quiet=quiet)

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:  # noqa: ARG002
        """The rows of a range, in the order of their keys."""
        after, upto, expected = _range(planned)
        columns = self.schema()
        rows = self._ask(
            f"SELECT * FROM {self._table} WHERE {self._key} > ? AND {self._key} <= ? ORDER BY {self._key}",
            (after, upto),
        )
        if len(rows) != expected:
            raise tx.ChangedSource(
                f"{self.path}: rows of table {self.table!r} stay until they are released, found {len(rows)} of "
                f"{expected} after {self.key} {after}: put them back"
            )
        return from_rows(rows, columns)

    def changed(self, planned: tx.Json) -> str | None:
        """The table, if rows of a range are gone."""
        after, upto, expected = _range(planned)
        counting = f"SELECT count(*) FROM {self._table} WHERE {self._key} > ? AND {self._key} <= ?"
        return None if self._ask(counting, (after, upto))[0][0] == expected else f"{self.path}, table {self.table!r}"

    def released(self, position: tx.Json) -> None:
        """Delete what is never read again, on a connection of its own: a plan may be under way."""
        if self.prune:
            with closing(connect(self.path)) as connection:
                connection.execute(f"DELETE FROM {self._table} WHERE {self._key} <= ?", (position,))

    def _ask(self, query: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        assert self._connection is not None, "open() comes first"
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname.startswith(PASSING):
                raise tx.SourceFailed(f"{self.path}: {error}") from error
            raise tx.UnreadableSource(f"{self.path}: table {self.table!r} cannot be read: {error}") from error

    @property
    def _table(self) -> str:
        return quoted(self.table)

    @property
    def _key(self) -> str:
        return quoted(self.key)


def _range(planned: tx.Json) -> tuple[int, int, int]:
    match planned:
        case [int() as after, int() as upto, int() as rows]:
            return after, upto, rows
    raise tx.InvalidSource(f"a range of a table is [after, up to, rows], found {planned!r}: is it another source's?")
