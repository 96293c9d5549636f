"""The process from which Spark forks the Python workers of a node: it has imported whatever they need.

A worker that imports by itself takes most of a second of processor time, and that just after a pass was cancelled, when
others wait for the results of the next. Nothing here may start a thread of Polars before a fork: to import is enough.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyspark.worker
from pyspark.daemon import manager

import tenax.engine.worker.proof
import tenax.engine.worker.stages  # noqa: F401
from tenax.engine.worker.process import close_workers, has_connections

CLOSING_S = 5  # for connections to be closed; then the process ends all the same


def closing(main: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The main function of a Python worker, which closes what sources and sinks have connected when it ends.

    It returns after each Spark task, for the next one on the same connection; it raises when there will be none, and
    the daemon ends its workers by a signal.
    """

    def main_and_close(infile: Any, outfile: Any) -> None:
        if has_connections():  # a signal that is handled waits for what runs outside Python; all others end at once
            signal.signal(signal.SIGHUP, _end)
            signal.signal(signal.SIGTERM, _end)
        try:
            main(infile, outfile)
        except BaseException:
            close_workers()
            raise

    return main_and_close


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(CLOSING_S)
    close_workers()
    os._exit(0)


if __name__ == "__main__":
    pyspark.worker.main = closing(pyspark.worker.main)
    manager()
