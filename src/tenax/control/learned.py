"""The outcome of a transition: a new state, or a reason why the event means nothing now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenax.control.instructions import Outcome, Stop
from tenax.control.state import RunState


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that changes nothing, and why."""

    reason: str


Learned = RunState | Ignored


def failed(state: RunState, reason: str) -> RunState:
    """A run that ends at once, and can be started again."""
    return replace(state, stop=Stop(Outcome.FAILED, reason, resumable=True))
