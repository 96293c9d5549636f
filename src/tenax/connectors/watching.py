"""Files that were read and have changed since: nobody reads them again, so somebody should say so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tenax.connectors.files import FileSource, pieces_of, seen_in
from tenax.connectors.source import NothingNew, Planned
from tenax.connectors.tails import TailSource
from tenax.store import records
from tenax.store.records import Json, JsonObject

LOOK_EVERY_S = 2.0
MAX_WATCHED = 10_000  # files, those that were read last: a look at so many takes some 20 ms
_NANOSECONDS = 1_000  # in a microsecond


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is not as it was when it was read; `before` is None if a driver before this one has read it."""

    path: Path
    before: int | None
    bytes: int

    def __str__(self) -> str:
        how = f"has changed ({self.bytes:,} bytes now)"
        if self.before is not None and self.bytes != self.before:
            verb = "has grown" if self.bytes > self.before else "has shrunk"
            how = f"{verb} from {self.before:,} to {self.bytes:,} bytes"
        return (
            f"{self.path} {how} after it was read: that is not read. Put new rows into a new file, or tail the source "
            "(tail=True)"
        )

    def to_record(self, source: str) -> JsonObject:
        """As an event of the run."""
        return {"source": source, "file": str(self.path), "bytes_before": self.before, "bytes": self.bytes}


class FileWatch:
    """The files that a followed source has read, looked at now and then.

    - What ranges say of files is what they were when they were read. Of those that no known range names, only what was
      written after the last batch of the driver before is known to be a change.
    - Each change is told once. Files that are gone were removed, which is nobody's mistake.
    """

    def __init__(
        self,
        source: FileSource,
        position: Json,
        logged: Iterable[Json],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._clock = clock
        self._due_s = clock()
        self._known: dict[str, tuple[int, int]] = {}
        self._old: dict[str, int] = {}
        self._forgotten: set[str] = set()
        self._tails = isinstance(source, TailSource)  # what changes in those is an error, and what grows is read
        if self._tails:
            return
        self._learn(logged)
        if position is not None:
            self._old = {name: _at_ns(position) for name in seen_in(position) if name not in self._known}

    def look(self, answer: Planned | NothingNew) -> list[Change]:
        """What has changed since the last look; the source has answered this to the driver meanwhile."""
        if self._tails:
            return []
        if isinstance(answer, Planned):
            self._learn(answer.ranges)
            self._learn_empty(answer.position)
        if self._clock() < self._due_s:
            return []
        self._due_s = self._clock() + LOOK_EVERY_S
        changes = []
        for name, (size, changed_ns) in list(self._known.items()):
            now = self._status(name)
            if now is not None and now != (size, changed_ns):
                self._known[name] = now
                changes.append(Change(self._source.root / name, size, now[0]))
        for name, at_ns in self._old.items():
            now = self._status(name)
            if now is not None:
                self._known[name] = now
                if now[1] > at_ns:
                    changes.append(Change(self._source.root / name, None, now[0]))
        self._old = {}
        self._forget()
        return changes

    def _learn(self, ranges: Iterable[Json]) -> None:
        for planned in ranges:
            for name, size, changed_ns in pieces_of(planned):
                self._known.pop(name, None)  # the newest come last
                self._known[name] = (size, changed_ns)

    def _learn_empty(self, position: Json) -> None:
        """Files without rows are in no range, and are read all the same."""
        for name in seen_in(position) - self._known.keys() - self._old.keys() - self._forgotten:
            now = self._status(name)
            if now is not None:
                self._known[name] = now

    def _forget(self) -> None:
        for name in list(self._known)[: max(0, len(self._known) - MAX_WATCHED)]:
            del self._known[name]
            self._forgotten.add(name)

    def _status(self, name: str) -> tuple[int, int] | None:
        try:
            status = (self._source.root / name).stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns


def _at_ns(position: Json) -> int:
    return records.integer(records.mapping(position), "at_us") * _NANOSECONDS
