"""Taking a store over: a driver claims it, and goes on from what it holds, before Spark starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tenax.application.application import Application
from tenax.application.rehearsal import logged_positions, with_known_schemas
from tenax.application.scaling import first_version, next_version, rescaled
from tenax.batching.batches import BatchPlanner
from tenax.connectors.source import Limits
from tenax.control.load import LOAD, Load
from tenax.control.versions import Cut, PassId
from tenax.engine.driver.ordering import Ordering
from tenax.engine.driver.publishing import Publisher
from tenax.engine.observer import Observer
from tenax.model.graph import TaskGraph
from tenax.model.settings import FIRST_ROWS, Settings
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.operators.computation import NO_WATERMARK_US
from tenax.store import cuts, records
from tenax.store.checkpoints import ValidCheckpoint
from tenax.store.records import JsonObject
from tenax.store.store import Store
from tenax.store.topology_versions import VERSION, ask, read_versions, record_version
from tenax.takeover.admission import admitted, fence
from tenax.takeover.changes import Changes, Segments
from tenax.takeover.consistency import check_takeover, newest_batch, outputs_of
from tenax.takeover.recut import recut
from tenax.takeover.shared_load import shared_load
from tenax.takeover.upgrades import complete, versions_of
from tenax.takeover.verification import note_outputs


@dataclass(frozen=True)
class TakenOver:
    """A store that belongs to a driver, and where its run stands; no `checkpoint` if it begins at the beginning.

    With it comes the `load` that had been measured by then, if any. The `application` has the schemas that the run
    goes on with, and the tasks of the `version` of its topology that the checkpoint is of; `declared` is as its user
    wrote it. `known` are all versions that are recorded: a run that went back before the beginning of the next one has
    yet to come to it.
    - Versions of states that were cut anew count as made by passes of this epoch: so many have `begun`.
    """

    application: Application
    declared: Application
    version: TopologyVersion
    known: tuple[TopologyVersion, ...]
    store: Store
    publisher: Publisher
    planner: BatchPlanner
    ordering: Ordering
    checkpoint: Cut | None
    run_id: str
    load: Load | None
    begun: int = 0

    @cached_property
    def graph(self) -> TaskGraph:
        """The tasks of the application."""
        return TaskGraph(self.application.topology)

    @property
    def next_version(self) -> Target | None:
        """What the run comes to behind a batch that it is not through yet."""
        return Target.of(self.known[self.version.number]) if self.version.number < len(self.known) else None


def take_over(application: Application, folder: Path, settings: Settings, observer: Observer) -> TakenOver:
    """Claim a store, which must be of this code, or of code whose change is accepted.

    - All that may be refused is refused before the claim: a driver that still runs is not disturbed for nothing, and
      what was lost can still be put back.
    - From the claim on, the driver that had the store before commits nothing more.
    """
    declared = with_known_schemas(application, logged_positions(folder))
    fingerprint = declared.fingerprint()
    start = settings.start
    admission = admitted(declared, folder, fingerprint, start.accept_changes, upgrade=start.upgrade)
    known = _known(declared, folder, admission)
    running = rescaled(declared, known[-1])
    next_version(running, known[-1], _wanted(admission), after=0, nodes=None, cause="")  # refuses what cannot be
    stale = bool(admission.changed or admission.emptied or admission.versions)
    check_takeover(folder, running, admission.elsewhere, changed=stale)
    store = Store.open(folder, admission.fingerprint, admitted=True)
    fence(admission, folder, store.epoch)
    complete(store)
    # as the last driver left it
    changes = admitted(declared, folder, fingerprint, start.accept_changes, upgrade=start.upgrade)
    known = _known(declared, folder, changes)
    running = rescaled(declared, known[-1])
    if not changes.versions and not read_versions(folder):
        record_version(folder, known[0], store.check_epoch)
    run_id = f"{store.identity}-{store.epoch}"
    publisher = Publisher(application, folder, store.identity, store.epoch, changes.elsewhere)
    publisher.begin(TaskGraph(running.topology), known[-1].after)
    note_outputs(folder, outputs_of(running))
    batches = settings.batches
    limits = Limits(batches.max_rows or FIRST_ROWS, *([] if batches.max_bytes is None else [batches.max_bytes]))
    planner = BatchPlanner(
        application,
        store,
        limits,
        batches.batch_s,
        partition_bytes=batches.partition_bytes,
        drain=settings.start.drain,
        tell=observer.said,
    )
    _tell_results(store, publisher, observer)
    restored = _restored(declared, known, store, publisher, changes, observer)
    application, checkpoint = restored.application, restored.checkpoint
    publisher.begin(TaskGraph(application.topology), restored.version.after)
    ordering = Ordering(application, TaskGraph(application.topology), planner, run_id)
    planner.follow(ordering.newest_event_times)
    if checkpoint is not None:
        ordering.restore(checkpoint.oldest_batch, restored.highest_us)
        ordering.keep(checkpoint, restored.segments)
    _record(changes, store, checkpoint, publisher, observer)
    _renew(store, planner, publisher, checkpoint, observer)
    # of batches that are planned anew, as it is now
    with_schemas = with_known_schemas(application, planner.positions)
    ordering.schemas = with_schemas.schemas
    return TakenOver(
        with_schemas,
        replace(declared, schemas=with_schemas.schemas),
        restored.version,
        known,
        store,
        publisher,
        planner,
        ordering,
        checkpoint,
        run_id,
        restored.load,
        restored.begun,
    )


def _known(declared: Application, folder: Path, changes: Changes) -> tuple[TopologyVersion, ...]:
    """All versions of a store's topology, with those that changes make; the first one if there is none yet."""
    return (*versions_of(folder, changes.known), *changes.versions) or _first(declared, changes)


