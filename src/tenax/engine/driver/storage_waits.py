"""What a run waits for, in words: faults of sinks and of the store until they are over, and answers that take long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tenax.control import events, instructions
from tenax.control.recovery.failures import StorageRefused

SLOW_S = 10.0  # without an answer of a sink or the store; said again after twice as long, and so on


class StorageWaits:
    """Says what a run waits for, and when that is over; it changes nothing."""

    def __init__(self, tell: Callable[[str], None], patience_s: float) -> None:
        self._tell = tell
        self._patience_s = patience_s
        self._since: dict[str, float] = {}
        self._asked: dict[str, tuple[float, float]] = {}
        """Of what was asked for and not answered: when, and after how long it is said."""
        self._lock = threading.Lock()

    def handled(self, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """An event was handled, and these instructions follow."""
        now = time.monotonic()
        kind, cause = _refused(event)
        for instruction in then if cause else ():
            pause_s = getattr(instruction, "pause_s", 0.0)
            if pause_s:
                began = self._since.setdefault(kind, now)
                self._tell(
                    f"{cause}: the run waits and tries again in {pause_s:g} s "
                    f"(since {now - began:.0f} s, for {self._patience_s:g} s of pauses at the most)"
                )
        over = _answered(event)
        if over in self._since:
            self._tell(f"{over} again, after {now - self._since.pop(over):.1f} s")

    def begun(self, instruction: instructions.Instruction) -> None:
        """A sink or the store is asked for something."""
        what = _asked(instruction)
        if what:
            with self._lock:
                self._asked[what] = time.monotonic(), SLOW_S

    def ended(self, instruction: instructions.Instruction) -> None:
        """It has answered, well or not."""
        with self._lock:
            self._asked.pop(_asked(instruction), None)

    def look(self) -> None:
        """Say what has not been answered for long; called now and then."""
        now = time.monotonic()
        with self._lock:
            slow = [(what, now - began) for what, (began, after_s) in self._asked.items() if now - began > after_s]
            for what, waited in slow:
                self._asked[what] = self._asked[what][0], 2 * waited
        for what, waited in slow:
            self._tell(f"{what} takes long: no answer for {waited:.0f} s, the run waits")


PASSES, RESULTS = "batches pass", "results are published"
CHECKPOINTS, BATCHES = "checkpoints are stored", "batches are logged"


def _refused(event: events.Event) -> tuple[str, str]:
    """What a sink or the store has refused, and why."""
    match event:
        case events.PassFailed(_, StorageRefused() as refused):
            return PASSES, str(refused)
        case events.PublishFailed(storage=True):
            return RESULTS, event.cause
        case events.CheckpointFailed():
            return CHECKPOINTS, f"checkpoint {event.number} was not stored ({event.cause})"
        case events.LoggingFailed(storage=True):
            return BATCHES, event.cause
    return "", ""


def _answered(event: events.Event) -> str:
    match event:
        case events.PassFinished():
            return PASSES
        case events.Published():
            return RESULTS
        case events.CheckpointStored():
            return CHECKPOINTS
        case events.BatchesLogged():
            return BATCHES
    return ""


def _asked(instruction: instructions.Instruction) -> str:
    match instruction:
        case instructions.Publish():
            first, last = min(part.first for part in instruction.parts), max(part.last for part in instruction.parts)
            return f"publishing the results of batches {first} to {last}"
        case instructions.StoreCheckpoint():
            return f"storing checkpoint {instruction.cut.number}"
    return ""
