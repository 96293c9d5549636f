"""The most visited pages of a web site, counted in slices by server and ranked in two steps.

    requests --> slices --> pages --> top of every task --> top of all --> top (output)

Run it with `tenax run examples/apps/top_pages.py`. The command executes this file and calls `build` with the
arguments that follow the file (`rows=50000`); a file without `build` has a topology called `topology` instead.
The results are a folder of Parquet files.
"""

from pathlib import Path

import polars as pl

import tenax as tx


def build(
    rows: int = 1_200_000,
    rate: float = 40_718,
    servers: int = 48,
    pages: int = 100_000,
    count: int = 100,
    parallelism: int = 4,
    length: str = "10s",
    folder: str = "out/top-pages",
    paced: bool = False,
) -> tx.Topology:
    """The `count` pages with the most views in each window, a new window every second."""
    site = tx.Topology("top-pages")
    requests = site.source(
        "requests",
        tx.page_views(rate=rate, servers=servers, pages=pages, pace=tx.Pace(rows=rows, paced=paced)),
        partitions=parallelism,
    )
    slices = (
        requests.key_by("server", "page")
        .window("1s")
        .aggregate(pl.len().alias("views"), parallelism=2 * parallelism, name="slices")
    )
    views = (
        slices.key_by("page")
        .window(length, every="1s")
        .aggregate(pl.col("views").sum(), parallelism=parallelism, name="pages")
    )
    views.top(count, by="views").output("top", tx.parquet(Path(folder, "top")))
    return site
