"""What the example applications must give: each query over the whole input at once, in plain Polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from polars.testing import assert_frame_equal

SECOND_US = 1_000_000
RELATIVE = 1e-9  # sums of floats depend on the order of their parts
WINDOW = ("window_start", "window_end")

Results = Mapping[str, pl.DataFrame]
"""By output: all of its rows, in any order."""


def windowed(
    rows: pl.DataFrame, keys: Sequence[str], length_us: int, every_us: int, *aggregates: pl.Expr, time: str = "ts"
) -> pl.DataFrame:
    """Aggregates per key over windows [end − length, end), an end at every multiple of `every`; no empty windows.

    Every row is copied into all windows that it is in: length ÷ every of them. A row of a window stands for its last
    microsecond.
    """
    instant = pl.col(time).cast(pl.Int64) - (1 if time == "window_end" else 0)
    first_end = (instant // every_us + 1) * every_us
    ends = pl.int_ranges(first_end, first_end + length_us, every_us)
    copies = rows.with_columns(ends.alias("end")).explode("end").drop(WINDOW, strict=False)
    return (
        copies.group_by(*keys, "end")
        .agg(*aggregates)
        .with_columns(
            window_start=(pl.col("end") - length_us).cast(pl.Datetime("us")),
            window_end=pl.col("end").cast(pl.Datetime("us")),
        )
        .drop("end")
    )


def traffic(locations: pl.DataFrame, reports: pl.DataFrame, length_s: int) -> Results:
    """Mean speed per segment, and the distinct incidents on segments that are slow."""
    length_us = length_s * SECOND_US
    speed = windowed(
        locations, ["segment"], length_us, SECOND_US, pl.col("speed").mean(), pl.len().alias("cars").cast(pl.UInt32)
    )
    incidents = windowed(reports, ["segment", "incident"], length_us, SECOND_US, pl.len().alias("reports"))
    jams = speed.join(incidents, on=["segment", *WINDOW]).filter(pl.col("speed") < 20)
    return {"speed": speed, "jams": jams}


def top_pages(requests: pl.DataFrame, count: int, length_s: int) -> Results:
    """The pages with the most views; of equally many views the page with the lower number."""
    views = windowed(requests, ["page"], length_s * SECOND_US, SECOND_US, pl.len().alias("views"))
    ranked = views.sort("views", "page", descending=[True, False])
    return {"top": ranked.group_by(WINDOW, maintain_order=True).head(count).select("page", "views", *WINDOW)}


def hashtags(tweets: pl.DataFrame) -> Results:
    """Fifteen aggregates; the later ones are weighted sums of counts of tweets by tone.

    o8 = o4 + o5 = (all + o0) + (o0 + o1) counts a tweet of tone 0 three times, and so on. Windows of 1, 2, 4 and 8 s
    nest, so an aggregate is the sum over its own window of what it is made of.
    """
    pattern = ["^(great|love)", "^(so sad|cannot)", "^reading", "^what"]
    tone = pl.coalesce(pl.when(pl.col("text").str.contains(words)).then(n) for n, words in enumerate(pattern))
    toned = tweets.with_columns(tone.alias("tone"))
    weights = {f"o{n}": [int(n == tone) for tone in range(4)] for n in range(4)} | {"all": [1, 1, 1, 1]}
    lengths = dict.fromkeys(weights, 1)
    made_of = {
        2: {"o4": ("all", "o0"), "o5": ("o0", "o1"), "o6": ("o1", "o2"), "o7": ("o2", "o3")},
        4: {"o8": ("o4", "o5"), "o9": ("o5", "o6"), "o10": ("o6", "o7"), "o11": ("o4", "o7")},
        8: {"o12": ("o8", "o9"), "o13": ("o9", "o10"), "o14": ("o10", "o11")},
    }
    for length, aggregates in made_of.items():
        for name, (left, right) in aggregates.items():
            weights[name] = [a + b for a, b in zip(weights[left], weights[right], strict=True)]
            lengths[name] = length
    results = {}
    for name in (name for name in weights if name != "all"):
        weight = pl.col("tone").replace_strict(dict(enumerate(weights[name])), return_dtype=pl.UInt32)
        counted = toned.with_columns(weight.alias("tweets")).filter(pl.col("tweets") > 0)
        length_us = lengths[name] * SECOND_US
        results[name] = windowed(counted, ["hashtag"], length_us, length_us, pl.col("tweets").sum())
    return results


def elements(rows: pl.DataFrame, groups: int, operators: int) -> Results:
    """Running means by group, one over the other."""
    result = rows.sort("sequence").with_columns((pl.col("sequence") % groups).alias("group"))
    for _ in range(operators):
        total, seen = pl.col("value").cum_sum(), pl.int_range(1, pl.len() + 1)
        result = result.with_columns((total / seen).over("group").alias("value"))
    return {"pe8": result}


def window_tree(rows: pl.DataFrame, sensors: int) -> Results:
    """Sums of sums are sums: the last level alone, over the readings themselves."""
    readings = rows.with_columns((pl.col("sequence") % sensors).alias("sensor"))
    sums = [pl.col("value").sum().alias("sum"), pl.col("value").max().alias("highest")]
    return {"tree": windowed(readings, ["sensor"], 8 * SECOND_US, 8 * SECOND_US, *sums)}


def assert_equal(actual: Results, expected: Results, keys: Mapping[str, Sequence[str]]) -> None:
    """The same rows for every output, key and window; floats within a relative tolerance of 1e-9."""
    assert set(actual) == set(expected)
    for output, rows in expected.items():
        order = [*keys[output], *(name for name in WINDOW if name in rows.columns)]
        assert rows.height, f"output {output!r} is empty in the oracle: the test tests nothing"
        got = actual[output]
        assert sorted(got.columns) == sorted(rows.columns), f"output {output!r} has the columns {got.columns}"
        assert not got.select(order).is_duplicated().any(), f"output {output!r} has a row twice"
        try:
            assert_frame_equal(
                got.select(rows.columns).sort(order),
                rows.sort(order),
                check_dtypes=False,
                rel_tol=RELATIVE,
                abs_tol=0.0,
            )
        except AssertionError as error:
            raise AssertionError(f"output {output!r}: {error}") from error
