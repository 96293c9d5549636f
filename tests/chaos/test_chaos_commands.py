"""The commands of chaos without a cluster: what they would run, and what a trial in a process of its own is told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tenax.chaos import process
from tenax.chaos.oracle import Verdict
from tenax.chaos.process import MARK, Command, end_driver
from tenax.chaos.record import Outcome
from tenax.chaos.reference import Judgement
from tenax.chaos.runs import Trial, outcome, varied
from tenax.chaos.schedule import random_schedule
from tenax.chaos.settings import CHAOS
from tenax.cli.main import run
from tenax.cli.soak import BATCH_MS, BATCH_ROWS, OPTIONS, arguments
from tenax.engine.processes import marked
from tenax.model.settings import Settings

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
HELD = Outcome(
    True, True, 0, 0, 0, 8, 0, 0, None, None, None, None, 4, 1, (), (), None, (), "8 final results as in a run without"
)


def drawn(seed: int) -> Trial:
    how = replace(CHAOS, protection=varied(seed)).but(batch=f"{BATCH_MS}ms", max_rows=BATCH_ROWS)
    return Trial(how, random_schedule(seed, 4, 2, 20), seed)


@pytest.mark.parametrize("held", [True, False])
def test_the_exit_code_says_whether_results_held_and_the_printed_command_runs_the_same_trial(
    held: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Trial] = []

    def instead(file: Path, options: Mapping[str, object], out: Path, trial: Trial, tell: object) -> Outcome:
        assert {name: str(value) for name, value in options.items()} == {
            name: str(value) for name, value in OPTIONS.items()
        }
        ran.append(trial)
        return replace(HELD, held=held)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(process, "run_in_processes", instead)
    for seed in range(12):
        trial = drawn(seed)
        code = run(["chaos", *arguments(trial), "--out", str(tmp_path / "out"), "--json", str(tmp_path / "found.json")])
        assert code == (0 if held else 1)
        assert sorted(map(str, ran[-1].schedule)) == sorted(map(str, trial.schedule))
        assert replace(ran[-1], schedule=(), seed=None) == replace(trial, schedule=(), seed=None)
        assert Outcome.from_json((tmp_path / "found.json").read_text()).held is held


def test_a_seed_on_the_command_line_draws_its_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Trial] = []
    monkeypatch.chdir(ROOT)

    def instead(file: Path, options: Mapping[str, object], out: Path, trial: Trial, tell: object) -> Outcome:
        ran.append(trial)
        return HELD

    monkeypatch.setattr(process, "run_in_processes", instead)
    words = ["--random", "--seed", "7", "--within", "20", "--nodes", "3", "--racks", "3", "--out", str(tmp_path)]
    assert run(["chaos", "examples/apps/traffic.py", *words]) == 0
    assert ran[0].schedule == random_schedule(7, 3, 3, 20)
    assert ran[0].seed == 7


def test_a_folder_with_other_things_is_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "thesis.tex").write_text("years of work")
    assert run(["chaos", "examples/apps/traffic.py", "--out", str(tmp_path)]) == 2
    assert "found thesis.tex" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("seed", range(12))
def test_a_child_is_told_the_whole_trial(seed: int) -> None:
    command = Command("app.py", {"rows": 5, "paced": True}, "out", drawn(seed), 12.5)
    assert Command.from_json(command.to_json()) == command
    how = CHAOS.but(
        replicas=("a[0]", "b[*]"), standby_nodes=1, heartbeat="500ms", missed=4, standby={"a": "active-active"}
    )
    named = replace(command, trial=Trial(how))
    assert Command.from_json(named.to_json()) == named


def test_the_end_of_a_driver_leaves_nothing_that_it_had_started() -> None:
    # the child's own child outlives it, and ignores what would end it politely
    orphan = "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN); time.sleep(600)"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {orphan!r}]); time.sleep(600)"
    mark = uuid.uuid4().hex
    child = subprocess.Popen([sys.executable, "-c", parent], env={**os.environ, MARK: mark}, start_new_session=True)
    deadline = time.monotonic() + DEADLINE_S
    while len(marked(MARK, mark)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    end_driver(child, mark)
    assert marked(MARK, mark) == []
    assert child.returncode is not None


def test_the_outcome_says_what_the_run_was_set_to() -> None:
    trial = Trial(CHAOS.but(replicas=("a[0]",), max_attempts=7))
    said = outcome(trial, [], Verdict(0, 0, 0), Judgement())
    assert Outcome.from_json(said.to_json()) == said
    assert Settings.from_data(said.settings) == trial.settings.resolved()
