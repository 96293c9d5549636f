"""States of the version of the topology before, as they lie on a node: what is here need not be read from the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tenax.engine.worker.versions import Segment, read_index, segment_bytes
from tenax.errors import DamagedStore
from tenax.model.tasks import Task
from tenax.operators.chunks import decode

if TYPE_CHECKING:
    from tenax.engine.worker.states import States

NEWEST = 20  # versions of a task whose files are looked into: more than are made until files are trimmed


class Earlier:
    """Finds segments of tasks that were on this node before their operators were rescaled.

    - A segment is the same if it is of the same task and name, as long, and has the same checksum.
    - What the process held in memory comes first, then the files of the newest versions on the node: another process
      of the node may have stepped its tasks until now.
    """

    def __init__(self, states: States) -> None:
        self._states = states

    def rows(self, task: Task, name: str, piece: Segment) -> pl.DataFrame | None:
        """The whole segment that a piece is of; None if it is not here."""
        for held in self._states.held(task):
            if any(_is_same(known, piece) for known in held.index.get(name, ())) and len(held.index[name]) == 1:
                return held.state.get(name)
        return next(self._on_disk(self._states.folder(task), name, piece), None)

    def _on_disk(self, folder: Path, name: str, piece: Segment) -> Iterator[pl.DataFrame]:
        for path in sorted(folder.glob("*.seg"), reverse=True)[:NEWEST]:
            with contextlib.suppress(DamagedStore, FileNotFoundError):  # the store has it
                for known in read_index(path).get(name, ()):
                    if _is_same(known, piece) and not known.is_stored:
                        yield decode(segment_bytes(folder, self._states.store, name, known))[0]


def _is_same(known: Segment, piece: Segment) -> bool:
    return (known.length, known.checksum) == (piece.length, piece.checksum) and not known.groups
