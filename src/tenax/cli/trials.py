"""What `chaos` and `demo` both do with the outcome of a trial: save it for programs, and say times for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tenax.cli.options import made

if TYPE_CHECKING:
    from tenax.chaos.record import Outcome


def save_outcome(outcome: Outcome, file: Path | None) -> None:
    """Write an outcome as JSON, if a file is named for it."""
    if file is not None:
        made(file.parent)
        file.write_text(outcome.to_json() + "\n")


def duration(value_s: float | None) -> str:
    """Seconds for people; none is what never happened."""
    return "never" if value_s is None else f"{value_s:.2f} s"
