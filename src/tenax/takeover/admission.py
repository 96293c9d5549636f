"""Whether an application may run on a store that other code has left, and what that changes; see `changes`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.fingerprints import OWN, operator_of
from tenax.application.schemas import Schemas, inputs_of
from tenax.connectors.ledger import FINAL, parts_of
from tenax.errors import InvalidRequest, UnsuitableStore
from tenax.model.topology import suggestion
from tenax.operators.custom import KeyedComputation
from tenax.operators.join import Join
from tenax.operators.top import Top
from tenax.operators.windows import Windows
from tenax.store import cuts, journal, records
from tenax.store.checkpoints import Manifests, ValidCheckpoint
from tenax.store.journal import Journal
from tenax.store.records import Json, JsonObject
from tenax.store.store import CHANGES, about
from tenax.takeover.changes import Changes, Position
from tenax.takeover.comparisons import PLACE, Comparison, Touches, behind, compared, is_own, placed

KEEP = "keep"
OPTION = "--accept-changes"
STATE_PARTS = ("keys", "state_schema")  # of a keyed computation: what its state is read by


def admitted(application: Application, folder: Path, fingerprint: Mapping[str, Json], accept: Sequence[str]) -> Changes:
    """What an application changes on a store; refuses, in one line, what it must not. It reads, and writes nothing.

    `accept` names operators whose changed state is given up, `NAME=keep` those whose state is good for the new code
    too, sources that go on in something else, and outputs that go elsewhere.
    """
    given = placed(fingerprint, application.sinks, folder)
    accepted = _accepted(application, accept)
    known_store = about(folder)
    if known_store is None:
        _refuse_unchanged(accepted, (), ())
        return Changes(application, given)
    known = journal.read(folder / CHANGES)
    stored = records.mapping(known[-1]["topology"] if known else known_store["topology"])
    comparison = compared(application, stored, given)
    if comparison.reshaped:
        raise UnsuitableStore(
            f"{folder}: a store belongs to one topology, found another: {'; '.join(comparison.reshaped)}: run the "
            "topology that made it, or use another folder"
        )
    repeated = [str(record) for record in records.items(known[-1]["accepted"])] if known else []
    if comparison.is_empty and all(word in repeated for word in accept):
        return Changes(application, given, known)
    accepted = _newly_accepted(application, comparison, accepted, repeated)
    judge = _Judge(application, folder, records.text(known_store, "identity"), comparison, accepted, stored, given)
    return judge.changes(known, tuple(accept))


def fence(changes: Changes, folder: Path, epoch: int) -> None:
    """Let no driver commit any more where outputs went before."""
    for log in changes.left:
        if (folder / log).exists():
            Journal.open(folder / log, epoch)[0].close()


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges the differences between an application and its store."""

    application: Application
    folder: Path
    identity: str
    comparison: Comparison
    accepted: Mapping[str, str]
    stored: JsonObject
    given: JsonObject

    def changes(self, known: Sequence[JsonObject], accept: tuple[str, ...]) -> Changes:
        """What is admitted; raises if anything is not."""
        for name, how in self.accepted.items():
            if how == KEEP:
                self._check_kept(name)
        position = self._position()
        comparison, topology = self.comparison, self.application.topology
        emptied = [
            operator.name
            for operator in topology.operators
            if self.accepted.get(operator.name) == ""
            and (self.application.has_state(operator.name) or not operator_of(self.stored, operator.name)["stateless"])
            and operator.name not in self.application.sources
        ]
        if position.is_beginning:
            emptied = []
        changing = [name for name, change in comparison.changed.items() if change.touches is not Touches.PLANNING]
        moved, refused, remedies = self._moved(position)
        for part in (
            self._unaccepted(position),
            self._rebuilt(position, changing, emptied),
            self._replayed(position, changing, emptied),
        ):
            refused += part[0]
            remedies += part[1]
        if not refused:
            refused, remedies = self._other_columns(position, changing, emptied)
        if refused:
            others = [
                str(change)
                for change in comparison.changed.values()
                if not any(str(change) in word for word in refused)
            ]
            raise UnsuitableStore(
                f"{self.folder}: the code is not that of the store: {'; '.join([*refused, *others])}: "
                f"{', or '.join(dict.fromkeys([*remedies, 'run the code that the store is of']))}"
            )
        return Changes(
            self.application,
            self.given,
            known,
            0 if position.checkpoint is None else position.checkpoint.number,
            position.batch,
            tuple(changing),
            tuple(emptied),
            accept,
            moved,
            tuple(self._words(position, emptied, moved)),
            tuple(comparison.sinks.values()),
            bool(self._states({*changing, *emptied})),
            comparison.rescaled,
        )

    def _position(self) -> Position:
        newest = Manifests(self.folder).newest_valid()
        checkpoint = newest.checkpoint if isinstance(newest, ValidCheckpoint) else None
        cut = None
        if checkpoint is not None:
            cut = cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes))
        logs = {name: str(records.mapping(sink)["log"]) for name, sink in records.mapping(self.stored["sinks"]).items()}
        published = [max(self._last(name, log).values(), default=0) for name, log in logs.items()]
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

    def _moved(self, position: Position) -> tuple[dict[str, list[int]], list[str], list[str]]:
        """Up to where results lie where outputs went before; what is wrong with that, and remedies."""
        moved: dict[str, list[int]] = {}
        refused: list[str] = []
        for name, log in self.comparison.sinks.items():
            here = self._last(name, self._log(name))
            if self._reaches(name, here, position.batch) and here:
                continue  # the folder was moved, with its log
            before = self._last(name, log)
            moved[name] = [max(before.get(partition, 0), position.batch) for partition in range(self._partitions(name))]
            if name not in self.accepted and not position.is_beginning:
                refused.append(f"output {name!r} went to {log}, goes to {self._log(name)}")
        for name in self.comparison.added:
            moved[name] = [position.batch] * self._partitions(name)
        names = ",".join(name for name in moved if name in self.comparison.sinks)
        return moved, refused, [f"leave earlier results where they are with {OPTION} {names}"] if refused else []

    def _reaches(self, output: str, last: Mapping[int, int], batch: int) -> bool:
        return all(last.get(partition, 0) >= batch for partition in range(self._partitions(output)))

    def _partitions(self, output: str) -> int:
        """How many partitions an output has; that of late rows as many as its source."""
        topology = self.application.topology
        known = {operator.name: operator.parallelism for operator in topology.operators}
        return known[output] if output in known else known[output.removesuffix("-late")]

    def _log(self, output: str) -> str:
        return str(records.mapping(records.mapping(self.given["sinks"])[output])["log"])

    def _unaccepted(self, position: Position) -> tuple[list[str], list[str]]:
        """What touches a state, or what logged ranges mean, and was not accepted."""
        if position.is_beginning:
            states = []
        else:
            states = [change for change in self.comparison.changed.values() if change.touches is Touches.STATE]
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
        affected = behind(self.application.topology, changing)
        before, left = position.schemas, []
        for name in (operator.name for operator in self.application.topology.operators):
            if name in affected and name not in emptied and self._keeps(name):
                pairs = zip(self._inputs(name, before), self._inputs(name, self.application.schemas), strict=False)
                for number, (old, new) in enumerate(pairs, start=1):
                    if old != new:
                        left.append((name, f"input {number} had {_listed(old)}, gets {_listed(new)}"))
        names = ",".join(dict.fromkeys(name for name, _ in left))
        lines_ = [f"operator {name!r} keeps rows that its new ones do not fit ({words})" for name, words in left]
        return lines_, [f"start it empty as well by {OPTION} {names}"] if left else []

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
        return self.application.has_state(name)

    def _check_kept(self, name: str) -> None:
        if not (is_own(self.application, name) and self.application.has_state(name)):
            raise InvalidRequest(
                f"{OPTION} {name}={KEEP}: only the state of a computation of your own can be good for other code, "
                f"found {name!r}, which is none: write {name} to start it empty"
            )
        before, now = (operator_of(description, name) for description in (self.stored, self.given))
        if OWN not in before or before["stateless"] or before["keys"] != now["keys"] or self._state_differs(name):
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

    def _words(self, position: Position, emptied: Sequence[str], moved: Mapping[str, Sequence[int]]) -> list[str]:
        """What the user should know of what was admitted."""
        first = position.batch + 1
        notes = list(self.comparison.notes)
        for name, change in self.comparison.changed.items():
            if name in emptied:
                continue
            if self.accepted.get(name) == KEEP:
                notes.append(f"{change}: from batch {first} on, with the state that the old code left")
            elif change.touches is Touches.RANGES:
                notes.append(f"{change}: goes on from its position after batch {first - 1}")
            else:
                notes.append(f"{change}: from batch {max(first, position.published + 1)} on")
        for name in emptied:
            why = "" if name not in self.comparison.changed else f" ({', '.join(self.comparison.changed[name].words)})"
            less = sorted(behind(self.application.topology, [name]) & set(self.application.sinks))
            notes.append(
                f"operator {name!r}{why} starts empty with batch {first}: {self._lost(name)}"
                + (f"; fewer or partial results reach {', '.join(map(repr, less))}" if less else "")
            )
        for name, log in self.comparison.sinks.items():
            if name in moved:
                notes.append(
                    f"output {name!r}: results after batch {min(moved[name])} go to {self._log(name)}, earlier ones "
                    f"stay in {log}"
                )
            else:
                notes.append(f"output {name!r} has moved with all its results, from {log} to {self._log(name)}")
        notes += [
            f"operator {name!r} is to have {now} tasks, has had {before}"
            for name, (before, now) in self.comparison.rescaled.items()
        ]
        notes += self._new_columns(position)
        notes += [f"output {name!r} is new: it begins with batch {first}" for name in self.comparison.added]
        notes += [f"output {name!r} is written no more" for name in self.comparison.dropped]
        if position.last is not None:
            notes.append(f"the sources had ended: no batch follows batch {position.last}")
        return notes

    def _new_columns(self, position: Position) -> list[str]:
        """Outputs whose results will have other columns than before."""
        before, now = position.schemas, self.application.schemas
        return [
            f"output {name!r} has other columns from batch {position.batch + 1} on: {_listed(now[name])}"
            for name in self.application.sinks
            if name in before and name in now and before[name] != now[name]
        ]

    def _lost(self, name: str) -> str:
        match self.application.computations[name]:
            case Windows():
                return "windows that are open now will have the rows of later batches only"
            case Join() | Top():
                return "rows that waited for their window to close are gone"
        return "all that it had kept is gone"


