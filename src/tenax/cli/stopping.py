"""What Ctrl-C, SIGTERM and SIGHUP mean to a command that runs something, and output whose reader has left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO, cast

INTERRUPTED = 130  # the exit code of a command that was ended at once
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_S = 0.05  # a terminal and a program that passes signals on may both send one for the same key
SHOW_CURSOR = b"\x1b[?25h\n"
ENDED = b"ended at once; run the same command again to go on\n"
ASKED = "finishing the running batches; Ctrl-C again ends at once"


class Stopping:
    """Whether a command is asked to end, and what it does about it.

    - The first of the signals asks for an end in good order: `then` is called, now or as soon as it is given.
    - Ctrl-C after that ends at once, with all processes that were started; what the store holds can be gone on from.
      SIGTERM and SIGHUP do not count twice: some programs send them more than once.
    """

    def __init__(self) -> None:
        self.asked = False
        self._asked_s = 0.0
        self._then: Callable[[], None] | None = None

    def call(self, then: Callable[[], None]) -> None:
        """What asks for a good end; it is called by the handler of a signal, so it must take no lock."""
        self._then = then
        if self.asked:
            then()

    def handle(self, number: int, _: FrameType | None) -> None:
        """A signal has come."""
        now_s = time.monotonic()
        if self.asked and number == signal.SIGINT and now_s - self._asked_s > SAME_S:
            end_at_once()
        if not self.asked:
            self.asked, self._asked_s = True, now_s
            if self._then is not None:
                self._then()


@contextlib.contextmanager
def stopping() -> Iterator[Stopping]:
    """While this lasts, signals ask for an end, and output that cannot be written ends nothing."""
    stopping = Stopping()
    with handled(stopping.handle), lasting_output():
        yield stopping


@contextlib.contextmanager
def interrupted_by_all() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP interrupt as Ctrl-C does: what was started is ended on the way out."""
    with handled(lambda _number, _frame: interrupt()), lasting_output():
        yield


def interrupt() -> None:
    """End as Python does on Ctrl-C."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """While this lasts, signals are handled so; one that is ignored (as `nohup` does) stays so."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def end_at_once() -> None:
    """End this process and everything that it has started, now."""
    from tenax.engine.scratch import end_all

    for number in SIGNALS:  # a third one must not interrupt it
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + ENDED)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):  # threads that lose what they talk to would tell of it
            os.dup2(nowhere, output)
    with contextlib.suppress(Exception):
        end_all()
    os._exit(INTERRUPTED)


class Lasting:
    """A stream of text that goes nowhere once its reader has left: a run does not end because its reader has left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as long as there is a reader."""
        with self._kept():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what waits."""
        with self._kept():
            self._stream.flush()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError, ValueError):  # what waits in its buffer goes there, too
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """While this lasts, output that cannot be written any more is dropped."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Lasting(stream)) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before
