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

    - `reshaped` says what makes it another topology: operators that are `gone` or `new`, and `rewired` ones, which get
      their rows from others than before, among these; `rescaled` are the operators that are to have another number of
      tasks: what they had and are to have. `repartitioned` sources have other partitions, or were none, or are none.
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
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    rewired: tuple[str, ...] = ()
    repartitioned: tuple[str, ...] = ()

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


def compared(
    application: Application, stored: JsonObject, given: JsonObject, tasks: Mapping[str, int] | None = None
) -> Comparison:
    """What differs, of operators that there were and are; they have so many `tasks`, if not as many as was declared."""
    before, now = mapping(stored["shape"]), mapping(given["shape"])
    rescaled = _rescaled(stored, given)
    lenient = not same_versions(stored, given)
    rewired = tuple(name for name in now if name in before and _inputs(before, name) != _inputs(now, name))
    changed: dict[str, Changed] = {}
    for name in (operator.name for operator in application.topology.operators if operator.name in before):
        parts = operator_of(stored, name), operator_of(given, name)
        differing = differences(*parts, lenient=lenient)
        if name in rewired:  # by which keys rows come from others than before says nothing more
            differing = [difference for difference in differing if difference.path.partition(".")[0] != KEYS]
            differing.insert(0, _rewiring(_inputs(before, name), _inputs(now, name)))
        if differing:
            words = tuple(dict.fromkeys(difference.words for difference in differing))
            changed[name] = Changed(name, _touches(application, name, parts[0], differing), words)
    reshaped = _reshaped(stored, given, rescaled)
    shared = _wired_otherwise(application, stored, given, tasks or {}) if reshaped else {}
    shared |= _otherwise_shared(application, stored, given, set(changed) - set(rewired), changed)
    for name, why in shared.items():
        known = changed.get(name)
        changed[name] = Changed(name, Touches.STATE, (*(known.words if known else ()), why))
    before_places, now_places = places_of(stored), places_of(given)
    return Comparison(
        tuple(reshaped),
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
        tuple(name for name in before if name not in now),
        tuple(name for name in now if name not in before),
        rewired,
        tuple(name for name in now if name in before and _is_repartitioned(mapping(before[name]), mapping(now[name]))),
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


def places_of(whole: JsonObject) -> dict[str, str]:
    """Where the commit log of every output lies, or its results, as a fingerprint has it."""
    return {name: text(mapping(sink), "log") for name, sink in mapping(whole["sinks"]).items()}


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


def _inputs(shape: JsonObject, name: str) -> list[str]:
    """The operators that an operator gets its rows from."""
    return [str(stream).rpartition(" (")[0] for stream in items(mapping(shape[name])["inputs"])]


def _rewiring(before: Sequence[str], now: Sequence[str]) -> Difference:
    return Difference("inputs", f"inputs were {', '.join(before) or 'none'}, are {', '.join(now) or 'none'}")


def _is_repartitioned(before: JsonObject, now: JsonObject) -> bool:
    """Whether the partitions of a source are others than the logged ones, or there are some only before or now."""
    return before["source"] != now["source"] or (bool(now["source"]) and before["parallelism"] != now["parallelism"])


def _but_for_tasks(shape: JsonObject) -> JsonObject:
    """The shape of an operator without what follows from numbers of tasks: how its inputs are partitioned, weights."""
    if shape["source"]:
        return shape
    inputs = [str(stream).rpartition(" (")[0] for stream in items(shape["inputs"])]
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
    application: Application,
    stored: JsonObject,
    given: JsonObject,
    names: Collection[str],
    changed: Mapping[str, Changed],
) -> dict[str, str]:
    """Operators with states whose rows come to other tasks now, because an operator before them is keyed otherwise."""
    shared: dict[str, str] = {}
    for name, change in changed.items():
        if name not in names or change.touches is not Touches.ROWS or name in application.sources:
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


def _wired_otherwise(
    application: Application, stored: JsonObject, given: JsonObject, tasks: Mapping[str, int]
) -> dict[str, str]:
    """Operators with states whose rows come to other tasks now, because there are others before them."""
    shape = mapping(stored["shape"])
    return {
        name: "its rows are shared otherwise"
        for name in mapping(given["shape"])
        if name in shape
        and application.has_state(name)
        and tasks.get(name, integer(mapping(shape[name]), "parallelism")) > 1
        and shared_by(stored, name) != shared_by(given, name)
    }


def shared_by(whole: JsonObject, name: str) -> tuple[object, ...]:
    """By what the tasks of an operator share its rows: by keys, by the partitions of a source, or not at all."""
    shape = mapping(mapping(whole["shape"])[name])
    if shape["source"]:
        return (name,)
    keys = mapping(operator_of(whole, name)[KEYS])
    shared: list[object] = []
    for stream in items(shape["inputs"]):
        producer, _, partitioning = str(stream).rpartition(" (")
        if items(keys[producer]):
            shared.append(("keys", *items(keys[producer])))
        elif partitioning == f"{Partitioning.ONE_TO_ONE})":
            shared.append(shared_by(whole, producer))
        else:
            shared.append("all")
    return tuple(shared)


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
