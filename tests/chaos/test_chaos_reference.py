"""The reference: what it computes from the whole input is what a run gives, and what it cannot tell it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from chaos.reference_runs import judged, run
from spark.random_topologies import Maker

import tenax as tx
from tenax.chaos.multisets import Difference, difference
from tenax.chaos.reference import Judgement, judge_by_input
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.store.records import Json
from tenax.store.store import Store

ROWS = 3_000
START = datetime(2024, 5, 1, tzinfo=UTC).replace(tzinfo=None)
NOWHERE = Path("nowhere")


def readings(rows: int = ROWS, seed: int = 1) -> pl.DataFrame:
    """Rows whose times go back by up to 2 s, with keys and values that may be missing."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, 30_000_000, rows)) - draw.integers(0, 2_000_000, rows)
    keys = pl.Series(
        [None if integer == 7 else f"key {integer}" for integer in draw.integers(0, 12, rows)], dtype=pl.String
    )
    values = pl.Series([None if value > 2 else value for value in draw.normal(0, 1, rows) ** 3], dtype=pl.Float64)
    frame = pl.DataFrame({"key": keys, "n": draw.integers(0, 3, rows), "value": values})
    return frame.with_columns(at=pl.lit(START) + pl.Series(times).cast(pl.Duration("us")))


