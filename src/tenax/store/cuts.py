"""Cuts through a run as plain data: what the manifest of a checkpoint says of where each task begins again."""

from __future__ import annotations

from tenax.control.versions import Cut, PassId, Span, parse_restore_point
from tenax.errors import DamagedStore
from tenax.store import records
from tenax.store.records import Json, JsonObject


def to_record(cut: Cut) -> JsonObject:
    """What a manifest says of a cut, beside its number."""
    return {
        "points": [str(point) for point in cut.points],
        "outputs": [[[span.first, span.last, str(span.pass_id)] for span in spans] for spans in cut.outputs],
        "acknowledged": list(cut.acknowledged),
    }


def from_record(number: int, record: JsonObject) -> Cut:
    """What `to_record` made."""
    points = tuple(parse_restore_point(str(text)) for text in records.items(record["points"]))
    outputs = tuple(tuple(_span(span) for span in records.items(spans)) for spans in records.items(record["outputs"]))
    acknowledged = tuple(int(str(batch)) for batch in records.items(record["acknowledged"]))
    return Cut(number, points, outputs, acknowledged)


def _span(value: Json) -> Span:
    first, last, pass_id = records.items(value)
    if not (isinstance(first, int) and isinstance(last, int) and isinstance(pass_id, str)):
        raise DamagedStore(f"a span is [first, last, pass], found {value!r}: was it written by another version?")
    return Span(first, last, PassId.parse(pass_id))
