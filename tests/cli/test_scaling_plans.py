"""`tenax plan scaling`: by what a topology declares, and by what a run of it has measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.test_measured_plans import APP, MEASURED, TASKS

from tenax.cli.main import run
from tenax.control.load import LOAD, Arrival, Load
from tenax.control.versions import Cut, PassId, Version
from tenax.model.settings import Settings
from tenax.store import cuts
from tenax.store.checkpoints import Checkpoint
from tenax.store.records import Json
from tenax.store.store import Store

# locations (2) ─one-to-one─▶ parse (2) ═══▶ speed (2) ═══▶ jams (2) ──▶ top (1)
ROADS = """
name: roads
operators:
  - {name: locations, parallelism: 2, rate: 1000, cost: 0.02}
  - {name: parse, parallelism: 2, inputs: [{from: locations, partitioning: one-to-one}], cost: 0.05}
  - {name: speed, parallelism: 2, inputs: [{from: parse}], cost: 0.2}
  - {name: jams, parallelism: 2, inputs: [{from: speed}], cost: 0.1}
  - {name: top, inputs: [{from: jams, partitioning: merge}], output: {}, cost: 0.02}
"""


@pytest.fixture
def roads(tmp_path: Path) -> str:
    path = tmp_path / "roads.yaml"
    path.write_text(ROADS)
    return str(path)


def stored(folder: Path, load: Load, **settings: object) -> str:
    """A store whose newest checkpoint has this load beside it."""
    store = Store.open(folder / "store", {"topology": "tiny"})
    store.record_event({"settings": Settings.of(**settings).resolved().to_data()})
    cut = Cut(10, tuple(Version(task, 10, PassId(1, 4)) for task in TASKS))
    notes: dict[str, Json] = {**cuts.to_record(cut), LOAD: json.loads(json.dumps(load.to_data()))}
    store.commit_checkpoint(Checkpoint(10, store.epoch, {}, {}, notes))
    store.close()
    return str(folder / "store")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["plan", "scaling", *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict)
    return data


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["plan", "scaling", *words]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return error


def test_a_plan_says_what_changes_and_why(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    data = printed(capsys, roads, "--rate", "3x")
    assert list(data) == [
        "rate", "outcome", "algorithm", "reason", "nodes", "parallelism", "pass_s", "bottleneck", "feasible", "optimal"
    ]  # fmt: skip
    assert data["rate"] == {"now": 1000.0, "wanted": 3000.0}
    assert (data["outcome"], data["algorithm"], data["nodes"]) == ("scale-out", "rates", {"before": 2, "after": 5})
    after = data["parallelism"]["after"]  # type: ignore[index]
    assert after == {"locations": 2, "parse": 2, "speed": 5, "jams": 4, "top": 1}
    assert data["pass_s"]["before"] == pytest.approx(3 * (0.07 + 0.2 + 0.1 + 0.02))  # type: ignore[index]
    assert data["pass_s"]["bound"] == pytest.approx(0.7)  # type: ignore[index]
    assert (data["feasible"], data["optimal"]) == (True, True)
    assert data["bottleneck"]["task"] == "speed[0]"  # type: ignore[index]
    assert printed(capsys, roads, "--rate", "3000")["nodes"] == data["nodes"]


def test_options_say_what_is_allowed(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    few = printed(capsys, roads, "--rate", "3x", "--nodes", "2..4")
    assert few["feasible"] is False
    assert "the most nodes are reached (4)" in str(few["reason"])
    assert printed(capsys, roads, "--rate", "3x", "--target", "1")["nodes"] == {"before": 2, "after": 3}
    assert printed(capsys, roads, "--rate", "3x", "--batch", "10s")["outcome"] == "scale-in"
    threshold = printed(capsys, roads, "--rate", "5x", "--algorithm", "threshold")
    assert threshold["algorithm"] == "threshold"
    assert threshold["parallelism"]["after"]["speed"] == 3  # type: ignore[index]
    assert printed(capsys, roads, "--rate", "1x")["outcome"] == "keep"


def test_people_see_the_decision_and_every_operator(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    assert run(["plan", "scaling", roads, "--rate", "3x"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "5 nodes for 3,000 rows/s" in text
    assert "speed 2 → 5, jams 2 → 4, nodes 2 → 5" in text
    assert "proven optimal" in text
    assert "speed 2 5 60 % 24.4 %" in text
    assert run(["plan", "scaling", roads, "--rate", "3x", "--nodes", "2..3"]) == 0
    assert "3 nodes are not enough for 3,000 rows/s" in " ".join(capsys.readouterr().out.split())


def test_an_application_is_planned_with_what_its_run_has_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # rows[0] ──▶ parse[0] ──▶ sums[0], sums[1] ──▶ out[0], out[1]: 50 of the 100 measured rows come in a second
    (tmp_path / "app.py").write_text(APP)
    store = stored(tmp_path, MEASURED, batch="1s", nodes=2)
    data = printed(capsys, str(tmp_path / "app.py"), "--rate", "1x", "--from", store)
    assert data["rate"] == {"now": 50.0, "wanted": 50.0}
    # a level of rows and parse, and one of sums and out, who are partners; two times scheduling
    assert data["pass_s"]["before"] == pytest.approx(0.3 + 0.35 + 2 * 0.05)  # type: ignore[index]
    assert data["nodes"]["before"] == 2  # type: ignore[index]
    after = data["parallelism"]["after"]  # type: ignore[index]
    assert after["rows"] == after["parse"] == 1
    assert after["sums"] == after["out"] > 2
    assert data["feasible"] is True


def test_a_run_that_reads_as_fast_as_it_can_is_compared_with_its_speed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    fast = Load(MEASURED.tasks, 30, 100.0, fixed_s=0.05, moving_s=1.0, levels=3, interval=10, arrival=Arrival())
    data = printed(capsys, str(tmp_path / "app.py"), "--rate", "2x", "--from", stored(tmp_path, fast, batch="1s"))
    assert data["rate"] == {"now": 100.0, "wanted": 200.0}


def test_what_makes_no_sense_is_one_line(capsys: pytest.CaptureFixture[str], roads: str, tmp_path: Path) -> None:
    assert "write 6000 or 3x" in complaint(capsys, roads, "--rate", "fast")
    assert "--nodes is two whole numbers" in complaint(capsys, roads, "--rate", "3x", "--nodes", "8..2")
    assert "--target is a number from 0.05 to 1, found 3.0" in complaint(capsys, roads, "--rate", "3x", "--target", "3")
    assert "--batch is a time" in complaint(capsys, roads, "--rate", "3x", "--batch", "soon")
    assert "time between batches, found 0 s" in complaint(capsys, roads, "--rate", "3x", "--batch", "0s")
    assert "unknown algorithm 'rate'" in complaint(capsys, roads, "--rate", "3x", "--algorithm", "rate")
    bare = tmp_path / "bare.yaml"
    bare.write_text("name: t\noperators: [{name: a}, {name: b, inputs: [{from: a}]}]")
    assert "found none declared: declare it, or use --from STORE" in complaint(capsys, str(bare), "--rate", "3x")
    idle = tmp_path / "idle.yaml"
    idle.write_text("name: t\noperators: [{name: a, rate: 0}, {name: b, inputs: [{from: a}], cost: 0.5}]")
    assert "found 0 there: declare it" in complaint(capsys, str(idle), "--rate", "300")
    (tmp_path / "app.py").write_text(APP)
    words = [str(tmp_path / "app.py"), "--rate", "3x", "--from"]
    assert "a store has a file store.json" in complaint(capsys, *words, str(tmp_path / "nowhere"))
    empty = Load(MEASURED.tasks, 0, 0.0)
    assert "found none so far: let it go on" in complaint(capsys, *words, stored(tmp_path, empty))
