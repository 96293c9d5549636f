"""What a user should know of code that was admitted on a store: operator by operator, what becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from tenax.application.application import Application
from tenax.operators.join import Join
from tenax.operators.top import Top
from tenax.operators.windows import Windows
from tenax.store import records
from tenax.store.records import JsonObject
from tenax.takeover.changes import Position
from tenax.takeover.comparisons import Comparison, Touches, behind, places_of
from tenax.takeover.upgrades import behind_new_sources, renamed, state_bytes

KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Telling:
    """What was admitted, to be put in words.

    `moved` outputs have results up to these batches elsewhere; `asked` are the tasks that operators had and are asked
    to have. With `upgrade` every operator is told of, not only those that differ.
    """

    application: Application
    comparison: Comparison
    position: Position
    accepted: Mapping[str, str]
    stored: JsonObject
    given: JsonObject
    emptied: Collection[str] = ()
    moved: Mapping[str, Sequence[int]] = field(default_factory=dict)
    asked: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    upgrade: bool = False

    @property
    def words(self) -> list[str]:
        """All that there is to say, one line each."""
        notes = list(self.comparison.notes)
        reshaped = self.comparison.reshaped
        if reshaped and self.stored["topology"] != self.given["topology"]:
            notes.append(f"the topology was called {self.stored['topology']!r}, is {self.given['topology']!r}")
        notes += self._changed()
        notes += [self._emptied(name) for name in self.emptied]
        if self.upgrade:
            notes += [*self._new(), *self._gone(), *self._staying()]
        notes += self._outputs()
        notes += [
            f"operator {name!r} is to have {now} tasks, has had {before}" for name, (before, now) in self.asked.items()
        ]
        notes += self._new_columns()
        notes += [f"output {name!r} is new: it begins with batch {self._first}" for name in self.comparison.added]
        stay = "; its results stay where they are" if reshaped else ""
        notes += [f"output {name!r} is written no more{stay}" for name in self.comparison.dropped]
        if reshaped:
            notes += [*self._less(), *renamed(self.application, self.stored, self.given, self.comparison)]
        if self.position.last is not None and not set(self.comparison.new) & set(self.application.sources):
            notes.append(f"the sources had ended: no batch follows batch {self.position.last}")
        return notes

    @property
    def _first(self) -> int:
        return self.position.batch + 1

    def _changed(self) -> list[str]:
        notes = []
        for name, change in self.comparison.changed.items():
            if name in self.emptied:
                continue
            if self.accepted.get(name) == KEEP:
                notes.append(f"{change}: from batch {self._first} on, with the state that the old code left")
            elif change.touches is Touches.RANGES:
                notes.append(f"{change}: goes on from its position after batch {self._first - 1}")
            else:
                notes.append(f"{change}: from batch {max(self._first, self.position.published + 1)} on")
        return notes

    def _emptied(self, name: str) -> str:
        why = "" if name not in self.comparison.changed else f" ({', '.join(self.comparison.changed[name].words)})"
        less = sorted(behind(self.application.topology, [name]) & set(self.application.sinks))
        return f"operator {name!r}{why} starts empty with batch {self._first}: {self._lost(name)}" + (
            f"; fewer or partial results reach {', '.join(map(repr, less))}" if less else ""
        )

    def _new(self) -> list[str]:
        notes = []
        for name in self.comparison.new:
            if name in self.application.sources:
                notes.append(f"source {name!r} is new: it is read from its beginning, from batch {self._first} on")
            else:
                begins = "begins empty" if self.application.has_state(name) else "begins"
                notes.append(f"operator {name!r} is new: it {begins} with batch {self._first}")
        return notes

    def _gone(self) -> list[str]:
        sizes, shape = state_bytes(self.position), records.mapping(self.stored["shape"])
        notes = []
        for name in self.comparison.gone:
            if records.mapping(shape[name])["source"]:
                notes.append(f"source {name!r} is gone: it is read no more")
            elif sizes.get(name):
                notes.append(f"operator {name!r} is gone: its state ({sizes[name]:,} bytes) is dropped")
            else:
                notes.append(f"operator {name!r} is gone")
        return notes

    def _staying(self) -> list[str]:
        """What goes on as it is: with a state each in a line, without in one."""
        differing = {*self.comparison.changed, *self.comparison.new, *self.emptied}
        sizes = state_bytes(self.position)
        stay = [operator.name for operator in self.application.topology.operators if operator.name not in differing]
        states = [name for name in stay if self.application.has_state(name)]
        notes = [f"operator {name!r} goes on with its state ({sizes.get(name, 0):,} bytes)" for name in states]
        others = [name for name in stay if name not in states]
        if others:
            notes.append(f"as they are go on {', '.join(map(repr, others))}")
        return notes

    def _outputs(self) -> list[str]:
        notes = []
        places = places_of(self.given)
        for name, log in self.comparison.sinks.items():
            if name in self.moved:
                notes.append(
                    f"output {name!r}: results after batch {min(self.moved[name])} go to {places[name]}, earlier ones "
                    f"stay in {log}"
                )
            else:
                notes.append(f"output {name!r} has moved with all its results, from {log} to {places[name]}")
        return notes

    def _new_columns(self) -> list[str]:
        """Outputs whose results will have other columns than before."""
        before, now = self.position.schemas, self.application.schemas
        return [
            f"output {name!r} has other columns from batch {self._first} on: {listed(now[name])}"
            for name in self.application.sinks
            if name in before and name in now and name not in self.comparison.added and before[name] != now[name]
        ]

    def _less(self) -> list[str]:
        """Operators that go on with their states and whose rows are not what they would have been."""
        notes = []
        empty = {*self.emptied, *(name for name in self.comparison.new if self.application.has_state(name))}
        for operator in self.application.topology.operators:
            name = operator.name
            if name in empty or not isinstance(self.application.computations.get(name), Join):
                continue
            sides = [
                stream.operator
                for stream in operator.inputs
                if stream.operator in empty or not empty.isdisjoint(_before(self.application, stream.operator))
            ]
            if sides:
                notes.append(
                    f"operator {name!r} goes on, but what it joins from {', '.join(map(repr, sides))} starts empty: "
                    "windows that are open now may lack pairs"
                )
        for name, sources in behind_new_sources(self.application, self.comparison, self.emptied).items():
            notes.append(
                f"operator {name!r} goes on and waits for {', '.join(map(repr, sources))} from now on: rows of windows "
                "that are complete already are dropped as late"
            )
        return notes

    def _lost(self, name: str) -> str:
        match self.application.computations[name]:
            case Windows():
                return "windows that are open now will have the rows of later batches only"
            case Join() | Top():
                return "rows that waited for their window to close are gone"
        return "all that it had kept is gone"


def listed(schema: pl.Schema) -> str:
    """Columns in words."""
    return ", ".join(f"{name}: {kind}" for name, kind in schema.items()) or "none"


def _before(application: Application, name: str) -> set[str]:
    """The operators whose rows come to one, through others too."""
    before: set[str] = set()
    left = [name]
    while left:  # ends: every operator is looked at once for each stream that leads from it
        producers = [stream.operator for stream in application.topology.operator(left.pop()).inputs]
        left += [producer for producer in producers if producer not in before]
        before |= set(producers)
    return before
