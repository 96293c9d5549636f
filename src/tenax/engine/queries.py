"""How late the results of every query are, beside how late they were before nodes were lost (Su, Zhou 2021).

A query is an output task with all its ancestors. Time is cut into intervals. The latency of a query in one is the mean
over the final results that were published in it; if none was and batches wait for theirs, the age of the oldest of
these. Relative latency is that over the mean of the intervals before the loss, and a query is available in an interval
if it is below 1.2. The same is reckoned for what was shown: the first result of a batch, final or tentative.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tenax.control.instructions import Part
from tenax.control.load import LEFT_OUT, MEMORY, mixed
from tenax.control.records import Data
from tenax.model.tasks import Task

QUERIES = "queries"  # what events call it
AVAILABLE = 1.2  # times the latency before the loss, and a query counts as available
LEAST_INTERVAL_S = 1.0
MAX_SETTLING = 60  # intervals after all tasks are back in which queries may still be late; then that is how they are
MAX_RECORDED = 3_000  # times a query is recorded after a loss, interval by interval; then as time grows by a tenth
MAX_SILENT = 600  # intervals that are reckoned together, should the process have slept; earlier ones do not count
MAX_WAITING = 100_000  # batches whose time is remembered while their results are due


class Phase(StrEnum):
    """Where a run stands with its queries."""

    USUAL = "usual"
    """Nothing was lost, or everything is as it was before."""
    BEGINS = "begins"
    """Nodes were lost just now."""
    LASTS = "lasts"
    """Tasks are missing or queries are late since then; more nodes may have been lost meanwhile."""
    ENDS = "ends"
    """All tasks are back and all queries have been available since, or have had the time to be."""


@dataclass(frozen=True, slots=True)
class Share:
    """In how many of so many intervals a query was available: by its final results, and by what was shown."""

    intervals: int = 0
    final: int = 0
    shown: int = 0

    def after(self, final: bool, shown: bool) -> Share:
        """After one more interval."""
        return Share(self.intervals + 1, self.final + final, self.shown + shown)

    @property
    def by_final(self) -> float | None:
        """The part of the time in which final results were as early as before; None before there was any."""
        return self.final / self.intervals if self.intervals else None

    @property
    def by_shown(self) -> float | None:
        """The part of the time in which results were shown as early as before; None before there was any."""
        return self.shown / self.intervals if self.intervals else None


@dataclass(frozen=True, slots=True)
class Query:
    """What is known of a query at the end of an interval.

    - `usual_s` is its latency while nothing is lost, or before the loss; None before it is known.
    - `relative` and `relative_shown` are of the last interval; None if nothing was due, or `usual_s` is not known.
    - `available` is its availability since the driver began, `since_loss` that since nodes were lost, while this lasts.
    - `first_final_s` and `first_shown_s` are the longest times from a loss to the first result of a batch that was not
      finished then; `waits_s` is how long it has been waiting for such a final one now.
    """

    task: Task
    usual_s: float | None
    relative: float | None
    relative_shown: float | None
    available: Share
    since_loss: Share
    first_final_s: float | None
    first_shown_s: float | None
    waits_s: float | None

    def to_data(self) -> dict[str, Data]:
        """As events have it."""
        numbers = {
            "latency_before_s": self.usual_s,
            "relative_latency": self.relative,
            "relative_latency_shown": self.relative_shown,
            "availability": self.since_loss.by_final,
            "availability_shown": self.since_loss.by_shown,
            "run_availability": self.available.by_final,
            "run_availability_shown": self.available.by_shown,
            "first_final_s": self.first_final_s,
            "first_shown_s": self.first_shown_s,
            "waits_s": self.waits_s,
        }
        return {name: None if number is None else round(number, 4) for name, number in numbers.items()}


@dataclass(frozen=True, slots=True)
class Interval:
    """All queries at a moment: the end of an interval, or a loss. Times are seconds since the driver began."""

    at_s: float
    length_s: float
    phase: Phase
    since_loss_s: float | None
    queries: tuple[Query, ...]
    is_recorded: bool = False

    @property
    def late(self) -> tuple[Query, ...]:
        """The queries that are not available, the latest first."""
        late = [query for query in self.queries if query.relative is not None and query.relative >= AVAILABLE]
        return tuple(sorted(late, key=lambda query: -(query.relative or 0.0)))

    @property
    def text(self) -> str:
        """In a sentence."""
        late, known = self.late, [query for query in self.queries if query.usual_s is not None]
        if not known:
            return "queries: how late results usually are is not known yet"
        words = f"queries: {len(known) - len(late)} of {len(known)} as early as before the loss"
        return f"{words}; {late[0].task} takes {late[0].relative:.3g} times as long" if late else words

    def to_data(self) -> dict[str, Data]:
        """As events have it, every query by its output task."""
        return {
            "at_s": round(self.at_s, 4),
            "interval_s": self.length_s,
            "phase": self.phase.value,
            "since_loss_s": None if self.since_loss_s is None else round(self.since_loss_s, 4),
            QUERIES: {str(query.task): query.to_data() for query in self.queries},
        }


@dataclass(slots=True)
class _Results:
    """The results of a query of one kind: the newest batch that has one, and the latencies of this interval."""

    newest: int
    total_s: float = 0.0
    count: int = 0
    awaited: tuple[float, int] | None = None  # since when, and after which batch
    longest_s: float | None = None

    def came(self, first: int, last: int, at_s: float, ready_s: Mapping[int, float]) -> None:
        """There are results of these batches, of which those up to the newest came before."""
        for batch in range(max(first, self.newest + 1), last + 1):
            if batch in ready_s:
                self.total_s += at_s - ready_s[batch]
                self.count += 1
        self.newest = max(self.newest, last)
        if self.awaited is not None and last > self.awaited[1]:
            self.longest_s = max(self.longest_s or 0.0, at_s - self.awaited[0])
            self.awaited = None

    def turn(self, end_s: float, waiting: Mapping[int, float]) -> tuple[float | None, bool]:
        """Begin the next interval; the latency in the one that ended, if there was any, and whether of results."""
        total_s, count = self.total_s, self.count
        self.total_s, self.count = 0.0, 0
        if count:
            return total_s / count, True
        oldest_s = waiting.get(self.newest)
        return (None if oldest_s is None or oldest_s >= end_s else end_s - oldest_s), False


@dataclass(slots=True)
class _Query:
    """A query, followed."""

    final: _Results
    shown: _Results
    usual_s: float | None = None
    learned: int = -LEFT_OUT
    latency_s: float | None = None
    shown_s: float | None = None
    available: Share = field(default_factory=Share)
    since_loss: Share = field(default_factory=Share)
    is_back: bool = True

    def turn(self, end_s: float, waiting: Mapping[int, float], *, lost: bool, missing: bool) -> None:
        """An interval has ended: after a loss it counts, otherwise it also tells what is usual."""
        self.latency_s, has_results = self.final.turn(end_s, waiting)
        self.shown_s, _ = self.shown.turn(end_s, waiting)
        if not lost and has_results and self.latency_s is not None:
            self.learned += 1
            if self.learned > 0:
                before_s = self.latency_s if self.usual_s is None else self.usual_s
                self.usual_s = mixed(before_s, self.latency_s, max(1.0 / MEMORY, 1.0 / self.learned))
        if self.usual_s is None:
            self.is_back = True  # nobody could tell
            return
        final, shown = self._is_available(self.latency_s), self._is_available(self.shown_s)
        self.available = self.available.after(final, shown)
        if lost:
            self.since_loss = self.since_loss.after(final, shown)
            self.is_back = not missing and (self.is_back or (final and self.final.awaited is None))

    def _is_available(self, latency_s: float | None) -> bool:
        relative = self.relative(latency_s)
        return relative is None or relative < AVAILABLE

    def relative(self, latency_s: float | None) -> float | None:
        """So many times what is usual."""
        return latency_s / self.usual_s if self.usual_s and latency_s is not None else None


class Queries:
    """Follows how late the results of every query are.

    - It reads no clock: all times are given, in seconds since the driver began, and never go back noticeably.
    - After a loss, what is usual stays what it was until all tasks are back and every query was available once since.
    - What waits for results is counted from when its rows were there to be read; of batches that an earlier driver
      logged nobody knows, and they count from the first batch of this one on.
    """

    def __init__(self, published: Mapping[Task, int], batch_s: float) -> None:
        self._queries = {task: _Query(_Results(last), _Results(last)) for task, last in sorted(published.items())}
        self._length_s = max(batch_s, LEAST_INTERVAL_S)
        self._ready_s: dict[int, float] = {}
        self._ends_s = self._length_s
        self._lost_s: float | None = None
        self._is_missing = False
        self._settling = 0
        self._recorded = 0
        self._recorded_s = 0.0
        self._ended: list[Interval] = []
        self._lock = threading.Lock()  # results are published in a thread of their own

    def logged(self, batch: int, ready_s: float) -> None:
        """The rows of a batch were there to be read at this moment."""
        with self._lock:
            self._ready_s[batch] = ready_s
            if len(self._ready_s) > MAX_WAITING:
                del self._ready_s[min(self._ready_s)]

    def published(self, parts: Iterable[Part], at_s: float, *, tentative: bool) -> None:
        """Results of some tasks are committed, or shown tentatively."""
        with self._lock:
            self._turn(at_s)
            for part in parts:
                query = self._queries.get(part.task)
                if query is not None:
                    query.shown.came(part.first, part.last, at_s, self._ready_s)
                    if not tentative:
                        query.final.came(part.first, part.last, at_s, self._ready_s)
            done = min((query.final.newest for query in self._queries.values()), default=0)
            for batch in [batch for batch in self._ready_s if batch <= done]:
                del self._ready_s[batch]

    def lost(self, at_s: float, finished: int) -> None:
        """Nodes are lost; live passes are through the batch that is finished."""
        with self._lock:
            self._turn(at_s)
            begins, self._settling = self._lost_s is None, 0
            if begins:
                self._lost_s, self._recorded, self._recorded_s = at_s, 0, 0.0
            for query in self._queries.values():
                query.is_back = False
                query.since_loss = Share() if begins else query.since_loss
                for results in (query.final, query.shown):
                    results.awaited = results.awaited or (at_s, finished)
            self._ended.append(self._interval(at_s, Phase.BEGINS if begins else Phase.LASTS, is_recorded=True))

    def missing(self, at_s: float, *, is_missing: bool) -> None:
        """Whether tasks are missing from now on."""
        with self._lock:
            if is_missing is not self._is_missing:
                self._turn(at_s)
                self._is_missing = is_missing

    def ended(self, at_s: float) -> list[Interval]:
        """The intervals that have ended since the last call, and the losses among them, in order."""
        with self._lock:
            self._turn(at_s)
            ended, self._ended = self._ended, []
            return ended

    def now(self, at_s: float) -> Interval:
        """All queries as they are at the end of the last interval."""
        with self._lock:
            return self._interval(at_s, Phase.USUAL if self._lost_s is None else Phase.LASTS)

    def _turn(self, at_s: float) -> None:
        """End the intervals that are over."""
        silent = int((at_s - self._ends_s) / self._length_s) - MAX_SILENT
        if silent > 0:
            self._ends_s += silent * self._length_s
        while self._ends_s <= at_s:
            self._end_interval(self._ends_s)
            self._ends_s += self._length_s

    def _end_interval(self, end_s: float) -> None:
        lost_s = self._lost_s
        waiting = self._waiting()
        for query in self._queries.values():
            query.turn(end_s, waiting, lost=lost_s is not None, missing=self._is_missing)
        phase, is_recorded = Phase.USUAL, False
        if lost_s is not None:
            self._settling = 0 if self._is_missing else self._settling + 1
            all_back = all(query.is_back for query in self._queries.values())
            settled = not self._is_missing and (all_back or self._settling >= MAX_SETTLING)
            phase = Phase.ENDS if settled else Phase.LASTS
            is_recorded = settled or self._is_due(end_s - lost_s)
        self._ended.append(self._interval(end_s, phase, is_recorded=is_recorded))
        if phase is Phase.ENDS:
            self._lost_s = None

    def _is_due(self, since_s: float) -> bool:
        """Whether an interval so long after a loss is recorded: their number grows with the logarithm of the time."""
        if self._recorded >= MAX_RECORDED and since_s < 1.1 * self._recorded_s:
            return False
        self._recorded += len(self._queries)
        self._recorded_s = since_s
        return True

    def _waiting(self) -> dict[int, float]:
        """For every newest batch of a query, since when the first batch behind it waits."""
        batches = sorted(self._ready_s)
        since: dict[int, float] = {}
        newest = sorted({results.newest for query in self._queries.values() for results in (query.final, query.shown)})
        position = 0
        for batch in newest:
            while position < len(batches) and batches[position] <= batch:
                position += 1
            if position < len(batches):
                since[batch] = self._ready_s[batches[position]]
        return since

    def _interval(self, at_s: float, phase: Phase, *, is_recorded: bool = False) -> Interval:
        since_s = None if self._lost_s is None else at_s - self._lost_s
        return Interval(at_s, self._length_s, phase, since_s, tuple(self._each(at_s)), is_recorded)

    def _each(self, at_s: float) -> Iterator[Query]:
        for task, query in self._queries.items():
            awaited = query.final.awaited
            yield Query(
                task,
                query.usual_s,
                query.relative(query.latency_s),
                query.relative(query.shown_s),
                query.available,
                query.since_loss,
                query.final.longest_s,
                query.shown.longest_s,
                None if awaited is None else at_s - awaited[0],
            )
