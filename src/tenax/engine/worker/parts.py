"""A node's part of a checkpoint: each task's new segments, small ones together in one file of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tenax.model.tasks import Task
from tenax.store.checkpoints import StoredSegment, upload_segments

WRITES_AT_ONCE = 8  # whatever is made durable waits for the disk
LARGE_BYTES = 1 << 18
"""A file lives as long as one of its segments: what is as large as that keeps no other alive, nor is kept."""


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a checkpoint: where it lies in the store already, or how to read it."""

    segment: str
    size: int
    stored: StoredSegment | None
    read: Callable[[], bytes]


def store_parts(store: Path, parts: Mapping[Task, Sequence[Part]]) -> dict[Task, tuple[StoredSegment, ...]]:
    """Put into the store what is not there yet; what a checkpoint lists for each task."""

    def upload(task: Task, new: Sequence[Part]) -> tuple[StoredSegment, ...]:
        return upload_segments(store, task, {part.segment: part.read() for part in new})

    with ThreadPoolExecutor(WRITES_AT_ONCE) as pool:
        uploads = {task: [pool.submit(upload, task, new) for new in _files(given)] for task, given in parts.items()}
        listed: dict[Task, tuple[StoredSegment, ...]] = {}
        for task, given in parts.items():
            new = {part.segment: part for upload in uploads[task] for part in upload.result()}
            listed[task] = tuple(new[part.segment] if part.stored is None else part.stored for part in given)
        return listed


def _files(parts: Sequence[Part]) -> list[list[Part]]:
    """The new parts by the file that they go to: large ones have their own, small ones share one."""
    new = [part for part in parts if part.stored is None]
    small = [part for part in new if part.size < LARGE_BYTES]
    return [[part] for part in new if part.size >= LARGE_BYTES] + ([small] if small else [])
