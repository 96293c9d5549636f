"""Plans with what a run has measured: `tenax plan ... --from STORE`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tenax.cli.main import run
from tenax.control.load import LOAD, Arrival, Load, TaskLoad
from tenax.control.versions import Cut, PassId, Version
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.store import cuts
from tenax.store.checkpoints import Checkpoint
from tenax.store.records import Json
from tenax.store.store import Store

# rows[0] ──▶ parse[0] ──▶ sums[0], sums[1] ──▶ out[0], out[1]
APP = """
import polars as pl
import tenax as tx

topology = tx.Topology("tiny")
rows = topology.source("rows", tx.elements(rate=1.0, pace=tx.Pace(rows=10)))
parsed = rows.filter(pl.col("value") > 0, name="parse").key_by("sequence")
parsed.window("1s").aggregate(n=pl.len(), parallelism=2, name="sums").output("out", tx.parquet("out/counts"))
"""
# declared in another order than the application has it
SAME = """
name: same
operators:
  - {name: out, parallelism: 2, inputs: [{from: sums, partitioning: one-to-one}], output: {}}
  - {name: sums, parallelism: 2, inputs: [parse]}
  - {name: parse, inputs: [rows]}
  - {name: rows, safe: true}
""".replace("[parse]", "[{from: parse}]").replace("[rows]", "[{from: rows}]")
TASKS = tuple(map(Task.parse, ("rows[0]", "parse[0]", "sums[0]", "sums[1]", "out[0]", "out[1]")))
BUSY = TaskLoad(100.0, 100.0, 0.5), TaskLoad(100.0, 80.0, 0.1), TaskLoad(60.0, 6.0, 0.3), TaskLoad(20.0, 2.0, 0.2)
OUT = TaskLoad(6.0, 6.0, 0.4), TaskLoad(2.0, 2.0, 0.4)
MEASURED = Load(
    (*BUSY, *OUT),
    batches=30,
    rows=100.0,
    fixed_s=0.05,
    moving_s=1.0,
    levels=3,
    interval=10,
    arrival=Arrival(50.0),
)

Made = Callable[[Load | None], str]


@pytest.fixture
def stored(tmp_path: Path) -> Made:
    """A store whose newest checkpoint has this load beside it; with no load, nothing was measured."""

    def made(load: Load | None) -> str:
        store = Store.open(tmp_path / "store", {"topology": "tiny"})
        store.record_event({"settings": Settings.of(batch="1s").resolved().to_data()})
        cut = Cut(10, tuple(Version(task, 10, PassId(1, 4)) for task in TASKS))
        notes: dict[str, Json] = {**cuts.to_record(cut)}
        if load is not None:
            notes[LOAD] = json.loads(json.dumps(load.to_data()))
        store.commit_checkpoint(Checkpoint(10, store.epoch, {}, {}, notes))
        store.close()
        return str(tmp_path / "store")

    return made


@pytest.fixture(params=["app.py", "same.yaml"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / str(request.param)
    path.write_text(APP if path.suffix == ".py" else SAME)
    return str(path)


def planned(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert run(["plan", *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict)
    return data


def test_backups_are_planned_with_measured_times_and_scheduling_is_apart(
    file: str, stored: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(MEASURED)
    # 50 rows come in a second and batch: half of what was measured; parse reads the log again
    times = {"parse[0]": 10 * (0.05 + 0.25), "sums[0]": 10 * 0.15, "sums[1]": 10 * 0.1}
    declared = planned(["backups", file, "--latency", "4"], capsys)
    assert "scheduling" not in declared
    enough = planned(["backups", file, "--latency", "4.5", "--from", store], capsys)
    assert enough["backups"] == []
    assert enough["recovery_latency"] == pytest.approx(times["parse[0]"] + times["sums[0]"])
    assert enough["scheduling"] == pytest.approx(2 * 3 * 0.05)  # two rounds of up to 8 batches
    tight = planned(["backups", file, "--latency", "4", "--from", store], capsys)
    assert tight["backups"] == ["parse[0]"]
    assert set(tight) == set(declared) | {"scheduling"}


def test_replicas_and_recovery_are_planned_with_measured_rates_and_costs(
    file: str, stored: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(MEASURED)
    replicas = planned(["replicas", file, "--budget", "3", "--from", store], capsys)
    assert replicas["replicas"] == ["parse[0]", "sums[0]", "out[0]"]
    assert replicas["fidelity"] == pytest.approx(0.75)  # 6 of 8 rows
    recovery = planned(["recovery", file, "--failed", "sums[*]", "--capacity", "0.12", "--from", store], capsys)
    assert (recovery["recover"], recovery["cost"]) == (["sums[1]"], pytest.approx(0.1))
    schedule = planned(["schedule", file, "--failed", "sums[*]", "--nodes", "0.2,0.2", "--from", store], capsys)
    assert "sums[0]" in json.dumps(schedule)
    every = planned(["all", file, "--latency", "4", "--budget", "3", "--from", store], capsys)
    assert every["scheduling"] == pytest.approx(0.3)
    assert every["cost"]["retained_per_s"] == pytest.approx(40.0)  # type: ignore[index]


def test_people_are_told_what_comes_on_top(file: str, stored: Made, capsys: pytest.CaptureFixture[str]) -> None:
    store = stored(MEASURED)
    for words in (["backups", file, "--latency", "4"], ["all", file, "--latency", "4", "--budget", "1"]):
        assert run(["plan", *words, "--from", store]) == 0
        assert "0.3 s on top, as measured" in " ".join(capsys.readouterr().out.split())


def refused(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["plan", "backups", *words]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


def test_a_store_without_measures_is_refused_in_one_line(
    stored: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    words = [str(tmp_path / "app.py"), "--latency", "4", "--from"]
    assert "a store has a file store.json, found none" in refused([*words, str(tmp_path / "nowhere")], capsys)
    Store.open(tmp_path / "store", {"topology": "tiny"}).close()
    assert "found none: let it run until it stores one" in refused([*words, str(tmp_path / "store")], capsys)
    assert "found nothing beside checkpoint 10: let it run" in refused([*words, stored(None)], capsys)


def test_a_store_of_other_tasks_is_refused_with_one_of_them(
    stored: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APP.replace("parallelism=2", "parallelism=3"))
    store = stored(MEASURED)
    words = [str(tmp_path / "app.py"), "--latency", "4", "--from", store]
    assert "found out[2] of the topology, and not of the run: plan the one that ran" in refused(words, capsys)
    (tmp_path / "app.py").write_text(APP.replace("parallelism=2", "parallelism=1"))
    assert "found out[1] of the run, and not of the topology" in refused(words, capsys)
