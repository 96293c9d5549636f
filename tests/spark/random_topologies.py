"""Small random topologies, each built twice: as streams for the engine, and as plain Polars over the whole input."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from spark.oracles import WINDOW, windowed

from tenax.api.streams import Stream, Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements

STEPS = 6
MAX_PARALLELISM = 3
SPANS_MS = ((1000, 1000), (2000, 1000), (1500, 500), (4000, 4000))  # lengths of windows, how often they begin
AGGREGATES = (pl.Expr.sum, pl.Expr.mean, pl.Expr.max, pl.Expr.min)

Span = tuple[int, int]


@dataclass(frozen=True)
class Twin:
    """A stream, and the rows that it must have; `span` is that of its windows, if it has any."""

    stream: Stream
    rows: pl.DataFrame
    span: Span | None = None

    @property
    def columns(self) -> Sequence[str]:
        return ["key", "value", *(WINDOW if self.span else ("ts", "sequence"))]

    @property
    def keys(self) -> Sequence[str]:
        return ["key"] if self.span else ["sequence"]


class Maker:
    """Adds random operators to a topology, and does the same to the rows."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = random.Random(seed)
        self.folder = folder
        self.topology = Topology(f"random-{seed}")
        self.twins: list[Twin] = []
        self.read: set[str] = set()

    def make(self) -> tuple[Application, dict[str, Twin]]:
        """The application, and what each output must hold.

        Whatever the dice say, there is this: a stream that two operators read, a diamond, an edge that skips levels.

            a ----------------------+
            |                       +--> join --> output
            +--> filter --> scale --+
        """
        for number in range(self.dice.randint(1, 2)):
            self.source(number)
        for _ in range(STEPS):
            self.dice.choice((self.filter, self.scale, self.window, self.window, self.union, self.join))()
        a = self.windowed(self.any(), self.dice.choice(SPANS_MS))
        self.joined(a, self.scaled(self.filtered(a)))
        outputs: dict[str, Twin] = {}
        for twin in [*self.twins]:
            if twin.stream.operator not in self.read:
                name = f"output-{len(outputs)}"
                twin.stream.output(name, parquet(self.folder / name))
                outputs[name] = twin
        return self.topology.build(), outputs

    def any(self) -> Twin:
        return self.dice.choice(self.twins)

    def parallelism(self) -> int:
        return self.dice.randint(1, MAX_PARALLELISM)

    def added(self, read: Sequence[Twin], stream: Stream, rows: pl.DataFrame, span: Span | None) -> Twin:
        self.read |= {twin.stream.operator for twin in read}
        twin = Twin(stream, rows, span)
        self.twins.append(twin)
        return twin

    def source(self, number: int) -> None:
        """Elements out of order, none of them late."""
        rows, disorder = self.dice.randint(1_000, 3_000), self.dice.choice(("0s", "300ms"))
        source = elements(
            seed=self.dice.randrange(1_000),
            rate=self.dice.choice((150, 400)),
            pace=Pace(rows=rows, disorder=disorder, lateness=disorder),
        )
        stream = self.topology.source(f"source-{number}", source, partitions=self.parallelism())
        key = (pl.col("sequence") % self.dice.randint(2, 12)).alias("key")
        keyed = source.read(0, [0, rows, 1]).with_columns(key)
        operator = stream.with_columns(key)
        self.read.add(stream.operator)
        self.added([], operator, keyed, None)

    def filter(self) -> None:
        self.filtered(self.any())

    def filtered(self, twin: Twin) -> Twin:
        condition = pl.col("key") % self.dice.randint(2, 4) != 0
        return self.added([twin], twin.stream.filter(condition), twin.rows.filter(condition), twin.span)

    def scale(self) -> None:
        self.scaled(self.any())

    def scaled(self, twin: Twin) -> Twin:
        value = (pl.col("value") * self.dice.randint(2, 5) + pl.col("key")).alias("value")
        return self.added([twin], twin.stream.with_columns(value), twin.rows.with_columns(value), twin.span)

    def window(self) -> None:
        twin = self.any()
        # windows as long as those below them can be joined with these, across levels
        self.windowed(twin, twin.span if twin.span and self.dice.random() < 0.5 else self.dice.choice(SPANS_MS))

    def windowed(self, twin: Twin, span: Span) -> Twin:
        value = self.dice.choice(AGGREGATES)(pl.col("value"))
        length, every = span
        windows = twin.stream.key_by("key").window(f"{length}ms", every=f"{every}ms")
        stream = windows.aggregate(value, parallelism=self.parallelism())
        time = "window_end" if twin.span else "ts"
        rows = windowed(twin.rows, ["key"], length * 1_000, every * 1_000, value, time=time)
        return self.added([twin], stream, rows, span)

    def union(self) -> None:
        """Rows of two streams, aggregated at once: the union alone may have a key twice in a window."""
        left = self.any()
        others = [twin for twin in self.twins if bool(twin.span) == bool(left.span) and twin is not left]
        if not others:
            return
        right = self.dice.choice(others)
        both = [side.stream.select(*left.columns).key_by("key") for side in (left, right)]
        rows = pl.concat([left.rows.select(left.columns), right.rows.select(left.columns)])
        self.read |= {left.stream.operator, right.stream.operator}
        self.windowed(Twin(both[0].union(both[1]), rows, left.span), self.dice.choice(SPANS_MS))

    def join(self) -> None:
        pairs = [(a, b) for a in self.twins for b in self.twins if a.span and a is not b and a.span == b.span]
        if pairs:
            self.joined(*self.dice.choice(pairs))

    def joined(self, left: Twin, right: Twin) -> Twin:
        stream = left.stream.join(right.stream, on=["key", "window"], parallelism=self.parallelism())
        rows = left.rows.join(right.rows, on=["key", *WINDOW], suffix="_2")
        columns: list[str | pl.Expr] = ["key", (pl.col("value") + pl.col("value_2")).alias("value"), *WINDOW]
        return self.added([left, right], stream.select(*columns), rows.select(columns), left.span)
