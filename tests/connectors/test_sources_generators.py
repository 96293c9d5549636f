"""Generated streams: rows are functions of the seed and their numbers; the laws of the papers' workloads hold."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenax.connectors.generators import START_US, Generator, Pace
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.connectors.workloads import elements, incident_reports, page_views, traffic_locations, tweets
from tenax.errors import InvalidSource
from tenax.store.records import Json

MAX_PLANS = 1_000
MAKERS: dict[str, Callable[[int, Pace], Generator]] = {
    "locations": lambda seed, pace: traffic_locations(seed, 500, users=300, segments=20, pace=pace),
    "reports": lambda seed, pace: incident_reports(seed, users=300, segments=20, pace=pace),
    "page views": lambda seed, pace: page_views(seed, 700, pages=50, pace=pace),
    "tweets": lambda seed, pace: tweets(seed, 300, hashtags=40, pace=pace),
    "elements": lambda seed, pace: elements(seed, 0.5, pace=pace),
}


@pytest.mark.parametrize("name", MAKERS)
@given(
    seed=st.integers(-(2**70), 2**70),
    rows=st.integers(1, 400),
    partitions=st.integers(1, 5),
    limit=st.integers(1, 100),
    disorder=st.sampled_from(["0s", "1us", "5s"]),
)
@settings(deadline=None, max_examples=10)
def test_ranges_read_alone_are_the_rows_read_whole(
    name: str, seed: int, rows: int, partitions: int, limit: int, disorder: str
) -> None:
    source = MAKERS[name](seed, Pace(rows=rows, disorder=disorder))
    whole = source.read(0, [0, rows, 1])
    assert whole.height == rows
    number = pl.int_range(rows, dtype=pl.Int64, eager=True).alias("row")
    shipped = pickle.loads(pickle.dumps(source))
    pieces, position, ended, first = [], None, False, 0
    for _ in range(MAX_PLANS):
        planned = source.plan(position, partitions, Limits(rows=limit), 0)
        if isinstance(planned, NothingNew):
            assert planned.ended
            break
        position, ended = json.loads(json.dumps(planned.position)), planned.ended
        for partition, cut in enumerate(planned.ranges):
            read = shipped.read(partition, cut)
            mine = [n for n in range(first, first + planned.rows) if n % partitions == partition]
            pieces.append(read.with_columns(pl.Series("row", mine, dtype=pl.Int64)))
        first += planned.rows
    assert ended
    assert pl.concat(pieces).sort("row").equals(whole.with_columns(number))


@pytest.mark.parametrize("name", MAKERS)
def test_rows_depend_on_the_seed_and_times_do_not_fall(name: str) -> None:
    first, again, other = (MAKERS[name](seed, Pace()).read(0, [0, 2_000, 1]) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)
    assert first["ts"].is_sorted()
    assert first["ts"].dtype == pl.Datetime("us")
    assert first["ts"][0].timestamp() <= START_US / 1e6 + 86_400


def test_rows_are_pinned() -> None:
    # A store's batch log is worth nothing if a later version makes other rows of it.
    rows = elements(7, 3).read(0, [1_000_000, 1_000_003, 1])
    assert rows["ts"].cast(pl.Int64).to_list() == [START_US + n * 1_000_000 // 3 for n in range(1_000_000, 1_000_003)]
    assert rows["sequence"].to_list() == [1_000_000, 1_000_001, 1_000_002]
    assert rows["value"].to_list() == [0.5563126220310758, 0.07189718158573988, 0.5879246218322042]
    assert page_views(7, 1).read(0, [0, 8, 1])["page"].to_list() == [81, 0, 4653, 604, 4668, 4, 67, 77058]


def test_far_rows_are_read_as_fast_and_exactly_as_near_ones() -> None:
    far = 1 << 39
    rows = elements(1, 0.001).read(0, [far, far + 2, 1])
    assert rows["sequence"].to_list() == [far, far + 1]
    ts = page_views(1, 40_718).read(0, [far, far + 2, 1])["ts"].cast(pl.Int64).to_list()
    assert ts == [START_US + n * 1_000_000 // 40_718 for n in (far, far + 1)]


@pytest.mark.parametrize("name", MAKERS)
def test_paced_rows_come_as_the_clock_passes(name: str) -> None:
    source = MAKERS[name](3, Pace(rows=4_000, paced=True))
    times = source.read(0, [0, 4_000, 1])["ts"].cast(pl.Int64) - START_US
    began, position, seen = 5_000_000, None, 0
    for elapsed in (0, 0, 900_000, 10_000_000, 10_000_001, 10**15):
        planned = source.plan(position, 2, Limits(rows=10_000), began + elapsed)
        if isinstance(planned, Planned):
            position, seen = planned.position, seen + planned.rows
        assert seen == int((times <= elapsed).sum())
    assert source.plan(position, 2, Limits(rows=10), began + 10**15) == NothingNew(ended=True)


def test_an_unbounded_source_never_ends() -> None:
    source, position = elements(1), None
    assert not source.bounded
    for _ in range(3):
        planned: Planned | NothingNew = source.plan(position, 2, Limits(rows=10, bytes=24 * 7), 0)
        assert isinstance(planned, Planned)
        assert (planned.rows, planned.ended) == (7, False)
        position = planned.position


def test_every_incident_is_reported_once_by_every_user_on_its_segment() -> None:
    pace = Pace()
    homes = traffic_locations(5, 100, users=500, segments=30, pace=pace).read(0, [0, 500, 1]).select("user", "segment")
    reports = incident_reports(5, users=500, segments=30, pace=pace).read(0, [0, 20_000, 1])
    last = reports["incident"].max()
    for (incident,), rows in reports.filter(pl.col("incident") != last).group_by("incident"):
        assert rows["segment"].n_unique() == 1
        there = homes.filter(pl.col("segment") == rows["segment"][0])["user"]
        assert sorted(rows["user"]) == sorted(there)
        began = START_US + int(str(incident)) * 2_000_000
        assert rows["ts"].cast(pl.Int64).is_between(began, began + 2_000_000 - 1).all()
    assert sorted(set(reports["incident"])) == list(range(int(str(last)) + 1))


def test_segments_are_slow_after_incidents_and_only_then() -> None:
    users, segments = 200, 100
    reports = incident_reports(9, users=users, segments=segments, incident_every_s=20).read(0, [0, 400_000, 1])
    incidents = reports.group_by("incident").agg(pl.col("segment").first()).sort("incident")
    # From the end of a cycle of incidents into the next one.
    first = 4_090 * 20 * 5
    happened = [(20.0 * i, s) for i, s in incidents.iter_rows() if 4_060 <= i <= 4_120]
    source = traffic_locations(9, 5, users=users, segments=segments, incident_every_s=20)
    rows = source.read(0, [first, first + 2_000, 1])
    slow = 0
    for ts, segment, speed in rows.select(pl.col("ts").cast(pl.Int64), "segment", "speed").iter_rows():
        now = (ts - START_US) / 1e6
        jammed = any(now - 300 <= when <= now and where == segment for when, where in happened)
        assert (speed <= 12) == jammed
        slow += jammed
    assert 0 < slow < 2_000


def test_the_traffic_of_the_evaluation_has_its_rates() -> None:
    reports = incident_reports(0).read(0, [0, 300_000, 1])
    elapsed_us = reports["ts"].cast(pl.Int64).to_list()[-1] - START_US
    assert 300_000 / (elapsed_us / 1e6) == pytest.approx(98, rel=0.1)
    locations = traffic_locations(0).read(0, [0, 100_000, 1])
    assert locations["user"].n_unique() == 100_000
    assert locations["ts"].cast(pl.Int64).to_list()[-1] - START_US == 4_999_950


def test_pages_follow_their_law() -> None:
    pages = page_views(3, exponent=1.0, pages=1_000).read(0, [0, 200_000, 1])["page"]
    harmonic = sum(1 / rank for rank in range(1, 1_001))
    for rank in (1, 2, 10):
        assert (pages == rank - 1).sum() / 200_000 == pytest.approx(1 / rank / harmonic, rel=0.05)


def test_each_server_is_in_one_partition_when_the_partitions_divide_them() -> None:
    planned = page_views(3, servers=12).plan(None, 4, Limits(rows=1_000), 0)
    assert isinstance(planned, Planned)
    servers = [set(page_views(3, servers=12).read(p, cut)["server"]) for p, cut in enumerate(planned.ranges)]
    assert [len(server) for server in servers] == [3, 3, 3, 3]
    assert set.union(*servers) == set(range(12))


def test_tweets_hold_their_hashtag() -> None:
    rows = tweets(4).read(0, [0, 500, 1])
    assert rows.select(pl.col("text").str.ends_with(pl.concat_str(pl.lit(" "), "hashtag")).all()).item()


@pytest.mark.parametrize("wrong", [0, -1, float("1e10")])
def test_rates_outside_their_range_are_refused(wrong: float) -> None:
    with pytest.raises(InvalidSource):
        elements(1, wrong)


@pytest.mark.parametrize("wrong", [None, [1, 2], {"first": 1}, "x"])
def test_ranges_of_another_source_are_refused(wrong: Json) -> None:
    with pytest.raises(InvalidSource):
        elements(1).read(0, wrong)


def test_rows_that_are_no_number_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidSource, match="rows of a generator are a whole number, found 'abc': write rows=1000"):
        Pace(rows="abc")  # type: ignore[arg-type]