def written(folder: Path, kind: str, files: int = 5) -> Path:
    """The same rows as files of a kind, in the order of their names."""
    folder.mkdir(parents=True)
    rows = readings()
    for number in range(files):
        part = rows[number * ROWS // files : (number + 1) * ROWS // files]
        path = folder / f"part-{number}.{kind}"
        if kind == "parquet":
            part.write_parquet(path, row_group_size=250)
        elif kind == "csv":
            part.with_columns(pl.col("at").dt.strftime("%Y-%m-%d %H:%M:%S%.6f+00:00")).write_csv(path)
        else:
            part.with_columns(pl.col("at").dt.strftime("%Y-%m-%dT%H:%M:%S%.6f")).write_ndjson(path)
    (folder / f".hidden.{kind}").write_bytes(b"nothing of ours")
    (folder / f"_begun.{kind}").write_bytes(b"nothing of ours")
    return folder


def everything(folder: Path, source: Source, partitions: int) -> tx.Topology:
    """Every operator that there is, and the late rows."""
    topology = tx.Topology("everything")
    rows = topology.source("rows", source, partitions=partitions, late=tx.parquet(folder / "late"))
    some = rows.filter(pl.col("n") < 2).map(lambda frame: frame.with_columns(doubled=pl.col("value") * 2))
    slid = (
        some.key_by("key", "n")
        .window("4s", every="1s")
        .aggregate(
            pl.col("value").sum(),
            pl.col("value").mean().alias("mean"),
            pl.col("value").std().alias("std"),
            pl.col("value").min().alias("low"),
            pl.col("doubled").max().alias("high"),
            pl.col("value").last().alias("last"),
            pl.col("n").sum().alias("ns"),
            pl.col("value").count().alias("known"),
            pl.len().alias("rows"),
            parallelism=3,
            name="slid-window",
        )
    )
    slid.output("slid", tx.parquet(folder / "slid"))
    tumbled = rows.key_by("n").window("4s").aggregate(pl.col("value").var().alias("value"), pl.len().alias("rows"))
    slid.join(tumbled, on=["n", "window"]).output("joined", tx.parquet(folder / "joined"))
    slid.filter(pl.col("value") > 0.5).top(3, by="value").output("best", tx.parquet(folder / "best"))
    both = [stream.select("n", pl.col("rows").cast(pl.Int64)).key_by("n") for stream in (slid, tumbled)]
    both[0].union(both[1]).key_by("n").window("12s").aggregate(pl.col("rows").sum()).output(
        "both", tx.parquet(folder / "both")
    )
    rows.output("plain", tx.parquet(folder / "plain"))
    return topology


@pytest.mark.parametrize(("kind", "partitions"), [("parquet", 1), ("csv", 2), ("ndjson", 3)])
def test_files_of_every_kind_give_what_their_whole_input_gives(kind: str, partitions: int, tmp_path: Path) -> None:
    source = tx.files(written(tmp_path / "in", kind), time="at", follow=False, lateness="1500ms")
    application = everything(tmp_path / "out", source, partitions).build()
    run(application, tmp_path / "run", 400)
    judgement = judge_by_input(application, tmp_path / "run" / "store", tmp_path / "run" / "results")
    assert judgement.held, judgement
    assert (judgement.outputs, judgement.not_judged) == (6, ())
    late = tx.read_committed(tmp_path / "run" / "results" / "rows-late").height
    assert 0 < late < ROWS / 2  # which of them these are depends on the partitions


@pytest.mark.parametrize("seed", range(8))
def test_random_topologies_give_what_their_whole_input_gives(seed: int, tmp_path: Path) -> None:
    application, _ = Maker(seed, tmp_path / "out").make()
    judgement, verdict = judged(application, tmp_path, 500)
    assert judgement.held, judgement
    assert verdict.held, verdict
    assert judgement.outputs == len(application.sinks)
    assert judgement.rows > 0


def test_late_rows_of_a_generator_follow_its_partitions(tmp_path: Path) -> None:
    source = tx.elements(rate=100.0, pace=tx.Pace(rows=ROWS, disorder="900ms", lateness="300ms"))
    topology = tx.Topology("late")
    rows = topology.source("rows", source, partitions=3, late=tx.parquet(tmp_path / "late"))
    rows.window("1s").aggregate(pl.len(), parallelism=1).output("counts", tx.parquet(tmp_path / "counts"))
    application = topology.build()
    run(application, tmp_path / "run", 250)
    judgement = judge_by_input(application, NOWHERE, tmp_path / "run" / "results")
    assert judgement.held, judgement
    assert judgement.outputs == 2
    assert tx.read_committed(tmp_path / "run" / "results" / "rows-late").height > ROWS // 20


# What the whole input does not tell, by the name of an output and the reason.


class Own(Source):
    """A source of a user's own, that deals its rows out as it likes."""

    time = "ts"
    bounded = True

    def __init__(self, lateness_us: int) -> None:
        self.lateness_us = lateness_us
        self.rows = tx.elements(rate=100.0, pace=tx.Pace(rows=600)).read(0, [0, 600, 1])

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:  # noqa: ARG002
        first = position if isinstance(position, int) else 0
        end = min(600, first + limits.rows)
        share = -(-(end - first) // partitions)
        ranges = tuple([first + share * row, min(end, first + share * (row + 1))] for row in range(partitions))
        return Planned(ranges, end, end - first, end == 600)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:  # noqa: ARG002
        assert isinstance(planned, list)
        return self.rows[planned[0] : planned[1]]


class Sizes(tx.Computation):
    """How many rows each batch has."""

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput(state, given.frames[0].select(pl.len().alias("rows")))


class Numbered(Sizes):
    """The place of each row among all, whatever batches they come in."""

    any_batches = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        before = int(state["seen/0"]["seen"][0]) if "seen/0" in state else 0
        rows = given.frames[0].with_columns(place=pl.int_range(pl.len()) + before)
        return tx.StepOutput({f"seen/{0}": pl.DataFrame({"seen": [before + rows.height]})}, rows)


def elements() -> Source:
    return tx.elements(rate=100.0, pace=tx.Pace(rows=600))


def counted(rows: tx.Stream) -> tx.Stream:
    return rows.window("1s").aggregate(pl.len().alias("rows"), parallelism=1)


def summed(rows: tx.Stream) -> tx.Stream:
    return rows.window("1s").aggregate(pl.col("value").sum(), parallelism=1)


Flow = Callable[[tx.Stream], tx.Stream]

UNTOLD: dict[str, tuple[Source, int, Flow, str]] = {
    "a source without an end": (tx.elements(rate=100.0, pace=tx.Pace()), 1, counted, "'rows' does not end"),
    "late rows of a user's partitions": (Own(1_000), 2, counted, "may be late, and only the run knows"),
    "a computation that may count batches": (
        elements(),
        1,
        lambda rows: rows.apply(Sizes()),
        r"\(Sizes\) may depend on the batches: it does not say any_batches = True",
    ),
    "the order of rows of several tasks": (
        elements(),
        2,
        lambda rows: rows.apply(Numbered(), parallelism=1),
        "the order of rows that come from several tasks",
    ),
    "times that a map puts back": (
        elements(),
        1,
        lambda rows: counted(
            rows.map(lambda row: row.with_columns(pl.col("ts") - pl.duration(seconds=5)), name="back")
        ),
        "operator 'back' puts event times back",
    ),
    "times that an expression puts back": (
        elements(),
        1,
        lambda rows: counted(rows.with_columns(pl.col("ts").dt.truncate("1s"), name="cut")),
        "operator 'cut' puts event times back",
    ),
    "ranks by equal sums": (
        elements(),
        1,
        lambda rows: summed(rows).union(summed(rows).with_columns(pl.col("value") * 1.0)).top(1, "value", name="best"),
        "operator 'best' ranks rows by floats that differ by less",
    ),
    "a decision by the last digit": (
        elements(),
        1,
        lambda rows: summed(rows).with_columns((pl.col("value") * 1e13).floor().cast(pl.Int64), name="floor"),
        "operator 'floor' decides by the last digits of floats",
    ),
    "groups by a sum": (
        elements(),
        1,
        lambda rows: summed(rows).key_by("value").window("4s").aggregate(pl.len(), parallelism=1, name="groups"),
        "operator 'groups' groups by 'value'",
    ),
    "the first of several at one time": (
        elements(),
        1,
        lambda rows: (
            rows.select(pl.col("sequence"), (pl.col("ts").dt.truncate("1s") + pl.duration(seconds=1)).alias("ts"))
            .window("2s")
            .aggregate(pl.col("sequence").first(), name="first")
        ),
        "operator 'first' takes the first of rows with one event time",
    ),
    "a map that does not take all rows": (
        elements(),
        1,
        lambda rows: rows.map(few, name="few"),
        "operator 'few' does not take the whole input at once: ValueError: too many rows",
    ),
}


def few(rows: pl.DataFrame) -> pl.DataFrame:
    if rows.height > 500:
        raise ValueError("too many rows")
    return rows


@pytest.mark.parametrize("name", UNTOLD)
def test_an_output_of_which_the_whole_input_does_not_tell_enough_is_named(name: str, tmp_path: Path) -> None:
    source, partitions, flow, reason = UNTOLD[name]
    topology = tx.Topology("untold")
    rows = topology.source("rows", source, partitions=partitions)
    flow(rows).output("untold", tx.parquet(tmp_path / "untold"))
    rows.output("plain", tx.parquet(tmp_path / "plain"))
    judgement = judge_by_input(topology.build(), NOWHERE, tmp_path)
    untold = [row for row in judgement.not_judged if row.startswith("untold (")]
    assert len(untold) == 1, judgement
    assert re.search(reason, untold[0])
    assert untold[0] in str(judgement)


def test_an_output_over_a_partition_that_was_idle_and_came_back_is_named(tmp_path: Path) -> None:
    topology = tx.Topology("idle")
    rows = topology.source("rows", elements(), partitions=2)
    counted(rows).output("counts", tx.parquet(tmp_path / "counts"))
    rows.output("plain", tx.parquet(tmp_path / "plain"))
    store = Store.open(tmp_path / "store", {"name": "idle"})
    for number, idle in enumerate(([], [1], []), start=1):
        ranges = [[0, 10, 2], [1, 1, 2] if idle else [1, 10, 2]]
        store.log_batch(number, {"idle": {"rows": idle}, "ranges": {"rows": ranges}})
        judgement = judge_by_input(topology.build(), tmp_path / "store", tmp_path)
        assert len(judgement.not_judged) == (1 if number == 3 else 0)
    store.close()
    assert "counts (a partition of source 'rows' was idle and came back" in judgement.not_judged[0]


def test_computations_of_ones_own_are_judged_if_batches_make_no_difference_to_them(tmp_path: Path) -> None:
    topology = tx.Topology("own")
    rows = topology.source("rows", Own(0))
    rows.filter(pl.col("sequence") % 3 > 0).apply(Numbered()).output("numbered", tx.parquet(tmp_path / "numbered"))
    application = topology.build()
    run(application, tmp_path / "run", 70)
    judgement = judge_by_input(application, NOWHERE, tmp_path / "run" / "results")
    assert judgement.held, judgement
    assert (judgement.outputs, judgement.rows) == (1, 400)


def test_times_of_every_type_are_the_same_instants(tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=2))
    instants = [START + timedelta(milliseconds=250 * number) for number in range(8)]
    columns = {
        "parquet": pl.Series(instants).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"),
        "ndjson": pl.Series([instant.replace(tzinfo=UTC).astimezone(zone).isoformat() for instant in instants]),
        "csv": pl.Series(instants).cast(pl.Datetime("us")).to_physical(),
    }
    for kind, times in columns.items():
        folder = tmp_path / kind
        folder.mkdir()
        frame = pl.DataFrame({"at": times, "value": range(8)})
        getattr(frame, f"write_{kind}")(folder / f"one.{kind}")
        topology = tx.Topology(kind)
        unit = "us" if times.dtype.is_integer() else None
        rows = topology.source("rows", tx.files(folder, time="at", follow=False, time_unit=unit))
        counted(rows).output("counts", tx.parquet(tmp_path / "out"))
        application = topology.build()
        run(application, tmp_path / f"run-{kind}", 3)
        judgement = judge_by_input(application, NOWHERE, tmp_path / f"run-{kind}" / "results")
        assert judgement.held, judgement
        assert judgement.rows == 2


def test_whole_numbers_made_of_sums_are_judged(tmp_path: Path) -> None:
    topology = tx.Topology("tens")
    tens = (pl.col("value") * 10).floor().cast(pl.Int64).alias("tens")
    sums = summed(topology.source("rows", elements(), partitions=2)).with_columns(tens).filter(pl.col("tens") % 2 == 0)
    sums.key_by("tens").window("2s").aggregate(pl.len(), parallelism=2).output("tens", tx.parquet(tmp_path / "tens"))
    application = topology.build()
    run(application, tmp_path / "run", 150)
    judgement = judge_by_input(application, NOWHERE, tmp_path / "run" / "results")
    assert judgement.held, judgement
    assert judgement.not_judged == ()
    assert judgement.rows > 0


def test_a_file_that_cannot_be_read_is_lost(tmp_path: Path) -> None:
    topology = tx.Topology("torn")
    topology.source("rows", elements()).output("plain", tx.parquet(tmp_path / "plain"))
    application = topology.build()
    run(application, tmp_path / "run", 200)
    results = tmp_path / "run" / "results"
    path = next((results / "plain").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:100])
    judgement = judge_by_input(application, NOWHERE, results)
    assert judgement.lost == 600
    assert judgement.examples[0].startswith(f"plain {path.name} cannot be read")


