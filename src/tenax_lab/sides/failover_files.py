"""Files of the comparison under failures: seconds of input that appear at once, and results as readers see them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import polars as pl

from tenax.store.records import Json, JsonObject, integer, mapping, number, text
from tenax_lab.sides.failover_queries import Query
from tenax_lab.sides.inputs import START_US, Schedule, Shape, file_name

SECOND_US = 1_000_000
ON_DISK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What every side goes through: the same seconds of input, and the same rack that dies and returns.

    - A second of input appears every `interval_s`; that is how long a batch is, too. The first `backlog` of them are
      there from the start, so that a window need not be waited for.
    - The rack is killed `kill_after_s` after the first result, and its nodes may return `away_s` later.
    - Seconds go on appearing for `tail_s` after that; `shape` has more of them than a slow machine needs.
    """

    query: Query
    inputs: Path
    shape: Shape
    backlog: int
    nodes: int
    racks: int
    interval_s: float
    kill_after_s: float
    away_s: float
    tail_s: float

    def to_data(self) -> dict[str, Json]:
        """As plain data, for the command line of a side."""
        return {**asdict(self), "inputs": str(self.inputs)}

    @classmethod
    def from_data(cls, data: JsonObject) -> Scenario:
        """What `to_data` gave."""
        query, shape = mapping(data["query"]), mapping(data["shape"])
        return cls(
            Query(text(query, "name"), integer(query, "window_s"), integer(query, "row_bytes")),
            Path(text(data, "inputs")),
            Shape(*(integer(shape, name) for name in ("batches", "batch_rows", "segments", "partitions"))),
            integer(data, "backlog"),
            integer(data, "nodes"),
            integer(data, "racks"),
            number(data, "interval_s"),
            number(data, "kill_after_s"),
            number(data, "away_s"),
            number(data, "tail_s"),
        )


class Seconds(Schedule):
    """A schedule by which each second of input appears at once: its files lie in a folder that is renamed.

    - Between two links a source would see half of a second, read it, and then find the other half late.
    - It ends when it is asked to, or with the last second of the input.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        super().__init__(scenario.inputs, folder, scenario.shape, scenario.interval_s, scenario.query.kinds)
        self._backlog = scenario.backlog
        self._enough = threading.Event()

    def run(self) -> None:
        """Let one second after the other appear."""
        start = time.monotonic()
        for second in range(self.shape.batches):
            for kind in self.kinds:
                self._prepare(kind, second)
            due = start + max(0, second - self._backlog) * self.interval_s
            if self._enough.wait(max(0.0, due - time.monotonic())):
                return
            for kind in self.kinds:
                self._hidden(kind, second).rename(self.folder / kind / f"second-{second:06d}")
            self.appeared_s.append(time.time())

    def stop(self) -> None:
        """Let no more seconds appear."""
        self._enough.set()

    def _prepare(self, kind: str, second: int) -> None:
        hidden = self._hidden(kind, second)
        hidden.mkdir()
        for place in range(second * self.shape.partitions, (second + 1) * self.shape.partitions):
            os.link(self.inputs / kind / file_name(place), hidden / file_name(place))

    def _hidden(self, kind: str, second: int) -> Path:
        """Where no source looks."""
        return self.folder / kind / f".second-{second:06d}"


class OnDisk(threading.Thread):
    """Lets go of the memory in which a machine keeps the files of a folder, once they are on disk, until it is over.

    What survives a node is read from elsewhere by whoever takes over: on one machine it would still be in memory.
    """

    def __init__(self, folder: Path, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._over = over
        self._seen: set[Path] = set()

    def run(self) -> None:
        """Look every second."""
        while not self._over.wait(ON_DISK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Let go of files that have come since the last look."""
        for path in [path for path in self._folder.rglob("*") if path not in self._seen and path.is_file()]:
            self._seen.add(path)
            with suppress(OSError):  # it may be gone by now
                file = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(file)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)


def newest_second(results: Sequence[Path], time_column: str) -> int | None:
    """The second of input, from 0 on, that brought the newest rows in files of results; None without rows.

    Rows from a second on complete the windows that end where it begins.
    """
    ends = [pl.read_parquet(path, columns=[time_column])[time_column].dt.epoch("us").max() for path in results]
    known = [end for end in ends if isinstance(end, int)]
    return (max(known) - START_US) // SECOND_US if known else None


@dataclass(frozen=True, slots=True)
class Commit:
    """Files that Structured Streaming made part of its results at once, and when, on the clock of `time.time`."""

    at_s: float
    files: tuple[Path, ...]


class SinkLog:
    """The log of a file sink of Structured Streaming, read as it grows.

    Only files that it names are results: executors that were killed leave others behind.
    """

    def __init__(self, results: Path) -> None:
        self._folder = results / "_spark_metadata"
        self._next = 0
        self._known: set[Path] = set()

    def look(self) -> list[Commit]:
        """What was committed since the last look, in order."""
        commits = []
        while (entry := self._entry()) is not None:  # ends: batches are numbered, and each is read once
            lines = entry.read_text().splitlines()[1:]  # the first names the version of the format
            paths = [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
            new = tuple(path for path in paths if path not in self._known)  # every tenth entry repeats all before it
            self._known.update(new)
            commits.append(Commit(entry.stat().st_mtime, new))
            self._next += 1
        return commits

    def _entry(self) -> Path | None:
        names = (str(self._next), f"{self._next}.compact")
        return next((path for name in names if (path := self._folder / name).exists()), None)


def committed_rows(results: Path) -> pl.DataFrame:
    """All rows that Structured Streaming has committed to a folder."""
    return pl.concat([pl.read_parquet(path) for commit in SinkLog(results).look() for path in commit.files])
