"""Versions of a topology in words: for the live view, and for what a store has had."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tenax.control.narrator import sentence
from tenax.control.notices import LoadJudged, RescaleGivenUp, RescalePlanned, RescalePostponed
from tenax.model.topology_versions import TopologyVersion

Rescaled = LoadJudged | RescalePlanned | RescalePostponed | RescaleGivenUp
"""What is said of rescales: the last of these is shown."""


def version_rows(versions: Sequence[TopologyVersion]) -> list[tuple[str, str, str, str]]:
    """Every version after the first, the newest first: number, the batch it begins behind, what changed, why."""
    return [
        (f"{now.number}", f"{now.after:,}", changes(before, now), now.cause)
        for before, now in reversed(list(pairwise(versions)))
    ]


def changes(before: TopologyVersion, now: TopologyVersion) -> str:
    """What a version changes: `speed 2 → 4 tasks, 6 nodes`."""
    parts = [
        f"{name} {before.parallelism[name]} → {tasks} tasks"
        for name, tasks in now.parallelism.items()
        if before.parallelism.get(name, tasks) != tasks
    ]
    if now.nodes is not None and now.nodes != before.nodes:
        parts.append(f"{now.nodes} nodes")
    return ", ".join(parts) or "nothing"


def version_facts(version: TopologyVersion | None, last: Rescaled | None) -> list[tuple[str, str]]:
    """The version that a run is in, if it has gone over to one, and what was said last of rescales."""
    facts = []
    if version is not None and version.number > 1:
        nodes = "" if version.nodes is None else f", {version.nodes} nodes"
        why = f": {version.cause}" if version.cause else ""
        facts.append(("topology", f"version {version.number}, since batch {version.after + 1:,}{nodes}{why}"))
    words = None if last is None else sentence(last)
    return [*facts, ("elasticity", words)] if words else facts
