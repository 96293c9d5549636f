"""Results delivered in the driver: handed to a function of the user's, or printed."""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import polars as pl

from tenax.connectors.logged import LoggedCommitter, LoggedSink
from tenax.connectors.sink import Plain, Staged
from tenax.errors import InvalidSource
from tenax.store.records import Json

Deliver = Callable[[int, int, pl.DataFrame], None]
"""Called with (batch, partition, rows)."""
Preview = Callable[[int, int, pl.DataFrame, float], None]
"""Called with (batch, partition, rows, estimated quality)."""

MAX_DELIVERED_BYTES = 256 << 20  # of one result; larger ones belong in files, not in the driver's memory


class CallbackSink(LoggedSink):
    """Results handed to a function in the driver, batch by batch, partition by partition.

    - Each result is logged after the function has returned. A driver that dies between the two calls the function for
      that one result again: at least once, and exactly once for a function that ignores a (batch, partition) it knows.
    - If the function raises, the result is not logged and is delivered again.
    - Empty results are committed without a call.
    - Tentative results are logged first, then handed to `tentative`, if there is such a function.
    """

    def __init__(self, function: Deliver | None, tentative: Preview | None = None) -> None:
        self.function = function
        self.tentative = tentative

    def __getstate__(self) -> Mapping[str, object]:
        # The function stays in the driver: it may hold what cannot travel, such as a connection.
        return {"function": None, "tentative": None}

    @property
    def place(self) -> str:  # type: ignore[override]
        """The function, by its name."""
        return f"function {getattr(self.function, '__qualname__', self.function)}"

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> Plain:  # noqa: ARG002
        """Pack the rows, to travel to the driver with the report of the pass."""
        if rows.is_empty():
            return b""
        buffer = io.BytesIO()
        rows.write_ipc(buffer, compression="zstd")
        payload = buffer.getvalue()
        if len(payload) > MAX_DELIVERED_BYTES:
            raise InvalidSource(
                f"output {output!r}: a result for the driver has at most {MAX_DELIVERED_BYTES:,} bytes, found "
                f"{len(payload):,}: write it to files, or make batches smaller"
            )
        return payload

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> CallbackCommitter:
        """Take over the output's commit log, which lies in the driver's store."""
        if self.function is None:
            raise InvalidSource(f"output {output!r}: only the driver delivers results, found a worker: commit there")
        return CallbackCommitter(self.function, self.tentative, self.log_of(output, store), output, identity, epoch)


class CallbackCommitter(LoggedCommitter):
    """The driver's side of a function."""

    def __init__(
        self, function: Deliver, tentative: Preview | None, log: Path, output: str, identity: str, epoch: int
    ) -> None:
        super().__init__(log, output, identity, epoch)
        self._function = function
        self._preview = tentative

    def note(self, staged: Staged) -> Sequence[Json]:
        """Size and checksum of what was handed over; it has no name."""
        payload = _payload(staged)
        return len(payload), zlib.crc32(payload), ""

    def commit(self, batch: int, staged: Sequence[Staged]) -> None:
        """Deliver and log results one by one, so that a death repeats at most one of them."""
        for result in self.fresh(batch, staged):
            if result.rows:
                self.check_epoch()  # the next driver delivers it
                self._function(batch, result.partition, pl.read_ipc(_payload(result)))
            self.append(batch, [result])

    def show(self, batch: int, staged: Sequence[Staged], quality: float) -> None:
        """Log and hand over tentative results one by one."""
        for result in self.not_final(batch, staged):
            self.append(batch, [result], quality)
            if result.rows and self._preview is not None:
                self._preview(batch, result.partition, pl.read_ipc(_payload(result)), quality)


def _payload(staged: Staged) -> bytes:
    assert isinstance(staged.data, bytes), "rows for a function travel as bytes"
    return staged.data


def callback(function: Deliver, tentative: Preview | None = None) -> CallbackSink:
    """Results handed to a function in the driver as (batch, partition, rows); tentative ones to another one."""
    for given in (function,) if tentative is None else (function, tentative):
        if not callable(given):
            raise InvalidSource(f"callback takes functions, found {given!r}: pass one of (batch, partition, rows)")
    return CallbackSink(function, tentative)


def console(stream: TextIO | None = None, rows: int = 20) -> CallbackSink:
    """Results printed in the driver, at most `rows` rows of each."""

    def show(batch: int, partition: int, frame: pl.DataFrame) -> None:
        with pl.Config(tbl_rows=rows):
            print(f"batch {batch}, partition {partition}: {frame.height} rows\n{frame}", file=stream or sys.stdout)

    def preview(batch: int, partition: int, frame: pl.DataFrame, quality: float) -> None:
        with pl.Config(tbl_rows=rows):
            head = f"batch {batch}, partition {partition}: {frame.height} rows, tentative, quality {quality:.2f}"
            print(f"{head}\n{frame}", file=stream or sys.stdout)

    return CallbackSink(show, preview)
