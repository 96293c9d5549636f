"""Nobody joins an embedded cluster who does not know its secret, and nobody can read that."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil

from tenax.engine.processes import children
from tenax.engine.session import Session

BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
SECRET = "_SPARK_AUTH_SECRET"
DEADLINE_S = 120.0
POLL_S = 0.1


def executors() -> list[list[str]]:
    """The command lines of this process's executors, as every user of the machine sees them."""
    commands = []
    for machine in children(os.getpid()):
        for pid in children(machine):
            words = psutil.Process(pid).cmdline()
            if BACKEND in words:
                commands.append(words)
    return commands


def test_an_executor_that_does_not_know_the_secret_is_refused(cluster: Session, tmp_path: Path) -> None:
    before = cluster.live_nodes()
    words = executors()[0]
    words[words.index("--executor-id") + 1] = "99"
    plain = [word for word in words if not word.startswith("-Dspark.authenticate")]
    environment = {name: value for name, value in os.environ.items() if name != SECRET}
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path)
    with (tmp_path / "log").open("wb") as log:
        tries = [
            subprocess.Popen(command, env={**environment, **secret}, cwd=tmp_path, stdout=log, stderr=log)
            for command, secret in ((plain, {}), (words, {SECRET: "a guess"}))
        ]
    try:
        deadline = time.monotonic() + DEADLINE_S
        while any(process.poll() is None for process in tries):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert "99" not in {node.executor for node in cluster.live_nodes()}
            time.sleep(POLL_S)
        assert all(process.returncode for process in tries)
    finally:
        for process in tries:
            process.kill()
            process.wait()
    assert cluster.live_nodes() == before


def test_what_nodes_share_is_for_their_user_alone(cluster: Session) -> None:
    secret = cluster.context.getConf().get("spark.authenticate.secret")
    assert secret
    shown = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert any(BACKEND in words for words in shown)
    assert not any(secret in words for words in shown)
    assert cluster.scratch.folder.stat().st_mode & 0o777 == 0o700
    sockets = [path for path in cluster.scratch.folder.iterdir() if path.is_socket()]
    assert sockets  # of the daemons of Python workers, and of the driver
    for setting in ("spark.local.dir", "spark.python.unix.domain.socket.dir"):
        assert cluster.context.getConf().get(setting) == str(cluster.scratch.folder)