def _listed(schema: pl.Schema) -> str:
    """Columns in words."""
    return ", ".join(f"{name}: {kind}" for name, kind in schema.items()) or "none"


def _accepted(application: Application, accept: Sequence[str]) -> dict[str, str]:
    """Names and what was said of each, if there are such operators or outputs."""
    known = list(dict.fromkeys([*(operator.name for operator in application.topology.operators), *application.sinks]))
    answers: dict[str, str] = {}
    for word in accept:
        name, sign, how = (part.strip() for part in word.partition("="))
        if name not in known:
            raise InvalidRequest(f"{OPTION} names operators and outputs, found {name!r}{suggestion(name, known)}")
        if sign and how != KEEP:
            raise InvalidRequest(f"{OPTION} is NAME or NAME={KEEP}, found {word!r}: write {name} to start it empty")
        answers[name] = how
    return answers


def _newly_accepted(
    application: Application, comparison: Comparison, accepted: Mapping[str, str], repeated: Sequence[str]
) -> dict[str, str]:
    """What is accepted of these differences: a command that is given again repeats what it accepted before."""
    changed = [*comparison.changed, *comparison.sinks]
    touched = [name for name in behind(application.topology, comparison.changed) if application.has_state(name)]
    before = {word.partition("=")[0] for word in repeated}
    _refuse_unchanged(
        {name: how for name, how in accepted.items() if name not in before}, [*changed, *touched], changed
    )
    return {name: how for name, how in accepted.items() if name in changed or name in touched}


def _refuse_unchanged(accepted: Mapping[str, str], may: Sequence[str], changed: Sequence[str]) -> None:
    for name in accepted:
        if name not in may:
            others = f"{', '.join(changed)} changed" if changed else "nothing has"
            raise InvalidRequest(f"{OPTION} names what has changed, found {name!r}, but {others}: leave it out")
