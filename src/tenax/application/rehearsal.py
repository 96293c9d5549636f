"""A look at an application before anything starts: its sources are read for a moment, and all columns are known."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import Schemas, source_schema, with_schemas
from tenax.application.traces import RAISED, cause_of, place_of
from tenax.connectors.files import FileSource
from tenax.connectors.lifecycle import opened
from tenax.connectors.source import Limits, Planned, Source
from tenax.errors import DamagedStore, InvalidSource, TenaxError, UnreadableSource
from tenax.model.topology import Operator
from tenax.operators.event_time import check_time
from tenax.store import journal, records
from tenax.store.records import Json

LOOK = Limits(1)  # of each source: its columns are wanted, not its rows
MAX_PARTITIONS = 4  # that are looked at: with files, as many of these
MICROSECONDS = 1_000_000


def rehearse(application: Application, *, resumed: bool = False) -> list[str]:
    """Refuse an application whose sources cannot be read; notes for the user.

    - Columns, types and keys were checked when it was built, as far as its sources could tell their columns.
    - Where a run is `resumed`, files that were read may be gone.
    """
    notes: list[str] = []
    for name, source in application.sources.items():
        _first(application.topology.operator(name), source, resumed, notes)
    return notes


def with_known_schemas(application: Application, positions: Mapping[str, Json]) -> Application:
    """The application with all schemas; refuses if a source cannot tell its columns.

    A run that goes on from logged `positions` has the columns that it began with, whatever lies there now. Sources that
    do not say their columns are looked at.
    """
    sources: dict[str, pl.Schema] = {}
    for name, source in application.sources.items():
        operator = application.topology.operator(name)
        columns = _columns(name, source, positions.get(name)) or application.schemas.get(name)
        if columns is None:
            first = _first(operator, source, bool(positions), [])
            columns = None if first is None else first.schema
        if columns is None:
            raise InvalidSource(f"source {name!r}: {_unknown(source)}")
        sources[name] = columns
    return application if _are_known(application, sources) else with_schemas(application, sources)


def logged_positions(store: Path) -> Mapping[str, Json]:
    """Where the sources of an earlier run stand, by the last batch that a store has; nothing if there is none."""
    folder = store / "batches"
    try:
        batches = journal.read(folder) if folder.exists() else []
    except DamagedStore:
        return {}  # who takes the store over says so
    last = batches[-1]["data"] if batches else None
    return records.mapping(last.get("positions", {})) if isinstance(last, Mapping) else {}


def has_batches(store: Path) -> bool:
    """Whether a run has been there before: sources are then read on, not from the beginning."""
    return any(log.is_file() and log.stat().st_size for log in (store / "batches").glob("*.jsonl"))


def _columns(name: str, source: Source, position: Json) -> pl.Schema | None:
    """What a source says of its columns; nothing if the position is not one of its own, which the run will refuse."""
    if position is not None:
        with contextlib.suppress(*RAISED):
            return source.schema_at(position)
    return source_schema(name, source)


def _are_known(application: Application, sources: Schemas) -> bool:
    complete = all(operator.name in application.schemas for operator in application.topology.operators)
    return complete and all(application.schemas[name] == schema for name, schema in sources.items())


def _unknown(source: Source) -> str:
    """Why a run cannot start with a source, and what to do."""
    if isinstance(source, FileSource):
        return (
            f"the columns of a source are known before it runs, found no file with rows at "
            f"{source.root / source.pattern} yet: state them, as in tx.files(..., schema={{'ts': pl.Datetime('us')}})"
        )
    kind = type(source).__name__
    return f"the columns of a source are known before it runs, found that {kind} has no rows yet: give it schema(self)"


def _first(operator: Operator, source: Source, resumed: bool, notes: list[str]) -> pl.DataFrame | None:
    """The first rows of a source; none if it has none yet."""
    try:
        if isinstance(source, FileSource) and not resumed:
            _check_there(source)
        partitions = min(operator.parallelism, MAX_PARTITIONS)
        with opened(source) as reading:
            planned = reading.plan(None, partitions, LOOK, int(time.time() * MICROSECONDS))
            if not isinstance(planned, Planned):
                return None
            frames = [reading.read(number, logged) for number, logged in enumerate(planned.ranges)]
        check_time(frames[0], source.time)
    except TenaxError as error:
        if resumed:
            return None
        raise UnreadableSource(f"source {operator.name!r}: {error}") from error
    except RAISED as error:
        if resumed or place_of(error):  # a source of the user's own: the run will tell whether it can go on
            return None
        raise UnreadableSource(f"source {operator.name!r} cannot be read: {cause_of(error)}") from error
    if isinstance(source, FileSource) and not resumed and not source.bounded and not planned.rows:
        notes.append(f"source {operator.name!r} waits: no file is at {source.root / source.pattern} yet")
    return frames[0]


def _check_there(source: FileSource) -> None:
    """A folder that is to be followed is there; only its files may come later."""
    single = not any(sign in source.pattern for sign in "*?[")
    wanted = source.root / source.pattern if single else source.root
    if not wanted.exists():
        remedy = "correct the path" if single else "make the folder, or correct the path"
        raise UnreadableSource(f"{wanted}: a source reads what is there, found nothing of that name: {remedy}")
