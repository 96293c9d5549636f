"""Where in a user's file an operator was made."""

from __future__ import annotations

import sys


def calling_line(module: str) -> str:
    """The file and line that called into a module, which calls this function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == module:  # ends with the outermost frame
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
