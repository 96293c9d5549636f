"""Incidents that cause traffic jams: how fast cars are on each road segment, joined with what drivers report.

    locations --> speed -----+--> speed (output)
                             |
                             +--> join --> filter --> jams (output)
    reports --> incidents ---+

Run it with `tenax run examples/apps/traffic.py`. The command executes this file and calls `build` with the
arguments that follow the file (`rows=50000`); a file without `build` has a topology called `topology` instead.
The results are folders of Parquet files.
"""

from pathlib import Path

import polars as pl

import tenax as tx


def build(
    rows: int = 1_200_000,
    reports: int = 5_900,
    rate: float = 20_000,
    users: int = 100_000,
    segments: int = 1_000,
    parallelism: int = 4,
    length: str = "10s",
    every: str = "1s",
    folder: str = "out/traffic",
    paced: bool = False,
) -> tx.Topology:
    """A minute of traffic: so many locations, and the reports that come meanwhile (98 a second)."""
    traffic = tx.Topology("traffic")
    locations = traffic.source(
        "locations",
        tx.traffic_locations(rate=rate, users=users, segments=segments, pace=tx.Pace(rows=rows, paced=paced)),
        partitions=parallelism,
    )
    reported = traffic.source(
        "reports",
        tx.incident_reports(users=users, segments=segments, pace=tx.Pace(rows=reports, paced=paced)),
        partitions=max(1, parallelism // 2),
    )
    speed = (
        locations.key_by("segment")
        .window(length, every=every)
        .aggregate(pl.col("speed").mean(), pl.len().alias("cars"), name="speed-window")
    )
    # everyone on a segment reports the same incident: one row for each makes them distinct
    incidents = (
        reported.key_by("segment", "incident")
        .window(length, every=every)
        .aggregate(pl.len().alias("reports"), name="incidents")
    )
    jams = speed.join(incidents, on=["segment", "window"]).filter(pl.col("speed") < 20)
    jams.output("jams", tx.parquet(Path(folder, "jams")), priority=3)  # whoever is stuck wants to know first
    speed.output("speed", tx.parquet(Path(folder, "speed")))
    return traffic
