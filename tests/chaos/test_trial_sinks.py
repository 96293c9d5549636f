"""A trial uses the kinds of sinks that an application has, at places of its own, and Parquet for the others."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tenax as tx
from tenax.chaos.oracle import compare
from tenax.chaos.trial_sinks import replaced_outputs, with_results_in
from tenax.connectors.parquet import ParquetSink


class Own(tx.Sink):
    """Takes part in trials, and says where."""

    def __init__(self, place: str) -> None:
        self.place = place

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:
        raise NotImplementedError

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> tx.Committer:
        raise NotImplementedError

    def for_trial(self, folder: Path) -> tx.Sink:
        return Own(str(folder))


def test_own_kinds_of_sinks_go_to_the_folder_of_the_trial_and_others_are_replaced(tmp_path: Path) -> None:
    topology = tx.Topology("t")
    rows = topology.source("rows", tx.elements(pace=tx.Pace(rows=10)))
    rows.output("files", tx.parquet(tmp_path / "real"))
    rows.output("own", Own("the real place"))
    rows.output("shown", tx.console())
    rows.output("called", tx.callback(lambda *_: None))
    application = topology.build()
    assert replaced_outputs(application, tmp_path) == ("shown", "called")
    sinks = with_results_in(application, tmp_path).sinks
    assert {name: type(sink) for name, sink in sinks.items()} == {
        "files": ParquetSink,
        "own": Own,
        "shown": ParquetSink,
        "called": ParquetSink,
    }
    assert [sink.place for sink in sinks.values()] == [str(tmp_path / name) for name in sinks]
    assert application.sinks["own"].place == "the real place"


def test_a_sink_that_takes_part_and_cannot_be_read_back_is_refused_in_words() -> None:
    with pytest.raises(tx.TenaxError, match=r"found Own without results\(\): define it, or let for_trial"):
        compare({"out": Own("a")}, {"out": Own("b")})
