"""Rows on the wire and on disk: an Arrow IPC stream behind a small header with a checksum and the watermark.

    bytes 0–3   `TNX1`
    bytes 4–7   CRC-32 of all that follows
    bytes 8–15  the watermark in microseconds, signed
    bytes 16–   an Arrow IPC stream, one record batch, strings as LargeUtf8

Numbers are little-endian. Equal frames of flat columns give equal bytes, whatever was done to make them: columns are
one piece, strings lie without gaps, and what lies under a null is made equal. Sort flags of Polars do not travel.
"""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import polars as pl

from tenax.errors import InvalidFile, InvalidRequest

MAGIC = b"TNX1"
HEADER = struct.Struct("<4sIq")
CHECKED_FROM = 8  # the checksum covers the watermark and the rows
LAYOUT = pl.CompatLevel.oldest()  # string views would keep the gaps that filters and slices leave in their buffers


def encode(rows: pl.DataFrame, watermark_us: int) -> bytes:
    """The chunk of these rows."""
    check_types(rows.schema)
    stream = io.BytesIO()
    stream.write(HEADER.pack(MAGIC, 0, watermark_us))
    pl.DataFrame([plain(column) for column in rows.get_columns()]).write_ipc_stream(stream, compat_level=LAYOUT)
    with stream.getbuffer() as whole:
        HEADER.pack_into(whole, 0, MAGIC, zlib.crc32(whole[CHECKED_FROM:]), watermark_us)
    return stream.getvalue()


def check_types(schema: pl.Schema) -> None:
    """Refuse columns that cannot travel."""
    for name, kind in schema.items():
        if isinstance(kind, pl.Categorical | pl.Object):
            raise InvalidRequest(
                f"a chunk carries values that all processes read alike: column {name!r} is {kind}; cast it to pl.String"
            )


def decode(data: bytes) -> tuple[pl.DataFrame, int]:
    """The rows and the watermark of a chunk."""
    if len(data) < HEADER.size:
        raise InvalidFile(f"a chunk begins with {HEADER.size} bytes of header: found {len(data)} bytes; read it again")
    magic, checksum, watermark_us = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise InvalidFile(f"a chunk begins with {MAGIC!r}: found {magic!r}; it is of another format or version")
    actual = zlib.crc32(memoryview(data)[CHECKED_FROM:])
    if actual != checksum:
        raise InvalidFile(f"a chunk matches its checksum {checksum:08x}: found {actual:08x}; fetch or make it again")
    stream = io.BytesIO(data)
    stream.seek(HEADER.size)
    return pl.read_ipc_stream(stream), watermark_us


def plain(column: pl.Series) -> pl.Series:
    """The same values in one piece; under a null lies the value before it, or the first there is."""
    column = column.rechunk()
    nulls = column.null_count()
    if column.dtype == pl.Boolean and nulls < len(column):
        # packed anew: the bits behind the last row are whatever lay there before
        there = pl.Series(column.is_not_null().to_numpy())
        bits = pl.Series(column.name, column.fill_null(False).to_numpy())
        return bits if nulls == 0 else pl.select(pl.when(there).then(bits).alias(column.name)).to_series()
    if nulls == 0:
        # a filter may leave a bitmap without a null in it, which would go into the bytes
        marked = column.to_arrow(compat_level=LAYOUT).buffers()[0] is not None
        return column.gather(np.arange(len(column), dtype=np.uint32)) if marked else column
    if nulls == len(column):
        return pl.Series(column.name, [None] * len(column), dtype=column.dtype)
    valid = column.is_not_null().to_numpy()
    positions = pl.DataFrame({"at": np.maximum(np.cumsum(valid) - 1, 0).astype(np.uint32), "valid": valid})
    return column.drop_nulls().gather(positions.select(pl.when("valid").then("at")).to_series())
