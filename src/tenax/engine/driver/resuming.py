"""Taking a store over: a driver claims it, and goes on from what it holds, before Spark starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenax.application.application import Application
from tenax.application.rehearsal import logged_positions, with_known_schemas
from tenax.batching.batches import BatchPlanner
from tenax.connectors.source import Limits
from tenax.control.load import LOAD, Load
from tenax.control.versions import Cut
from tenax.engine.driver.ordering import Ordering
from tenax.engine.driver.publishing import Publisher
from tenax.engine.observer import Observer
from tenax.model.graph import TaskGraph
from tenax.model.settings import FIRST_ROWS, Settings
from tenax.store import cuts, records
from tenax.store.checkpoints import ValidCheckpoint
from tenax.store.store import Store
from tenax.takeover.admission import admitted, fence
from tenax.takeover.changes import Changes
from tenax.takeover.consistency import check_takeover, newest_batch, outputs_of
from tenax.takeover.verification import note_outputs


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A store that belongs to a driver, and where its run stands; no `checkpoint` if it begins at the beginning.

    With it comes the `load` that had been measured by then, if any. The `application` has the schemas that the run
    goes on with.
    """

    application: Application
    store: Store
    publisher: Publisher
    planner: BatchPlanner
    ordering: Ordering
    checkpoint: Cut | None
    run_id: str
    load: Load | None


def take_over(
    application: Application, graph: TaskGraph, folder: Path, settings: Settings, observer: Observer
) -> TakenOver:
    """Claim a store, which must be of this code, or of code whose change is accepted.

    - All that may be refused is refused before the claim: a driver that still runs is not disturbed for nothing, and
      what was lost can still be put back.
    - From the claim on, the driver that had the store before commits nothing more.
    """
    application = with_known_schemas(application, logged_positions(folder))
    fingerprint = application.fingerprint()
    admission = admitted(application, folder, fingerprint, settings.start.accept_changes)
    check_takeover(folder, application, admission.elsewhere, changed=bool(admission.changed or admission.emptied))
    store = Store.open(folder, admission.fingerprint, admitted=True)
    fence(admission, folder, store.epoch)
    changes = admitted(application, folder, fingerprint, settings.start.accept_changes)  # as the last driver left it
    run_id = f"{store.identity}-{store.epoch}"
    publisher = Publisher(application, graph, folder, store.identity, store.epoch, changes.elsewhere)
    note_outputs(folder, outputs_of(application))
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
    ordering = Ordering(application, graph, planner, run_id)
    planner.follow(ordering.newest_event_times)
    _tell_results(store, publisher, observer)
    checkpoint, load = _restored(graph, store, publisher, ordering, changes, observer)
    _record(changes, store, checkpoint, publisher, observer)
    _renew(store, planner, publisher, checkpoint, observer)
    application = with_known_schemas(application, planner.positions)  # of batches that are planned anew, as it is now
    ordering.schemas = application.schemas
    return TakenOver(application, store, publisher, planner, ordering, checkpoint, run_id, load)


def _tell_results(store: Store, publisher: Publisher, observer: Observer) -> None:
    """Say what was found among the results, and what is lost and will be made again."""
    lost = (f"{result}: lost, and made again from the batch log" for result in publisher.owed)
    for notice in (*publisher.notices, *lost):
        store.record_event({"results": notice})
        observer.said(notice)


def _restored(
    graph: TaskGraph, store: Store, publisher: Publisher, ordering: Ordering, changes: Changes, observer: Observer
) -> tuple[Cut | None, Load | None]:
    """The newest checkpoint that is whole, and older than any result that is lost; with the load noted there."""
    final = publisher.final
    newest = store.newest_valid(fits=(lambda checkpoint: newest_batch(checkpoint) <= final) if publisher.owed else None)
    for damage in newest.damage:
        store.record_event({"damage": damage})
        observer.said(f"a newer checkpoint is damaged and passed over: {damage}")
    checkpoint = newest.checkpoint if isinstance(newest, ValidCheckpoint) else None
    changes.check_way_back(store.folder, checkpoint, newest.damage)
    store.set_aside(0 if checkpoint is None else checkpoint.number)
    if checkpoint is None:
        return None, None
    notes = records.mapping(checkpoint.notes)
    cut = cuts.from_record(checkpoint.number, notes)
    cut, segments = changes.applied(cut, checkpoint.segments, graph.tasks(range(len(graph))))
    highest_us = records.mapping(notes["highest_us"])
    ordering.restore(
        cut.oldest_batch,
        {task: [int(str(time_us)) for time_us in records.items(times)] for task, times in highest_us.items()},
    )
    ordering.keep(cut, segments)
    return cut, Load.from_data(records.mapping(notes[LOAD])) if LOAD in notes else None


def _record(changes: Changes, store: Store, checkpoint: Cut | None, publisher: Publisher, observer: Observer) -> None:
    """Say what other code changes, and write it down before anything runs."""
    changes.record(store, checkpoint, max(publisher.published.values(), default=0))
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
