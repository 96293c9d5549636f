"""What an upgrade says of operators that go on with less than they would have had, or seem to have another name."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from takeover.stores import left

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.application.scaling import first_version, rescaled
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.errors import UnsuitableStore
from tenax.takeover.admission import admitted


def joined(
    folder: Path, *, source: str = "rows", length: str = "1s", best: bool = False, tasks: int = 2
) -> Application:
    """rows (2) --full--> left (2), right (2) --> joined (2) --> out [, left --> many (2) --> best]"""
    topology = Topology("t")
    rows = topology.source(source, elements(rate=100, pace=Pace(rows=100)), partitions=2).key_by("sequence")
    counted = rows.window(length, every="1s").aggregate(pl.len().alias("n"), name="left", parallelism=tasks)
    other = rows.window("1s").aggregate(pl.len().alias("m"), name="right", parallelism=tasks)
    counted.join(other, on=["sequence", "window"], name="joined").output("out", parquet(folder / "out"))
    if best:
        counted.filter(pl.col("n") > 1, name="many").output("best", parquet(folder / "best"))
    return topology.build()


def words(store: Path, new: Application) -> tuple[str, ...]:
    return admitted(new, store, new.fingerprint(), (), upgrade=True).words


def test_a_join_whose_one_side_starts_empty_is_told_of(tmp_path: Path) -> None:
    store = left(tmp_path, joined(tmp_path))
    said = words(store, joined(tmp_path, length="2s", best=True))
    assert (
        "operator 'joined' goes on, but what it joins from 'left' starts empty: windows that are open now may lack "
        "pairs"
    ) in said
    assert any("'left'" in line and "fewer or partial results reach 'best', 'out'" in line for line in said)


def test_a_source_that_seems_to_be_renamed_is_told_of(tmp_path: Path) -> None:
    store = left(tmp_path, joined(tmp_path))
    said = words(store, joined(tmp_path, source="lines"))
    assert "source 'rows' is gone: it is read no more" in said
    assert (
        "source 'rows' is gone and 'lines' is new and reads the same: was it renamed? it is read from its beginning; "
        "name it 'rows' to go on from its position"
    ) in said


def test_a_version_that_other_code_has_made_leaves_unknown_operators_as_declared_or_as_their_partners(
    tmp_path: Path,
) -> None:
    version = first_version(joined(tmp_path, tasks=4))
    now = rescaled(joined(tmp_path, best=True), version).topology
    assert [now.operator(name).parallelism for name in ("left", "many", "best")] == [4, 4, 4]


def test_a_state_that_is_rebuilt_from_outputs_retained_for_old_tasks_is_refused(tmp_path: Path) -> None:
    old, new = joined(tmp_path), joined(tmp_path, best=True)
    store = left(tmp_path / "retained", old, rebuilt=["joined"], retained=["left", "right"])
    with pytest.raises(
        UnsuitableStore, match="the state of 'joined' would be rebuilt from outputs retained"
    ) as refused:
        words(store, new)
    assert "--checkpoint joined=aligned" in str(refused.value)
    # from what has no state all can be stepped again
    other = tmp_path / "stepped"
    store = left(other, joined(other), rebuilt=["joined", "left", "right"])
    assert "operator 'many' is new: it begins with batch 5" in words(store, joined(other, best=True))
