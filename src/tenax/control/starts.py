"""How a run starts: from what the store holds, or not at all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tenax.control.events import Started
from tenax.control.run import Run
from tenax.control.versions import Cut, RestorePoint


def at_start(run: Run, cut: Cut) -> tuple[RestorePoint, ...]:
    """Where the tasks of a run begin; sources where the newest do: what is older is in their log."""
    return tuple(
        replace(point, batch=cut.newest_batch) if source else point
        for point, source in zip(cut.points, run.is_source.tolist(), strict=True)
    )


def wrong_start(run: Run, event: Started, checkpoint: Cut, published: Collection[int]) -> str | None:
    """Why a run cannot start from what the store holds. Results before the checkpoint could never be made again."""
    if not event.nodes and not event.passes:
        return "a run needs at least one node, found none: add one"
    if event.epoch < 1:
        return f"epochs count from 1, found {event.epoch}: claim one on the store"
    lowest, highest = min(published, default=checkpoint.newest_batch), max(published, default=0)
    if not (checkpoint.newest_batch <= lowest and max(highest, checkpoint.newest_batch) <= event.logged):
        return (
            f"a store holds checkpoint ≤ published ≤ logged, found {checkpoint.newest_batch}, {lowest} to {highest} "
            f"and {event.logged}: start from an older checkpoint, or on a new store"
        )
    if tuple(point.task for point in checkpoint.points) != run.tasks:
        return (
            f"a checkpoint holds one version per task of the topology, found others in number "
            f"{checkpoint.number}: run the topology that made it, or a new store"
        )
    return None
