"""What is usual in Polars works on streams: named columns, lists, `timedelta`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

import tenax as tx
from tenax.application.application import Application
from tenax.operators.computation import StepInput

ROWS = pl.DataFrame(
    {
        "ts": [datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC).replace(tzinfo=None) for second in (1, 2, 3)],
        "sequence": [1, 2, 3],
        "value": [10.0, 20.0, 30.0],
    },
    schema_overrides={"ts": pl.Datetime("us")},
)


def source() -> tx.Stream:
    return tx.Topology("t").source("numbers", tx.elements(rate=1.0, pace=tx.Pace(rows=3)))


def built(stream: tx.Stream) -> Application:
    stream.output("out", tx.console())
    return stream.topology.build()


def stepped(stream: tx.Stream) -> pl.DataFrame:
    computation = built(stream).computations[stream.operator]
    return computation.step({}, StepInput((ROWS,), 0, 1)).rows


def test_with_columns_takes_names() -> None:
    rows = stepped(source().with_columns(double=pl.col("value") * 2, one=1, again="value"))
    assert rows.columns == [*ROWS.columns, "double", "one", "again"]
    assert rows["double"].to_list() == [20.0, 40.0, 60.0]
    assert rows["one"].to_list() == [1, 1, 1]
    assert rows["again"].to_list() == ROWS["value"].to_list()


def test_select_takes_names_and_lists_and_keeps_the_time() -> None:
    rows = stepped(source().select(["sequence"], half=pl.col("value") / 2))
    assert rows.columns == ["sequence", "half", "ts"]


def test_filter_takes_lists_and_values() -> None:
    assert stepped(source().filter([pl.col("value") > 10, pl.col("value") < 30]))["sequence"].to_list() == [2]
    assert stepped(source().filter(sequence=3))["value"].to_list() == [30.0]


def test_named_aggregates_are_the_aliased_ones() -> None:
    def aggregated(stream: tx.Stream) -> list[str]:
        return [
            f"{part.name} {part.kind}"
            for part in built(stream).computations[stream.operator].aggregates  # type: ignore[attr-defined]
        ]

    value = pl.col("value")
    by_name = source().key_by("sequence").window("10s").aggregate(mean=value.mean(), n=pl.len())
    by_alias = source().key_by("sequence").window("10s").aggregate([value.mean().alias("mean"), pl.len().alias("n")])
    assert aggregated(by_name) == aggregated(by_alias) == ["mean mean", "n len"]


def test_a_list_of_keys_is_the_keys() -> None:
    assert source().key_by(["sequence", "value"]).keys == ("sequence", "value")
    assert source().key_by("sequence", ["value"]).keys == ("sequence", "value")


def test_timedelta_is_a_span_wherever_one_is_asked_for() -> None:
    second = timedelta(seconds=1)
    given = source().key_by("sequence").window(10 * second, every=2 * second)
    assert (given.length, given.every) == ("10s", "2s")
    assert tx.Pace(lateness=5 * second, disorder=second, idle_after=second) == tx.Pace(
        lateness="5s", disorder="1s", idle_after="1s"
    )
    topology = tx.Topology("t")
    topology.protect(recovery_latency=5 * second, checkpoint_every=10 * second, storage_patience=60 * second)
    written = tx.Topology("t")
    written.protect(recovery_latency="5s", checkpoint_every="10s", storage_patience="1m")
    assert topology._protection == written._protection
    files = tx.files("data/*.csv", time="ts", follow=True, lateness=second, idle_after=2 * second)
    assert (files.lateness_us, files.idle_after_us) == (1_000_000, 2_000_000)


class Latest(tx.Computation):
    """The rows of both inputs, first those of the first."""

    stateless = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput(state, pl.concat(given.frames))


class Matched(Latest):
    """As if each input were worthless without the other."""

    correlated = True


@pytest.mark.parametrize(("computation", "correlated"), [(Latest(), False), (Matched(), True)])
def test_a_computation_of_several_inputs_says_itself_whether_it_is_correlated(
    computation: tx.Computation, correlated: bool
) -> None:
    """a, b ─by key→ apply (3 tasks) → out."""
    topology = tx.Topology("t")
    a, b = (
        topology.source(name, tx.elements(rate=1.0, pace=tx.Pace(rows=3)), partitions=2).key_by("sequence")
        for name in ("a", "b")
    )
    applied = tx.apply([a, b], computation, parallelism=3)
    operator = built(applied).topology.operator(applied.operator)
    assert operator.correlated is correlated
    assert [stream.operator for stream in operator.inputs] == ["a", "b"]
    assert operator.parallelism == 3


def test_a_computation_of_one_input_is_never_correlated() -> None:
    applied = source().apply(Matched())
    assert not built(applied).topology.operator(applied.operator).correlated


def test_a_join_says_that_it_is_correlated() -> None:
    topology = tx.Topology("t")
    a, b = (
        topology.source(name, tx.elements(rate=1.0, pace=tx.Pace(rows=3)))
        .key_by("sequence")
        .window("1s")
        .aggregate(pl.len())
        for name in ("a", "b")
    )
    joined = a.join(b, on=["sequence", "window"])
    union = a.union(b)
    joined.output("joined", tx.console())
    union.output("together", tx.console())
    known = topology.build().topology
    assert known.operator(joined.operator).correlated
    assert not known.operator(union.operator).correlated
