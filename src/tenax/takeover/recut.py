"""Temporary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tenax.application.application import Application
from tenax.control.versions import Cut, PassId, Version
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.store.checkpoints import StoredSegment

Segments = Mapping[Task, tuple[StoredSegment, ...]]


def recut(cut: Cut, segments: Segments, before: Application, now: Application, made_by: PassId) -> tuple[Cut, Segments]:
    """A."""
    new = TaskGraph(now.topology)
    tasks = new.tasks(range(len(new)))
    batch = cut.newest_batch
    assert before.topology == now.topology
    return replace(
        cut, points=tuple(Version(task, batch, made_by) for task in tasks), outputs=(), acknowledged=()
    ), dict(segments)
