"""`tx.run` and `tx.collect` refuse what cannot run before anything starts; topologies show themselves in notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tenax as tx
from tenax.api.results import in_order
from tenax.api.running import until
from tenax.errors import TenaxError


def topology(rows: int | None = 10) -> tx.Topology:
    made = tx.Topology("t")
    source = made.source("numbers", tx.elements(rate=1.0, pace=tx.Pace(rows=rows)), partitions=2)
    source.key_by("sequence").window("1s").aggregate(n=pl.len()).output("counts", tx.console())
    return made


def stream(rows: int | None = 10) -> tx.Stream:
    return tx.Topology("t").source("numbers", tx.elements(rate=1.0, pace=tx.Pace(rows=rows)))


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: tx.run("app.py"), "run takes a tx.Topology, found str"),  # type: ignore[arg-type]
    (lambda: tx.run(topology(), node=2), "there is no setting 'node'"),
    (lambda: tx.run(topology(), nodes=0), "found 0"),
    (lambda: tx.run(topology(), batch="soon"), "found 'soon'"),
    (lambda: tx.run(topology(), replicas="some"), "found 'some'"),
    (lambda: tx.run(topology(), plan="nowhere.json"), "nowhere.json: no such file: check the path"),
    (lambda: tx.run(topology(), plan="plan.json", replicas=2), "found replicas beside it: leave one of the two out"),
    (lambda: tx.run(tx.Topology("t")), "topology 't' has an output, found none"),
    (lambda: tx.run(topology(None), drain=True), "a source that is drained runs out of rows, found 'numbers'"),
    (lambda: tx.collect(5), "collect takes a stream or a topology, found int"),  # type: ignore[call-overload]
    (lambda: tx.collect(stream(None)), "found 'numbers', which never does: bound it, or pass drain=True"),
    (lambda: tx.collect(topology(None)), "found 'numbers', which never does"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_what_cannot_run_is_one_line_before_anything_starts(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TenaxError) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_stream_that_is_collected_runs_with_what_it_is_made_of_and_nothing_else() -> None:
    """numbers → window → counts; numbers → doubled (collected)."""
    whole = topology()
    numbers = tx.Stream(whole, "numbers", "ts")
    doubled = numbers.with_columns(double=pl.col("value") * 2, name="doubled")
    part = until(doubled, "collected").build()
    assert [operator.name for operator in part.topology.operators] == ["numbers", "doubled", "collected"]
    assert list(part.sinks) == ["collected"]
    assert "collected" not in whole._operators


def test_results_come_in_the_order_that_is_documented() -> None:
    rows = pl.DataFrame({"b": [1, 2, 1, None], "window_end": [2, 1, 1, 1], "a": [0, 0, 1, 1]})
    rows = rows.with_columns(
        pl.col("window_end").cast(pl.Datetime("us")), window_start=pl.lit(0).cast(pl.Datetime("us"))
    )
    assert in_order(rows)["b"].to_list() == [None, 1, 2, 1]
    shuffled = rows.sample(fraction=1.0, shuffle=True, seed=3)
    assert_frame_equal(in_order(rows), in_order(shuffled))


def test_a_topology_draws_itself_and_a_stream_shows_its_columns() -> None:
    made = topology()
    svg = made._repr_svg_()
    assert svg is not None
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    for word in ("numbers", "source", "counts", "window by sequence"):
        assert word in svg
    assert repr(made) == "<Topology 't': 3 operators, outputs counts>"
    assert tx.Topology("t")._repr_svg_() is None
    shown = repr(stream().key_by("sequence"))
    assert shown.startswith("<Stream 'numbers', 1 tasks, time 'ts', by sequence: ts Datetime")
    assert "sequence Int64, value Float64" in shown


def test_a_stream_whose_columns_are_wrong_or_unknown_says_so_in_place_of_them() -> None:
    assert "ghost" in repr(stream().with_columns(x=pl.col("ghost")))
    unknown = tx.Topology("t").source("later", tx.files("nowhere/*.csv", time="ts"))
    assert "state a schema" in repr(unknown)
