"""The streams of the papers' evaluations, generated: traffic with incidents, page views, tweets, plain elements."""

from __future__ import annotations

import functools

import numpy as np
import polars as pl

from tenax.connectors.generators import Generator, Pace, Rate, Rows, below, bits, fraction, zipf
from tenax.errors import InvalidSource

_CYCLE = 4_096  # incidents after which their places repeat: 2.3 hours at one every 2 s
_JAM_US = 300_000_000  # how long an incident slows its segment down
_PHRASES = pl.Series(["great day with", "so sad about", "reading about", "love", "cannot stand", "what is it with"])


class Roads:
    """Users on road segments, and the incidents that happen to them.

    - A user stays on one segment; segments are chosen by a Zipf law.
    - Incident i happens at i × period on the segment of a user drawn at random, so in proportion to its users, and all
      users of that segment report it, spread over the period. Places repeat every `_CYCLE` incidents, so that the
      reports of any time are found by bisection.
    """

    def __init__(self, seed: int, users: int, segments: int, exponent: float, period_us: int) -> None:
        if not (0 < users <= 100_000_000 and 0 < segments <= users and period_us > 0):
            raise InvalidSource(f"roads have users and fewer segments, found {users} and {segments}: correct them")
        self.period_us = period_us
        everyone = np.arange(users, dtype=np.int64)
        self.segment_of = zipf(segments, exponent).choose(bits(seed, "segment of user", everyone))
        self.by_segment = np.argsort(self.segment_of, kind="stable")
        self.first_on = np.searchsorted(self.segment_of[self.by_segment], np.arange(segments + 1))
        chosen = below(bits(seed, "incident", np.arange(_CYCLE, dtype=np.int64)), users)
        self.places = self.segment_of[chosen]
        counts = self.first_on[self.places + 1] - self.first_on[self.places]
        self.ends = np.cumsum(counts)
        order = np.argsort(self.places, kind="stable")
        self._sorted = self.places[order] * _CYCLE + order

    def report(self, rows: Rows) -> tuple[Rows, Rows, Rows]:
        """For each report its incident, its number among that incident's reports, and how many there are."""
        cycle, within = np.divmod(rows, int(self.ends[-1]))
        place = np.searchsorted(self.ends, within, side="right")
        count = np.diff(self.ends, prepend=0)[place]
        return cycle * _CYCLE + place, within - (self.ends[place] - count), count

    def since_incident(self, segments: Rows, times: Rows) -> Rows:
        """Microseconds since the last incident on each segment, or more than a jam lasts if there was none."""
        cycle, turn = np.divmod(times // self.period_us, _CYCLE)
        index = np.searchsorted(self._sorted, segments * _CYCLE + turn, side="right") - 1
        here = (index >= 0) & (self._sorted[index] // _CYCLE == segments)
        # Otherwise the last one of the cycle before, if it has any there.
        last = np.searchsorted(self._sorted, segments * _CYCLE + _CYCLE - 1, side="right") - 1
        earlier = ~here & (cycle > 0) & (last >= 0) & (self._sorted[last] // _CYCLE == segments)
        number = np.where(here, self._sorted[index], self._sorted[last]) % _CYCLE + (cycle - earlier) * _CYCLE
        return np.where(here | earlier, times - number * self.period_us, _JAM_US + 1)


@functools.lru_cache(maxsize=8)
def roads(seed: int, users: int, segments: int, exponent: float, period_us: int) -> Roads:
    """The roads of a seed; their tables are built once per process."""
    return Roads(seed, users, segments, exponent, period_us)


class TrafficLocations(Generator):
    """Where users are and how fast: columns ts, user, segment, speed. A segment is slow for 5 min after an incident."""

    def __init__(
        self, seed: int, rate: float, users: int, segments: int, exponent: float, incident_every_s: float, pace: Pace
    ) -> None:
        super().__init__(seed, pace)
        self._rate = Rate(rate)
        self._roads = (seed, users, segments, exponent, round(incident_every_s * 1_000_000))
        self._users = users

    def schema(self) -> pl.Schema | None:
        """Known without the tables of the roads."""
        return pl.Schema({"ts": pl.Datetime("us"), "user": pl.Int64(), "segment": pl.Int64(), "speed": pl.Float64()})

    def times(self, rows: Rows) -> Rows:
        """Evenly spaced."""
        return self._rate.times(rows)

    def columns(self, rows: Rows, times: Rows) -> list[pl.Series]:
        """All users in turn, each on its segment."""
        place = roads(*self._roads)
        user = rows % self._users
        segment = place.segment_of[user]
        usual = 40.0 + 80.0 * fraction(bits(self.seed, "usual speed", segment))
        jammed = place.since_incident(segment, np.maximum(times, 0)) <= _JAM_US
        noise = 0.8 + 0.4 * fraction(bits(self.seed, "speed", rows))
        speed = np.where(jammed, 10.0, usual) * noise
        return [pl.Series("user", user), pl.Series("segment", segment), pl.Series("speed", speed)]


class IncidentReports(Generator):
    """Incidents as reported by all users on their segment: columns ts, user, segment, incident."""

    def __init__(
        self, seed: int, users: int, segments: int, exponent: float, incident_every_s: float, pace: Pace
    ) -> None:
        super().__init__(seed, pace)
        self._roads = (seed, users, segments, exponent, round(incident_every_s * 1_000_000))

    def schema(self) -> pl.Schema | None:
        """Known without the tables of the roads."""
        return pl.Schema({"ts": pl.Datetime("us"), "user": pl.Int64(), "segment": pl.Int64(), "incident": pl.Int64()})

    def times(self, rows: Rows) -> Rows:
        """From the incident on, spread over the time until the next."""
        place = roads(*self._roads)
        incident, number, count = place.report(rows)
        return incident * place.period_us + number * place.period_us // count

    def columns(self, rows: Rows, times: Rows) -> list[pl.Series]:  # noqa: ARG002
        """Users of the segment in turn."""
        place = roads(*self._roads)
        incident, number, _ = place.report(rows)
        segment = place.places[incident % _CYCLE]
        user = place.by_segment[place.first_on[segment] + number]
        return [pl.Series("user", user), pl.Series("segment", segment), pl.Series("incident", incident)]


class PageViews(Generator):
    """Records of web servers: columns ts, server, page. Servers take turns, pages follow a Zipf law."""

    def __init__(self, seed: int, rate: float, servers: int, pages: int, exponent: float, pace: Pace) -> None:
        super().__init__(seed, pace)
        if servers < 1:
            raise InvalidSource(f"page views come from at least 1 server, found {servers}: give their number")
        self._rate, self._servers, self._pages = Rate(rate), servers, (pages, exponent)

    def times(self, rows: Rows) -> Rows:
        """Evenly spaced."""
        return self._rate.times(rows)

    def columns(self, rows: Rows, times: Rows) -> list[pl.Series]:  # noqa: ARG002
        """With a number of servers that the partitions divide, each server's records are in one partition."""
        page = zipf(*self._pages).choose(bits(self.seed, "page", rows))
        return [pl.Series("server", rows % self._servers), pl.Series("page", page)]


class Tweets(Generator):
    """Short texts: columns ts, tweet, user, hashtag, text. Hashtags and users follow Zipf laws."""

    row_bytes = 80

    def __init__(self, seed: int, rate: float, hashtags: int, users: int, exponent: float, pace: Pace) -> None:
        super().__init__(seed, pace)
        self._rate, self._hashtags, self._users = Rate(rate), (hashtags, exponent), (users, exponent)

    def times(self, rows: Rows) -> Rows:
        """Evenly spaced."""
        return self._rate.times(rows)

    def columns(self, rows: Rows, times: Rows) -> list[pl.Series]:  # noqa: ARG002
        """A phrase with a hashtag."""
        hashtag = "#" + pl.Series("hashtag", zipf(*self._hashtags).choose(bits(self.seed, "hashtag", rows))).cast(
            pl.String
        )
        user = zipf(*self._users).choose(bits(self.seed, "user", rows))
        phrase = _PHRASES.gather(below(bits(self.seed, "phrase", rows), len(_PHRASES)))
        text = (phrase + " " + hashtag).alias("text")
        return [pl.Series("tweet", rows), pl.Series("user", user), hashtag.alias("hashtag"), text]


class Elements(Generator):
    """Plain elements: columns ts, sequence, value."""

    row_bytes = 24

    def __init__(self, seed: int, rate: float, pace: Pace) -> None:
        super().__init__(seed, pace)
        self._rate = Rate(rate)

    def times(self, rows: Rows) -> Rows:
        """Evenly spaced."""
        return self._rate.times(rows)

    def columns(self, rows: Rows, times: Rows) -> list[pl.Series]:  # noqa: ARG002
        """Numbered from 0, with a value from 0 to below 1."""
        return [pl.Series("sequence", rows), pl.Series("value", fraction(bits(self.seed, "value", rows)))]


def traffic_locations(
    seed: int = 0,
    rate: float = 20_000,
    *,
    users: int = 100_000,
    segments: int = 1_000,
    exponent: float = 0.5,
    incident_every_s: float = 2.0,
    pace: Pace | None = None,
) -> TrafficLocations:
    """Where users are and how fast; with the same arguments, `incident_reports` tells of the same incidents."""
    return TrafficLocations(seed, rate, users, segments, exponent, incident_every_s, pace or Pace())


def incident_reports(
    seed: int = 0,
    *,
    users: int = 100_000,
    segments: int = 1_000,
    exponent: float = 0.5,
    incident_every_s: float = 2.0,
    pace: Pace | None = None,
) -> IncidentReports:
    """Incidents, each reported by all users on its segment."""
    return IncidentReports(seed, users, segments, exponent, incident_every_s, pace or Pace())


def page_views(
    seed: int = 0,
    rate: float = 40_718,
    *,
    servers: int = 48,
    pages: int = 100_000,
    exponent: float = 1.0,
    pace: Pace | None = None,
) -> PageViews:
    """Records of web servers."""
    return PageViews(seed, rate, servers, pages, exponent, pace or Pace())


def tweets(
    seed: int = 0,
    rate: float = 1_000,
    *,
    hashtags: int = 10_000,
    users: int = 100_000,
    exponent: float = 1.0,
    pace: Pace | None = None,
) -> Tweets:
    """Short texts with hashtags."""
    return Tweets(seed, rate, hashtags, users, exponent, pace or Pace())


def elements(seed: int = 0, rate: float = 1_000, *, pace: Pace | None = None) -> Elements:
    """Plain elements with a sequence number and a value."""
    return Elements(seed, rate, pace or Pace())
