"""What is said of a column that is not there: those that are, and which of them was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tenax.errors import InvalidRequest


def missing(rule: str, name: str, columns: Iterable[str]) -> InvalidRequest:
    """The error about a column that a rule asks for."""
    known = list(columns)
    return InvalidRequest(f"{rule}: {name!r} is not among {known}; {nearest(name, known)}")


def nearest(name: str, columns: Iterable[str]) -> str:
    """The remedy for a column that is not there."""
    near = difflib.get_close_matches(name, list(columns), n=1)
    return f"did you mean {near[0]!r}?" if near else "name one of these"
