"""Is a source what recovery builds on: the same rows whoever reads and whenever, none lost, none twice?"""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from tenax.connectors.lifecycle import opened
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.errors import BrokenContract, InvalidRequest
from tenax.store.records import Json
from tenax.testing.shipping import shipped

MAX_PLANS = 2_000  # of one reading; a source that has more to give is read so far
MAX_RESUMED = 5  # positions that are gone on from once more
LARGE = 1 << 40
MUCH_LATER_US = 10 * 365 * 24 * 3600 * 1_000_000
ENDLESS_PLANS, ENDLESS_ROWS = 20, 1_000  # of a source that never ends


Taken = list[tuple[int, Json, pl.DataFrame]]
"""Ranges with their partition and rows."""


@dataclass(slots=True)
class _Reading:
    """What a source gave, plan by plan: the position after each, and what was taken; `complete` if it has no more."""

    partitions: int
    where: str
    plans: list[tuple[Json, Taken]] = field(default_factory=list)
    complete: bool = False

    @property
    def ranges(self) -> Taken:
        return [each for _, taken in self.plans for each in taken]

    @property
    def rows(self) -> pl.DataFrame:
        return _together(self.ranges)


def check_source(
    source: Source,
    *,
    partitions: Sequence[int] = (1, 2, 3),
    batch_rows: Sequence[int] = (1, 7, 1_000),
    now_us: int | None = None,
    release: bool = False,
) -> None:
    """Try a source in the ways that a run may use it; raises `BrokenContract` with the rule that it does not keep.

        tx.testing.check_source(MySource("table"))

    - It can be pickled, also while a copy of it is open, and opened again after it was closed.
    - Positions and ranges survive JSON; every plan is made by another copy, as if the driver had died before it.
    - A batch takes at most its limit of rows. A partition that is quiet or done gets none.
    - Every range gives the same rows in the same order: read again, last first, in any order, by a copy that was
      pickled, and after `renewed`. All have the same columns, those of `schema` if it tells them, with event times as
      Datetime in microseconds.
    - However many partitions read it in batches of whatever size: the same rows, none lost, none twice. The same from
      any position on, after `resumed`.
    - With `release`, `released` may be called twice, and what follows can still be read. That may delete what it reads.

    The source should have rows enough for several batches, and get no new ones meanwhile. A source by the clock is
    asked as of `now_us`. One that never ends is read for some plans.
    """
    at_us = int(time.time() * 1e6) if now_us is None else now_us
    _check_travels(source)
    whole = _read(source, 1, LARGE, at_us)
    if not whole.rows.height:
        raise InvalidRequest("a source is checked with rows, found none: put some where it reads")
    _check_kept(source, whole)
    most = whole.rows.height if whole.complete else None
    readings = [whole]
    for count in partitions:
        readings += [_read(source, count, rows, at_us, most=most) for rows in batch_rows]
    for reading in readings[1:]:
        _check_kept(source, reading)
        if whole.complete and reading.complete:
            _check_same(whole.rows, reading.rows, reading.where)
    for reading in readings[1:]:
        if whole.complete and reading.complete:
            _check_resumed(source, whole, reading, at_us)
    if release:
        _check_released(source, max(readings, key=lambda reading: len(reading.plans)), at_us)


def _check_travels(source: Source) -> None:
    try:
        pickle.loads(shipped(source))
    except Exception as error:
        raise BrokenContract(
            f"a source travels to the nodes pickled, found {type(error).__name__}: {error}: make what cannot travel in "
            "open()"
        ) from error
    with opened(source), opened(source) as again:
        again.close()
        again.open()
        try:
            shipped(source)
        except Exception as error:
            raise BrokenContract(
                f"open() connects a copy of a source and leaves the original, found that it cannot be pickled any more "
                f"({error}): keep connections in attributes of self alone"
            ) from error


