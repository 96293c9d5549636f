"""Columns of Polars as columns of SQLite, and back: the declared type of a column says what it was."""

from __future__ import annotations

import sqlite3

import polars as pl

import tenax as tx

DECLARED = {
    pl.Int8(): "INT8",
    pl.Int16(): "INT16",
    pl.Int32(): "INT32",
    pl.Int64(): "INT64",
    pl.UInt8(): "UINT8",
    pl.UInt16(): "UINT16",
    pl.UInt32(): "UINT32",
    pl.Float32(): "FLOAT32",
    pl.Float64(): "FLOAT64",
    pl.String(): "TEXT",
    pl.Boolean(): "BOOLEAN",
    pl.Datetime("us"): "DATETIME_US",  # microseconds since 1970
}
READ = {declared: kind for kind, declared in DECLARED.items()} | {
    "INTEGER": pl.Int64(),
    "INT": pl.Int64(),
    "BIGINT": pl.Int64(),
    "REAL": pl.Float64(),
    "DOUBLE": pl.Float64(),
}
PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN")
PATIENCE_S = 30.0  # for another process that writes


def connect(path: str) -> sqlite3.Connection:
    """Transactions are begun and ended in words; calls come one after the other, from any thread."""
    return sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)


def quoted(name: str) -> str:
    """A name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def declared(schema: pl.Schema) -> str:
    """Columns for CREATE TABLE."""
    for name, kind in schema.items():
        if kind not in DECLARED:
            raise tx.InvalidSource(
                f"SQLite holds whole numbers, floats, texts, truths and times, found {kind} in {name!r}"
            )
    return ", ".join(f"{quoted(name)} {DECLARED[kind]}" for name, kind in schema.items())


def schema_of(connection: sqlite3.Connection, table: str) -> pl.Schema:
    """The columns of a table; none if there is no such table."""
    columns = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    return pl.Schema({name: READ.get(kind.upper(), pl.String()) for _, name, kind, *_ in columns})


def to_rows(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """Rows as SQLite takes them: times as numbers."""
    return frame.with_columns(pl.col(pl.Datetime("us")).to_physical()).rows()


def from_rows(rows: list[tuple[object, ...]], schema: pl.Schema) -> pl.DataFrame:
    """Rows as SQLite gives them: truths and times are numbers."""
    plain = {name: pl.Int64() if kind in (pl.Boolean(), pl.Datetime("us")) else kind for name, kind in schema.items()}
    return pl.DataFrame(rows, schema=plain, orient="row").cast(dict(schema))