# How rows are compared.

EXPECTED = pl.DataFrame({"key": ["a", "b", None], "window_end": [1, 1, 2], "value": [1.0, None, float("nan")]})
KEYS = ("key", "window_end")


def test_equal_rows_in_any_order_are_no_difference() -> None:
    assert difference(EXPECTED.reverse().select("value", "window_end", "key"), EXPECTED, KEYS) == Difference()
    assert difference(EXPECTED.reverse(), EXPECTED, ()) == Difference()
    assert difference(pl.DataFrame(), EXPECTED.clear(), KEYS) == Difference()


def test_floats_differ_beyond_the_order_of_sums_only() -> None:
    sums = EXPECTED.with_columns(pl.col("value") * (1 + 1e-12))
    assert difference(sums, EXPECTED, KEYS) == Difference()
    other = EXPECTED.with_columns(pl.col("value") * (1 + 1e-7))
    assert difference(other, EXPECTED, KEYS).different == 1
    null = EXPECTED.with_columns(pl.col("value").fill_null(0.0))
    assert difference(null, EXPECTED, KEYS).examples == ("key=b, window_end=1: value 0.0 for None",)
    tiny = pl.DataFrame({"value": [1e-17, 5e6]})  # what is left of large parts that cancel out
    assert difference(tiny, pl.DataFrame({"value": [0.0, 5e6]}), ()) == Difference()


