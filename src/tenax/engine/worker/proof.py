"""How a node proves that its Python workers work: one of them answers, and looks at the others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")
STOPPED = frozenset("Tt")  # by a signal, or by a debugger


class Proof:
    """A question to a node. A long step is no reason for doubt: only a process that is stopped is."""

    def __call__(self, _partition: int, elements: Iterable[object]) -> Iterator[bytes]:
        """The process ids of Python workers of this node that are stopped."""
        for _ in elements:  # Spark ends a worker that leaves some of its input
            pass
        yield json.dumps(stopped_workers(os.getppid())).encode()


def stopped_workers(daemon: int) -> list[int]:
    """Which of a daemon and its children are stopped; none where the system does not tell."""
    found = []
    for pid, (state, parent) in _processes():
        if state in STOPPED and daemon in (pid, parent):
            found.append(pid)
    return sorted(found)


def workers_of(executor: int) -> dict[int, list[int]]:
    """The daemons of an executor, each with its Python workers."""
    listed = dict(_processes())
    daemons = [pid for pid, (_, parent) in listed.items() if parent == executor]
    return {
        daemon: sorted(pid for pid, (_, parent) in listed.items() if parent == daemon) for daemon in sorted(daemons)
    }


def children(parent: int) -> list[int]:
    """The processes that a process has started, and that live."""
    return sorted(pid for pid, (state, their_parent) in _processes() if their_parent == parent and state != "Z")


def _processes() -> Iterator[tuple[int, tuple[str, int]]]:
    """Every process: its state and its parent."""
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:  # it has ended
            continue
        yield int(entry.name), (state, int(parent))
