"""Idle partitions: what the driver decides and logs, and what workers make of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from engine.worker_cluster import Cluster, application, results

import tenax as tx
from tenax.api.streams import Stream
from tenax.application.application import Application
from tenax.application.rehearsal import with_known_schemas
from tenax.batching.batches import Batch, BatchPlanner
from tenax.batching.idleness import NONE_IDLE, Idle, Idleness
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.engine.worker.orders import LateRows, Report
from tenax.errors import InvalidRequest, InvalidSource
from tenax.operators.computation import NO_WATERMARK_US
from tenax.store.store import Store

START = datetime(2024, 1, 1)
START_US = 1_704_067_200_000_000
SECOND = 1_000_000


def write(path: Path, seconds: Sequence[float]) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [START + timedelta(seconds=second) for second in seconds]
    pl.DataFrame({"ts": rows, "n": [1] * len(rows)}).write_parquet(path)


def one_source(folder: Path, *, follow: bool = True, idle_after: str | None = "10s") -> Application:
    """s (2) --> w (1) --> out (1)"""
    topology = tx.Topology("one")
    source = tx.files(folder / "in", time="ts", follow=follow, idle_after=idle_after)
    _windows(topology.source("s", source, partitions=2), "w").output("out", tx.parquet(folder / "out"))
    return topology.build()


def joined(folder: Path) -> Application:
    """s (2) --> ws --+
    +--> both;  t (1) --> wt --+        u (1) --> wu, which meets nobody"""
    topology = tx.Topology("joined")
    made = [
        _windows(topology.source(name, tx.files(folder / name, time="ts", lateness="2s"), partitions=count), f"w{name}")
        for name, count in (("s", 2), ("t", 1), ("u", 1))
    ]
    made[0].join(made[1], on=["window"], name="both").output("out", tx.parquet(folder / "out"))
    made[2].output("alone", tx.parquet(folder / "alone"))
    return topology.build()


def _windows(rows: Stream, name: str) -> Stream:
    return rows.window("10s").aggregate(pl.col("n").sum(), parallelism=1, name=name)


class Clock:
    """Turned by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def decided(
    of: Application,
    times_s: Mapping[tuple[str, int], int],
    quiet: Mapping[str, tuple[int, ...]],
    after_s: float = 11.0,
    before: Idle = NONE_IDLE,
    ended: Sequence[str] = (),
) -> Idle:
    """What is decided when these partitions have had no rows for so long."""
    clock = Clock()
    idleness = Idleness(of, clock)
    idleness.highest_us = lambda: {partition: at * SECOND for partition, at in times_s.items()}
    counts = {name: of.topology.operator(name).parallelism for name in of.sources}
    answers: dict[str, Planned | NothingNew] = {
        name: Planned((None,) * count, None, 1, quiet=quiet.get(name, ()))
        for name, count in counts.items()
        if name not in ended
    }
    idleness.decide(answers, before, ended)
    clock.now_s = after_s
    return idleness.decide(answers, before, ended)


