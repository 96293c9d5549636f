"""Outputs that would write over each other, or into what a source reads, are refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tenax as tx
from tenax.connectors.source import Source
from tenax.errors import InvalidTopology


def build(source: Source, outputs: dict[str, Path], late: Path | None = None) -> None:
    topology = tx.Topology("t")
    rows = topology.source("rows", source, late=None if late is None else tx.parquet(late))
    for name, folder in outputs.items():
        rows.output(name, tx.parquet(folder))
    topology.build()


def some() -> Source:
    return tx.elements(rate=1.0)


@pytest.mark.parametrize(
    "folders",
    [
        ("out/a", "out/a"),
        ("out/a", "out/a/b"),
        ("out/a/b/c", "out/a"),
        ("out/a", "out/a-tentative"),
        ("out/a", "out/.a.tenax"),
        ("out/a", "out/.a.tenax/log"),
        ("out/a", "out/link"),
        ("out/a", "linked/a"),
        ("out/a", "out/b/../a"),
    ],
)
def test_outputs_do_not_share_folders(folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "link").symlink_to(tmp_path / "out" / "a")
    (tmp_path / "linked").symlink_to(tmp_path / "out")
    first, other = (tmp_path / folder for folder in folders)
    with pytest.raises(InvalidTopology, match=r"every output has folders of its own, found .* of output 'one' and"):
        build(some(), {"one": first, "other": other})


def test_late_rows_do_not_share_a_folder_with_an_output(tmp_path: Path) -> None:
    with pytest.raises(InvalidTopology, match=r"of output 'rows-late' and .* of output 'one'"):
        build(some(), {"one": tmp_path / "a"}, late=tmp_path / "a")


def test_names_of_outputs_do_not_meet_those_that_tenax_gives(tmp_path: Path) -> None:
    with pytest.raises(InvalidTopology, match="tentative results of output 'a' are called 'a-tentative'"):
        build(some(), {"a": tmp_path / "one", "a-tentative": tmp_path / "other"})
    with pytest.raises(InvalidTopology, match="the late rows of a source are called 'rows-late'"):
        build(some(), {"rows-late": tmp_path / "one"}, late=tmp_path / "late")
    topology = tx.Topology("t")
    topology.source("b", some()).filter(pl.col("value") > 0, name="a-late")
    with pytest.raises(InvalidTopology, match="late rows of source 'a' are called 'a-late'"):
        topology.source("a", some(), late=tx.console())


@pytest.mark.parametrize(
    ("where", "follow", "folder"),
    [
        ("in", True, "in"),
        ("in", True, "in/out"),
        ("in/*.parquet", True, "in"),
        ("in/*.csv", True, "in/deep/out"),
        ("in/deep/*.csv", True, "in"),
        ("in/**/*.parquet", True, "in/x"),
        ("in/a.csv", True, "in"),
        ("in", False, "in"),
        ("in/deep", False, "in"),
        ("in/**/*.parquet", False, "in/x"),
        ("in/*/*.parquet", False, "in/x"),
        ("link/*.csv", True, "in/out"),
        ("x-tentative/*.csv", True, "x"),
    ],
)
def test_results_are_apart_from_what_sources_read(where: str, follow: bool, folder: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    source = tx.files(tmp_path / where, time="ts", follow=follow)
    with pytest.raises(InvalidTopology, match=r"results are apart from what sources read, found .* of source 'rows'"):
        build(source, {"one": tmp_path / folder})


@pytest.mark.parametrize(
    ("where", "follow", "folder"),
    [
        ("in", True, "out"),
        ("in/*.csv", True, "in-results"),
        ("a.csv", True, "out"),
        ("a.csv", False, "out"),
        ("*.csv", False, "out"),
        ("*.parquet", False, "out"),
        ("*/*.csv", False, "out"),
        ("in/*/rows-*.parquet", False, "in/x"),
    ],
)
def test_what_lies_beside_each_other_is_fine(where: str, follow: bool, folder: str, tmp_path: Path) -> None:
    build(tx.files(tmp_path / where, time="ts", follow=follow), {"one": tmp_path / folder, "other": tmp_path / "b/c"})
    build(some(), {"one": tmp_path / "a", "other": tmp_path / "ab"}, late=tmp_path / "late")
