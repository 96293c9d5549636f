"""Handover by replay: what a few batches decide is never stored, and all tasks retain their outputs."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.application.handover import with_handover
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.model.settings import Settings

REPLAY = Settings.of(elastic=True, handover="replay")


def sums(folder: Path) -> Application:
    topology = Topology("sums")
    rows = topology.source("rows", elements(3, 100))
    keyed = rows.with_columns(key=pl.col("sequence") % 4).key_by("key")
    windows = keyed.window("1s").aggregate(pl.col("value").sum(), name="sums", parallelism=2)
    windows.output("out", parquet(folder))
    return topology.build()


def test_nothing_changes_unless_it_is_asked_for(tmp_path: Path) -> None:
    for given in (Settings(), Settings.of(elastic=True), Settings.of(handover="replay")):
        assert with_handover(sums(tmp_path), given) is given


def test_by_replay_bounded_states_are_never_stored_and_all_tasks_retain(tmp_path: Path) -> None:
    protection = with_handover(sums(tmp_path), REPLAY).protection
    assert protection.checkpoints == {"sums": "none"}
    assert protection.backups == "all"


def test_what_was_said_of_an_operator_or_of_backups_holds(tmp_path: Path) -> None:
    said = REPLAY.but(checkpoints={"sums": "aligned"}, backups="source")
    protection = with_handover(sums(tmp_path), said).protection
    assert protection.checkpoints == {"sums": "aligned"}
    assert protection.backups == "source"
