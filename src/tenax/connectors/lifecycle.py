"""Sources and sinks that hold a connection: opened once in a process, closed at its end, never pickled open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Generic, Protocol, TypeVar

from tenax.operators.parameters import attributes


class Opens(Protocol):
    """Whatever has a connection of its own."""

    def open(self) -> None:
        """Connect."""

    def close(self) -> None:
        """Let the connection go."""


T = TypeVar("T", bound=Opens)


@contextmanager
def opened(given: T) -> Iterator[T]:
    """A copy that is open meanwhile: the original stays as it was made, and can still be pickled."""
    opening = _copied(given)
    opening.open()
    try:
        yield opening
    finally:
        opening.close()


def _copied(given: T) -> T:
    """With the same attributes, also those that do not travel: `__getstate__` is for the nodes."""
    made = type(given).__new__(type(given))
    for name, value in attributes(given).items():
        object.__setattr__(made, name, value)
    return made


class Connections(Generic[T]):
    """Sources or sinks by name, each opened when it is first asked for, and all closed together."""

    def __init__(self, given: Mapping[str, T]) -> None:
        self._given = given
        self._open: dict[str, T] = {}
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> T:
        if name not in self._open:
            self._open[name] = self._stack.enter_context(opened(self._given[name]))
        return self._open[name]

    def close(self) -> None:
        """Close all that was opened, the newest first; all are closed, and the first that raises is reported."""
        self._open = {}
        self._stack.close()
