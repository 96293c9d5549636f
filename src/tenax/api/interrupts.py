"""Ctrl-C while a run was started from Python: first an end in good order, then the usual interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Whether Ctrl-C was pressed, and what is called then; by the handler of a signal, so it must take no lock."""

    def __init__(self) -> None:
        self.asked = False
        self._then: Callable[[], None] | None = None

    def call(self, then: Callable[[], None]) -> None:
        """What asks for a good end."""
        self._then = then
        if self.asked:
            then()

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The first asks, the next interrupts."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._then is not None:
            self._then()


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """While this lasts, Ctrl-C asks for an end; in another thread than the main one, it stays with its owner."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
