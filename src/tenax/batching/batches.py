"""Batches: what every source contributes to each, decided and logged before anything runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tenax.application.application import Application
from tenax.application.traces import cause_of
from tenax.batching.idleness import NONE_IDLE, HighestTimes, Idle, Idleness
from tenax.connectors.files import FileSource
from tenax.connectors.lifecycle import Connections
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.connectors.watching import FileWatch
from tenax.control import events
from tenax.errors import InvalidRequest, SourceFailed, UnreadableSource
from tenax.store import records
from tenax.store.records import Json
from tenax.store.store import LoggedBatch, Store

POLL_S = 0.02
MICROSECONDS = 1_000_000

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Batch:
    """A logged batch: one range per partition of every source, none where a source had nothing.

    Sources that are `done` send nothing any more; `ended` says that all are. `idle` is what was decided of partitions,
    `lateness_us` what sources allowed.
    """

    number: int
    ranges: Mapping[str, tuple[Json, ...]]
    positions: Mapping[str, Json]
    rows: int
    ended: bool
    done: tuple[str, ...] = ()
    idle: Idle = NONE_IDLE
    lateness_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Logged batches that were taken back: from which one on, and what had changed."""

    first: int
    what: str


class BatchPlanner:
    """Asks the sources for their next ranges and logs them; a restarted driver reads them back.

    - Sources are asked once per batch interval, or at once while one of them has more than a batch may take.
    - A source that has ended is not asked again. Where nothing comes, a batch without rows is logged if it lets windows
      close: because partitions are idle, or because sources have ended.
    - A batch takes `limits` of each source, and `partition_bytes` of each of its partitions on average.
    - To `drain` means to end with what is there now: a source that has nothing new has ended.
    - Batches may have been logged for other sources, by other code: what they say of sources that are no more is left
      out, and sources that are new have nothing in them, and stand at their beginning.
    """

    def __init__(
        self,
        application: Application,
        store: Store,
        limits: Limits,
        interval_s: float,
        *,
        partition_bytes: int | None = None,
        drain: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._application = application
        self._sources = Connections(application.sources)
        self._store = store
        self._limits = limits
        self._partition_bytes = partition_bytes
        self._interval_s = interval_s
        self._batches = {logged.number: self._of_sources(_from_record(logged)) for logged in store.batches}
        self._foreign = {logged.number for logged in store.batches if not self._is_of_sources(logged)}
        self._due_s = time.monotonic()
        self._has_more = True
        self._known_s: dict[int, float] = {}
        self._ready_s: dict[int, float] = {}
        self._next_ready_s: float | None = None  # by when the rows of the next batch are there, if they come as before
        self._idleness = Idleness(application)
        self._drain_us = int(time.time() * MICROSECONDS) if drain else None
        self._tell = tell
        self._told: set[str] = set()
        self._watches: dict[str, FileWatch] = {}
        self._tell_ended()
        if drain:
            check_drained(application)

    @property
    def logged(self) -> int:
        """The newest logged batch; 0 if there is none."""
        return max(self._batches, default=0)

    @property
    def positions(self) -> Mapping[str, Json]:
        """Where every source stands after the newest logged batch; nowhere if there is none."""
        return self._batches[self.logged].positions if self._batches else {}

    def follow(self, highest_us: HighestTimes) -> None:
        """Know from now on the highest event times of source tasks."""
        self._idleness.highest_us = highest_us

    def batch(self, number: int) -> Batch:
        """A logged batch."""
        return self._batches[number]

    def known_at(self, number: int) -> float | None:
        """When the ranges of a batch were known, on the monotonic clock; it is not known of an earlier driver's."""
        return self._known_s.pop(number, None)

    def ready_at(self, number: int) -> float | None:
        """When the rows of a batch were there to be read, on the monotonic clock; not known of an earlier driver's.

        That is when its ranges were known, or earlier if sources were asked late, because too many batches were logged
        already: then a batch interval after they had nothing more, and those that follow come as many intervals later.
        """
        return self._ready_s.pop(number, None)

    def log(
        self, first: int, count: int, stop: threading.Event, rows: int | None = None
    ) -> events.BatchesLogged | None:
        """Log at least one batch from `first` on, as soon as there is one; None if the run stops meanwhile.

        What an earlier attempt has logged before it failed counts. A batch takes at most so many `rows` of a source.
        """
        if rows is not None:
            self._limits = replace(self._limits, rows=rows)
        last = max(first - 1, min(self.logged, first + count - 1))
        while last < first + count - 1:
            batch = self._plan(last + 1)
            if isinstance(batch, Batch):
                self._store.log_batch(batch.number, _to_record(batch))
                self._batches[batch.number] = batch
                self._known_s[batch.number] = time.monotonic()
                last = batch.number
                if batch.ended:
                    return self._answer(first, last, ended=True)
            elif batch.ended or last >= first:
                return self._answer(first, last, ended=batch.ended)
            elif stop.wait(POLL_S):
                return None
        return self._answer(first, last)

    def _answer(self, first: int, last: int, *, ended: bool = False) -> events.BatchesLogged:
        rows = sum(self._batches[number].rows for number in range(first, last + 1))
        return events.BatchesLogged(first, last, ended, rows, caught_up=not self._has_more)

    def renew(self, checkpoint: int, bound: int) -> Forgotten | None:
        """Hold what was logged against what the sources have now; for a driver that starts.

        - Batches up to the checkpoint are never read again.
        - Results depend on those up to `bound`: they read the same rows again, or the source refuses.
        - On later ones nothing depends: from the first that would read what has changed, or that was planned for other
          sources than there are now, they are planned anew.
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
            positions = {name: self._sources[name].resumed(position) for name, position in last.positions.items()}
            kept[last.number] = replace(last, positions=positions)
        if kept != self._batches or self._foreign:
            self._store.replace_batches([LoggedBatch(number, _to_record(batch)) for number, batch in kept.items()])
            self._batches, self._foreign = kept, set()
        return forgotten

    def forget_before(self, number: int, *, release: bool = False) -> None:
        """Let go of batches that nothing will read again; `release` also tells their sources so."""
        last = self._batches.get(number - 1)
        if release and last is not None:
            for name, position in last.positions.items():
                self._release(name, position)
        for older in [known for known in tuple(self._batches) if known < number]:
            del self._batches[older]  # in place: another thread may add the next batch

    def close(self) -> None:
        """Let go of what sources have connected in this process."""
        self._sources.close()

    def _release(self, name: str, position: Json) -> None:
        try:
            self._sources[name].released(position)
        except Exception as error:  # what is kept too long does no harm
            self._tell_once(f"source {name!r} was told what is never read again, and raised {cause_of(error)}")

    def _renewed(self, batch: Batch) -> Batch:
        ranges = {
            name: tuple(
                None if range_ is None else self._sources[name].renewed(range_) for range_ in batch.ranges[name]
            )
            for name in self._application.sources
        }
        return replace(batch, ranges=ranges)

    def _of_sources(self, batch: Batch) -> Batch:
        """A batch as the sources that there are now have it."""
        sources, operator = self._application.sources, self._application.topology.operator
        done = tuple(name for name in batch.done if name in sources)
        return Batch(
            batch.number,
            {name: batch.ranges.get(name) or (None,) * operator(name).parallelism for name in sources},
            {name: position for name, position in batch.positions.items() if name in sources},
            batch.rows,
            batch.ended and len(done) == len(sources),
            done,
            Idle(_among(batch.idle.partitions, sources), _among(batch.idle.floors, sources)),
            _among(batch.lateness_us, sources),
        )

    def _is_of_sources(self, logged: LoggedBatch) -> bool:
        """Whether a batch was planned for the sources that there are now."""
        return set(records.mapping(records.mapping(logged.data)["ranges"])) == set(self._application.sources)

    def _changed(self, batch: Batch) -> str | None:
        if batch.number in self._foreign:
            return "what there is to read"
        for name in self._application.sources:
            for planned in batch.ranges[name]:
                what = None if planned is None else self._sources[name].changed(planned)
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
        answers = self._answers(positions, () if before is None else before.done)
        asked_s, ready_s = time.monotonic(), self._next_ready_s
        self._next_ready_s = asked_s + self._interval_s  # if what follows is more than a batch, this is mended below
        planned = {name: answer for name, answer in answers.items() if isinstance(answer, Planned)}
        done = (*(() if before is None else before.done), *(name for name, answer in answers.items() if answer.ended))
        ended = len(done) == len(self._application.sources)
        if before is None and not planned:
            return NothingNew(ended)
        logged = NONE_IDLE if before is None else self._idleness.kept_up(before.idle, before.lateness_us)
        idle = self._idleness.decide(answers, logged, done)
        if before is not None and not planned and not ended and (done, idle.floors) == (before.done, logged.floors):
            return NothingNew()  # where all have ended, and no batch says so, one is logged: windows close with it
        self._tell_idle(idle)
        self._has_more = any(plan.has_more(self._limits) for plan in planned.values())
        self._ready_s[number] = asked_s if ready_s is None else min(asked_s, ready_s)
        if self._has_more:
            self._next_ready_s = None if ready_s is None else self._ready_s[number] + self._interval_s
        self._due_s = time.monotonic() if self._has_more else max(self._due_s + self._interval_s, time.monotonic())
        ranges = {
            name: planned[name].ranges
            if name in planned
            else (None,) * self._application.topology.operator(name).parallelism
            for name in self._application.sources
        }
        after = {**positions, **{name: plan.position for name, plan in planned.items()}}
        rows = sum(plan.rows for plan in planned.values())
        lateness_us = {name: source.lateness_us for name, source in self._application.sources.items()}
        return Batch(number, ranges, after, rows, ended, done, idle, lateness_us)

    def _answers(self, positions: Mapping[str, Json], done: tuple[str, ...]) -> dict[str, Planned | NothingNew]:
        """What every source that has not ended has for a batch."""
        answers: dict[str, Planned | NothingNew] = {}
        # One time for all: rows that come as the clock goes are behind no idle source that counts by the same clock.
        now_us = int(time.time() * MICROSECONDS) if self._drain_us is None else self._drain_us
        for name in self._application.sources:
            if name in done:
                continue
            partitions = self._application.topology.operator(name).parallelism
            try:
                answer = self._sources[name].plan(positions.get(name), partitions, self._bounded(partitions), now_us)
            except UnreadableSource as error:
                raise UnreadableSource(f"source {name!r}: {error}") from error
            except SourceFailed as error:
                raise SourceFailed(f"source {name!r}: {error}") from error
            if isinstance(answer, NothingNew) and self._drain_us is not None:
                answer = NothingNew(ended=True)
            answers[name] = answer
            self._watch(name, positions.get(name), answer)
        return answers

    def _bounded(self, partitions: int) -> Limits:
        """The limits of a source that has so many partitions."""
        if self._partition_bytes is None:
            return self._limits
        return replace(self._limits, bytes=min(self._limits.bytes, self._partition_bytes * partitions))

    def _watch(self, name: str, position: Json, answer: Planned | NothingNew) -> None:
        """Say once of every file that it has changed after it was read."""
        source = self._application.sources[name]
        if not isinstance(source, FileSource) or source.bounded:
            return
        if name not in self._watches:
            logged = [
                range_ for batch in list(self._batches.values()) for range_ in batch.ranges[name] if range_ is not None
            ]
            self._watches[name] = FileWatch(source, position, logged)
        for change in self._watches[name].look(answer):
            self._store.record_event({"changed_file": change.to_record(name)})
            self._tell(str(change))

    def _tell_idle(self, idle: Idle) -> None:
        for name, partitions in idle.partitions.items():
            after_us = self._application.sources[name].idle_after_us
            if after_us is not None:
                for partition in partitions:
                    seconds = after_us / MICROSECONDS
                    self._tell_once(
                        f"{name}[{partition}] is idle, without rows for {seconds:g} s: windows go on without it"
                    )

    def _tell_ended(self) -> None:
        done = self._batches[self.logged].done if self._batches else ()
        for name in done:
            if not self._application.sources[name].bounded:
                self._tell_once(f"source {name!r} has ended in this store: what has come since is not read")

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._tell(message)


def check_drained(application: Application) -> None:
    """Refuse to wait for the end of rows without end."""
    endless = [name for name, source in application.sources.items() if source.endless]
    if endless:
        raise InvalidRequest(
            f"a source that is drained runs out of rows, found {endless[0]!r}, which makes them for ever: bound its "
            "rows, or stop the run"
        )


def _to_record(batch: Batch) -> Json:
    return {
        "ranges": batch.ranges,
        "positions": batch.positions,
        "rows": batch.rows,
        "ended": batch.ended,
        "done": batch.done,
        "idle": batch.idle.partitions,
        "floors": batch.idle.floors,
        "lateness_us": batch.lateness_us,
    }


def _from_record(logged: LoggedBatch) -> Batch:
    data = records.mapping(logged.data)
    ranges = {name: tuple(records.items(ranges)) for name, ranges in records.mapping(data["ranges"]).items()}
    return Batch(
        logged.number,
        ranges,
        records.mapping(data["positions"]),
        records.integer(data, "rows"),
        bool(data["ended"]),
        tuple(str(name) for name in records.items(data["done"])),
        Idle(_numbers(data["idle"]), _floors(data["floors"])),
        {name: int(str(lateness)) for name, lateness in records.mapping(data["lateness_us"]).items()},
    )


def _among(known: Mapping[str, Value], sources: Collection[str]) -> dict[str, Value]:
    """What is known of these sources."""
    return {name: value for name, value in known.items() if name in sources}


def _numbers(data: Json) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(int(str(number)) for number in records.items(numbers))
        for name, numbers in records.mapping(data).items()
    }


def _floors(data: Json) -> dict[str, tuple[int | None, ...]]:
    return {
        name: tuple(None if floor is None else int(str(floor)) for floor in records.items(floors))
        for name, floors in records.mapping(data).items()
    }
