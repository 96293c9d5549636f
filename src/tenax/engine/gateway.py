"""The virtual machine of a driver: out of reach of the terminal's signals, with a secret that no other user sees."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from tenax.application.traces import MAX_CAUSE, cause_of, place_of
from tenax.engine.scratch import MARK, Scratch
from tenax.engine.virtual_machine import VirtualMachine
from tenax.errors import StartStopped

POLL_S = 0.05
STOP_DEADLINE_S = 20.0  # for Spark to end in good order; then it is ended
LAUNCHER_OPTIONS = "-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Gateway:
    """A Spark context, and the virtual machine that it lives in.

    - The virtual machine is in a session of its own: what a terminal sends (Ctrl-C, a hang-up) reaches this process
      alone, which says what is to happen. Should this process die, the virtual machine ends when its input closes, and
      the executors with it.
    - Secrets are handed over through the gateway: what it is started with, every user of the machine can read.
    - The context is made by a thread of its own, where Spark leaves the handlers of signals alone, and this one may
      stop waiting.
    - A virtual machine that this process had before is used, and stays. For an embedded cluster it comes started;
      for a master it is started here, as Spark does it, with whatever the user has set up for Spark.
    """

    def __init__(
        self,
        scratch: Scratch,
        log: Path,
        conf: SparkConf,
        secrets: Mapping[str, str],
        machine: VirtualMachine | None = None,
    ) -> None:
        self._machine = machine
        self._scratch = scratch
        self._log = log
        self._conf = conf
        self._secrets = secrets
        self._is_own = no_machine()
        self._gateway: JavaGateway | None = None
        self._context: SparkContext | None = None

    def start(self, stop_asked: Callable[[], bool]) -> SparkContext:
        """The context; raises if a stop is asked for before it is there."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._context = self._made()
            except BaseException as error:  # told by the thread that waits
                failed.append(error)

        thread = threading.Thread(target=work, name="tenax-spark", daemon=True)
        thread.start()
        while thread.is_alive():  # Spark has deadlines of its own
            thread.join(POLL_S)
            if stop_asked():
                self._scratch.end()
                raise StartStopped("asked to stop while Spark started")
        if failed:
            raise failed[0]
        assert self._context is not None
        return self._context

    def stop(self) -> None:
        """End the context and the virtual machine, in good order if they do so in time."""
        ending = threading.Thread(target=self._end, name="tenax-spark-end", daemon=True)
        ending.start()
        ending.join(STOP_DEADLINE_S)
        if self._is_own:
            _forget()

    def _made(self) -> SparkContext:
        if self._machine is not None:
            self._gateway = self._machine.gateway()
        elif self._is_own:
            with self._log.open("ab") as output, _environment(self._scratch.folder):
                options = {"start_new_session": True, "stdout": output, "stderr": subprocess.STDOUT}
                self._gateway = launch_gateway(self._conf, options)
        for name, value in self._secrets.items():
            self._conf.set(name, value)
        return SparkContext(conf=self._conf, gateway=self._gateway)

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # it may be dead: then nothing is left to end
            if self._context is not None:
                self._context.stop()
        if self._gateway is None:
            return
        process: Any = self._gateway.proc
        with contextlib.suppress(Exception):
            self._gateway.shutdown()
        process.stdin.close()
        process.wait()


def no_machine() -> bool:
    """Whether this process has no virtual machine yet."""
    return SparkContext._gateway is None


def _forget() -> None:
    """Let the next context of this process have a virtual machine of its own."""
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None


@contextlib.contextmanager
def _environment(scratch: Path) -> Iterator[None]:
    """What the virtual machine and all below it find in their environment, and this process does not keep."""
    own = {MARK: str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "SPARK_LAUNCHER_OPTS": LAUNCHER_OPTIONS}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def one_line(error: Exception) -> str:
    """What went wrong, without the trace; of an error in the JVM its own message, of one in Python there its end."""
    if isinstance(error, Py4JJavaError):
        said = [line.strip() for line in str(error.java_exception.getMessage()).splitlines() if line.strip()]
        said = [line for line in said if not line.startswith(("SQLSTATE", "Driver stacktrace"))]
        return " ".join((said[-1] if said else str(error.java_exception.getClass().getName())).split())[:MAX_CAUSE]
    place = place_of(error)
    return f"{cause_of(error)} ({place})" if place else cause_of(error)
