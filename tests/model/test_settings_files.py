"""Settings files: what they say reaches the records, and what they cannot say is told with file, word and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tenax.errors import InvalidFile
from tenax.model.settings import Settings
from tenax.model.settings_files import read_settings, settings_schema, with_file

GOOD = """
[protection]
replicas = ["speed[0]", "speed[*]"]
backups = ["speed[*]"]
checkpoint_every = "5s"
checkpoints = {speed = "individual"}

[bounds]
max_attempts_unknown = 1

[cluster]
nodes = 4

[operators.join]
checkpoint = "none"
standby = "passive"

[operators.speed]
standby = "active"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "tenax.toml"
    path.write_text(text)
    return path


def test_sections_and_operators_become_settings(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("max_attempts_unknown = 1", 'pass_deadline = "30s"'))
    made = with_file(Settings.of(max_rows=7, standby={"out": "active-active"}), path)
    assert made == Settings.of(
        max_rows=7,
        replicas=("speed[0]", "speed[*]"),
        backups=("speed[*]",),
        checkpoint_every="5s",
        pass_deadline="30s",
        nodes=4,
        checkpoints={"speed": "individual", "join": "none"},
        standby={"out": "active-active", "join": "passive", "speed": "active"},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "[bounds] has no setting 'max_attempts_unknown'"),
        ("[protection]\nreplica = 3", "[protection] has no setting 'replica': did you mean 'replicas'?"),
        ("[protection]\nmax_rows = 3", "[protection] has no setting 'max_rows': it belongs below [batches]"),
        ("[protect]\nreplicas = 3", "there is no section [protect]: did you mean 'protection'?"),
        ("replicas = 3", "settings stand in sections, found 'replicas' outside: put it below [protection]"),
        ("[batches]\nmax_rows = 0", "[batches] max_rows is a whole number of at least 1, found 0: write 100000"),
        ("[cluster]\nheartbeat = 5", "[cluster] heartbeat is a time above 0, found 5: write '5s'"),
        ("[operators.join]\nreplicas = 3", "[operators.join] has no setting 'replicas'"),
        (
            "[operators.join]\nstandby = 'hot'",
            "[operators.join] standby is one of none, passive, active, active-active",
        ),
        ("[operators]\njoin = 'none'", "[operators.join] is a section, found 'none'"),
        (
            "[start]\ndrain = true",
            "drain is for one start of a run, found it in a file: use the option --drain instead",
        ),
        ("[protection]\nbackups = 'planned'", "planned backups need a recovery_latency, found none"),
        ("[protection", "a settings file is TOML, found"),
    ],
)
def test_what_is_wrong_is_told_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidFile) as raised:
        with_file(Settings(), path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="a settings file can be read"):
        read_settings(tmp_path / "none.toml")


def test_the_schema_knows_good_files_from_bad_ones() -> None:
    schema = json.loads(json.dumps(settings_schema()))
    good = {"protection": {"replicas": 3, "checkpoint": "sweeping"}, "operators": {"join": {"standby": "active"}}}
    jsonschema.validate(good, schema)
    for bad in ({"protection": {"replica": 3}}, {"batches": {"max_rows": 0}}, {"start": {"drain": True}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
