"""Schemas of an application: what every operator gives, derived from its sources before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tenax.application.application import Application
from tenax.application.traces import RAISED, cause_of, place_of
from tenax.connectors.source import Source
from tenax.errors import InvalidTopology, TenaxError, UnreadableSource
from tenax.model.graph import TaskGraph
from tenax.model.topology import Operator
from tenax.operators.chunks import check_types, decode, encode
from tenax.operators.columns import is_declared, is_users, listed, remedy_of
from tenax.operators.computation import NO_WATERMARK_US, Computation
from tenax.operators.event_time import check_time
from tenax.operators.keys import key_hashes
from tenax.operators.missing import nearest
from tenax.store.records import JsonObject

Schemas = Mapping[str, pl.Schema]
"""By operator, the columns of the rows that it gives."""

SCHEMAS = "schemas"  # in the notes of a checkpoint: what operators gave when it was made

Frames = tuple[pl.DataFrame, ...]

UNKNOWN_COLUMN = re.compile(r'unable to find column "(.+?)"')
GUESS = re.compile(r' Did you mean ".*"\?$')  # that Polars itself makes, not always


@dataclass(frozen=True, slots=True)
class Parts:
    """What schemas are derived from: the parts of an application that have columns, by operator."""

    sources: Mapping[str, Source]
    computations: Mapping[str, Computation]
    keys: Mapping[tuple[str, str], tuple[str, ...]]
    places: Mapping[str, str]


def derived(operators: Iterable[Operator], parts: Parts, known: Schemas) -> dict[str, pl.Schema]:
    """The schemas of operators, producers first, given those `known`; refuses columns, types and keys that miss.

    What lies behind a source that cannot tell its columns yet is left out.

    Cost: no rows pass every operator, less than a millisecond each.
    """
    schemas = dict(known)
    for operator in operators:
        name = operator.name
        if name in schemas:
            continue
        if name in parts.sources:
            columns = source_schema(name, parts.sources[name])
            if columns is not None:
                schemas[name] = columns
        elif all(stream.operator in schemas for stream in operator.inputs):
            schemas[name] = _operator_schema(operator, parts, schemas)
    return schemas


def with_schemas(application: Application, sources: Schemas | None = None) -> Application:
    """The application with its schemas derived anew, from what these sources give if that is known better."""
    parts = Parts(application.sources, application.computations, application.keys, application.places)
    known = {} if sources is None else {name: schema for name, schema in sources.items() if name in parts.sources}
    return replace(application, schemas=derived(TaskGraph(application.topology).operators, parts, known))


def inputs_of(application: Application, name: str, schemas: Schemas) -> Frames:
    """What an operator gets where there are no rows: a frame for each input, as its producers send it."""
    computation = application.computations[name]
    streams = application.topology.operator(name).inputs
    return tuple(
        computation.combined(number, pl.DataFrame(schema=schemas[stream.operator]))
        for number, stream in enumerate(streams)
    )


def to_record(schemas: Schemas) -> JsonObject:
    """Schemas as plain data, each as a chunk without rows: whatever can travel can be written down."""
    return {name: encode(pl.DataFrame(schema=columns), NO_WATERMARK_US).hex() for name, columns in schemas.items()}


def from_record(data: JsonObject) -> dict[str, pl.Schema]:
    """The schemas that `to_record` wrote down."""
    return {name: decode(bytes.fromhex(str(chunk)))[0].schema for name, chunk in data.items()}


def source_schema(name: str, source: Source) -> pl.Schema | None:
    """The columns that a source tells, with its event times among them; None if it cannot tell them yet."""
    try:
        columns = source.schema()
        if columns is not None:
            check_time(pl.DataFrame(schema=columns), source.time)
    except TenaxError as error:
        raise UnreadableSource(f"source {name!r}: {error}") from error
    except RAISED as error:
        raise UnreadableSource(f"source {name!r}: its schema() fails: {cause_of(error)}: correct it") from error
    return None if columns is None else pl.Schema(columns)


def _operator_schema(operator: Operator, parts: Parts, schemas: Schemas) -> pl.Schema:
    computation = parts.computations[operator.name]
    inputs = [schemas[stream.operator] for stream in operator.inputs]
    try:
        for stream, columns in zip(operator.inputs, inputs, strict=True):
            key_hashes(pl.DataFrame(schema=columns), parts.keys.get((stream.operator, operator.name), ()))
        schema = pl.Schema(computation.schema(inputs))
        check_types(schema)
    except RAISED as error:
        raise InvalidTopology(f"{_called(operator, parts)}: {_explained(error, computation, inputs)}") from error
    if not schema and is_users(computation) and not is_declared(computation):
        raise InvalidTopology(
            f"{_called(operator, parts)}: its columns are known before it runs, found none when it was tried without "
            f"rows: {remedy_of(computation)}"
        )
    return schema


def _called(operator: Operator, parts: Parts) -> str:
    at = parts.places.get(operator.name)
    return f"operator {operator.name!r} (made in {at})" if at else f"operator {operator.name!r}"


def _explained(error: BaseException, computation: Computation, inputs: Sequence[pl.Schema]) -> str:
    """What is wrong with an operator, on one line; functions of users need not be made for no rows."""
    own = place_of(error)
    if is_users(computation) and not is_declared(computation) and not isinstance(error, TenaxError):
        where = f" in {own}" if own else ""
        given = ", ".join(listed(schema) for schema in inputs)
        return (
            f"its columns are known before it runs, found that it fails without rows of {given} "
            f"({cause_of(error)}{where}): {remedy_of(computation)}"
        )
    unknown = UNKNOWN_COLUMN.search(str(error)) if isinstance(error, pl.exceptions.ColumnNotFoundError) else None
    if unknown is None:
        return cause_of(error)
    cause = GUESS.sub("", cause_of(error))
    return f"{cause}: {nearest(unknown[1], [name for schema in inputs for name in schema])}"