def _read(
    source: Source, partitions: int, rows: int, now_us: int, position: Json = None, most: int | None = None
) -> _Reading:
    """Plan and read from a position on; each plan is made by a copy of its own. It has at most so many rows."""
    size = "all rows" if rows == LARGE else f"{rows} rows"
    reading = _Reading(partitions, f"{partitions} partitions in batches of {size}")
    done: set[int] = set()
    total = 0
    limit = min(rows, ENDLESS_ROWS) if source.endless else rows
    for _ in range(ENDLESS_PLANS if source.endless else MAX_PLANS):
        with opened(pickle.loads(shipped(source))) as planning:
            answer = planning.plan(position, partitions, Limits(limit), now_us)
        if isinstance(answer, NothingNew):
            reading.complete = True
            _check_end(source, answer, position, partitions, now_us)
            return reading
        if not isinstance(answer, Planned):
            raise BrokenContract(f"plan() gives Planned or NothingNew, found {answer!r}: return one of these")
        ranges, position = _logged(answer, partitions, reading.where)
        with opened(source) as working:
            taken: Taken = [(at, each, _frame(working, at, each)) for at, each in enumerate(ranges) if each is not None]
        _check_taken(answer, taken, limit, partitions, done)
        done |= set(answer.done)
        reading.plans.append((position, taken))
        total += sum(part.height for _, _, part in taken)
        if most is not None and total > most:
            raise BrokenContract(
                f"the rows do not depend on partitions and batches, found {total} with {reading.where} and more to "
                f"come, {most} at once: go on from the position that plan() is given, and remember nothing else"
            )
        if answer.ended:
            reading.complete = True
            return reading
    if source.bounded and rows == LARGE:
        raise BrokenContract(
            f"a bounded source ends, found more after {len(reading.plans):,} plans without limits: say ended=True with "
            "the last rows, or bounded = False"
        )
    return reading


def _check_end(source: Source, answer: NothingNew, position: Json, partitions: int, now_us: int) -> None:
    if source.bounded and not answer.ended:
        with opened(source) as planning:  # rows may come as the clock goes
            later = planning.plan(position, partitions, Limits(1), now_us + MUCH_LATER_US)
        if isinstance(later, NothingNew) and not later.ended:
            raise BrokenContract(
                "a bounded source that has nothing any more has ended, found NothingNew(): return "
                "NothingNew(ended=True)"
            )
    if answer.ended and not source.bounded:
        raise BrokenContract("a source that ends is bounded, found NothingNew(ended=True): say bounded = True")


