"""What a run has measured, for plans: read from the newest checkpoint in its store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tenax.cli.stores import check_store
from tenax.errors import UnsuitableStore
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.topology import Topology
from tenax.planning.measured import Measures, with_measures

if TYPE_CHECKING:
    from tenax.control.load import Load
    from tenax.control.versions import Cut

WANTED = {  # settings that measures depend on
    "batches": ("batch",),
    "bounds": ("max_batches_per_round",),
    "cluster": ("nodes", "max_nodes"),
}


def measured(topology: Topology, store: Path) -> tuple[Topology, Measures]:
    """The topology with what a run of it has measured; the run may be going on, or over."""
    from tenax.control.placement.promises import measures

    load, cut = _in_order(topology, store, *_noted(store))
    there = measures(load, cut, _settings(store))
    return with_measures(topology, there), there


def measured_load(topology: Topology, store: Path) -> tuple[Load, Settings]:
    """What a run of a topology has measured, in the order of its tasks, and the settings that this hangs on."""
    load, _ = _in_order(topology, store, *_noted(store))
    return load, _settings(store)


def _noted(store: Path) -> tuple[Load, Cut]:
    """What the newest checkpoint says of the load, and the checkpoint."""
    from tenax.control.load import LOAD, Load
    from tenax.store import cuts, records
    from tenax.store.checkpoints import Manifests, ValidCheckpoint

    check_store(store)
    newest = Manifests(store).newest_valid(verify=False)
    if not isinstance(newest, ValidCheckpoint):
        raise UnsuitableStore(
            f"{store}: what a run has measured lies beside its checkpoints, found none: let it run until it stores one"
        )
    checkpoint = newest.checkpoint
    notes = records.mapping(checkpoint.notes)
    if LOAD not in notes:
        raise UnsuitableStore(
            f"{store}: what a run has measured lies beside its checkpoints, found nothing beside checkpoint "
            f"{checkpoint.number}: let it run until it stores another"
        )
    return Load.from_data(records.mapping(notes[LOAD])), cuts.from_record(checkpoint.number, notes)


def _in_order(topology: Topology, store: Path, load: Load, cut: Cut) -> tuple[Load, Cut]:
    """Load and cut in the task order of a topology that has the same tasks, whichever order it declares them in."""
    tasks = TaskGraph(topology).tasks(range(topology.task_count))
    place = {point.task: number for number, point in enumerate(cut.points)}
    if set(tasks) != set(place):
        other = min(set(tasks) ^ set(place))
        there = "run, and not of the topology" if other in place else "topology, and not of the run"
        raise UnsuitableStore(
            f"{store}: a plan is of the tasks that were measured, found {other} of the {there}: plan the one that ran"
        )
    order = [place[task] for task in tasks]
    return (
        replace(load, tasks=tuple(load.tasks[number] for number in order)),
        replace(cut, points=tuple(cut.points[number] for number in order), outputs=(), acknowledged=()),
    )


def _settings(store: Path) -> Settings:
    """The settings of the run as far as they matter here; where they are not known, batches count as measured."""
    from tenax.store.events import newest_event
    from tenax.store.records import mapping

    known = newest_event(store, "settings")
    words: dict[str, object] = {"batch": "0s"}
    if known is not None:
        said = mapping(known["settings"])
        words |= {name: mapping(said[section])[name] for section, names in WANTED.items() for name in names}
    return Settings.of(**words)
