"""Clicks matched with advertisements: an operator whose state is all rows of a window of minutes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet
from tenax.operators.computation import NO_WATERMARK_US, Computation, State, StepInput, StepOutput
from tenax.operators.event_time import event_times
from tenax_lab.sides.failover_queries import EVENTS, SCHEMAS, Query

SHOWN, CLICKS = "shown/", "clicks/"  # how the names of segments begin, with the batch behind


class Matches(Computation):
    """Every click with the advertisement that was shown at most `window_s` before it.

    - A pair comes out as soon as both are there, whichever is later. A segment of advertisements goes when the
      watermark says that no click to come can be for one of them, a segment of clicks when no earlier advertisement
      can come.
    - Rows are sorted by the time of the click, then the advertisement.

    Cost of a step: its rows, and a look at the names of the advertisements of the window.
    """

    def __init__(self, window_s: int) -> None:
        self.window_s = window_s

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Match what is new with what is there, and let go of what is too old."""
        (rows,) = given.frames
        shown = rows.filter(~pl.col("click")).select("ts", "ad", "text")
        clicks = rows.filter("click").select("ad", clicked="ts")
        known = [frame for name, frame in state.items() if name.startswith(SHOWN)]
        waiting = [frame for name, frame in state.items() if name.startswith(CLICKS)]
        pairs = [self.pairs(clicks, [*known, shown]), *(self.pairs(earlier, [shown]) for earlier in waiting)]
        segments = {**state, f"{SHOWN}{given.batch}": shown, f"{CLICKS}{given.batch}": clicks}
        kept = {name: frame for name, frame in segments.items() if self.needed(name, frame, given.watermark_us)}
        return StepOutput(kept, pl.concat(pairs).sort("clicked", "ad"))

    def pairs(self, clicks: pl.DataFrame, shown: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The clicks with what was shown for them."""
        age = pl.col("clicked") - pl.col("ts")
        in_time = age.is_between(timedelta(0), timedelta(seconds=self.window_s))
        matched = clicks.join(pl.concat(shown), on="ad", maintain_order="left_right").filter(in_time)
        return matched.select("ad", "clicked", "ts", "text")

    def needed(self, name: str, rows: pl.DataFrame, watermark_us: int) -> bool:
        """Whether rows to come may match some of a segment."""
        if not rows.height or watermark_us == NO_WATERMARK_US:
            return bool(rows.height)
        time, kept_s = ("ts", self.window_s) if name.startswith(SHOWN) else ("clicked", 0)
        return int(event_times(rows, time).max()) + kept_s * 1_000_000 >= watermark_us


def application(query: Query, inputs: Path, partitions: int, output: str) -> Application:
    """The query as a user of Tenax writes it; files lie in folders, one for each second."""
    topology = Topology("matches")
    source = files(inputs / EVENTS / "*" / "*.parquet", time="ts", follow=True, schema=pl.Schema(SCHEMAS[EVENTS]))
    events = topology.source(EVENTS, source, partitions=partitions).key_by("ad")
    matches = events.apply(Matches(query.window_s), time="clicked", name="matches")
    matches.output(output, parquet(Path(output)))
    return topology.build()
