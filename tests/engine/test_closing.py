"""A Python worker closes what sources and sinks have connected in it, however it ends short of a kill."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WORKER = """
import sys, time
from tenax.engine.worker import daemon, process

class Worker:
    has_connections = True
    def close(self):
        print("closed", flush=True)
        if "{close}" == "raises":
            raise ConnectionError("gone")
        if "{close}" == "hangs":
            time.sleep(600)

daemon.CLOSING_S = 1
process._workers["run"] = Worker()

def main(infile, outfile):
    print("ready", flush=True)
    {main}

daemon.closing(main)(None, None)
print("next task", flush=True)
"""
DEADLINE_S = 120


def worker(main: str, close: str = "returns") -> subprocess.Popen[str]:
    script = WORKER.replace("{main}", main).replace("{close}", close)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str]) -> list[str]:
    return process.communicate(timeout=DEADLINE_S)[0].split("\n")[:-1]


@pytest.mark.parametrize("end", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize(("close", "code"), [("returns", 0), ("raises", 0), ("hangs", -signal.SIGALRM)])
def test_a_worker_that_is_ended_by_its_daemon_closes(end: signal.Signals, close: str, code: int) -> None:
    process = worker("time.sleep(600)", close)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(end)
    assert lines(process) == ["closed"]
    assert process.returncode == code


def test_a_worker_closes_when_there_will_be_no_next_task_and_not_before() -> None:
    assert lines(worker("sys.exit(1)")) == ["ready", "closed"]
    assert lines(worker("pass")) == ["ready", "next task"]
