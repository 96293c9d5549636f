"""Commands that take a topology take an application in Python as well: `describe` and `plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenax.cli.main import run

APP = """
import polars as pl
import tenax as tx

def build(rows=10, parallelism=2):
    topology = tx.Topology("tiny")
    source = topology.source("numbers", tx.elements(rate=1.0, pace=tx.Pace(rows=rows, lateness="2s")), partitions=2,
                             late=tx.parquet("out/late"))
    counts = source.key_by("sequence").window("1s").aggregate(n=pl.len(), parallelism=parallelism)
    counts.output("counts", tx.parquet("out/counts"), priority=2)
    return topology
"""


@pytest.fixture
def app(tmp_path: Path) -> str:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return str(path)


def test_describe_tells_operators_keys_columns_sources_and_outputs(
    app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "tiny.svg"
    assert run(["describe", app, "parallelism=3", "--picture", str(picture)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "tiny tasks 8 of 3 operators",
        "window-1 3 window, state numbers (full by sequence)",
        "window-1 sequence Int64, n UInt32, window_start Datetime, window_end Datetime",
        "numbers Elements ts, lateness 2s ends",
        "counts",
        "out/counts 2",
    ):
        assert words in shown
    assert "window by sequence" in picture.read_text()
    assert "1/s" not in picture.read_text(), "rates of an application are not known"


def test_describe_as_json(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", app, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    window = data["operators"][1]
    assert window["kind"] == "window"
    assert window["state"] is True
    assert window["inputs"] == [{"operator": "numbers", "partitioning": "full", "keys": ["sequence"]}]
    assert window["columns"]["n"] == "UInt32"
    assert "app.py, line 9" in window["made_in"]
    assert data["sources"][0] | {"late_rows_to": ""} == {
        "name": "numbers",
        "kind": "Elements",
        "time": "ts",
        "lateness": "2s",
        "bounded": True,
        "late_rows_to": "",
    }
    assert [(output["name"], output["priority"]) for output in data["outputs"]] == [("counts", 2.0)]


def test_an_output_may_have_a_priority_for_each_of_its_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.py"
    path.write_text(APP.replace("priority=2", "priority=[3, 1]"))
    assert run(["describe", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["priority"] == [3.0, 1.0]
    assert run(["describe", str(path)]) == 0
    assert "out/counts 3, 1" in " ".join(capsys.readouterr().out.split())
    failed = ["--failed", "counts[*]", "--capacity", "1", "--json"]
    assert run(["plan", "recovery", str(path), *failed]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == ["counts[0]"]
    assert run(["describe", str(path), "parallelism=3"]) == 2
    assert "the priorities of output 'counts' are one per task (3), found 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "all", "APP", "parallelism=4", "--latency", "10", "--budget", "2"],
        ["plan", "replicas", "APP", "--budget", "2"],
        ["plan", "backups", "APP", "--latency", "10"],
        ["plan", "recovery", "APP", "--failed", "window-1[*]", "--capacity", "1"],
    ],
)
def test_plans_take_an_application_and_leave_its_sources_alone(
    words: list[str], app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([app if word == "APP" else word for word in words] + ["--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    plan.pop("promises", None)  # they are told for all tasks
    assert plan
    assert "numbers[" not in json.dumps(plan)


def test_a_topology_file_takes_no_options_of_applications(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("name: t\n")
    assert run(["describe", str(path), "rows=3"]) == 2
    assert "options are for applications in Python, found 'rows=3'" in capsys.readouterr().err
