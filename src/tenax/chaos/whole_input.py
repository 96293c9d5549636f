"""The whole input of a source, read without its plans: what comes in time, and what comes late."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from pyarrow import parquet

from tenax.connectors.files import FileSource
from tenax.connectors.generators import Generator
from tenax.connectors.lifecycle import opened
from tenax.connectors.source import Limits, NothingNew, Source

SUFFIXES = (".parquet", ".csv", ".ndjson", ".jsonl")
INFERENCE_ROWS = 10_000
MAX_PLANS = 10_000  # after which a source of a user's own is taken for one that does not end
MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
PLACE, BEFORE = "tenax.place", "tenax.before"

Homes = Callable[[], Mapping[str, int]]
"""Which partition read which file: the one thing about files that only a run decides."""


class NotJudged(Exception):
    """What an output depends on and the whole input does not tell; the text says what."""


@dataclass(frozen=True, slots=True)
class WholeInput:
    """All rows of a source; those that come too late, in the order of their partition, are apart.

    `ordered`: the rows are in the order in which one task reads them.
    """

    on_time: pl.DataFrame
    late: pl.DataFrame
    ordered: bool


def whole_input(name: str, source: Source, partitions: int, homes: Homes) -> WholeInput:
    """The rows of a bounded source.

    - Of a generator the partition of a row follows from its number.
    - Of files the partition reads whole ones, by name. Which one reads which is asked for only if it matters: if some
      row is late behind the files before its own, and not behind its own alone.
    - Of a source of a user's own the order is known if one partition reads it all. Of several, only if no row can be
      late at all.
    """
    if not source.bounded:
        raise NotJudged(f"source {name!r} does not end")
    if isinstance(source, Generator):
        rows = source.read(0, [0, source.pace.rows, 1])
        places = pl.int_range(rows.height, eager=True) % partitions
        return _apart(source, rows, places, partitions)
    if isinstance(source, FileSource):
        return _of_files(name, source, partitions, homes)
    with opened(source) as reading:
        return _of_others(name, reading, partitions)


def _of_files(name: str, source: FileSource, partitions: int, homes: Homes) -> WholeInput:
    frames: dict[str, pl.DataFrame] = {}
    schema = source.stated
    for path in _matching(source):
        frame = _read(source.root / path, schema)
        schema = schema or frame.schema
        frames[path] = _timed(source, frame.select(schema.names()))
    if not frames:
        raise NotJudged(f"source {name!r} has no files any more")
    rows = pl.concat(frames.values())
    numbers = _repeated(range(len(frames)), frames.values())
    if partitions > 1:
        apart, together = _late(source, rows, numbers), _late(source, rows, numbers * 0)
        if (apart != together).any():
            known = homes()
            strange = next((path for path in frames if path not in known), None)
            if strange is not None:
                raise NotJudged(
                    f"rows of source {name!r} may be late, and no batch tells which partition read {strange}"
                )
            numbers = numbers.replace_strict(list(range(len(frames))), [known[path] for path in frames])
        return _apart(source, rows, numbers, partitions)
    return _apart(source, rows, numbers * 0, partitions)


def _of_others(name: str, source: Source, partitions: int) -> WholeInput:
    """By its own plans, as large as can be: that is code of a user's, and no batch of the run."""
    frames: list[tuple[int, pl.DataFrame]] = []
    position, ended = None, False
    for _ in range(MAX_PLANS):
        planned = source.plan(position, partitions, Limits(1 << 40), int(time.time() * MICROSECONDS["s"]))
        ended = planned.ended
        if isinstance(planned, NothingNew):
            break
        frames += [
            (place, source.read(place, range_)) for place, range_ in enumerate(planned.ranges) if range_ is not None
        ]
        position = planned.position
        if ended:
            break
    if not ended or not frames:
        raise NotJudged(f"source {name!r} does not end when it is asked for all its rows")
    rows = pl.concat([frame for _, frame in frames])
    places = _repeated([place for place, _ in frames], [frame for _, frame in frames])
    first, last = rows[source.time].to_physical().min(), rows[source.time].to_physical().max()
    spread = last - first if isinstance(first, int) and isinstance(last, int) else 0
    if partitions > 1 and spread > source.lateness_us:
        raise NotJudged(f"rows of source {name!r} may be late, and only the run knows which partition read which")
    return _apart(source, rows, places, partitions)


def _apart(source: Source, rows: pl.DataFrame, places: pl.Series, partitions: int) -> WholeInput:
    late = _late(source, rows, places)
    return WholeInput(rows.filter(~late), rows.filter(late), partitions == 1)


def _late(source: Source, rows: pl.DataFrame, places: pl.Series) -> pl.Series:
    """Whether each row lies too far behind the highest time before it in its place, or has no time."""
    times = rows[source.time].to_physical().cast(pl.Int64)
    frame = pl.DataFrame([times.alias(BEFORE), places.alias(PLACE)])
    highest = pl.col(BEFORE).cum_max().forward_fill().shift(1).over(PLACE)
    late = (pl.col(BEFORE) < highest - source.lateness_us).fill_null(False) | pl.col(BEFORE).is_null()
    return frame.select(late.alias("late"))["late"]


def _repeated(numbers: Sequence[int], frames: Iterable[pl.DataFrame]) -> pl.Series:
    """A number for every row of every frame."""
    return pl.Series(np.repeat(np.array(numbers, np.int64), [frame.height for frame in frames]))


def _matching(source: FileSource) -> list[str]:
    """The names of all files of a source, in the order in which they are read; hidden ones and those with _ are not."""
    names = glob.glob(source.pattern, root_dir=source.root, recursive=True)  # noqa: PTH207
    return sorted(
        name
        for name in names
        if name.endswith(SUFFIXES)
        and not any(part.startswith("_") for part in Path(name).parts)
        and (source.root / name).is_file()
        and _has_rows(source.root / name)
    )


def _has_rows(path: Path) -> bool:
    if path.suffix == ".parquet":
        return True
    with path.open("rb") as file:
        if path.suffix == ".csv":
            file.readline()
        return bool(file.readline())


def _read(path: Path, schema: pl.Schema | None) -> pl.DataFrame:
    """A whole file; `schema` is that of the first one, or what the user says."""
    if path.suffix == ".parquet":
        frame = pl.from_arrow(parquet.read_table(path, use_threads=False, partitioning=None))
        assert isinstance(frame, pl.DataFrame)
        return frame
    if path.suffix == ".csv":
        return pl.read_csv(path.read_bytes(), schema=schema, infer_schema_length=INFERENCE_ROWS)
    return pl.read_ndjson(path.read_bytes(), schema=schema, infer_schema_length=INFERENCE_ROWS)


def _timed(source: FileSource, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their times as Datetime in microseconds, UTC."""
    times = rows[source.time]
    kind = times.dtype
    if isinstance(kind, pl.Datetime):
        made = times if kind.time_zone is None else times.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif isinstance(kind, pl.String):
        made = pl.Series(times.name, [_instant(text) for text in times.to_list()], dtype=pl.Datetime("us"))
    elif isinstance(kind, pl.Date):
        made = times
    else:
        unit = getattr(getattr(source, "times", None), "unit", None) or "us"  # a source may say what numbers count
        whole = times.cast(pl.Int64)
        made = whole // 1_000 if unit == "ns" else whole * MICROSECONDS[unit]
    return rows.with_columns(made.cast(pl.Datetime("us")).alias(source.time))


def _instant(text: str) -> datetime:
    """An ISO 8601 text; without an offset it is UTC."""
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
