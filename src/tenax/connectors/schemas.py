"""Schemas of files as plain data."""

from __future__ import annotations

import polars as pl

from tenax.errors import DamagedStore, DifferingSchemas, UnreadableSource
from tenax.store import records
from tenax.store.records import Json

_FLAT: dict[str, pl.DataType] = {
    str(kind): kind
    for kind in (
        *(pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()),
        *(pl.Float32(), pl.Float64(), pl.Boolean(), pl.String(), pl.Binary(), pl.Date(), pl.Time(), pl.Null()),
    )
}
INTEGERS = {"Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}


def to_data(schema: pl.Schema, file: str) -> Json:
    """A schema as plain data: pairs of a name and a type."""
    return [[name, _type_to_data(kind, file, name)] for name, kind in schema.items()]


def from_data(data: Json) -> pl.Schema:
    """The schema that `to_data` wrote down."""
    pairs = [records.items(pair) for pair in records.items(data)]
    return pl.Schema({str(name): _type_from_data(kind) for name, kind in pairs})


def check_same(first: pl.Schema, other: pl.Schema, file: str, *, inferred: bool, sparse: bool) -> None:
    """Refuse a file whose columns differ.

    An `inferred` type may be narrower than the one it is read as; in a `sparse` format rows may lack columns.
    """
    if list(first) != list(other) and not (sparse and set(other) <= set(first)):
        missing, more = [n for n in first if n not in other], [n for n in other if n not in first]
        what = f"without {missing[0]!r}" if missing else f"with {more[0]!r} besides" if more else "in another order"
        raise DifferingSchemas(
            f"{file}: all files of a source have the same columns, found one {what}: keep them apart"
        )
    for name, kind in other.items():
        wanted = first[name]
        if wanted != kind and not (inferred and _narrower(kind, wanted)):
            raise DifferingSchemas(
                f"{file}: column {name!r} is {wanted} in the files before, found {kind}: "
                "convert the file, or state a schema"
            )


def empty(schema: pl.Schema, time: str) -> pl.DataFrame:
    """No rows, in the shape that a read with rows would have."""
    return pl.DataFrame(schema={**schema, time: pl.Datetime("us")})


def _narrower(kind: pl.DataType, wanted: pl.DataType) -> bool:
    if isinstance(kind, pl.Null) or isinstance(wanted, pl.String):
        return True
    return str(kind) in INTEGERS and (str(wanted) in INTEGERS or isinstance(wanted, pl.Float64 | pl.Float32))


def _type_to_data(kind: pl.DataType, file: str, name: str) -> Json:
    if str(kind) in _FLAT:
        return str(kind)
    if isinstance(kind, pl.Datetime):
        return ["Datetime", kind.time_unit, kind.time_zone if isinstance(kind.time_zone, str) else None]
    if isinstance(kind, pl.Duration):
        return ["Duration", kind.time_unit]
    if isinstance(kind, pl.Decimal):
        return ["Decimal", kind.precision, kind.scale]
    if isinstance(kind, pl.List) and isinstance(kind.inner, pl.DataType):
        return ["List", _type_to_data(kind.inner, file, name)]
    if isinstance(kind, pl.Struct):
        return ["Struct", to_data(pl.Schema(kind.to_schema()), file)]
    raise UnreadableSource(f"{file}: column {name!r} has the type {kind}, which no source reads: convert or drop it")


def _type_from_data(data: Json) -> pl.DataType:
    if isinstance(data, str):
        return _FLAT[data]
    match list(records.items(data)):
        case ["Datetime", ("us" | "ms" | "ns") as unit, (str() | None) as zone]:
            return pl.Datetime(unit, zone)
        case ["Duration", ("us" | "ms" | "ns") as unit]:
            return pl.Duration(unit)
        case ["Decimal", int() as precision, int() as scale]:
            return pl.Decimal(precision, scale)
        case ["List", inner]:
            return pl.List(_type_from_data(inner))
        case ["Struct", fields]:
            return pl.Struct(from_data(fields))
    raise DamagedStore(f"a column's type is one that a source wrote down, found {data!r}: another version's?")
