"""What a user's code did when it raised: the place and the traceback, without the frames of Tenax, Polars and Spark."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from types import FrameType

import polars as pl

from tenax.errors import TenaxError

MAX_CAUSE = 500  # characters of a cause
MAX_CHAIN = 8  # exceptions that caused one another
FOREIGN = ("tenax", "polars", "pyspark", "py4j", "importlib", "concurrent", "threading")
EXAMPLES = "tenax.examples"
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
HEAD = "Traceback of your code, most recent call last:"
DIRECT = "which caused:"

# What Polars appends to a message of anybody's: the expression and the plan that it was part of.
APPENDED = re.compile(r"\n+(This error occurred|Resolved plan until failure|---> FAILED HERE).*", re.DOTALL)
FRAME = re.compile(r'  File "(.+)", line (\d+), in .+')

RAISED = (Exception, SystemExit, pl.exceptions.PanicException)
"""What code of users may raise: Polars has panics of its own, and some functions end the program."""

Step = tuple[FrameType, int]


def cause_of(error: BaseException) -> str:
    """What went wrong, on one line; errors of Tenax explain themselves."""
    text = " ".join(_message(error).split())
    named = text if isinstance(error, TenaxError) else f"{type(error).__name__}: {text}" if text else _kind(error)
    return named if len(named) <= MAX_CAUSE else f"{named[: MAX_CAUSE - 3]}..."


def place_of(error: BaseException) -> str:
    """The file and line of the user's in which an error came up; empty if no code of a user's was at work."""
    steps = [step for cause in _chain(error) for step in _steps(cause) if not _is_library(step[0])]
    return f"{steps[-1][0].f_code.co_filename}, line {steps[-1][1]}" if steps else ""


def trace_of(error: BaseException) -> str:
    """The traceback through the user's code and what it called, the first cause first; empty as `place_of` is."""
    if not place_of(error):
        return ""
    parts = []
    for cause in _chain(error):
        lines = [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
            for frame, line in _steps(cause)
        ]
        if lines:
            parts.append("\n".join([HEAD, *lines, f"{_kind(cause)}: {_message(cause)}".rstrip(": ")]))
    return f"\n{DIRECT}\n".join(parts)


def with_sources(trace: str) -> str:
    """A traceback with the lines of the files that it names, as far as these are on this machine."""
    lines = []
    for line in trace.splitlines():
        lines.append(line)
        match = FRAME.fullmatch(line)
        text = linecache.getline(match[1], int(match[2])).strip() if match else ""
        if text:
            lines.append(f"    {text}")
    return "\n".join(lines)


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, the first cause first."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain and len(chain) < MAX_CHAIN:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return chain[::-1]


def _steps(error: BaseException) -> list[Step]:
    """The frames from the first of the user's on, without those of what runs it."""
    steps = [step for step in traceback.walk_tb(error.__traceback__) if not _is_foreign(step[0])]
    first = next((at for at, (frame, _) in enumerate(steps) if not _is_library(frame)), len(steps))
    return steps[first:]


def _is_foreign(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    if module.startswith(EXAMPLES):
        return False
    return module.split(".", maxsplit=1)[0] in FOREIGN or frame.f_code.co_filename.startswith("<frozen")


def _is_library(frame: FrameType) -> bool:
    return _is_foreign(frame) or frame.f_code.co_filename.startswith(LIBRARIES)


def _message(error: BaseException) -> str:
    return APPENDED.sub("", str(error)).strip()


def _kind(error: BaseException) -> str:
    return type(error).__name__
