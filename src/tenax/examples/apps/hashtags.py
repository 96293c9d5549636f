"""Fifteen hashtag aggregates in layers, each with results of its own: the later ones read the earlier ones.

    tweets --> o0, o1, o2, o3      count the hashtags of tweets with a certain tone
    tweets --> all;  all + o0 --> o4
    o0 + o1 --> o5     o1 + o2 --> o6     o2 + o3 --> o7
    o4 + o5 --> o8     o5 + o6 --> o9     o6 + o7 --> o10     o4 + o7 --> o11
    o8 + o9 --> o12    o9 + o10 --> o13   o10 + o11 --> o14

Run it with `tenax run examples/apps/hashtags.py`. The command executes this file and calls `build` with the
arguments that follow the file (`rows=50000`); a file without `build` has a topology called `topology` instead.
The results are folders of Parquet files.
"""

from pathlib import Path

import polars as pl

import tenax as tx

TONES = {"o0": ("great", "love"), "o1": ("so sad", "cannot"), "o2": ("reading",), "o3": ("what",)}
"""How the tweets begin that the first aggregates count."""

LAYERS = {
    "2s": {"o4": ("all", "o0"), "o5": ("o0", "o1"), "o6": ("o1", "o2"), "o7": ("o2", "o3")},
    "4s": {"o8": ("o4", "o5"), "o9": ("o5", "o6"), "o10": ("o6", "o7"), "o11": ("o4", "o7")},
    "8s": {"o12": ("o8", "o9"), "o13": ("o9", "o10"), "o14": ("o10", "o11")},
}
"""Who reads whom, by the length of the reader's windows: every layer looks further back."""


def build(
    rows: int = 60_000,
    rate: float = 1_000,
    hashtags: int = 10_000,
    parallelism: int = 1,
    folder: str = "out/hashtags",
    paced: bool = False,
) -> tx.Topology:
    """How often each hashtag was used, in windows of 1 s and, layer by layer, of 2, 4 and 8 s."""
    topology = tx.Topology("hashtags")
    pace = tx.Pace(rows=rows, paced=paced)
    tweets = topology.source("tweets", tx.tweets(rate=rate, hashtags=hashtags, pace=pace), partitions=parallelism)

    counts = {"all": counted(tweets, "all")}
    for name, beginnings in TONES.items():
        tone = pl.any_horizontal(pl.col("text").str.starts_with(words) for words in beginnings)
        counts[name] = counted(tweets.filter(tone), name)
    for length, layer in LAYERS.items():
        for name, (left, right) in layer.items():
            both = counts[left].union(counts[right])
            counts[name] = (
                both.key_by("hashtag").window(length).aggregate(pl.col("tweets").sum(), name=f"{name}-window")
            )
    for name in (name for name in counts if name != "all"):
        counts[name].output(name, tx.parquet(Path(folder, name)))
    return topology


def counted(tweets: tx.Stream, name: str) -> tx.Stream:
    """Tweets per hashtag and second."""
    return tweets.key_by("hashtag").window("1s").aggregate(pl.len().alias("tweets"), name=f"{name}-window")