def seconds(idle: Idle) -> dict[str, list[int | None]]:
    return {
        name: [None if floor is None else floor // SECOND for floor in floors] for name, floors in idle.floors.items()
    }


def test_a_partition_is_idle_after_its_time_and_counts_as_being_where_its_siblings_are(tmp_path: Path) -> None:
    of = one_source(tmp_path)
    assert decided(of, {("s", 0): 50}, {"s": (1,)}, after_s=9.0) == NONE_IDLE
    idle = decided(of, {("s", 0): 50}, {"s": (1,)})
    assert idle.partitions == {"s": (1,)}
    assert seconds(idle) == {"s": [None, 50]}


def test_a_source_that_waits_for_its_partitions_has_none_that_are_idle(tmp_path: Path) -> None:
    assert decided(one_source(tmp_path, idle_after=None), {("s", 0): 50}, {"s": (1,)}, after_s=1e6) == NONE_IDLE


def test_where_all_partitions_are_idle_the_furthest_decides(tmp_path: Path) -> None:
    assert seconds(decided(one_source(tmp_path), {("s", 0): 50, ("s", 1): 80}, {"s": (0, 1)})) == {"s": [80, None]}


def test_a_source_that_is_idle_counts_as_being_where_the_slowest_of_those_is_that_it_meets(tmp_path: Path) -> None:
    of = joined(tmp_path)
    times_s = {("s", 0): 90, ("s", 1): 70, ("t", 0): 20, ("u", 0): 10}
    assert seconds(decided(of, times_s, {"t": (0,)})) == {"t": [68]}  # the watermark of s, which allows 2 s
    both = decided(of, times_s, {"t": (0,), "s": (0, 1)})
    assert seconds(both) == {"s": [None, 88], "t": [88]}
    assert seconds(decided(of, times_s, {"u": (0,)})) == {}  # it meets no other: its own rows decide


def test_a_floor_neither_falls_nor_goes_when_a_partition_comes_back(tmp_path: Path) -> None:
    of = one_source(tmp_path)
    before = Idle({"s": (1,)}, {"s": (None, 50 * SECOND)})
    back = decided(of, {("s", 0): 60, ("s", 1): 20}, {}, before=before)
    assert back == Idle({}, {"s": (None, 50 * SECOND)})
    again = decided(of, {("s", 0): 40, ("s", 1): 20}, {"s": (1,)}, before=before)  # event times of a driver that starts
    assert seconds(again) == {"s": [None, 50]}


def test_what_an_earlier_driver_has_logged_as_idle_stays_so_without_waiting_again(tmp_path: Path) -> None:
    before = Idle({"s": (1,)}, {"s": (None, 50 * SECOND)})
    idle = decided(one_source(tmp_path), {("s", 0): 60}, {"s": (1,)}, after_s=0.0, before=before)
    assert seconds(idle) == {"s": [None, 60]}


def test_watermarks_do_not_go_back_when_a_source_allows_more_lateness_than_before(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", range(30))
    write(tmp_path / "in" / "b.parquet", range(30))
    for lateness, rows, floors in (("1s", 40, {}), ("5s", 20, {"s": (18 * SECOND, 17 * SECOND)})):
        topology = tx.Topology("one")
        source = tx.files(tmp_path / "in", time="ts", follow=False, lateness=lateness)
        topology.source("s", source, partitions=2).output("out", tx.parquet(tmp_path / "out"))
        store = Store.open(tmp_path / "store", {})
        planner = BatchPlanner(topology.build(), store, Limits(40), 0.0)
        planner.follow(lambda: {("s", 0): 19 * SECOND, ("s", 1): 18 * SECOND})
        batch = plan(planner, planner.logged + 1)
        assert (batch.rows, batch.idle.floors) == (rows, floors)
        store.close()


def plan(planner: BatchPlanner, number: int) -> Batch:
    logged = planner.log(number, 1, threading.Event())
    assert logged is not None
    assert (logged.first, logged.last) == (number, number)
    return planner.batch(number)


def test_a_batch_without_rows_lets_windows_close_when_nothing_comes(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", range(30))
    messages: list[str] = []
    store = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(one_source(tmp_path, idle_after="10ms"), store, Limits(100), 0.0, tell=messages.append)
    times_us = {("s", 0): NO_WATERMARK_US, ("s", 1): NO_WATERMARK_US}
    planner.follow(lambda: times_us)
    assert plan(planner, 1).rows == 30
    times_us["s", 0] = START_US + 29 * SECOND  # the pass is done
    empty = plan(planner, 2)
    assert (empty.rows, empty.ranges, empty.ended) == (0, {"s": (None, None)}, False)
    assert empty.idle.floors == {"s": (None, START_US + 29 * SECOND)}
    assert messages == [
        f"s[{partition}] is idle, without rows for 0.01 s: windows go on without it" for partition in (0, 1)
    ]
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    assert planner.log(3, 1, stop) is None  # nothing more would move
    store.close()
    again = Store.open(tmp_path / "store", {})
    assert BatchPlanner(one_source(tmp_path), again, Limits(100), 0.0).batch(2) == empty
    again.close()


def test_a_partition_that_will_get_no_file_any_more_holds_nothing(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", range(30))
    store = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(one_source(tmp_path, follow=False), store, Limits(20), 0.0)
    times_us = {("s", 0): START_US + 9 * SECOND}
    planner.follow(lambda: times_us)
    first = plan(planner, 1)
    assert (first.rows, first.idle.partitions) == (10, {"s": (1,)})
    assert first.idle.floors == {"s": (None, START_US + 9 * SECOND)}
    store.close()


def test_a_source_that_has_ended_is_done_while_others_go_on(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", range(5))
    topology = tx.Topology("two")
    ended = topology.source("ended", tx.files(tmp_path / "in", time="ts", follow=False))
    more = topology.source("more", tx.elements(rate=10.0, pace=tx.Pace(rows=30)))
    ended.output("a", tx.parquet(tmp_path / "a"))
    more.output("b", tx.parquet(tmp_path / "b"))
    store = Store.open(tmp_path / "store", {})
    planner = BatchPlanner(topology.build(), store, Limits(20), 0.0)
    assert plan(planner, 1).done == ("ended",)
    write(tmp_path / "in" / "b.parquet", range(5))  # too late: its windows have closed
    last = plan(planner, 2)
    assert last.ranges["ended"] == (None,)
    assert (last.ended, set(last.done)) == (True, {"ended", "more"})
    store.close()


def test_draining_ends_with_what_is_there_in_a_batch_that_closes_every_window(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", range(5))
    store = Store.open(tmp_path / "store", {})
    assert not plan(BatchPlanner(one_source(tmp_path), store, Limits(100), 0.0), 1).ended
    store.close()
    store = Store.open(tmp_path / "store", {})
    last = plan(BatchPlanner(one_source(tmp_path), store, Limits(100), 0.0, drain=True), 2)
    assert (last.rows, last.ended, last.done) == (0, True, ("s",))
    store.close()


def test_rows_without_end_cannot_be_drained(tmp_path: Path) -> None:
    topology = tx.Topology("endless")
    topology.source("more", tx.elements(rate=10.0)).output("b", tx.parquet(tmp_path / "b"))
    store = Store.open(tmp_path / "store", {})
    with pytest.raises(InvalidRequest, match="found 'more', which makes them for ever"):
        BatchPlanner(topology.build(), store, Limits(20), 0.0, drain=True)
    store.close()


def test_a_source_that_ends_without_rows_is_named_where_others_have_some(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", range(5))
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "a.csv").write_text("ts,n\n")
    topology = tx.Topology("two")
    for name in ("in", "none"):
        topology.source(name, tx.files(tmp_path / name, time="ts", follow=False)).output(
            f"{name}-out", tx.parquet(tmp_path / f"{name}-out")
        )
    with pytest.raises(InvalidSource, match=r"source 'none': the columns of a source .* found no file with rows at"):
        with_known_schemas(topology.build(), {})


class Silent(Source):
    """A source that has nothing yet, but knows its columns."""

    time = "ts"
    lateness_us = 0
    bounded = False

    def schema(self) -> pl.Schema | None:
        return pl.Schema({"ts": pl.Datetime("us"), "n": pl.Int64()})

    def plan(self, *_: object) -> NothingNew:
        return NothingNew()

    def read(self, *_: object) -> pl.DataFrame:
        raise NotImplementedError


def test_the_first_batch_waits_for_no_source_that_has_no_rows_yet(tmp_path: Path) -> None:
    # elements (1) ─► a (1)      silent (2) ─► counts (1) ─► b (1)
    topology = tx.Topology("two")
    topology.source("elements", tx.elements(rate=10.0, pace=tx.Pace(rows=5))).output("a", tx.parquet(tmp_path / "a"))
    silent = topology.source("silent", Silent(), partitions=2)
    silent.window("1s").aggregate(pl.len(), parallelism=1, name="counts").output("b", tx.parquet(tmp_path / "b"))
    made = topology.build()
    store = Store.open(tmp_path / "store", {})
    first = plan(BatchPlanner(made, store, Limits(20), 0.0), 1)
    store.close()
    assert (first.rows, first.ranges["silent"], first.done) == (5, (None, None), ("elements",))
    cluster = Cluster(made, tmp_path, 1)
    order = cluster.order(1, 1)
    reports = cluster.run(replace(order, ranges={name: (planned,) for name, planned in first.ranges.items()}))
    assert [report.rows_out for report in reports if str(cluster.graph.task(report.task)) == "silent[1]"] == [0]


def test_workers_close_windows_by_the_floor_and_count_the_rows_that_come_behind_it(tmp_path: Path) -> None:
    # s[0] is far ahead; s[1] reads 10 s a batch, and counts as being at 45 s from the second on, as if it had been idle
    write(tmp_path / "in" / "a.parquet", range(60, 120))
    write(tmp_path / "in" / "b.parquet", range(60))
    cluster = Cluster(one_source(tmp_path, follow=False), tmp_path, 2, Limits(20))
    reports: list[list[Report]] = []
    for number in range(1, 7):
        order = cluster.order(1, number)
        floor = None if number == 1 else START_US + 45 * SECOND
        reports.append(cluster.run(replace(order, floors={"s": ((None, floor),)})))
    names = cluster.graph.tasks(range(len(cluster.graph)))
    watermarks = [
        (report.watermark_us - START_US) // SECOND
        for of_pass in reports
        for report in of_pass
        if str(names[report.task]) == "s[1]"
    ]
    assert watermarks[:-1] == [9, 45, 45, 45, 49]
    late = {str(names[report.task]): report.late_rows for of_pass in reports for report in of_pass if report.late_rows}
    assert late == {"w[0]": (LateRows(4, 10),)}
    assert [report.late for of_pass in reports for report in of_pass if report.late] == [10, 10]
    windows = pl.concat([results(report, tmp_path)["out"] for report in reports if "out" in results(report, tmp_path)])
    starts = [int((start - START).total_seconds()) for start in windows["window_start"]]
    assert starts == [0, 10, *range(40, 120, 10)]  # [20, 40) had come too late; every window once
    assert windows["n"].to_list() == [10] * 10


def test_no_operator_leaves_rows_out_where_none_are_late(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 2)  # windows that slide, and the top of them, twice
    reports = [report for number in range(1, 7) for report in cluster.run(cluster.order(1, number))]
    assert sum(report.rows_out for report in reports) > 0
    assert [report.late_rows for report in reports if report.late or report.late_rows] == []
