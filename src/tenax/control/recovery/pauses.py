"""Backoff after faults of sinks and the store: how long a run pauses before it tries again, and how long in all."""

from __future__ import annotations

from tenax.control.run import Run

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0


def pause_s(faults: int) -> float:
    """The pause after so many faults in a row: it doubles, up to a bound; none after none."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (min(faults, 20) - 1)) if faults else 0.0


def waited_s(faults: int) -> float:
    """All pauses of so many faults in a row together."""
    return sum(pause_s(number) for number in range(1, faults + 1))


def has_patience(run: Run, faults: int) -> bool:
    """Whether it is tried again after so many faults in a row."""
    return waited_s(faults) <= run.protection.storage_patience_s


def given_up(run: Run, what: str, cause: str) -> str:
    """Why a run ends that has waited long enough."""
    return f"{what} after {run.protection.storage_patience_s:g} s of waiting: {cause}"
