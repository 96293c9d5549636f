"""Judging what other code on a store changes: what is refused, what starts empty, what goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import polars as pl

from tenax.application.application import Application
from tenax.application.fingerprints import OWN, operator_of
from tenax.application.schemas import Schemas, inputs_of
from tenax.connectors.ledger import FINAL, parts_of
from tenax.errors import InvalidRequest, UnsuitableStore
from tenax.model.topology_versions import TopologyVersion
from tenax.operators.custom import KeyedComputation
from tenax.store import cuts, journal, records
from tenax.store.checkpoints import Manifests, ValidCheckpoint
from tenax.store.records import JsonObject
from tenax.takeover import upgrades
from tenax.takeover.changes import Changes, Position, upgraded_by
from tenax.takeover.comparisons import PLACE, Comparison, Touches, behind, is_own, places_of, shared_by
from tenax.takeover.words import KEEP, Telling, listed

OPTION = "--accept-changes"
STATE_PARTS = ("keys", "state_schema")  # of a keyed computation: what its state is read by


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the differences between an application and its store.

    - `accepted` is what its user has accepted by name, and how; with `upgrade` whatever can be right.
    - `known` are the changes that are recorded, `versions` those of the topology; of the `present` one are the tasks.
    """

    application: Application
    folder: Path
    identity: str
    comparison: Comparison
    accepted: Mapping[str, str]
    stored: JsonObject
    given: JsonObject
    known: Sequence[JsonObject]
    versions: Sequence[TopologyVersion]
    present: TopologyVersion
    upgrade: bool = False

    def changes(self, accept: tuple[str, ...]) -> Changes:
        """What is admitted; raises if anything is not."""
        for name, how in self.accepted.items():
            if how == KEEP:
                self._check_kept(name)
        position = self._position()
        comparison = self.comparison
        changing = [name for name, change in comparison.changed.items() if change.touches is not Touches.PLANNING]
        emptied = self._starting_empty(position, changing)
        refused, remedies = self._no_upgrade(position, emptied)
        if refused:
            self._refuse(refused, remedies)
        version = None
        if comparison.reshaped:
            free = [*comparison.new, *emptied] if not position.is_beginning else [*self.application.computations]
            version = upgrades.next_of(self.application, self.present, comparison, free, position.batch)
        tasks = (version or self.present).parallelism
        moved, refused, remedies = self._moved(position, tasks)
        for part in (
            self._unaccepted(position),
            self._rebuilt(position, changing, emptied),
            self._replayed(position, changing, emptied),
            upgrades.taken_folders(self.application, self.folder, self.identity, moved),
        ):
            refused += part[0]
            remedies += part[1]
        if not refused:
            refused, remedies = self._other_columns(position, changing, emptied)
        if refused:
            self._refuse(refused, remedies)
        left = [log for name, log in places_of(self.stored).items() if name in comparison.dropped]
        asked = {name: both for name, both in comparison.rescaled.items() if both[1] != tasks[name]}
        telling = Telling(
            self.application,
            comparison,
            position,
            self.accepted,
            self.stored,
            self.given,
            emptied,
            moved,
            asked,
            self.upgrade,
        )
        return Changes(
            self.application,
            self.given,
            self.known,
            0 if position.checkpoint is None else position.checkpoint.number,
            position.batch,
            tuple(changing),
            tuple(emptied),
            accept,
            moved,
            tuple(telling.words),
            (*comparison.sinks.values(), *left),
            bool(self._states({*changing, *emptied})),
            asked,
            comparison.new,
            () if version is None else (*(() if self.versions else (self.present,)), version),
        )

    def _refuse(self, refused: Sequence[str], remedies: Sequence[str]) -> NoReturn:
        others = [
            str(change)
            for change in self.comparison.changed.values()
            if not any(str(change) in word for word in refused)
        ]
        raise UnsuitableStore(
            f"{self.folder}: the code is not that of the store: {'; '.join([*refused, *others])}: "
            f"{', or '.join(dict.fromkeys([*remedies, 'run the code that the store is of']))}"
        )

    def _starting_empty(self, position: Position, changing: Sequence[str]) -> list[str]:
        """The operators that begin without the state that they had, in the order of the topology."""
        if position.is_beginning:
            return []
        given_up = {name for name, how in self.accepted.items() if how != KEEP}
        if self.upgrade:
            states = {name for name, change in self.comparison.changed.items() if change.touches is Touches.STATE}
            given_up |= states | set(self._misfits(position, changing, states))
        given_up -= {name for name, how in self.accepted.items() if how == KEEP}
        return [
            operator.name
            for operator in self.application.topology.operators
            if operator.name in given_up - {*self.application.sources, *self.comparison.new}
            and (self.application.has_state(operator.name) or not operator_of(self.stored, operator.name)["stateless"])
        ]

    def _no_upgrade(self, position: Position, emptied: Sequence[str]) -> upgrades.Wrong:
        """Why these operators cannot take over at all, and why some that go on could not do their work."""
        if not self.comparison.reshaped:
            return [], []
        refused, remedies = upgrades.not_upgraded(
            self.application, position, self.comparison, emptied, upgraded_by(self.known), self.versions
        )
        if refused:
            return refused, remedies
        done = self._done(position.batch)
        closed = upgrades.closed_for_ever(self.application, self.stored, self.comparison, emptied, done)
        for name, sources in closed.items():
            refused.append(
                f"operator {name!r} has closed all its windows, for its sources had ended, and every row of "
                f"{', '.join(map(repr, sources))} would be late for it"
            )
        return refused, [f"start it empty by {OPTION} {','.join(closed)}"] if closed else []

    def _done(self, batch: int) -> list[str]:
        """The sources that had ended by a batch."""
        data = [record["data"] for record in self._batches() if records.integer(record, "batch") == batch]
        logged = data[0] if data else None
        return [str(name) for name in records.items(logged.get("done", ()))] if isinstance(logged, Mapping) else []

    def _position(self) -> Position:
        newest = Manifests(self.folder).newest_valid()
        checkpoint = newest.checkpoint if isinstance(newest, ValidCheckpoint) else None
        cut = None
        if checkpoint is not None:
            cut = cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes))
        logs = places_of(self.stored).items()
        published = [max(self._last(name, log).values(), default=0) for name, log in logs]
        batches = self._batches()
        data = batches[-1]["data"] if batches else None
        ended = isinstance(data, Mapping) and bool(data.get("ended"))
        last = records.integer(batches[-1], "batch") if ended else None
        return Position(checkpoint, cut, max(published, default=0), last)

    def _batches(self) -> list[JsonObject]:
        folder = self.folder / "batches"
        return journal.read(folder) if folder.exists() else []

    def _last(self, output: str, log: str) -> dict[int, int]:
        """The newest final batch of every partition of an output, in a commit log, or as its sink can tell."""
        if log.startswith(PLACE):
            return self._surveyed(output) if output in self.application.sinks and log == self._log(output) else {}
        highest: dict[int, int] = {}
        for record in journal.read(self.folder / log) if (self.folder / log).exists() else ():
            if record["run"] == self.identity and record["output"] == output and record["kind"] == FINAL:
                highest |= {
                    part.partition: max(part.batch, highest.get(part.partition, 0)) for part in parts_of(record)
                }
        return highest

    def _surveyed(self, output: str) -> dict[int, int]:
        survey = self.application.sinks[output].survey(output, self.folder)
        newest: dict[int, int] = {}
        for batch, partition in () if survey is None else survey.final:
            newest[partition] = max(batch, newest.get(partition, 0))
        return newest

    def _moved(self, position: Position, tasks: Mapping[str, int]) -> tuple[dict[str, list[int]], list[str], list[str]]:
        """Up to where results lie where outputs went before; what is wrong with that, and remedies."""
        moved: dict[str, list[int]] = {}
        refused: list[str] = []
        # that of late rows has as many as its source
        partitions = {
            name: tasks[name if name in tasks else name.removesuffix("-late")] for name in places_of(self.given)
        }
        for name, log in self.comparison.sinks.items():
            here = self._last(name, self._log(name))
            if self._reaches(here, position.batch, partitions[name]) and here:
                continue  # the folder was moved, with its log
            before = self._last(name, log)
            moved[name] = [max(before.get(partition, 0), position.batch) for partition in range(partitions[name])]
            if name not in self.accepted and not position.is_beginning:
                refused.append(f"output {name!r} went to {log}, goes to {self._log(name)}")
        for name in self.comparison.added:
            moved[name] = [position.batch] * partitions[name]
        names = ",".join(name for name in moved if name in self.comparison.sinks)
        return moved, refused, [f"leave earlier results where they are with {OPTION} {names}"] if refused else []

    def _reaches(self, last: Mapping[int, int], batch: int, partitions: int) -> bool:
        return all(last.get(partition, 0) >= batch for partition in range(partitions))

    def _log(self, output: str) -> str:
        return places_of(self.given)[output]

    def _unaccepted(self, position: Position) -> tuple[list[str], list[str]]:
        """What touches a state, or what logged ranges mean, and was not accepted."""
        if position.is_beginning:
            states = []
        else:
            states = [change for change in self.comparison.changed.values() if change.touches is Touches.STATE]
        if self.upgrade:
            states = []  # they start empty without being named
        sources = [change for change in self.comparison.changed.values() if change.touches is Touches.RANGES]
        if not self._batches():
            sources = []
        left = [change for change in (*states, *sources) if change.operator not in self.accepted]
        names = ",".join(change.operator for change in left)
        remedies = []
        if any(state in left for state in states):
            remedies.append(f"start with empty states by {OPTION} {names}")
        elif left:
            remedies.append(f"let them go on from where they are by {OPTION} {names}")
        return [str(change) for change in left], remedies

    def _rebuilt(
        self, position: Position, changing: Sequence[str], emptied: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """States that would be rebuilt by other code than made them."""
        left = [
            state for state in self._states({*changing, *emptied}) if state in position.rebuilt and state not in emptied
        ]
        if not left:
            return [], []
        names = ", ".join(repr(name) for name in left)
        return (
            [f"the state of {names} is never stored and would be rebuilt by the new code from batches of the old one"],
            [
                "store it once by a run of the old code with --checkpoint "
                f"{','.join(f'{name}=aligned' for name in left)}, or start it empty by {OPTION} {','.join(left)}"
            ],
        )

    def _replayed(
        self, position: Position, changing: Sequence[str], emptied: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Published batches that the new code would step again, for states that are to go on."""
        states = self._states({*changing, *emptied})
        if position.published <= position.batch:
            older = position.older - position.rebuilt
            states = [name for name in states if name in older and name not in emptied]
        if not states or position.is_beginning:
            return [], []
        batches = [] if position.cut is None else [point.inputs_after for point in position.cut.points]
        first, last = min(batches, default=0) + 1, max(position.published, position.batch)
        named = "; ".join(str(change) for name, change in self.comparison.changed.items() if name in changing)
        return (
            [
                f"{named}, and batches {first} to {last}, whose results the old code has published, would be "
                f"stepped again by the new one for the states of {', '.join(map(repr, states))}"
            ],
            ["let the old code run once more until it ends in good order (Ctrl-C once), then change it"],
        )

    def _other_columns(
        self, position: Position, changing: Sequence[str], emptied: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """States that would be asked to go on with rows of other columns than they hold."""
        left = self._misfits(position, changing, emptied)
        lines = [f"operator {name!r} keeps rows that its new ones do not fit ({words})" for name, words in left.items()]
        return lines, [f"start it empty as well by {OPTION} {','.join(left)}"] if left else []

    def _misfits(self, position: Position, changing: Sequence[str], emptied: Collection[str]) -> dict[str, str]:
        """Operators that would keep their states and get other columns, and in words which."""
        affected = behind(self.application.topology, changing) | set(self.comparison.rewired)
        before, left = position.schemas, {}
        for name in (operator.name for operator in self.application.topology.operators):
            if name in affected and name not in emptied and self._keeps(name):
                pairs = zip(self._inputs(name, before), self._inputs(name, self.application.schemas), strict=False)
                words = [
                    f"input {number} had {listed(old)}, gets {listed(new)}"
                    for number, (old, new) in enumerate(pairs, start=1)
                    if old != new
                ]
                if words:
                    left[name] = "; ".join(words)
        return left

    def _inputs(self, name: str, schemas: Schemas) -> list[pl.Schema]:
        """The columns that an operator gets, as its code now takes them; nothing if they are not known."""
        streams = self.application.topology.operator(name).inputs
        if any(stream.operator not in schemas for stream in streams):
            return []
        with contextlib.suppress(Exception):  # of users' own: what it takes now may not be what it took
            return [frame.schema for frame in inputs_of(self.application, name, schemas)]
        return [schemas[stream.operator] for stream in streams]

    def _states(self, names: Collection[str]) -> list[str]:
        """Which of these operators, and of those behind them, have states."""
        touched = {*names, *behind(self.application.topology, names)}
        return [
            operator.name
            for operator in self.application.topology.operators
            if operator.name in touched and self._keeps(operator.name)
        ]

    def _keeps(self, name: str) -> bool:
        """Whether an operator has a state and had the chance to: one that is new has seen nothing of the old code."""
        return self.application.has_state(name) and name not in self.comparison.new

    def _check_kept(self, name: str) -> None:
        if not (is_own(self.application, name) and self.application.has_state(name)):
            raise InvalidRequest(
                f"{OPTION} {name}={KEEP}: only the state of a computation of your own can be good for other code, "
                f"found {name!r}, which is none: write {name} to start it empty"
            )
        before, now = (operator_of(description, name) for description in (self.stored, self.given))
        shared = shared_by(self.stored, name) == shared_by(self.given, name)
        keys = before["keys"] == now["keys"] or (name in self.comparison.rewired and shared)
        if OWN not in before or before["stateless"] or not keys or self._state_differs(name):
            raise InvalidRequest(
                f"{OPTION} {name}={KEEP}: the new code reads the state that the old one left, found other keys or "
                f"another state_schema in {name!r}: write {name} to start it empty"
            )

    def _state_differs(self, name: str) -> bool:
        if not isinstance(self.application.computations[name], KeyedComputation):
            return False
        members = [
            records.mapping(records.mapping(operator_of(description, name)[OWN])["(members)"])
            for description in (self.stored, self.given)
        ]
        return any(members[0].get(part) != members[1].get(part) for part in STATE_PARTS)
