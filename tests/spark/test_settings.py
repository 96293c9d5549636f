"""A settings file takes effect in a real run, and the run says what it was set to."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.runs import example, finish

from tenax.cli.main import run as command
from tenax.cli.options import Given
from tenax.engine.session import Session
from tenax.model.settings import Settings
from tenax.store import journal
from tenax.store.events import newest_event

ROWS = 1_200
FILE = """
[batches]
max_rows = 300

[protection]
checkpoint_every = 2
max_attempts = 5

[operators.pe3]
standby = "active"
"""


def test_a_file_decides_how_a_run_is_cut_into_batches_and_protected(
    cluster: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tenax.toml"
    path.write_text(FILE)
    application = example("elements", rows=ROWS, folder=str(tmp_path / "out"))
    base = Settings(protection=application.protection).but(keep_batches=True)
    how = Given({"max_attempts": "4"}, path).over(base, application.topology)
    finish(application, tmp_path / "store", how, cluster)
    assert len(journal.read(tmp_path / "store" / "batches")) >= ROWS / 300
    recorded = newest_event(tmp_path / "store", "settings")
    assert recorded is not None
    assert recorded["settings"] == how.resolved().to_data()
    assert command(["inspect", str(tmp_path / "store")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for words in ("max_rows 300", "checkpoint_every 2", "max_attempts 4", "max_batches_per_pass 2"):
        assert words in said
