"""Options of commands are the settings, field by field; options win over a file, which wins over the application."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from model.test_settings import OTHERS, other

from tenax.chaos.settings import CHAOS
from tenax.cli import demo
from tenax.cli.arguments import flag, parsed
from tenax.cli.main import made_app, run
from tenax.cli.options import command_line
from tenax.model.settings import CONCERNS, Settings, declared

WITHOUT_OPTION = {"replay", "checkpoints"}  # for programs alone; said with --checkpoint
ONLY_RUN = {"master", "keep_batches", "accept_changes", "upgrade", "drain"}
OWN: Mapping[str, set[str]] = {
    "run": {"store"},
    "chaos": {
        *("kill", "hang", "hang-workers", "return", "rescale", "kill-driver", "random", "random-rescales"),
        *("seed", "within", "out", "json"),
    },
    "demo": {"out", "seconds", "seed", "json"},
}
APPLICATION = """
import tenax as tx
topology = tx.Topology("t")
rows = topology.source("a", tx.elements(rate=1.0, pace=tx.Pace(rows=1)))
rows.output("b", tx.console())
topology.protect(max_attempts=11, patience=12, cutover_lag=13, standby={"b": "passive"})
"""


def options_of(command: str) -> dict[str, Any]:
    group = typer.main.get_command(made_app([]))
    parameters = group.commands[command].params  # type: ignore[attr-defined]  # the group has them
    return {each.opts[0].removeprefix("--"): each for each in parameters if each.opts[0].startswith("--")}


@pytest.mark.parametrize(
    ("command", "without"), [("run", set[str]()), ("chaos", ONLY_RUN), ("demo", {*ONLY_RUN, "racks"})]
)
def test_every_setting_is_an_option_with_the_help_of_its_record(command: str, without: set[str]) -> None:
    known = options_of(command)
    expected = {word for word in CONCERNS if word not in WITHOUT_OPTION | without}
    assert set(known) == {flag(word).removeprefix("--") for word in expected} | OWN[command] | {"config", "plan"}
    for word in expected:
        option = known[flag(word).removeprefix("--")]
        assert declared(word).help in option.help
        assert option.default is None  # what was not said leaves the file and the application as they are


@pytest.mark.parametrize("word", [word for word in CONCERNS if word not in {"replay"}])
def test_what_an_option_says_is_what_its_setting_is(word: str) -> None:
    wanted = other(word)
    words = command_line(wanted, Settings())
    assert words[0] == flag("checkpoint" if word == "checkpoints" else word)
    given = {words[0].removeprefix("--").replace("-", "_"): words[1] if len(words) > 1 else True}
    assert Settings().but(**parsed(given)) == wanted


def test_the_defaults_that_help_shows_are_those_of_the_command() -> None:
    for command, base in (("run", Settings()), ("chaos", CHAOS), ("demo", demo.DEMO)):
        assert f"Default: {base.cluster.nodes}." in options_of(command)["nodes"].help
        assert f"Default: {base.protection.checkpoint_every}." in options_of(command)["checkpoint-every"].help


class Reached(Exception):
    """The driver was to be made, with these settings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__("a driver was made")
        self.settings = settings


@pytest.fixture
def settings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """What `tenax run` hands to its driver, for the text of a settings file and options."""
    import tenax.engine.driver

    def stop(_application: object, _folder: Path, settings: Settings, *_: object, **__: object) -> None:
        raise Reached(settings)

    monkeypatch.setattr(tenax.engine.driver, "Driver", stop)
    (tmp_path / "app.py").write_text(APPLICATION)

    def asked(file: str | None, *options: str) -> Settings:
        words = ["run", str(tmp_path / "app.py"), "--store", str(tmp_path / "store"), *options]
        if file is not None:
            (tmp_path / "tenax.toml").write_text(file)
            words += ["--config", str(tmp_path / "tenax.toml")]
        with pytest.raises(Reached) as reached:
            run(words)
        return reached.value.settings

    return asked


def test_the_application_wins_over_what_is_usual(settings_of: Callable[..., Settings]) -> None:
    asked = settings_of(None).protection
    assert (asked.max_attempts, asked.patience, asked.cutover_lag) == (11, 12, 13)
    assert asked.correlated_losses == Settings().protection.correlated_losses


def test_a_file_wins_over_the_application_and_options_win_over_both(settings_of: Callable[..., Settings]) -> None:
    file = "[protection]\npatience = 22\ncutover_lag = 23\n[cluster]\nnodes = 3\n[operators.b]\nstandby = 'active'"
    by_file = settings_of(file)
    asked = by_file.protection
    assert (asked.max_attempts, asked.patience, asked.cutover_lag) == (11, 22, 23)
    assert (by_file.cluster.nodes, by_file.protection.standby) == (3, {"b": "active"})
    by_option = settings_of(file, "--cutover-lag", "33", "--nodes", "4")
    said = by_option.protection
    assert (said.max_attempts, said.patience, said.cutover_lag, by_option.cluster.nodes) == (11, 22, 33, 4)
    assert said.standby == {"b": "active"}


def test_a_plan_is_its_replicas_and_backups_and_nothing_follows_the_load(
    settings_of: Callable[..., Settings], tmp_path: Path
) -> None:
    file = "[protection]\nreplicas = 3\nrecovery_latency = '5s'\npatience = 22"
    assert settings_of(file).protection.follows
    (tmp_path / "plan.json").write_text(json.dumps({"backups": {"backups": []}, "replicas": {"replicas": ["b[0]"]}}))
    said = settings_of(file, "--plan", str(tmp_path / "plan.json")).protection
    assert (said.replicas, said.backups, said.recovery_latency, said.patience) == (("b[0]",), "source", None, 22)
    assert (said.follows, said.backups_follow) == (False, False)


@pytest.mark.parametrize("command", ["run", "chaos", "demo"])
def test_a_plan_of_other_tasks_is_one_line_before_anything_starts(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "plan.json").write_text('{"backups": ["elsewhere[0]"]}')
    words = [] if command == "demo" else [str(tmp_path / "app.py")]
    assert run([command, *words, "--plan", str(tmp_path / "plan.json")]) == 2
    error = capsys.readouterr().err
    assert "plan.json: unknown operator in task elsewhere[0]" in error
    assert len(error.splitlines()) == 1
    assert run([command, *words, "--plan", str(tmp_path / "plan.json"), "--replicas", "2"]) == 2
    assert "found replicas beside it: leave one of the two out" in capsys.readouterr().err


def test_an_option_takes_back_what_a_file_switched_on(settings_of: Callable[..., Settings]) -> None:
    file = "[batches]\nstrict_lateness = true"
    assert settings_of(file).batches.strict_lateness
    assert not settings_of(file, "--no-strict-lateness").batches.strict_lateness


@pytest.mark.parametrize("command", ["run", "chaos", "demo"])
def test_a_wrong_file_is_one_line_before_anything_starts(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "tenax.toml").write_text("[protection]\nreplica = 3")
    words = [] if command == "demo" else [str(tmp_path / "app.py")]
    assert run([command, *words, "--config", str(tmp_path / "tenax.toml")]) == 2
    error = capsys.readouterr().err
    assert "tenax.toml: [protection] has no setting 'replica': did you mean 'replicas'?" in error
    assert len(error.splitlines()) == 1


def test_every_setting_was_tried() -> None:
    assert set(OTHERS) == set(CONCERNS)
