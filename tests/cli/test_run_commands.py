"""`tenax run` and `tenax inspect`: what goes wrong before anything starts is one line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import tenax as tx
from tenax.cli.main import exit_code, run
from tenax.cli.run import failed
from tenax.control.instructions import Outcome, Stop
from tenax.errors import EpochLost, RunFailed, Superseded

GOOD = """
import tenax as tx
def build(rows=10):
    topology = tx.Topology("t")
    topology.source("a", tx.elements(rate=1.0, pace=tx.Pace(rows=rows))).output("b", tx.console())
    return topology
"""


KEEPS_ALL = """
import polars as pl
import tenax as tx
class Totals(tx.KeyedComputation):
    keys = ("sequence",)
    state_schema = pl.Schema({"sequence": pl.Int64})
    def step_keys(self, rows, state, watermark_us):
        return rows, tx.Changes()
topology = tx.Topology("t")
rows = topology.source("a", tx.elements(rate=1.0, pace=tx.Pace(rows=10)))
rows.key_by("sequence").apply(Totals(), name="totals").output("b", tx.console())
"""


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (None, [], "no such file"),
        ("x = ", [], "not Python: invalid syntax in line 1"),
        ("\nraise ValueError('broken')", [], "line 2: ValueError: broken"),
        ("x = 1", [], "a variable 'topology' or a function 'build' is expected"),
        ("topology = 3", [], "topology is a tenax.Topology, found int"),
        ("topology = 3", ["rows=1"], "options need a function build(...)"),
        ("import tenax as tx\ntopology = tx.Topology('t')", [], "has an output, found none"),
        (GOOD, ["colour=red"], "unexpected keyword argument 'colour'"),
        (GOOD, ["rows"], "options are written name=value, found 'rows'"),
        (GOOD, ["--batch", "soon"], "'soon'"),
        (GOOD, ["--nodes", "0"], "--nodes"),
        (GOOD, ["--max-rows", "0"], "--max-rows"),
        (GOOD, ["--replicas", "most"], "found 'most'"),
        (GOOD, ["--replicas", "a[0]"], "sources need no replica, found a[0]"),
        (GOOD, ["--replicas", "x[0]"], "unknown operator in task x[0]"),
        (GOOD, ["--backups", "planned"], "planned backups need a recovery_latency"),
        (GOOD, ["--recovery-latency", "5s", "--backups", "all"], "leave one of the two out"),
        (GOOD, ["--recovery", "never"], "one of incremental, blocking, auto, found 'never'"),
        (GOOD, ["--outputs", "all"], "outputs is one of tentative, hold, found 'all'"),
        (GOOD, ["--tentative-delay", "1s", "--recovery", "blocking"], "outputs and recovery that does not block"),
        (GOOD, ["--standby-nodes", "2"], "some nodes are not standby, found standby_nodes 2 of nodes 2"),
        (GOOD, ["--heartbeat", "0s"], "--heartbeat is a time above 0, found '0s'"),
        (GOOD, ["--checkpoint", "swept"], "checkpoint is one of aligned, synchronous, individual, sweeping"),
        (KEEPS_ALL, ["--checkpoint", "none"], "operator 'totals': checkpoint none is for states that a few batches"),
        (GOOD, ["--checkpoint-every", "0"], "--checkpoint-every is a number of batches of at least 1"),
        (GOOD, ["--accept-changes", "c"], "--accept-changes names operators and outputs, found 'c': use one of a, b"),
        (GOOD, ["--accept-changes", "b"], "--accept-changes names what has changed, found 'b', but nothing has"),
        (GOOD.replace("rows=rows", ""), ["--drain"], "a source that is drained runs out of rows, found 'a'"),
        (GOOD.replace("rows=rows", "lateness='soon'"), [], "a span of time is whole numbers with units"),
        (GOOD, ["--master", "local[2]"], "found 'local[2]': write spark://host:7077"),
        (GOOD, ["--master", "spark://127.0.0.1:1"], "127.0.0.1:1: Connection refused"),
        (GOOD.replace('.output("b"', '.select("vlue").output("b"'), [], "line 5): ColumnNotFoundError: unable to find"),
        (GOOD.replace("tx.console()", "'out'"), [], "line 5: output 'b' goes to a tenax sink, found str 'out'"),
        ("import sys\nsys.exit(3)", [], "line 2: SystemExit: 3"),
    ],
)
def test_a_mistake_before_the_start_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, words: list[str], expected: str
) -> None:
    path = tmp_path / "app.py"
    if text is not None:
        path.write_text(text)
    assert run(["run", str(path), "--store", str(tmp_path / "store"), *words]) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert expected in lines[0]


def test_what_is_wrong_before_the_start_leaves_no_store(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(GOOD)
    assert run(["run", str(path), "--store", str(tmp_path / "store"), "--master", "spark://127.0.0.1:1"]) == 2
    assert not (tmp_path / "store").exists()


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    stated = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tenax {stated}\n"
    assert tx.__version__ == stated
    assert {"Topology", "files", "parquet", "__version__"} <= set(dir(tx))
    assert all(hasattr(tx, name) for name in dir(tx))


def test_how_a_run_ended_is_told_by_the_exit_code(tmp_path: Path) -> None:
    failed(Stop(Outcome.FINISHED, "the sources have ended", resumable=False), tmp_path)
    with pytest.raises(RunFailed) as broken:
        failed(Stop(Outcome.FAILED, "x; correct the operator and start again", resumable=True), tmp_path, "Traceback")
    assert str(broken.value) == f"x; correct the operator: start again with --store {tmp_path} to go on"
    assert broken.value.details == "Traceback"
    with pytest.raises(Superseded) as lost:
        failed(Stop(Outcome.SUPERSEDED, "a newer driver (epoch 2) owns the store", resumable=False), tmp_path)
    assert [exit_code(error) for error in (broken.value, lost.value, EpochLost("x"))] == [2, 3, 3]


def test_inspect_names_a_folder_that_is_no_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["inspect", str(tmp_path)]) == 2
    assert "a store has a file store.json, found none" in capsys.readouterr().err


def test_inspect_tells_what_a_store_holds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tenax.store.records import JsonObject
    from tenax.store.store import Store

    store = Store.open(tmp_path / "s", {"topology": "roads", "operators": {"a": 1}})
    store.log_batch(1, {"ranges": {}})
    store.record_event({"event": "x"})
    store.record_event({"event": "y", "text": "LOST node 3"})
    change: JsonObject = {"words": ["operator 'a': keys was [b], is [c]: from batch 2 on"], "batch": 1, "epoch": 1}
    store.record_change({**change, "topology": {"topology": "roads", "operators": {"a": 2}}})
    store.close()
    assert run(["inspect", str(tmp_path / "s"), "--events", "5"]) == 0
    out = capsys.readouterr().out
    assert "Store of roads" in out
    assert "1 to 1" in out
    assert "Changes of code" in out
    assert "keys was [b], is [c]" in out
    assert "'event': 'x'" in out
    assert "driver 1: LOST node 3" in out  # in words where there are some
    assert run(["inspect", str(tmp_path / "s"), "--json"]) == 0
