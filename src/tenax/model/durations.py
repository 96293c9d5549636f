"""Spans of time as people write them ("10s", "250ms", "1h30m") or as Python has them (`timedelta`)."""

from __future__ import annotations

import re
from datetime import timedelta

from tenax.errors import InvalidRequest

MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
PART = re.compile(r"(\d+)(us|ms|s|m|h|d|w)")

Span = str | timedelta
"""A span of time wherever a user gives one."""


def microseconds(value: Span) -> int:
    """How many microseconds a span has; its parts are added: "1m30s" is 90 seconds."""
    if isinstance(value, timedelta) and value >= timedelta():
        return value // timedelta(microseconds=1)
    if not isinstance(value, str) or not re.fullmatch(rf"({PART.pattern})+", value):
        raise InvalidRequest(
            f"a span of time is whole numbers with units ({', '.join(MICROSECONDS)}): found {value!r}; write '10s'"
        )
    return sum(int(number) * MICROSECONDS[unit] for number, unit in PART.findall(value))


def seconds(value: Span) -> float:
    """How many seconds a span has."""
    return microseconds(value) / MICROSECONDS["s"]


def as_text(value: Span) -> str:
    """A span as text, if it is one; text stays as it was written."""
    length_us = microseconds(value)
    return value if isinstance(value, str) else span(length_us)


def span(us: int) -> str:
    """A number of microseconds as people write it, in as few parts as it takes."""
    parts = []
    for unit, size in sorted(MICROSECONDS.items(), key=lambda item: -item[1]):
        if unit != "w" and us >= size:
            parts.append(f"{us // size}{unit}")
            us %= size
    return "".join(parts) or "0s"