def test_lost_rows_and_rows_that_are_there_besides_are_told_by_key() -> None:
    judgement = difference(EXPECTED[1:], EXPECTED, KEYS)
    assert (judgement.lost, judgement.extra, judgement.different) == (1, 0, 0)
    assert judgement.examples == ("key=a, window_end=1 is lost",)
    judgement = difference(pl.concat([EXPECTED, EXPECTED[:1]]), EXPECTED, KEYS)
    assert (judgement.lost, judgement.extra, judgement.different) == (0, 1, 0)
    assert judgement.examples == ("key=a, window_end=1 is there besides",)
    assert difference(EXPECTED.drop("value"), EXPECTED, KEYS).lost == 3
    assert difference(pl.DataFrame(), EXPECTED, KEYS).lost == 3


def test_rows_of_one_key_are_compared_as_often_as_they_are_there() -> None:
    twice = pl.DataFrame({"key": ["a", "a", "a"], "value": [1.0, 2.0, 2.0], "tags": [[1], [2], [2]]})
    assert difference(twice[[2, 0, 1]], twice, ["key"]) == Difference()
    assert difference(twice[[0, 0, 1]], twice, ["key"]).different == 1
    assert difference(twice[[0, 1]], twice, ()).lost == 1


def test_a_judgement_says_what_it_found() -> None:
    assert str(Judgement(2, 70)) == "70 rows of 2 outputs, all as computed from the whole input at once"
    wrong = Judgement(1, 9, lost=2, different=1, examples=("a key=1 is lost",), not_judged=("b (no end)",))
    assert not wrong.held
    assert str(wrong) == "2 lost, 1 different rows: a key=1 is lost; not judged: b (no end)"
    assert str(Judgement(not_judged=("b (no end)",))) == (
        "nothing was computed from the whole input; not judged: b (no end)"
    )
