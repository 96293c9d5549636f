"""Batches: what every source contributes to each, decided and logged before anything runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tenax.control import events
from tenax.engine.application import Application
from tenax.engine.errors import UnreadableSource
from tenax.engine.sources.source import Limits, NothingNew, Planned
from tenax.engine.store import records
from tenax.engine.store.records import Json
from tenax.engine.store.store import LoggedBatch, Store

POLL_S = 0.02
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Batch:
    """A logged batch: one range per partition of every source, none where a source had nothing."""

    number: int
    ranges: Mapping[str, tuple[Json, ...]]
    positions: Mapping[str, Json]
    rows: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Logged batches that were taken back: from which one on, and what had changed."""

    first: int
    what: str


class BatchPlanner:
    """Asks the sources for their next ranges and logs them; a restarted driver reads them back.

    - Sources are asked once per batch interval, or at once while one of them has more than a batch may take.
    - The first batch waits until every source has something, because only rows tell a source's columns.
    """

    def __init__(self, application: Application, store: Store, limits: Limits, interval_s: float) -> None:
        self._application = application
        self._store = store
        self._limits = limits
        self._interval_s = interval_s
        self._batches = {one.number: _from_record(one) for one in store.batches}
        self._due_s = time.monotonic()
        self._known_s: dict[int, float] = {}

    @property
    def logged(self) -> int:
        """The newest logged batch; 0 if there is none."""
        return max(self._batches, default=0)

    def batch(self, number: int) -> Batch:
        """A logged batch."""
        return self._batches[number]

    def known_at(self, number: int) -> float | None:
        """When the ranges of a batch were known, on the monotonic clock; nobody knows it of an earlier driver's."""
        return self._known_s.pop(number, None)

    def log(self, first: int, count: int, stop: threading.Event) -> events.BatchesLogged | None:
        """Log at least one batch from `first` on, as soon as there is one; None if the run stops meanwhile.

        What an earlier attempt has logged before it failed counts.
        """
        last = max(first - 1, min(self.logged, first + count - 1))
        while last < first + count - 1:
            batch = self._plan(last + 1)
            if isinstance(batch, Batch):
                self._store.log_batch(batch.number, _to_record(batch))
                self._batches[batch.number] = batch
                self._known_s[batch.number] = time.monotonic()
                last = batch.number
                if batch.ended:
                    return events.BatchesLogged(first, last, ended=True)
            elif batch.ended or last >= first:
                return events.BatchesLogged(first, last, ended=batch.ended)
            elif stop.wait(POLL_S):
                return None
        return events.BatchesLogged(first, last)

    def renew(self, checkpoint: int, bound: int) -> Forgotten | None:
        """Hold what was logged against what the sources have now; for a driver that starts.

        - Batches up to the checkpoint are never read again.
        - Results depend on those up to `bound`: they read the same rows again, or the source refuses.
        - On later ones nothing depends: from the first that would read what has changed, they are planned anew.
        """
        kept: dict[int, Batch] = {}
        forgotten = None
        for number, batch in sorted(self._batches.items()):
            what = self._changed(batch) if number > bound else None
            if what is not None:
                forgotten = Forgotten(number, what)
                break
            kept[number] = self._renewed(batch) if checkpoint < number <= bound else batch
        if kept:
            last = kept[max(kept)]
            positions = {name: self._application.sources[name].resumed(one) for name, one in last.positions.items()}
            kept[last.number] = replace(last, positions=positions)
        if kept != self._batches:
            self._store.replace_batches([LoggedBatch(number, _to_record(batch)) for number, batch in kept.items()])
            self._batches = kept
        return forgotten

    def forget_before(self, number: int) -> None:
        """Let go of batches that nothing will read again."""
        for one in [known for known in tuple(self._batches) if known < number]:
            del self._batches[one]  # in place: another thread may add the next batch

    def _renewed(self, batch: Batch) -> Batch:
        ranges = {
            name: tuple(None if one is None else source.renewed(one) for one in batch.ranges[name])
            for name, source in self._application.sources.items()
        }
        return replace(batch, ranges=ranges)

    def _changed(self, batch: Batch) -> str | None:
        for name, source in self._application.sources.items():
            for planned in batch.ranges[name]:
                what = None if planned is None else source.changed(planned)
                if what is not None:
                    return what
        return None

    def _plan(self, number: int) -> Batch | NothingNew:
        before = self._batches.get(number - 1)
        if before is not None and before.ended:
            return NothingNew(ended=True)
        if time.monotonic() < self._due_s:
            return NothingNew()
        positions = dict(before.positions) if before is not None else {}
        planned: dict[str, Planned] = {}
        ended = True
        for name, source in self._application.sources.items():
            partitions = self._application.topology.operator(name).parallelism
            now_us = int(time.time() * MICROSECONDS)
            try:
                answer = source.plan(positions.get(name), partitions, self._limits, now_us)
            except UnreadableSource as error:
                raise UnreadableSource(f"source {name!r}: {error}") from error
            ended = ended and answer.ended
            if isinstance(answer, Planned):
                planned[name] = answer
        if not planned or (before is None and len(planned) < len(self._application.sources)):
            return NothingNew(ended=ended and not planned)
        behind = any(one.rows >= self._limits.rows for one in planned.values())
        self._due_s = time.monotonic() if behind else max(self._due_s + self._interval_s, time.monotonic())
        ranges = {
            name: planned[name].ranges
            if name in planned
            else (None,) * self._application.topology.operator(name).parallelism
            for name in self._application.sources
        }
        after = {**positions, **{name: one.position for name, one in planned.items()}}
        return Batch(number, ranges, after, sum(one.rows for one in planned.values()), ended)


def _to_record(batch: Batch) -> Json:
    return {"ranges": batch.ranges, "positions": batch.positions, "rows": batch.rows, "ended": batch.ended}


def _from_record(logged: LoggedBatch) -> Batch:
    data = records.mapping(logged.data)
    ranges = {name: tuple(records.items(one)) for name, one in records.mapping(data["ranges"]).items()}
    return Batch(
        logged.number,
        ranges,
        records.mapping(data["positions"]),
        records.integer(data, "rows"),
        bool(data["ended"]),
    )
