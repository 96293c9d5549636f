"""Processes are found by who started them, by their state and by their marks; one that has ended is nobody's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenax.engine.processes import ancestors, children, kill_marked, marked, parent, started, stopped, workers_of

MARK = "TENAX_TEST_MARK"
DEADLINE_S = 60.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child of its own, both with a mark."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    environment = {**os.environ, MARK: str(os.getpid())}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        deadline = time.monotonic() + DEADLINE_S
        while len(marked(MARK, str(os.getpid()))) < 2 or not children(process.pid):
            assert time.monotonic() < deadline
        yield process
        kill_marked(MARK, str(os.getpid()))


def test_a_process_is_known_to_its_parent_and_its_ancestors(child: subprocess.Popen[bytes]) -> None:
    (grandchild,) = children(child.pid)
    assert child.pid in children(os.getpid())
    assert parent(grandchild) == child.pid
    assert ancestors(grandchild)[:2] == [child.pid, os.getpid()]
    assert workers_of(os.getpid())[child.pid] == [grandchild]


def test_a_stopped_process_is_seen_until_it_goes_on(child: subprocess.Popen[bytes]) -> None:
    for what, expected in ((signal.SIGSTOP, [child.pid]), (signal.SIGCONT, [])):
        child.send_signal(what)
        deadline = time.monotonic() + DEADLINE_S
        while stopped([os.getpid(), child.pid]) != expected:
            assert time.monotonic() < deadline


def test_marks_tell_all_that_a_process_has_started_and_end_it(child: subprocess.Popen[bytes]) -> None:
    assert set(marked(MARK, str(os.getpid()))) == {child.pid, *children(child.pid)}
    assert marked(MARK, "another") == []
    kill_marked(MARK, str(os.getpid()))
    assert marked(MARK, str(os.getpid())) == []
    assert child.wait(DEADLINE_S) == -signal.SIGKILL


def test_a_process_that_has_ended_is_as_if_it_had_never_been_there() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began = started(process.pid)
        process.kill()
        while started(process.pid):  # until nobody but its parent, who has not looked, knows of it
            pass
        assert process.pid not in children(os.getpid())
    assert began
    assert started(os.getpid()) == started(os.getpid()) != ""
    assert (parent(process.pid), ancestors(process.pid), children(process.pid)) == (None, [], [])
    assert stopped([process.pid]) == []


def test_the_start_of_a_process_is_written_as_the_system_writes_it() -> None:
    # drivers of other versions compare it: one that wrote it otherwise would be taken for dead, and its cluster ended
    assert started(os.getpid()) == Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
