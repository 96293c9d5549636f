"""The states of a node's tasks, as one worker process knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenax.control.versions import NO_PASS, Version
from tenax.engine.store.checkpoints import SegmentFile, upload_segment
from tenax.engine.worker.orders import Places, Restored
from tenax.engine.worker.versions import (
    IN_STORE,
    Index,
    Segment,
    file_name,
    read_index,
    segment_bytes,
    write_version,
)
from tenax.model.tasks import Task
from tenax.operators.chunks import decode
from tenax.operators.computation import State


@dataclass(frozen=True, slots=True)
class Held:
    """A version with its segments in memory."""

    version: Version
    state: State
    index: Index


class States:
    """Loads and saves versions, reading from disk only what this process does not hold yet.

    - A name of a segment never stands for two contents of one task, so catching up from an older version means reading
      the segments that are new: two processes of a node that take turns pay for the batch, not for the state.
    - After a restart, the versions of the checkpoint are read from the store.
    """

    def __init__(self, places: Places, node: str, restored: Restored | None) -> None:
        self._node = places.nodes / node
        self._store = places.store
        self._restored = restored
        self._held: dict[Task, Held] = {}

    def load(self, version: Version, initial: State) -> Held:
        """The state of a task at a version."""
        held = self._held.get(version.task)
        if held is not None and held.version == version:
            return held
        if version.pass_id == NO_PASS:
            return Held(version, initial, {})
        index = self._index(version)
        known = held.state if held is not None else {}
        folder = self.folder(version.task)
        state = {
            name: known[name] if name in known else decode(segment_bytes(folder, self._store, name, segment))[0]
            for name, segment in index.items()
        }
        self._held[version.task] = Held(version, state, index)
        return self._held[version.task]

    def save(self, version: Version, before: Index, state: State) -> int:
        """Write a new version of a task; returns the bytes written."""
        index, written = write_version(self.folder(version.task), version, before, state)
        self._held[version.task] = Held(version, state, index)
        return written

    def upload(self, version: Version, known: Mapping[str, SegmentFile]) -> tuple[SegmentFile, ...]:
        """Put a version into the store: only the segments that the checkpoint before it does not list."""
        if version.pass_id == NO_PASS:
            return ()
        folder = self.folder(version.task)
        parts = []
        for name, segment in self._index(version).items():
            if name in known:
                parts.append(known[name])
            elif segment.file.startswith(IN_STORE):
                parts.append(SegmentFile(name, segment.file, segment.length, segment.checksum))
            else:
                data = segment_bytes(folder, self._store, name, segment)
                parts.append(upload_segment(self._store, version.task, name, data))
        return tuple(parts)

    def drop_before(self, task: Task, batch: int) -> None:
        """Delete the files of a task that no version from a batch on needs."""
        files = sorted(self.folder(task).glob("*.seg"))
        kept = [path for path in files if int(path.name.split("-", 1)[0]) >= batch]
        needed = {path.name for path in kept}
        for path in kept:
            needed |= {segment.file for segment in read_index(path).values()}
        for path in files:
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _index(self, version: Version) -> Index:
        if self._restored is not None and version.batch == self._restored.batch:
            parts = self._restored.segments.get(version.task, ())
            return {part.segment: Segment.in_store(part) for part in parts}
        return read_index(self.folder(version.task) / file_name(version))

    def folder(self, task: Task) -> Path:
        """Where the files of a task lie on this node."""
        return self._node / f"{task.operator}.{task.index}"
