"""Records: plain data as one checksummed line of JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tenax.errors import DamagedStore

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""Plain data, as JSON knows it."""

JsonObject: TypeAlias = Mapping[str, Json]

_HEAD = len(b'{"crc32":"00000000","record":')
_TAIL = len(b"}\n")


def encode(record: Json) -> bytes:
    """One line of JSON that carries the checksum of its record. Equal records give equal bytes."""
    text = body(record)
    return b'{"crc32":"%08x","record":%b}\n' % (zlib.crc32(text), text)


def body(record: Json) -> bytes:
    """Plain data as JSON, without a checksum. Equal data gives equal bytes."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def decode(line: bytes, where: str) -> Json:
    """The record of a line; `where` names it in the error."""
    content = line[_HEAD:-_TAIL]
    if line != b'{"crc32":"%08x","record":%b}\n' % (zlib.crc32(content), content):
        raise DamagedStore(
            f"{where}: a record matches its checksum, found a line that does not: restore it from a copy"
        )
    record: Json = json.loads(content)
    return record


def decode_object(line: bytes, where: str) -> JsonObject:
    """The record of a line that must be an object."""
    record = decode(line, where)
    if not isinstance(record, Mapping):
        raise DamagedStore(f"{where}: a record is a JSON object, found {record!r}: restore it from a copy")
    return record


def integer(record: JsonObject, name: str) -> int:
    """A whole number of a record; the checksum vouches for it, so a mismatch is another format."""
    value = record[name]
    if not isinstance(value, int):
        raise DamagedStore(f"field {name!r} is a whole number, found {value!r}: was it written by another version?")
    return value


def number(record: JsonObject, name: str) -> float:
    """A number of a record."""
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedStore(f"field {name!r} is a number, found {value!r}: was it written by another version?")
    return float(value)


def text(record: JsonObject, name: str) -> str:
    """A text of a record."""
    value = record[name]
    if not isinstance(value, str):
        raise DamagedStore(f"field {name!r} is text, found {value!r}: was it written by another version?")
    return value


def items(value: Json) -> Sequence[Json]:
    """A list of a record."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise DamagedStore(f"a list was expected, found {value!r}: was it written by another version?")
    return value


def mapping(value: Json) -> JsonObject:
    """An object within a record."""
    if not isinstance(value, Mapping):
        raise DamagedStore(f"an object was expected, found {value!r}: was it written by another version?")
    return value
