"""The examples in docs/extending.md and in the docstrings of the contracts run as they stand."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

import tenax as tx
from tenax.connectors.sink import stage

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def executed(folder: Path, text: str) -> ModuleType:
    """A module of its own, as a user's file is."""
    path = folder / f"example_{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


def example_of(kind: type) -> str:
    """The indented part of a docstring that begins with its imports."""
    text = inspect.getdoc(kind) or ""
    lines = text[text.index("\nExample") :].split("\n")
    indented = [line for line in lines[2:] if line.startswith("    ") or not line.strip()]
    return textwrap.dedent("\n".join(indented))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: re.findall(r"class (\w+)", block)[0])
def test_every_example_of_the_document_runs(block: str, tmp_path: Path) -> None:
    executed(tmp_path, block)


def test_the_document_has_an_example_for_each_contract() -> None:
    whole = "\n".join(BLOCKS)
    bases = set(re.findall(r"class \w+\(tx\.(\w+)\)", whole))
    assert bases == {
        "Source",
        "Sink",
        "Committer",
        "LoggedSink",
        "LoggedCommitter",
        "Computation",
        "KeyedComputation",
    }
    assert not re.findall(r"from tenax|import tenax\.", whole)


def test_the_example_of_a_source_keeps_the_contract(tmp_path: Path) -> None:
    module = executed(tmp_path, example_of(tx.Source))
    tx.testing.check_source(module.Squares(50), partitions=(1, 3), batch_rows=(7, 100))
    assert tx.testing.run(module.topology)["squares"].height == 1_000


def test_the_example_of_a_sink_keeps_results_once(tmp_path: Path) -> None:
    sink = executed(tmp_path, example_of(tx.Sink)).Memory()
    committer = sink.committer("out", tmp_path, "run", 1)
    staged = [stage(sink, "out", 0, 1, "1.1", pl.DataFrame({"a": [1, 2]}))]
    committer.commit(1, staged)
    committer.commit(1, staged)
    assert {key: rows["a"].to_list() for key, rows in committer.final.items()} == {(1, 0): [1, 2]}
    assert (committer.last_batch(0), committer.highest, committer.is_committed(1, 0)) == (1, 1, True)


def test_the_example_of_a_commit_log_goes_on_where_it_was(tmp_path: Path) -> None:
    sink = executed(tmp_path, example_of(tx.LoggedCommitter)).Lines(tmp_path / "lines.txt")
    staged = [stage(sink, "out", 0, 1, "1.1", pl.DataFrame({"a": [1]}))]
    for epoch in (1, 2):
        committer = sink.committer("out", tmp_path, "run", epoch)
        committer.commit(1, staged)
        committer.close()
    assert committer.last_batch(0) == 1
    assert (tmp_path / "lines.txt").read_text() == 'batch 1, partition 0: [{"a":1}]\n'
    assert sink.survey("out", tmp_path) == tx.Survey(final=frozenset({(1, 0)}))
