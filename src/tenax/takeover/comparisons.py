"""How an application differs from what a store remembers, operator by operator, and what each difference touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tenax.application.application import Application
from tenax.application.descriptions import is_library
from tenax.application.fingerprints import KEYS, Difference, differences, operator_of, same_versions, shown
from tenax.connectors.logged import LoggedSink
from tenax.connectors.sink import Sink
from tenax.model.topology import Partitioning, Topology
from tenax.store.records import Json, JsonObject, integer, items, mapping, text

PLACE = "the place "  # before the place of a sink that keeps no commit log: no path begins so
LATENESS = "lateness"  # how the last part of the paths of such parameters begins


class Touches(Enum):
    """What a change of an operator touches, the least first."""

    PLANNING = 1
    """What a source plans next."""
    ROWS = 2
    """The rows that go on to others: nothing is kept here from batch to batch."""
    RANGES = 3
    """What the logged ranges and positions of a source mean."""
    STATE = 4
    """What a state means."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An operator that is not as it was."""

    operator: str
    touches: Touches
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"operator {self.operator!r}: {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that differs between an application and what a store remembers.

    - `reshaped` says what makes it another topology; `rescaled` are the operators that are to have another number of
      tasks: what they had and are to have.
    - `changed` are operators, in the order of the topology; `sinks` are outputs whose results go elsewhere now, with
      where they went, `added` and `dropped` those that were not there, and are no more.
    - `notes` say what could not be compared as it should.
    """

    reshaped: tuple[str, ...]
    changed: Mapping[str, Changed]
    sinks: Mapping[str, str]
    added: tuple[str, ...]
    dropped: tuple[str, ...]
    notes: tuple[str, ...]
    rescaled: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        parts = (self.reshaped, self.changed, self.sinks, self.added, self.dropped, self.notes, self.rescaled)
        return not any(parts)


def placed(whole: Mapping[str, Json], sinks: Mapping[str, Sink], store: Path) -> dict[str, Json]:
    """A fingerprint that also says where the commit log of every output lies, or its results if it keeps none."""
    places: dict[str, Json] = {}
    for name, sink in sinks.items():
        places[name] = {**mapping(mapping(whole["sinks"])[name]), "log": _log_of(name, sink, store)}
    return {**whole, "sinks": places}


def _log_of(output: str, sink: Sink, store: Path) -> str:
    if not isinstance(sink, LoggedSink):
        return f"{PLACE}{sink.place}"
    log = sink.log_of(output, store)
    return str(log.relative_to(store) if log.is_relative_to(store) else log)  # a store may be moved with all in it


def compared(application: Application, stored: JsonObject, given: JsonObject) -> Comparison:
    """What differs; if it is another topology, nothing else is looked at."""
    rescaled = _rescaled(stored, given)
    reshaped = _reshaped(stored, given, rescaled)
    if reshaped:
        return Comparison(tuple(reshaped), {}, {}, (), (), ())
    lenient = not same_versions(stored, given)
    changed: dict[str, Changed] = {}
    for operator in application.topology.operators:
        name = operator.name
        before, now = operator_of(stored, name), operator_of(given, name)
        differing = differences(before, now, lenient=lenient)
        if differing:
            words = tuple(dict.fromkeys(difference.words for difference in differing))
            changed[name] = Changed(name, _touches(application, name, before, differing), words)
    for name, why in _otherwise_shared(application, stored, given, changed).items():
        known = changed.get(name)
        changed[name] = Changed(name, Touches.STATE, (*(known.words if known else ()), why))
    places = [
        {name: text(mapping(sink), "log") for name, sink in mapping(whole["sinks"]).items()}
        for whole in (stored, given)
    ]
    before_places, now_places = places
    return Comparison(
        (),
        {
            operator.name: changed[operator.name]
            for operator in application.topology.operators
            if operator.name in changed
        },
        {name: log for name, log in before_places.items() if now_places.get(name, log) != log},
        tuple(name for name in now_places if name not in before_places),
        tuple(name for name in before_places if name not in now_places),
        () if not lenient else (_lenience(stored, given),),
        rescaled,
    )


def behind(topology: Topology, names: Iterable[str]) -> set[str]:
    """The operators that get rows from these, through others too; not these themselves, unless from one another."""
    known = set(names)
    downstream: set[str] = set()
    grown = True
    while grown:  # ends: each turn but the last finds an operator
        more = {
            operator.name
            for operator in topology.operators
            if any(into.operator in known | downstream for into in operator.inputs)
        }
        grown = not more <= downstream
        downstream |= more
    return downstream


def is_own(application: Application, name: str) -> bool:
    """Whether an operator's computation is the user's own class."""
    computation = application.computations.get(name)
    return computation is not None and not is_library(type(computation).__module__)


def _rescaled(stored: JsonObject, given: JsonObject) -> dict[str, tuple[int, int]]:
    """Operators with another number of tasks: before and now. The partitions of a source are part of its shape."""
    before, now = mapping(stored["shape"]), mapping(given["shape"])
    both = {name: (mapping(before[name]), mapping(now[name])) for name in now if name in before}
    return {
        name: (integer(old, "parallelism"), integer(new, "parallelism"))
        for name, (old, new) in both.items()
        if old["parallelism"] != new["parallelism"] and not new["source"]
    }


def _but_for_tasks(shape: JsonObject) -> JsonObject:
    """The shape of an operator without what follows from numbers of tasks: how its inputs are partitioned, weights."""
    if shape["source"]:
        return shape
    inputs = [str(stream).partition(" ")[0] for stream in items(shape["inputs"])]
    return {"inputs": inputs, "source": shape["source"]}


def _reshaped(stored: JsonObject, given: JsonObject, rescaled: Collection[str]) -> list[str]:
    if stored["topology"] != given["topology"]:
        return [f"the topology was {shown(stored['topology'])}, is {shown(given['topology'])}"]
    before, now = mapping(stored["shape"]), mapping(given["shape"])
    words = [f"operator {name!r} is gone" for name in before if name not in now]
    words += [f"operator {name!r} is new" for name in now if name not in before]
    for name in (operator for operator in now if operator in before):
        shapes = mapping(before[name]), mapping(now[name])
        if rescaled:
            shapes = _but_for_tasks(shapes[0]), _but_for_tasks(shapes[1])
        differing = differences(*shapes)
        words += [f"operator {name!r}: {difference.words}" for difference in differing]
    return words


def _touches(application: Application, name: str, before: JsonObject, differing: Sequence[Difference]) -> Touches:
    source = application.sources.get(name)
    if source is None:
        still = application.computations[name].stateless and bool(before["stateless"])
        return Touches.ROWS if still else Touches.STATE
    paths = {difference.path for difference in differing} - source.only_planned
    if not paths:
        return Touches.PLANNING
    late = all(path.rpartition(".")[2].startswith(LATENESS) for path in paths)
    return Touches.ROWS if late else Touches.RANGES


def _otherwise_shared(
    application: Application, stored: JsonObject, given: JsonObject, changed: Mapping[str, Changed]
) -> dict[str, str]:
    """Operators with states whose rows come to other tasks now, because an operator before them is keyed otherwise."""
    shared: dict[str, str] = {}
    for name, change in changed.items():
        if change.touches is not Touches.ROWS or name in application.sources:
            continue
        if operator_of(stored, name)[KEYS] == operator_of(given, name)[KEYS]:
            continue
        partners = {name}
        for operator in application.topology.operators:  # producers come before their consumers
            paired = (into.operator for into in operator.inputs if into.partitioning is Partitioning.ONE_TO_ONE)
            if not partners.isdisjoint(paired):
                partners.add(operator.name)
                if application.has_state(operator.name):
                    shared[operator.name] = f"its rows are shared by other keys (those of {name!r})"
    return shared


def _places(whole: JsonObject) -> dict[str, str]:
    return {name: text(mapping(sink), "log") for name, sink in mapping(whole["sinks"]).items()}


def _lenience(stored: JsonObject, given: JsonObject) -> str:
    versions = " and ".join(
        f"{name.capitalize()} {shown(stored.get(name))}, this is {shown(given.get(name))}"
        for name in ("python", "polars")
        if stored.get(name) != given.get(name)
    )
    return (
        f"the store was written with {versions}: of expressions their columns and names are compared, of code what it "
        "reads, and no more"
    )