def _logged(answer: Planned, partitions: int, where: str) -> tuple[list[Json], Json]:
    """Ranges and position as the log gives them back."""
    if len(answer.ranges) != partitions:
        raise BrokenContract(
            f"a plan has a range for each partition, found {len(answer.ranges)} for {partitions}: add the missing ones"
        )
    for what, data in (("a position", answer.position), ("a range", answer.ranges)):
        try:
            again = json.loads(json.dumps(data, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BrokenContract(
                f"{what} is plain data for the log, found {data!r} ({error}): make it of numbers, texts, lists and "
                "dictionaries"
            ) from error
        if again != _lists(data):
            raise BrokenContract(
                f"{what} comes back from the log as JSON has it, found {again!r} for {data!r} ({where}): use texts as "
                "keys"
            )
    return json.loads(json.dumps(answer.ranges)), json.loads(json.dumps(answer.position))


def _lists(data: object) -> object:
    if isinstance(data, list | tuple):
        return [_lists(each) for each in data]
    if isinstance(data, dict):
        return {name: _lists(each) for name, each in data.items()}
    return data


def _frame(source: Source, partition: int, planned: Json) -> pl.DataFrame:
    rows = source.read(partition, planned)
    if not isinstance(rows, pl.DataFrame):
        raise BrokenContract(f"read() gives a pl.DataFrame, found {type(rows).__name__}: return one")
    kind = rows.schema.get(source.time)
    if kind != pl.Datetime("us"):
        raise BrokenContract(
            f"a source has its column of event times {source.time!r} as Datetime in microseconds without a zone, found "
            f"{kind} among {rows.columns}: cast it to pl.Datetime('us')"
        )
    return rows


def _check_taken(answer: Planned, taken: Taken, limit: int, partitions: int, done: set[int]) -> None:
    total = sum(rows.height for _, _, rows in taken)
    if total > max(limit, partitions):
        raise BrokenContract(
            f"a batch takes at most its limit of {limit} rows, found {total}: plan ranges of limits.rows in all"
        )
    for at, each, rows in taken:
        if rows.height and (at in answer.quiet or at in done):
            word = "is quiet in a batch" if at in answer.quiet else "is done"
            raise BrokenContract(
                f"a partition that {word} gets no rows, found {rows.height} of partition {at} in {each!r}: leave it out"
            )


def _check_schema(source: Source, reading: _Reading) -> None:
    stated = source.schema()
    first = reading.ranges[0][2].schema
    for at, each, rows in reading.ranges:
        if rows.schema != first:
            raise BrokenContract(
                f"all ranges have the same columns, found {dict(rows.schema)} in {each!r} of partition {at} after "
                f"{dict(first)}: give empty frames their columns too"
            )
    if stated is not None and stated != first:
        raise BrokenContract(f"schema() tells the columns of all rows, found {dict(stated)} for {dict(first)}: mend it")


def _check_kept(source: Source, reading: _Reading) -> None:
    _check_schema(source, reading)
    _check_read_again(source, reading)


def _check_read_again(source: Source, reading: _Reading) -> None:
    """Last first, then in any order by another copy, and renewed."""
    mixed = list(reading.ranges)
    random.Random(1).shuffle(mixed)
    for how, order, renews in (
        ("read again, last first", reading.ranges[::-1], False),
        ("read by a copy in another order", mixed, False),
        ("read again after renewed()", reading.ranges, True),
    ):
        with opened(pickle.loads(shipped(source))) as working:
            for at, each, rows in order:
                if renews:
                    what = working.changed(each)
                    if what is not None:
                        raise BrokenContract(f"nothing has changed, found that changed() says {what!r} of {each!r}")
                again = working.read(at, working.renewed(each) if renews else each)
                if not (again.schema == rows.schema and again.equals(rows)):
                    raise BrokenContract(
                        f"a range gives the same rows in the same order whoever reads it and whenever, found others "
                        f"when {each!r} of partition {at} was {how} ({reading.where}): {_difference(rows, again)}; "
                        "sort them, and read what does not change"
                    )


def _difference(rows: pl.DataFrame, again: pl.DataFrame) -> str:
    if rows.height != again.height:
        return f"{again.height} rows after {rows.height}"
    if rows.schema != again.schema:
        return f"columns {dict(again.schema)} after {dict(rows.schema)}"
    at = next(at for at in range(rows.height) if not rows[at].equals(again[at]))
    return f"row {at} is {again.row(at)} after {rows.row(at)}"


def _check_same(expected: pl.DataFrame, rows: pl.DataFrame, where: str) -> None:
    """Nothing lost and nothing twice, whatever the order."""
    counts = [
        frame.hash_rows().value_counts(name=name).rename({frame.hash_rows().name: "hash"})
        for frame, name in ((expected, "expected"), (rows, "actual"))
    ]
    both = counts[0].join(counts[1], on="hash", how="full", coalesce=True).fill_null(0)
    wrong = both.filter(pl.col("expected") != pl.col("actual")).sort("hash")
    if wrong.height:
        row = wrong.row(0, named=True)
        among = expected if row["expected"] else rows
        example = among.filter(among.hash_rows() == row["hash"]).row(0)
        raise BrokenContract(
            f"the rows do not depend on partitions and batches, found {example} {row['actual']} times for "
            f"{row['expected']} with {where} ({expected.height} rows at once, {rows.height} then): let each range "
            "begin where the one before it ends"
        )


def _check_resumed(source: Source, whole: _Reading, reading: _Reading, now_us: int) -> None:
    """From some positions on the rest follows, in the driver's next life."""
    for number in range(0, len(reading.plans) - 1, max(1, len(reading.plans) // MAX_RESUMED)):
        before = reading.plans[number][0]
        with opened(source) as starting:
            position = starting.resumed(before)
        rest = _read(source, reading.partitions, LARGE, now_us, json.loads(json.dumps(position)))
        known = [each for _, taken in reading.plans[: number + 1] for each in taken]
        _check_same(whole.rows, _together([*known, *rest.ranges]), f"{reading.where}, gone on with from {before!r}")


def _check_released(source: Source, reading: _Reading, now_us: int) -> None:
    """What lies before may go, what follows stays."""
    middle = (len(reading.plans) - 1) // 2
    position = reading.plans[middle][0]
    with opened(source) as driving:
        for each in (position, position, reading.plans[0][0]):
            driving.released(each)
        for at, planned, rows in [each for _, taken in reading.plans[middle + 1 :] for each in taken]:
            if not driving.read(at, planned).equals(rows):
                raise BrokenContract(
                    f"what was planned after a position stays when it is released, found other rows in {planned!r}: "
                    "keep what lies behind it"
                )
        driving.plan(position, reading.partitions, Limits(1), now_us)


def _together(taken: Taken) -> pl.DataFrame:
    return pl.concat([rows for _, _, rows in taken]) if taken else pl.DataFrame()
