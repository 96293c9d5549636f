"""`tx.testing.check_source` accepts sources that keep their contract, and catches those that do not."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import polars as pl
import pytest

import tenax as tx

ROWS = 40


class Numbers(tx.Source):
    """Whole numbers, as the example in the docstring of tx.Source makes them."""

    time, lateness_us, bounded = "ts", 0, True

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:  # noqa: ARG002
        first = position if isinstance(position, int) else 0
        if first >= ROWS:
            return tx.NothingNew(ended=True)
        end = min(ROWS, first + limits.rows)
        ranges = tuple([first + number, end, partitions] for number in range(partitions))
        return tx.Planned(ranges, end, end - first, ended=end == ROWS)

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:  # noqa: ARG002
        assert isinstance(planned, list)
        first, end, step = planned
        number = pl.int_range(first, max(first, end), step, eager=True)
        return pl.DataFrame({"ts": (number * 1_000_000).cast(pl.Datetime("us")), "square": number**2})


def test_a_source_that_keeps_its_contract_is_accepted() -> None:
    tx.testing.check_source(Numbers())


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("follow", [False, True])
def test_files_keep_it(tmp_path: Path, follow: bool, tail: bool) -> None:
    for number in range(3):
        pl.DataFrame({"ts": range(10 * number, 10 * number + 10)}).write_csv(tmp_path / f"{number}.csv")
    source = tx.files(tmp_path, time="ts", time_unit="s", any_time=True, follow=follow, tail=tail)
    tx.testing.check_source(source, partitions=(1, 2), batch_rows=(7, 100))


@pytest.mark.parametrize("pace", [tx.Pace(rows=50), tx.Pace(rows=50, paced=True), tx.Pace()], ids=str)
def test_generators_keep_it(pace: tx.Pace) -> None:
    tx.testing.check_source(tx.traffic_locations(1, pace=pace), partitions=(1, 3), batch_rows=(7, 100))


class Shuffled(Numbers):
    """Reads its rows in another order each time."""

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:
        return super().read(partition, planned).sample(fraction=1.0, shuffle=True, seed=random.randrange(1 << 30))


class Growing(Numbers):
    """Gives whatever is there when it is read."""

    reads: ClassVar[list[int]] = [0]

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:
        self.reads[0] += 1
        return super().read(partition, planned).head(1 + self.reads[0])


class Overlapping(Numbers):
    """Begins each range with the last row of the one before."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:  # noqa: ARG002
        first = position if isinstance(position, int) else 0
        if first >= ROWS:
            return tx.NothingNew(ended=True)
        end = min(ROWS, max(0, first - 1) + limits.rows)
        ranges = tuple([max(0, first - 1) + number, end, partitions] for number in range(partitions))
        return tx.Planned(ranges, end, end - first, ended=end == ROWS)


class Skipping(Numbers):
    """Loses a row between two batches."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:
        skipped = position + 1 if isinstance(position, int) and position < ROWS - 1 else position
        return super().plan(skipped, partitions, limits, now_us)


class Remembering(Numbers):
    """Knows where it is by itself, so the next driver begins at the beginning."""

    def __init__(self) -> None:
        self.next = 0

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:  # noqa: ARG002
        answer = super().plan(self.next, partitions, limits, now_us)
        if isinstance(answer, tx.Planned):
            assert isinstance(answer.position, int)
            self.next = answer.position
        return answer


class Greedy(Numbers):
    """Takes no notice of limits."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:
        return super().plan(position, partitions, tx.Limits(limits.rows * 2), now_us)


class Strange(Numbers):
    """Plans with data that no log can keep."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:
        answer = super().plan(position, partitions, limits, now_us)
        if isinstance(answer, tx.Planned):
            return tx.Planned(answer.ranges, {1, 2}, answer.rows)  # type: ignore[arg-type]
        return answer


class ByNumbers(Numbers):
    """Has keys that JSON turns into texts."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:  # noqa: ARG002
        answer = super().plan(None, partitions, limits, now_us)
        assert isinstance(answer, tx.Planned)
        return tx.Planned(answer.ranges, {1: 2}, answer.rows)  # type: ignore[dict-item]


class Locked(Numbers):
    """Cannot travel."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Sharing(Numbers):
    """Keeps its connection where the original sees it."""

    def __init__(self) -> None:
        self.connections: list[object] = []

    def open(self) -> None:
        self.connections.append(threading.Lock())


class Untimed(Numbers):
    """Has event times as numbers."""

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:
        return super().read(partition, planned).with_columns(pl.col("ts").to_physical())


class Narrow(Numbers):
    """Has fewer columns where it has no rows."""

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:
        rows = super().read(partition, planned)
        return rows if rows.height else rows.select("ts")


class Endless(Numbers):
    """Says that it ends, and never does."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:
        answer = super().plan(position, partitions, limits, now_us)
        return tx.NothingNew() if isinstance(answer, tx.NothingNew) else tx.Planned(answer.ranges, answer.position, 1)


class Mistaken(Numbers):
    """Tells other columns than it has."""

    def schema(self) -> pl.Schema:
        return pl.Schema({"ts": pl.Datetime("us"), "square": pl.Int32()})


class Quiet(Numbers):
    """Says that a partition gets no rows, which does."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:
        answer = super().plan(position, partitions, limits, now_us)
        if isinstance(answer, tx.NothingNew):
            return answer
        return tx.Planned(answer.ranges, answer.position, answer.rows, answer.ended, quiet=(0,))


class Forgetful(Numbers):
    """Does not find its way from a position that it is asked to go on from."""

    def resumed(self, position: tx.Json) -> tx.Json:  # noqa: ARG002
        return 0


class Hasty(Numbers):
    """Deletes more than was released."""

    gone: ClassVar[list[bool]] = [False]

    def released(self, position: tx.Json) -> None:  # noqa: ARG002
        self.gone[0] = True

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:
        rows = super().read(partition, planned)
        return rows.clear() if self.gone[0] else rows


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (Shuffled, "a range gives the same rows in the same order whoever reads it and whenever"),
        (Growing, "a range gives the same rows in the same order"),
        (Overlapping, "the rows do not depend on partitions and batches"),
        (Skipping, "the rows do not depend on partitions and batches"),
        (Remembering, "go on from the position that plan() is given, and remember nothing else"),
        (Greedy, "a batch takes at most its limit of 3 rows, found 6"),
        (Strange, "a position is plain data for the log"),
        (ByNumbers, "a position comes back from the log as JSON has it"),
        (Locked, "a source travels to the nodes pickled, found TypeError"),
        (Sharing, "open() connects a copy of a source and leaves the original"),
        (Untimed, "a source has its column of event times 'ts' as Datetime in microseconds"),
        (Narrow, "all ranges have the same columns"),
        (Endless, "a bounded source that has nothing any more has ended"),
        (Mistaken, "schema() tells the columns of all rows"),
        (Quiet, "a partition that is quiet in a batch gets no rows"),
        (Forgetful, "the rows do not depend on partitions and batches"),
        (Hasty, "what was planned after a position stays when it is released"),
    ],
)
def test_a_source_that_breaks_a_rule_is_told_which(make: Callable[[], tx.Source], rule: str) -> None:
    with pytest.raises(tx.testing.BrokenContract) as broken:
        tx.testing.check_source(make(), partitions=(1, 2), batch_rows=(3, 25), release=True)
    assert rule in str(broken.value)
    assert "\n" not in str(broken.value)


def test_a_source_without_rows_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(tx.TenaxError, match="a source is checked with rows, found none"):
        tx.testing.check_source(tx.files(tmp_path, time="ts", follow=True))