def _first(declared: Application, changes: Changes) -> tuple[TopologyVersion, ...]:
    """What a store begins with: an application as it is, but for numbers of tasks that it has only now."""
    before = {name: tasks for name, (tasks, _) in changes.rescaled.items()}
    return (first_version(rescaled(declared, TopologyVersion(1, 0, before))),)


def _wanted(changes: Changes) -> dict[str, int]:
    return {name: tasks for name, (_, tasks) in changes.rescaled.items()}


def _ask(store: Store, changes: Changes) -> None:
    """Ask ourselves for the numbers of tasks that an application has now and had not: that survives this driver."""
    if changes.rescaled:
        ask(store.folder, Target(_wanted(changes), cause="so the application says now"))


def _tasks(application: Application) -> tuple[Task, ...]:
    graph = TaskGraph(application.topology)
    return graph.tasks(range(len(graph)))


def _tell_results(store: Store, publisher: Publisher, observer: Observer) -> None:
    """Say what was found among the results, and what is lost and will be made again."""
    lost = (f"{result}: lost, and made again from the batch log" for result in publisher.owed)
    for notice in (*publisher.notices, *lost):
        store.record_event({"results": notice})
        observer.said(notice)


@dataclass(frozen=True, slots=True)
class _Restored:
    """Where a run begins: in which version, from which checkpoint, whose parts lie in these segments."""

    application: Application
    version: TopologyVersion
    checkpoint: Cut | None = None
    segments: Segments = field(default_factory=dict)
    highest_us: Mapping[str, Sequence[int]] = field(default_factory=dict)
    load: Load | None = None
    begun: int = 0


def _restored(
    declared: Application,
    known: Sequence[TopologyVersion],
    store: Store,
    publisher: Publisher,
    changes: Changes,
    observer: Observer,
) -> _Restored:
    """The newest checkpoint that is whole, and older than any result that is lost; with the load noted there.

    If a version of the topology begins right behind it, the run begins in that one.
    """
    final = publisher.final
    newest = store.newest_valid(fits=(lambda checkpoint: newest_batch(checkpoint) <= final) if publisher.owed else None)
    for damage in newest.damage:
        store.record_event({"damage": damage})
        observer.said(f"a newer checkpoint is damaged and passed over: {damage}")
    checkpoint = newest.checkpoint if isinstance(newest, ValidCheckpoint) else None
    changes.check_way_back(store.folder, checkpoint, newest.damage)
    store.set_aside(0 if checkpoint is None else checkpoint.number)
    if checkpoint is None:
        version = next(version for version in reversed(known) if version.after == 0)
        return _Restored(rescaled(declared, version), version)
    notes = records.mapping(checkpoint.notes)
    version = known[records.integer(notes, VERSION) - 1 if VERSION in notes else 0]
    begun, load = 0, Load.from_data(records.mapping(notes[LOAD])) if LOAD in notes else None
    upgrades = changes.upgrades
    while version.number < len(known) and known[version.number].number in upgrades:
        version, load = known[version.number], None  # of other operators
    application = rescaled(declared, version)
    cut = cuts.from_record(checkpoint.number, notes)
    cut, segments = changes.applied(cut, checkpoint.segments, _tasks(application))
    while version.number < len(known) and known[version.number].after == cut.oldest_batch == cut.newest_batch:
        begun, before, version = begun + 1, application, known[version.number]
        application = rescaled(declared, version)
        cut, segments = recut(cut, segments, before, application, PassId(store.epoch, begun))
        load = None if load is None else shared_load(load, before, application)
    highest_us = _highest_us(application, cut, changes.fresh_sources(cut), records.mapping(notes["highest_us"]))
    return _Restored(application, version, cut, segments, highest_us, load, begun)


def _highest_us(application: Application, cut: Cut, fresh: Collection[str], noted: JsonObject) -> dict[str, list[int]]:
    """The highest event times of all source tasks after every batch of a cut; those of new sources have seen none."""
    known = {
        task: [int(str(time_us)) for time_us in records.items(times)]
        for task, times in noted.items()
        if Task.parse(task).operator not in fresh
    }
    batches = cut.newest_batch - cut.oldest_batch + 1
    tasks = [str(task) for task in _tasks(application) if task.operator in application.sources]
    return {task: known.get(task, [NO_WATERMARK_US] * batches) for task in tasks}


def _record(changes: Changes, store: Store, checkpoint: Cut | None, publisher: Publisher, observer: Observer) -> None:
    """Say what other code changes, and write it down before anything runs."""
    published = max(publisher.published.values(), default=0)
    changes.check_stands(store.folder, checkpoint, published)
    _ask(store, changes)  # before the change is recorded: from then on nothing tells that these numbers are new
    changes.record(store, checkpoint, published)
    complete(store)
    for words in changes.words:
        observer.said(words)


def _renew(
    store: Store,
    planner: BatchPlanner,
    publisher: Publisher,
    checkpoint: Cut | None,
    observer: Observer,
) -> None:
    """Let a file be corrected after it stopped a run: what no result depends on is planned anew."""
    # The logs of all outputs are taken over by now: whatever an older driver still does, it commits nothing more.
    stored = 0 if checkpoint is None else checkpoint.oldest_batch
    forgotten = planner.renew(stored, max(stored, publisher.highest))
    if forgotten is not None:
        store.record_event({"forgotten": {"from": forgotten.first, "changed": forgotten.what}})
        observer.said(f"{forgotten.what} has changed: batches from {forgotten.first} on are planned anew")
