"""The states of a node's tasks, as one worker process knows them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from tenax.control.versions import NO_PASS, PassId, Span, Version
from tenax.engine.worker.earlier import Earlier
from tenax.engine.worker.orders import Places
from tenax.engine.worker.parts import Part
from tenax.engine.worker.retained import Address, outputs_path, retained_segment, unpacked
from tenax.engine.worker.versions import (
    Index,
    Pieces,
    Segment,
    file_name,
    read_index,
    segment_bytes,
    stored_index,
    write_version,
)
from tenax.model.tasks import Task
from tenax.operators import rescaling
from tenax.operators.chunks import decode
from tenax.operators.computation import Computation, State, splits_itself
from tenax.operators.groups import Groups
from tenax.operators.rescaling import Piece
from tenax.store.checkpoints import RETAINED, StoredSegment, read_segment

# What a disk says that is full, read-only, out of reach or broken for a while.
PASSING = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE),
    *(errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOLINK),
}
HELD_VERSIONS = 2  # of a task: the accurate one, and a tentative one made from it


@dataclass(frozen=True, slots=True)
class Held:
    """A version with its segments in memory."""

    version: Version
    state: State
    index: Index


class States:
    """Loads and saves versions, reading from disk only what this process does not hold yet.

    - A segment that lies at the same place is the same, so catching up from an older version means reading the segments
      that are new: two processes of a node that take turns pay for the batch, not for the state. Names alone would not
      do: an accurate and a tentative version may call different contents alike.
    - What another node knew, or an earlier run, is read from the store.
    """

    def __init__(self, places: Places, node: str) -> None:
        self._node = places.nodes / node
        self.store = places.store
        self._held: dict[Task, tuple[Held, ...]] = {}
        self.read_bytes = 0  # of states, from the store
        self.earlier: Earlier | None = None
        """What lies here since before the last rescale."""

    def refused(self, error: Exception) -> bool:
        """Whether a disk has refused something that it may take later; a file that is missing is another matter.

        Unless the whole store is away: then no file of it is there.
        """
        cause = error if isinstance(error, OSError) else error.__cause__
        passing = isinstance(cause, OSError) and cause.errno in PASSING
        return passing or not (self.store / "store.json").exists()

    def load(
        self,
        version: Version,
        restored: Sequence[StoredSegment] | None,
        computation: Computation,
        keys: Sequence[str] = (),
    ) -> Held:
        """The state of a task at a version, from the store if it is to be restored.

        `keys` are the columns by which its rows are shared. A segment that other tasks share since a rescale is read,
        checked and parted here, and stays where it is until a step replaces it. What a computation has merged by itself
        is written anew with the next version.
        """
        held = self._held.get(version.task, ())
        kept = next((held_state for held_state in held if held_state.version == version), None)
        if kept is not None:
            return kept
        if version.pass_id == NO_PASS:
            return Held(version, computation.initial(), {})
        folder = self.folder(version.task)
        if restored is not None:
            index = stored_index(part for part in restored if not part.segment.startswith(RETAINED))
        else:
            index = read_index(folder / file_name(version))
        known = {
            (name, held_state.index[name]): held_state.state[name]
            for held_state in held
            for name in held_state.state
            if name in held_state.index
        }
        rescaled = any(piece.origin for pieces in index.values() for piece in pieces)
        if rescaled and splits_itself(computation):
            pieces_of = {name: self._pieces(version.task, name, pieces) for name, pieces in index.items()}
            return self._remember(Held(version, rescaling.merged(computation, keys, pieces_of), {}))
        state: dict[str, pl.DataFrame] = {}
        for name, pieces in index.items():
            rows = known.get((name, pieces))
            if rows is None:
                rows = rescaling.segment(computation, keys, name, self._pieces(version.task, name, pieces))
            if rows is not None:
                state[name] = rows
        if rescaled:
            rescaling.check_level(computation, state)
        return self._remember(Held(version, state, index))

    def save(self, version: Version, before: Index, state: State) -> int:
        """Write a new version of a task; returns the bytes of all its segments."""
        index = write_version(self.folder(version.task), version, before, state)[0]
        self._remember(Held(version, state, index))
        return sum(piece.length for pieces in index.values() for piece in pieces)

    def retained_parts(self, task: Task, spans: Iterable[Span], known: Mapping[str, StoredSegment]) -> list[Part]:
        """Retained outputs that lie beside a version."""
        folder = self.folder(task)

        def part(batch: int, pass_id: PassId) -> Part:
            name, path = retained_segment(batch, pass_id), outputs_path(folder, batch, pass_id)
            stored = known.get(name)
            return Part(name, path.stat().st_size if stored is None else stored.bytes, stored, path.read_bytes)

        return [part(batch, span.pass_id) for span in spans for batch in range(span.first, span.last + 1)]

    def stored_outputs(self, part: StoredSegment) -> dict[Address, bytes]:
        """Outputs that lie in the store."""
        return unpacked(read_segment(self.store, part), part.file)

    def parts(self, version: Version, known: Mapping[str, StoredSegment]) -> list[Part]:
        """The segments of a version; those that the checkpoint before it lists are in the store already.

        So is every piece of one that is shared since a rescale.
        """
        if version.pass_id == NO_PASS:
            return []
        folder = self.folder(version.task)

        def part(name: str, segment: Segment) -> Part:
            stored = None if segment.origin else known.get(name)
            if stored is None or (stored.bytes, stored.crc32) != (segment.length, segment.checksum):
                stored = segment.stored_as(name) if segment.is_stored else None
            return Part(name, segment.length, stored, partial(segment_bytes, folder, self.store, name, segment))

        index = read_index(folder / file_name(version))
        return [part(name, segment) for name, pieces in index.items() for segment in pieces]

    def drop_before(self, task: Task, batch: int) -> None:
        """Delete the files of a task that no version from a batch on needs."""
        files = sorted(self.folder(task).glob("*.seg"))
        kept = [path for path in files if int(path.name.split("-", 1)[0]) >= batch]
        needed = {path.name for path in kept}
        for path in kept:
            with contextlib.suppress(FileNotFoundError):  # another process of the node was faster
                needed |= {piece.file for pieces in read_index(path).values() for piece in pieces}
        for path in files:
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def forget(self, task: Task) -> None:
        """Hold nothing of a task in memory; what is asked for again is read again."""
        self._held.pop(task, None)

    def folder(self, task: Task) -> Path:
        """Where the files of a task lie on this node."""
        return self._node / f"{task.operator}.{task.index}"

    def held(self, task: Task) -> tuple[Held, ...]:
        """The versions of a task that are in memory."""
        return self._held.get(task, ())

    def _pieces(self, task: Task, name: str, pieces: Pieces) -> list[Piece]:
        """The pieces of a segment, read and checked."""
        return [
            Piece(
                self._rows(task, name, piece),
                Groups.parse(piece.groups) if piece.groups else None,
                piece.origin,
            )
            for piece in pieces
        ]

    def _rows(self, task: Task, name: str, piece: Segment) -> pl.DataFrame:
        """All rows of the segment that a piece is of."""
        if piece.is_stored and self.earlier is not None:
            here = self.earlier.rows(Task.parse(piece.origin) if piece.origin else task, name, piece)
            if here is not None:
                return here
        if piece.is_stored:
            self.read_bytes += piece.length
        return decode(segment_bytes(self.folder(task), self.store, name, piece))[0]

    def _remember(self, held: Held) -> Held:
        others = tuple(other for other in self._held.get(held.version.task, ()) if other.version != held.version)
        self._held[held.version.task] = (*others, held)[-HELD_VERSIONS:]
        return held
