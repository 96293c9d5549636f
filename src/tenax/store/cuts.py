"""Lines through a run as plain data, for the manifests of checkpoints."""

from __future__ import annotations

from tenax.control.versions import PassId, Span, StoredCheckpoint, Version
from tenax.errors import DamagedStore
from tenax.store import records
from tenax.store.records import Json, JsonObject


def to_record(line: StoredCheckpoint) -> JsonObject:
    """What a manifest says of a line, beside its number."""
    return {
        "versions": [str(version) for version in line.versions],
        "queues": [[[span.first, span.last, str(span.pass_id)] for span in queue] for queue in line.queues],
        "acknowledged": list(line.acknowledged),
    }


def from_record(number: int, record: JsonObject) -> StoredCheckpoint:
    """What `to_record` made."""
    versions = tuple(Version.parse(str(one)) for one in records.items(record["versions"]))
    queues = tuple(tuple(_span(span) for span in records.items(queue)) for queue in records.items(record["queues"]))
    marks = tuple(int(str(one)) for one in records.items(record["acknowledged"]))
    return StoredCheckpoint(number, versions, queues, marks)


def _span(value: Json) -> Span:
    first, last, pass_id = records.items(value)
    if not (isinstance(first, int) and isinstance(last, int) and isinstance(pass_id, str)):
        raise DamagedStore(f"a span is [first, last, pass], found {value!r}: was it written by another version?")
    return Span(first, last, PassId.parse(pass_id))
