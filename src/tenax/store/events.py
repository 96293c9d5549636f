"""The events of a run, one JSON line each, for people and tools that watch it; nothing is decided by them."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from pathlib import Path

from tenax.store.records import JsonObject

MAX_WAITING = 10_000  # events that a disk has refused; the oldest of more are lost, and it is said how many
MAX_EVENT_BYTES = 64 << 20  # then the file is put aside and a new one begun; one old file is kept


class EventLog:
    """Appends events to `events.jsonl`; they are not synced, for a lost event loses no result.

    Nor does a disk that refuses them end a run: they wait, up to a bound, and are written with the next that is taken.
    """

    def __init__(self, folder: Path, epoch: int, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._path = folder / "events.jsonl"
        self._epoch = epoch
        self._max_bytes = max_bytes
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._dropped = 0
        self._lock = threading.Lock()

    def append(self, event: JsonObject) -> bool:
        """Add an event, and its epoch to it; whether it is in the file."""
        with self._lock:
            self._dropped += len(self._waiting) == MAX_WAITING
            self._waiting.append(self._line(event))
            lines = [self._line({"events_lost": self._dropped})] if self._dropped else []
            try:
                self._write("".join([*lines, *self._waiting]))
            except OSError:
                return False
            self._waiting.clear()
            self._dropped = 0
            return True

    def _line(self, event: JsonObject) -> str:
        return json.dumps({"epoch": self._epoch, **event}, ensure_ascii=False, separators=(",", ":")) + "\n"

    def _write(self, text: str) -> None:
        if self._path.exists() and self._path.stat().st_size >= self._max_bytes:
            self._path.replace(self._path.with_name("events.old.jsonl"))
        with self._path.open("ab+") as file:
            # A driver that died in the middle of a line must not spoil the next one.
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                text = "\n" + text
            file.write(text.encode())


def newest_event(folder: Path, kind: str) -> JsonObject | None:
    """The last event that has this key; None if there is none. Only lines that may be one are read closely."""
    for name in ("events.jsonl", "events.old.jsonl"):
        path = folder / name
        for line in reversed(path.read_text(errors="replace").splitlines() if path.exists() else []):
            if f'"{kind}":' in line:
                with contextlib.suppress(json.JSONDecodeError):
                    event = json.loads(line)
                    if isinstance(event, dict) and kind in event:
                        return event
    return None


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
