"""Scratch folders: private, gone with their owner, swept if it died, and never anybody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenax.engine import scratch
from tenax.engine.processes import marked, started
from tenax.engine.scratch import MARK, OWNER, Scratch, end_all, sweep

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of our own: others of this machine are at work as well."""
    monkeypatch.setattr(scratch, "_base", lambda: tmp_path)
    return tmp_path


@contextmanager
def process_of(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the mark of a scratch folder."""
    code = "import time; print('up', flush=True); time.sleep(600)"
    environment = {**os.environ, MARK: str(folder)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def left_by(pid: int, since: str, base: Path, **other: object) -> Path:
    """What an owner has left."""
    mine = Scratch()
    said = json.loads((mine.folder / OWNER).read_text())
    mine.end()
    folder = base / f"tenax-{os.getuid()}-{len(list(base.iterdir()))}"
    folder.mkdir(mode=0o700)
    (folder / OWNER).write_text(json.dumps({**said, "pid": pid, "started": since, **other}))
    (folder / "something").write_text("x")
    return folder


def test_a_scratch_folder_is_for_its_user_alone_and_ends_with_its_processes(base: Path) -> None:
    own = Scratch()
    assert own.folder.stat().st_mode & 0o777 == 0o700
    with process_of(own.folder) as process, process_of(base / "another") as other:
        assert marked(MARK, str(own.folder)) == [process.pid]
        own.end()
        assert process.wait(DEADLINE_S) < 0
        assert other.poll() is None
    assert list(base.iterdir()) == []


def test_an_end_at_once_takes_what_goes_with_it(base: Path) -> None:
    own = Scratch()
    folder, link = base / "folder", base / "link"
    folder.mkdir()
    link.symlink_to(own.folder)
    own.also += [folder, link, base / "gone"]
    with process_of(own.folder) as process:
        end_all()
        assert process.wait(DEADLINE_S) < 0
    assert list(base.iterdir()) == []
    end_all()  # nothing is left to end


def test_what_a_dead_owner_has_left_is_ended_and_deleted_at_the_next_start(base: Path) -> None:
    folder = left_by(dead_pid(), "1234", base)
    with process_of(folder) as process:
        Scratch().end()
        assert process.wait(DEADLINE_S) < 0
    assert list(base.iterdir()) == []


def test_a_process_that_has_the_number_of_a_dead_owner_is_not_taken_for_it(base: Path) -> None:
    folder = left_by(os.getpid(), "1234", base)  # started at another time
    sweep()
    assert not folder.exists()


def test_what_lives_or_is_not_understood_is_left_alone(base: Path) -> None:
    alive = left_by(os.getpid(), started(os.getpid()), base)
    elsewhere = left_by(dead_pid(), "1234", base, host="another-machine")
    unseen = left_by(dead_pid(), "1234", base, space="pid:[1]")
    unreadable = left_by(dead_pid(), "1234", base)
    (unreadable / OWNER).write_text("{")
    nobodys = left_by(dead_pid(), "1234", base)
    (nobodys / OWNER).unlink()
    kept = left_by(dead_pid(), "1234", base)
    target = kept.rename(base / "kept")
    (base / f"tenax-{os.getuid()}-link").symlink_to(target)
    before = sorted(base.rglob("*"))
    with process_of(alive) as process:
        sweep()
        sweep(target)
        assert process.poll() is None
    assert sorted(base.rglob("*")) == before
    assert {alive, elsewhere, unseen, unreadable, nobodys, target} <= set(before)


def test_an_empty_folder_of_a_driver_that_died_as_it_began_goes_after_a_while(base: Path) -> None:
    young, old = base / f"tenax-{os.getuid()}-young", base / f"tenax-{os.getuid()}-old"
    for folder in (young, old):
        folder.mkdir(mode=0o700)
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    sweep()
    assert list(base.iterdir()) == [young]


def test_a_folder_too_deep_for_the_names_of_sockets_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    own = Scratch()
    own.end()
    assert len(str(own.folder)) < 40
