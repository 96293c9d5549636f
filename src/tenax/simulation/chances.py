"""What befalls a simulated driver, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What befalls a driver."""

    KILL = "kill"
    """It is gone, with all its nodes."""
    PAUSE = "pause"
    """It hangs, is replaced, and wakes up later without knowing."""


class Killed(Exception):
    """Ends the process that is in the middle of a step when its driver dies."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How often things fail for a passing cause, between 0 and 1, and how long they take."""

    pass_fails: float = 0.05
    operator_raises: float = 0.005
    other_fails: float = 0.05
    max_wait_s: float = 1.0
    no_wait: float = 0.3
    """The part of waits that take no time, so that things happen at the same moment."""
