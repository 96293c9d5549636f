"""Results in a SQLite database: each final one once, by the transactions of the database alone."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl

import tenax as tx
from tenax_sqlite.columns import PASSING, connect, declared, from_rows, quoted, schema_of, to_rows

WHOSE = ("tenax_batch", "tenax_partition", "tenax_row")  # of every row: what it is the result of, and its place in it
TENTATIVE, STAGED = "_tentative", "_staged"
SETUP = """
    CREATE TABLE IF NOT EXISTS tenax_outputs (output TEXT PRIMARY KEY, run TEXT NOT NULL, epoch INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS tenax_commits (
        output TEXT, batch INTEGER, partition INTEGER, rows INTEGER, corrected INTEGER,
        PRIMARY KEY (output, batch, partition)
    );
"""


class SqliteSink(tx.Sink):
    """An output is a table of its name in a database, with the batch, partition and place of every row.

    - Workers stage rows in `NAME_staged`, under a number of their own; tentative results are in `NAME_tentative`.
    - A commit is one transaction: it looks whether the epoch is still its own, moves the rows, takes tentative ones
      back and notes the result in `tenax_commits`. So nothing needs to be remembered anywhere else.
    - A database that is locked for long, full or read-only is tried again later.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(Path(path).absolute())
        self.place = self.path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Connect; once in a worker's process."""
        self._connection = connect(self.path)

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:  # noqa: ARG002
        """Stage rows under a number that no other attempt has, and give it."""
        assert self._connection is not None, "open() comes first"
        attempt = secrets.token_hex(8)
        whose = pl.lit(attempt).alias("attempt"), *_whose(batch, partition)
        staged = rows.with_row_index(WHOSE[2]).select(*whose, *rows.columns)
        with _transaction(self._connection, self.path):
            for suffix, more in (("", ""), (TENTATIVE, "quality FLOAT64, "), (STAGED, "attempt TEXT, ")):
                self._connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {quoted(output + suffix)} ({more}{WHOSE[0]} INT64, {WHOSE[1]} INT64, "
                    f"{WHOSE[2]} INT64, {declared(rows.schema)})"
                )
            marks = ", ".join("?" * staged.width)
            self._connection.executemany(
                f"INSERT INTO {quoted(output + STAGED)} ({_names(staged.columns)}) VALUES ({marks})", to_rows(staged)
            )
        return attempt

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> SqliteCommitter:  # noqa: ARG002
        """Take over the output by writing the epoch down."""
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        return SqliteCommitter(self.path, output, identity, epoch)

    def survey(self, output: str, store: Path, *, read: bool = False) -> tx.Survey:  # noqa: ARG002
        """Which final results count."""
        if not Path(self.path).exists():
            return tx.Survey()
        with closing(connect(self.path)) as connection:
            return tx.Survey(frozenset(key for key, _ in _commits(connection, output)))

    def results(self, output: str) -> tx.Results:
        """All rows of both tables."""
        with closing(connect(self.path)) as connection:
            commits = _commits(connection, output)
            final = _by_key(connection, output)
            tentative = _by_key(connection, output + TENTATIVE)
        nothing = next(iter(final.values())).clear() if final else pl.DataFrame()
        empty = {key: nothing for key, _ in commits}
        return tx.Results({**empty, **final}, tentative, frozenset(key for key, corrected in commits if corrected))

    def for_trial(self, folder: Path) -> SqliteSink:
        """The same in another database."""
        return SqliteSink(folder / "results.db")


class SqliteCommitter(tx.Committer):
    """The driver's side: whoever has written the highest epoch down."""

    def __init__(self, path: str, output: str, identity: str, epoch: int) -> None:
        self.path = path
        self.output = output
        self.epoch = epoch
        self._connection = connect(path)
        self._connection.executescript(SETUP)
        with _transaction(self._connection, path):
            known = self._ask("SELECT run, epoch FROM tenax_outputs WHERE output = ?", output)
            if known and known[0][0] != identity:
                raise tx.ConflictingResults(
                    f"{path}: an output belongs to one run, found {output!r} of run {known[0][0]}: use another database"
                )
            if known and known[0][1] >= epoch:
                raise tx.EpochLost(f"{path}: only the newest driver writes, found epoch {known[0][1]} beside {epoch}")
            self._ask("INSERT OR REPLACE INTO tenax_outputs VALUES (?, ?, ?)", output, identity, epoch)
            if schema_of(self._connection, output + STAGED):
                self._ask(f"DELETE FROM {quoted(output + STAGED)}")  # of passes that are over

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        """Move the rows of all partitions, or of none."""
        with self._owning():
            for result in staged:
                known = self._known(*result.key)
                if known and known[0][0] != result.rows:
                    raise tx.ConflictingResults(
                        f"output {self.output!r}, batch {batch}, partition {result.partition}: a final result is "
                        f"committed once, found {result.rows} rows after {known[0][0]}: is an operator not "
                        "deterministic?"
                    )
                if not known:
                    self._move("", "", result)
                corrected = self._delete(TENTATIVE, result)
                if not known:
                    self._ask(
                        "INSERT INTO tenax_commits VALUES (?, ?, ?, ?, ?)",
                        self.output,
                        *result.key,
                        result.rows,
                        corrected > 0,
                    )
                self._delete(STAGED, result)

    def show(self, batch: int, staged: Sequence[tx.Staged], quality: float) -> None:
        """Put rows into the table of tentative ones, in place of earlier ones."""
        with self._owning():
            for result in staged:
                if not self.is_committed(batch, result.partition):
                    self._delete(TENTATIVE, result)
                    self._move(TENTATIVE, f"{quality!r} AS quality, ", result)

    def is_committed(self, batch: int, partition: int) -> bool:
        """Whether it is among the commits."""
        return bool(self._known(batch, partition))

    def last_batch(self, partition: int) -> int:
        """The newest commit of a partition."""
        newest = "SELECT coalesce(max(batch), 0) FROM tenax_commits WHERE output = ? AND partition = ?"
        return int(self._ask(newest, self.output, partition)[0][0])

    @property
    def highest(self) -> int:
        """The newest batch in any of the tables."""
        newest = int(self._ask("SELECT coalesce(max(batch), 0) FROM tenax_commits WHERE output = ?", self.output)[0][0])
        if schema_of(self._connection, self.output + TENTATIVE):
            shown = self._ask(f"SELECT coalesce(max({WHOSE[0]}), 0) FROM {quoted(self.output + TENTATIVE)}")
            newest = max(newest, int(shown[0][0]))
        return newest

    def close(self) -> None:
        """Let the connection go; what is not committed was never there."""
        self._connection.close()

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """A transaction of the newest epoch."""
        with _transaction(self._connection, self.path):
            epoch = self._ask("SELECT epoch FROM tenax_outputs WHERE output = ?", self.output)[0][0]
            if epoch != self.epoch:
                raise tx.EpochLost(
                    f"{self.path}: only the newest driver writes, found epoch {epoch} beside {self.epoch}"
                )
            yield

    def _known(self, batch: int, partition: int) -> list[tuple[object, ...]]:
        """How many rows the commit of a result had, if there is one."""
        rows = "SELECT rows FROM tenax_commits WHERE output = ? AND batch = ? AND partition = ?"
        return self._ask(rows, self.output, batch, partition)

    def _move(self, suffix: str, more: str, result: tx.Staged) -> None:
        """Copy staged rows into another table."""
        names = _names(name for name in schema_of(self._connection, self.output + STAGED) if name != "attempt")
        moved = self._connection.execute(
            f"INSERT INTO {quoted(self.output + suffix)} ({'quality, ' if more else ''}{names}) "
            f"SELECT {more}{names} FROM {quoted(self.output + STAGED)} WHERE attempt = ?",
            (result.data,),
        ).rowcount
        if moved != result.rows:
            raise tx.DamagedStore(
                f"output {self.output!r}, batch {result.batch}: a result is staged until it is committed, found "
                f"{moved} of {result.rows} rows: run the batch again"
            )

    def _delete(self, suffix: str, result: tx.Staged) -> int:
        return self._connection.execute(
            f"DELETE FROM {quoted(self.output + suffix)} WHERE {WHOSE[0]} = ? AND {WHOSE[1]} = ?", result.key
        ).rowcount

    def _ask(self, query: str, *values: object) -> list[tuple[object, ...]]:
        return self._connection.execute(query, values).fetchall()


@contextmanager
def _transaction(connection: sqlite3.Connection, path: str) -> Iterator[None]:
    """All of it or nothing; what the database refuses may pass."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname.startswith(PASSING):
            raise tx.SinkFailed(f"{path}: {error}") from error
        raise


def _whose(batch: int, partition: int) -> tuple[pl.Expr, ...]:
    return pl.lit(batch).alias(WHOSE[0]), pl.lit(partition).alias(WHOSE[1]), pl.col(WHOSE[2])


def _names(names: Sequence[str] | Iterator[str]) -> str:
    return ", ".join(map(quoted, names))


def _commits(connection: sqlite3.Connection, output: str) -> list[tuple[tuple[int, int], bool]]:
    if not schema_of(connection, "tenax_commits"):
        return []
    known = connection.execute("SELECT batch, partition, corrected FROM tenax_commits WHERE output = ?", (output,))
    return [((batch, partition), bool(corrected)) for batch, partition, corrected in known]


def _by_key(connection: sqlite3.Connection, table: str) -> dict[tuple[int, int], pl.DataFrame]:
    """The rows of a table, by batch and partition, in their order."""
    columns = schema_of(connection, table)
    if not columns:
        return {}
    rows = connection.execute(f"SELECT * FROM {quoted(table)} ORDER BY {', '.join(WHOSE)}").fetchall()
    frame = from_rows(rows, columns)
    parts = frame.partition_by(WHOSE[0], WHOSE[1], maintain_order=True, as_dict=True)
    hidden = [name for name in ("quality", *WHOSE) if name in columns]
    return {(int(batch), int(partition)): part.drop(hidden) for (batch, partition), part in parts.items()}
