"""The events of a run, one JSON line each, for people and tools that watch it; nothing is decided by them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tenax.engine.errors import StoreFailed
from tenax.engine.store.records import JsonObject

MAX_EVENT_BYTES = 64 << 20  # then the file is put aside and a new one begun; one old file is kept


class EventLog:
    """Appends events to `events.jsonl`; they are not synced, for a lost event loses no result."""

    def __init__(self, folder: Path, epoch: int, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._path = folder / "events.jsonl"
        self._epoch = epoch
        self._max_bytes = max_bytes

    def append(self, event: JsonObject) -> None:
        """Add an event; its epoch is added to it."""
        line = json.dumps({"epoch": self._epoch, **event}, ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            if self._path.exists() and self._path.stat().st_size >= self._max_bytes:
                self._path.replace(self._path.with_name("events.old.jsonl"))
            with self._path.open("ab+") as file:
                # A driver that died in the middle of a line must not spoil the next one.
                if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                    line = "\n" + line
                file.write(line.encode())
        except OSError as error:
            raise StoreFailed(f"{self._path}: {error.strerror}: check the disk and its permissions") from error


def read_events(folder: Path) -> list[JsonObject]:
    """The events of a run, oldest first, without torn lines."""
    events: list[JsonObject] = []
    for name in ("events.old.jsonl", "events.jsonl"):
        path = folder / name
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(event, dict):
                events.append(event)
    return events
