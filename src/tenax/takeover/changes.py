"""Other code on the same store: what may go on, from which batch on, what starts empty, and what is refused.

A store remembers the fingerprint of the application that runs on it. What differs is said, operator by operator:

- What a source plans next may change at any time: it is logged before it runs.
- An operator without state may change. Where states lie behind it, these must be of the newest batch B of the
  checkpoint, with no result published after it, as the end of a run in good order leaves them. So batches up to B are
  the old code's, in results and states, and all later ones the new code's, however often they are replayed.
- A state is of the code that made it. A changed operator that has one is refused; if its user accepts that, it starts
  empty after batch B, or goes on with what it has (`NAME=keep`, for a user's own computation).
- A state that is never stored (`checkpoint` none) would be rebuilt by the new code from batches of the old one: it is
  refused if it, or anything before it, has changed, or starts empty.
- A source that reads something else, and an output that goes elsewhere, are refused or accepted by name.
- Other operators are refused, but in an upgrade: those that are the same keep their states, changed and new ones begin
  empty after batch B, those that are gone are dropped. It begins a version of the topology, which the change names.

What was admitted is recorded before anything runs, with the checkpoint that it begins from; a driver that is restored
from that same checkpoint empties the same operators again, and one that would have to go back before it stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import SCHEMAS, from_record
from tenax.control.versions import NO_PASS, Cut, RebuildPoint, RestorePoint, Version
from tenax.errors import DamagedStore, UnsuitableStore
from tenax.model.tasks import Task
from tenax.model.topology_versions import TopologyVersion
from tenax.store import records
from tenax.store.checkpoints import Checkpoint, StoredSegment
from tenax.store.records import Json, JsonObject
from tenax.store.store import CHANGES, Store
from tenax.store.topology_versions import to_record
from tenax.takeover.comparisons import behind

NOTED = "changes"  # in the notes of a checkpoint: how many changes were recorded when it was made

VERSIONS = "versions"  # in a recorded change: the versions of the topology that an upgrade makes, its own last

Segments = Mapping[Task, tuple[StoredSegment, ...]]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a store stands: its newest whole checkpoint, up to where results are published, and the last batch, if any.

    There is a `last` batch if the sources have ended.
    """

    checkpoint: Checkpoint | None
    cut: Cut | None
    published: int
    last: int | None = None

    @property
    def batch(self) -> int:
        """The batch of the newest state of the checkpoint; 0 without one."""
        return 0 if self.cut is None else self.cut.newest_batch

    @property
    def is_beginning(self) -> bool:
        """Whether no state is stored and no result published."""
        return self.cut is None and not self.published

    @property
    def rebuilt(self) -> set[str]:
        """The operators whose states are not stored, but would be rebuilt from earlier batches."""
        return {point.task.operator for point in self._points if isinstance(point, RebuildPoint)}

    @property
    def older(self) -> set[str]:
        """The operators that would be stepped again through batches up to the newest of the checkpoint."""
        return {point.task.operator for point in self._points if point.inputs_after < self.batch}

    @property
    def _points(self) -> tuple[RestorePoint, ...]:
        return () if self.cut is None else self.cut.points

    @property
    def schemas(self) -> dict[str, pl.Schema]:
        """The columns that operators gave; nothing of what is not known."""
        notes = {} if self.checkpoint is None else records.mapping(self.checkpoint.notes)
        return from_record(records.mapping(notes.get(SCHEMAS, {})))


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run's code changes on its store.

    - `fingerprint` is that of the run; `known` are the changes that are recorded already.
    - `changed` operators have other code from `batch` + 1 on; `emptied` ones begin there without their state.
    - `moved` outputs have results up to these batches, by partition, where they went before; `left` are the commit logs
      there. `concerns_states` says that some state depends on what has changed.
    - `rescaled` operators had so many tasks and are to have others; the run itself brings that about once it has begun.
    - `new` operators were not there before. With an upgrade come the `versions` of the topology that it makes: its own
      last, before it the first one if the store knows of none.
    - `words` is what the user should know; nothing changes if there are none.
    """

    application: Application
    fingerprint: JsonObject
    known: Sequence[JsonObject] = ()
    checkpoint: int = 0
    batch: int = 0
    changed: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    moved: Mapping[str, Sequence[int]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    concerns_states: bool = False
    rescaled: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    versions: tuple[TopologyVersion, ...] = ()

    @property
    def elsewhere(self) -> Mapping[str, Sequence[int]]:
        """Up to which batches the results of outputs lie where these went before, by partition."""
        return {**moved_results(self.known), **self.moved}

    @property
    def upgrades(self) -> frozenset[int]:
        """The numbers of the versions that upgrades begin with."""
        return upgraded_by(self.known) | {version.number for version in self.versions[-1:]}

    def record(self, store: Store, cut: Cut | None, published: int) -> None:
        """Write the change down: from now on the store is this code's.

        By now no other driver can commit anything; what the driver before has done at the last moment is seen here.
        """
        self.check_stands(store.folder, cut, published)
        if self.words:
            change: dict[str, Json] = {
                "epoch": store.epoch,
                "topology": self.fingerprint,
                "checkpoint": self.checkpoint,
                "batch": self.batch,
                "changed": list(self.changed),
                "emptied": list(self.emptied),
                "accepted": list(self.accepted),
                "moved": {name: list(batches) for name, batches in self.moved.items()},
                "words": list(self.words),
                "states": self.concerns_states or bool(self.versions),
                "new": list(self.new),
            }
            if self.versions:
                change[VERSIONS] = [to_record(version) for version in self.versions]
            store.record_change(change)
            store.record_event({"changes": shown(change)})

    def check_stands(self, folder: Path, cut: Cut | None, published: int) -> None:
        """Refuse if the driver before has gone on since its store was looked at."""
        stands = 0 if cut is None else cut.number
        if self.words and (stands != self.checkpoint or (self.concerns_states and published > self.batch)):
            raise UnsuitableStore(
                f"{folder}: code changes behind batch {self.batch}, where the last driver ended, found it still at "
                f"work (batch {published}): start again when it has ended"
            )

    def check_way_back(self, folder: Path, checkpoint: Checkpoint | None, damage: Sequence[str]) -> None:
        """Refuse to go on from before a change: its batches would be stepped by code that did not run them."""
        number = 0 if checkpoint is None else checkpoint.number
        notes = {} if checkpoint is None else records.mapping(checkpoint.notes)
        if int(str(notes.get(NOTED, 0))) > len(self.known):
            raise DamagedStore(
                f"{folder}: the log of changes of code has all that checkpoint {number} knows of, found "
                f"{len(self.known)} of {notes[NOTED]}: restore the folder {CHANGES!r}"
            )
        for record in self.known:
            if records.integer(record, "checkpoint") > number and record["states"]:
                raise DamagedStore(
                    f"{folder}: a run goes on from after its last change of code, found the checkpoints since batch "
                    f"{record['batch']} damaged ({'; '.join(damage) or 'missing'}): restore those files"
                )

    def applied(self, cut: Cut, segments: Segments, tasks: Sequence[Task]) -> tuple[Cut, Segments]:
        """A restored cut in the order of these tasks, with operators that start empty as they begin."""
        known = {point.task: number for number, point in enumerate(cut.points)}
        new = self._begun(cut, "new", self.new)
        empty, changed = self._begun(cut, "emptied", self.emptied), self._begun(cut, "changed", self.changed)
        affected = {*empty, *changed, *behind(self.application.topology, empty | changed)}
        # What has no state can be anywhere: behind the old code's batches it need not step, nor could it be fed.
        lifted = {name for name in affected if name in self.application.computations} - self._keeping(affected)
        batch = cut.newest_batch

        def begins(task: Task) -> bool:
            if task not in known or task.operator in new | empty:
                return True
            return task.operator in lifted and cut.points[known[task]].inputs_after < batch

        begun = {task for task in tasks if begins(task)}
        same = set(known) == set(tasks) and not new
        points = (Version(task, batch, NO_PASS) if task in begun else cut.points[known[task]] for task in tasks)
        # that of other tasks name their consumers by numbers that are others now
        outputs = (() if task in begun else cut.outputs[known[task]] for task in tasks) if cut.outputs and same else ()
        through = (batch if task in begun and not same else cut.acknowledged[known[task]] for task in tasks)
        applied = replace(
            cut,
            points=tuple(points),
            outputs=tuple(outputs),
            acknowledged=tuple(through) if cut.acknowledged else (),
        )
        return applied, {task: () if task in begun else segments.get(task, ()) for task in tasks}

    def fresh_sources(self, cut: Cut) -> set[str]:
        """The sources that begin at their beginning behind a cut, whatever it knows of others with their names."""
        return self._begun(cut, "new", self.new) & set(self.application.sources)

    def _begun(self, cut: Cut, what: str, now: Sequence[str]) -> set[str]:
        """The operators that changes name which begin from a checkpoint, recorded ones and that of now."""
        of_cut = (change for change in self.known if change["checkpoint"] == cut.number)
        before = {str(name) for record in of_cut for name in records.items(record.get(what, ()))}
        return before | set(now if cut.number == self.checkpoint else ())

    def _keeping(self, names: Collection[str]) -> set[str]:
        return {name for name in names if self.application.has_state(name)}


def upgraded_by(known: Iterable[JsonObject]) -> frozenset[int]:
    """The numbers of the versions that recorded upgrades begin with: before them there were other operators."""
    made = (records.items(change.get(VERSIONS, ())) for change in known)
    return frozenset(records.integer(records.mapping(versions[-1]), "number") for versions in made if versions)


def shown(change: JsonObject) -> JsonObject:
    """A recorded change without what only drivers need: fingerprints and tables of key groups."""
    words = {name: value for name, value in change.items() if name not in {"topology", VERSIONS}}
    versions = records.items(change.get(VERSIONS, ()))
    return words | ({"version": records.mapping(versions[-1])["number"]} if versions else {})


def moved_results(known: Iterable[JsonObject]) -> dict[str, Sequence[int]]:
    """Up to which batches the results of outputs lie elsewhere, by partition, as recorded changes have it."""
    moved: dict[str, Sequence[int]] = {}
    for record in known:
        for name, batches in records.mapping(record["moved"]).items():
            moved[name] = [int(str(record)) for record in records.items(batches)]
    return moved
