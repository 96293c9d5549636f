"""Upgrades: other operators take over a store; which version of its topology that makes, and what can go wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tenax.application.application import Application
from tenax.application.fingerprints import differences, operator_of
from tenax.application.scaling import carried_over, first_version
from tenax.connectors.logged import LoggedSink
from tenax.model.topology_versions import TopologyVersion
from tenax.operators.join import Join
from tenax.operators.keys import owners
from tenax.operators.top import Top
from tenax.operators.windows import Windows
from tenax.store import journal, records, topology_versions
from tenax.store.records import JsonObject
from tenax.store.store import Store
from tenax.store.topology_versions import VERSION
from tenax.takeover.changes import VERSIONS, Position
from tenax.takeover.comparisons import Comparison

UPGRADE = "--upgrade"
AGAIN = "let the old code run once more until it ends in good order (Ctrl-C once), then upgrade it"

Wrong = tuple[list[str], list[str]]
"""What is refused, and the remedies."""


def versions_of(store: Path, changes: Sequence[JsonObject]) -> tuple[TopologyVersion, ...]:
    """All versions of a store, with those of an upgrade whose driver has died before it had recorded them."""
    known = topology_versions.read_versions(store)
    return (*known, *(version for version in _made(changes) if version.number > len(known)))


def complete(store: Store) -> None:
    """Record the versions that recorded changes have made: what a driver that died in between has left undone."""
    recorded = len(topology_versions.read_versions(store.folder))
    for version in _made(store.changes):
        if version.number > recorded:
            topology_versions.record_version(store.folder, version, store.check_epoch)


def _made(changes: Sequence[JsonObject]) -> list[TopologyVersion]:
    return [
        topology_versions.from_record(records.mapping(version), f"version {records.mapping(version)['number']}")
        for change in changes
        for version in records.items(change.get(VERSIONS, ()))
    ]


def first_of(application: Application, stored: JsonObject) -> TopologyVersion:
    """The version that a store began with whose drivers knew of none, as the application of then had declared it."""
    shape = {name: records.mapping(value) for name, value in records.mapping(stored["shape"]).items()}
    tasks = {name: records.integer(operator, "parallelism") for name, operator in shape.items()}
    tables = {
        name: tuple(map(int, owners(_weights(shape[name]) or (1.0,) * tasks[name])))
        for name in first_version(application).tables
        if name in shape and not shape[name]["source"]
    }
    return TopologyVersion(1, 0, tasks, tables)


def _weights(operator: JsonObject) -> tuple[float, ...]:
    weights = operator["weights"]
    return () if weights is None else tuple(float(str(weight)) for weight in records.items(weights))


def next_of(
    application: Application, present: TopologyVersion, comparison: Comparison, empty: Collection[str], after: int
) -> TopologyVersion:
    """The version that an upgrade begins: operators that are not `empty` keep the tasks that their states lie in."""
    kept = [operator.name for operator in application.topology.operators if operator.name not in empty]
    staying = [name for name in kept if name not in comparison.rewired]
    keeping = [name for name in kept if application.has_state(name)]
    return carried_over(application, present, staying, keeping, after, "upgrade")


def not_upgraded(
    application: Application,
    position: Position,
    comparison: Comparison,
    emptied: Collection[str],
    upgraded: Collection[int],
    versions: Sequence[TopologyVersion],
) -> Wrong:
    """Why other operators cannot take over here."""
    refused: list[str] = []
    remedies: list[str] = []
    for name in comparison.repartitioned:
        refused.append(f"source {name!r} has other partitions than its log, or is one only before or now")
        remedies.append(f"declare {name!r} as it was, or give it another name, with which it begins at its beginning")
    notes = {} if position.checkpoint is None else records.mapping(position.checkpoint.notes)
    stored = records.integer(notes, VERSION) if VERSION in notes else 1
    others = [version for version in versions[stored:] if version.number not in upgraded]
    if position.checkpoint is not None and others:
        refused.append(
            f"an upgrade begins from a checkpoint of the newest version of the topology, found one of version {stored} "
            f"of {versions[-1].number}"
        )
        remedies.append(AGAIN)
    left = _fed_by_retained(application, position, comparison, emptied)
    if left:
        refused.append(f"the state of {', '.join(map(repr, left))} would be rebuilt from outputs retained by old tasks")
        remedies.append(
            f"store it once by a run of the old code with --checkpoint {','.join(f'{name}=aligned' for name in left)}"
        )
    return refused, remedies


def _fed_by_retained(
    application: Application, position: Position, comparison: Comparison, emptied: Collection[str]
) -> list[str]:
    """Operators whose rebuilding asks for outputs in the store: these name consumers by numbers that are others now."""
    cut = position.cut
    if cut is None or not comparison.reshaped:
        return []
    behind = {point.task.operator for point in cut.points if point.inputs_after < cut.newest_batch}
    retained = {point.task.operator for point, spans in zip(cut.points, cut.outputs, strict=False) if spans}
    kept = [operator for operator in application.topology.operators if operator.name not in {*emptied, *comparison.new}]
    asking = [
        operator.name
        for operator in kept
        if operator.name in behind and any(stream.operator in retained for stream in operator.inputs)
    ]
    # without states of its own it asks on behalf of what is behind it
    return [operator.name for operator in kept if asking and operator.name in position.rebuilt] or asking


def closed_for_ever(
    application: Application,
    stored: JsonObject,
    comparison: Comparison,
    emptied: Collection[str],
    done: Collection[str],
) -> dict[str, list[str]]:
    """Operators that have closed all windows, for their sources had ended, and would get rows of new sources now."""
    if not done:
        return {}
    shape = records.mapping(stored["shape"])
    closed: dict[str, list[str]] = {}
    for name, reaching in _new_sources(application, comparison).items():
        if name in emptied or not isinstance(application.computations[name], Windows | Join | Top):
            continue
        before = _sources_before(shape, name)
        if before and before <= set(done):
            closed[name] = reaching
    return closed


def behind_new_sources(
    application: Application, comparison: Comparison, emptied: Collection[str]
) -> dict[str, list[str]]:
    """Operators that go on with their states and get rows of new sources, by name with these."""
    return {name: reaching for name, reaching in _new_sources(application, comparison).items() if name not in emptied}


def _new_sources(application: Application, comparison: Comparison) -> dict[str, list[str]]:
    """Of every operator with a state that was there before, the new sources whose rows reach it."""
    reaching: dict[str, list[str]] = {}
    for name in application.topology.in_order:  # producers come before consumers
        if name in application.sources:
            reaching[name] = [name] if name in comparison.new else []
            continue
        streams = application.topology.operator(name).inputs
        reaching[name] = list(dict.fromkeys(source for stream in streams for source in reaching[stream.operator]))
    return {
        name: sources
        for name, sources in reaching.items()
        if sources and name not in comparison.new and application.has_state(name)
    }


def _sources_before(shape: JsonObject, name: str) -> set[str]:
    described = records.mapping(shape[name])
    if described["source"]:
        return {name}
    producers = (str(stream).rpartition(" (")[0] for stream in records.items(described["inputs"]))
    return set().union(*(_sources_before(shape, producer) for producer in producers))


def taken_folders(application: Application, store: Path, identity: str, names: Collection[str]) -> Wrong:
    """Outputs that are to go where results of other runs or outputs are."""
    refused: list[str] = []
    for name in names:
        sink = application.sinks[name]
        log = sink.log_of(name, store) if isinstance(sink, LoggedSink) else None
        for record in journal.read(log) if log is not None and log.exists() else ():
            if record["run"] != identity or record["output"] != name:
                whose = "of this run" if record["run"] == identity else f"of run {record['run']}"
                refused.append(
                    f"output {name!r} is to go to {sink.place}, where results of output {record['output']!r} "
                    f"{whose} are"
                )
                break
    return refused, ["choose another folder"] if refused else []


def renamed(application: Application, stored: JsonObject, given: JsonObject, comparison: Comparison) -> list[str]:
    """Operators that are gone, and new ones that do the same: it may be that their user only meant another name."""
    notes: list[str] = []
    for before in comparison.gone:
        for now in comparison.new:
            old, new = operator_of(stored, before), operator_of(given, now)
            if differences({**old, "keys": None}, {**new, "keys": None}):
                continue
            if now in application.sources:
                notes.append(
                    f"source {before!r} is gone and {now!r} is new and reads the same: was it renamed? it is read from "
                    f"its beginning; name it {before!r} to go on from its position"
                )
            elif application.has_state(now):
                notes.append(
                    f"operator {before!r} is gone and {now!r} is new and computes the same: was it renamed? its state "
                    f"is not taken over; name it {before!r}"
                )
    return notes


def state_bytes(position: Position) -> Mapping[str, int]:
    """How many bytes every operator's state has in the checkpoint."""
    sizes: dict[str, int] = {}
    if position.checkpoint is not None:
        for task, parts in position.checkpoint.segments.items():
            sizes[task.operator] = sizes.get(task.operator, 0) + sum(part.bytes for part in parts)
    return sizes
