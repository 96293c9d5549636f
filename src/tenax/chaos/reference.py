"""The reference: every output computed from the whole input at once, held against what a run has committed.

It knows nothing of batches, passes, Spark, checkpoints, chunks, panes or key groups: one process, one frame for each
operator, plain Polars. So it sees what a replay of the same batches cannot: rows that were never planned, read twice,
sent astray or put into the wrong window. With the engine it shares what a user wrote (expressions, functions, his own
computations), the generators' rows, and nothing that divides work.

Where a result depends on more than the whole input tells, the output is not judged, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import polars as pl
import pyarrow
from pyarrow import parquet

from tenax.application.application import Application, late_output
from tenax.chaos.multisets import Difference, close, difference, largest_of
from tenax.chaos.trial_sinks import with_results_in
from tenax.chaos.whole_input import NotJudged, WholeInput, whole_input
from tenax.connectors.parquet import ParquetSink
from tenax.connectors.sink import Sink
from tenax.operators.aggregates import MEANS
from tenax.operators.computation import END_WATERMARK_US, Computation, StepInput
from tenax.operators.event_time import WINDOW, WINDOW_END, WINDOW_START
from tenax.operators.join import Join
from tenax.operators.stateless import Filter, Map, Select, Stateless, WithColumns
from tenax.operators.top import Top
from tenax.operators.union import Union
from tenax.operators.windows import Windows
from tenax.store import journal, records
from tenax.store.records import Json

MAX_SHOWN = 5  # findings that a text names
HAIR, HAIR_SINGLE = 1e-11, 1e-6  # so much of their value floats may differ by, by the order of their sums
INSTANT, START, RANK = "tenax.instant", "tenax.start", "tenax.rank"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the reference says of a run; rows are told apart by output, key and window.

    - `lost` rows follow from the whole input and are not there, `extra` ones are there and do not follow.
    - `different` ones have other values.
    - `not_judged` are the outputs, each with the reason, of which the whole input does not tell enough.
    """

    outputs: int = 0
    rows: int = 0
    lost: int = 0
    extra: int = 0
    different: int = 0
    examples: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether all outputs that were judged are as computed from the whole input."""
        return not (self.lost or self.extra or self.different)

    def __str__(self) -> str:
        left = f"; not judged: {'; '.join(self.not_judged)}" if self.not_judged else ""
        if not self.outputs:
            return f"nothing was computed from the whole input{left}"
        if self.held:
            return f"{self.rows} rows of {self.outputs} outputs, all as computed from the whole input at once{left}"
        counts = [f"{getattr(self, name)} {name}" for name in ("lost", "extra", "different") if getattr(self, name)]
        more = ", ..." if len(self.examples) > MAX_SHOWN else ""
        return f"{', '.join(counts)} rows: {'; '.join(self.examples[:MAX_SHOWN])}{more}{left}"


def judge_by_input(application: Application, store: Path, results: Path) -> Judgement:
    """Compute every output of a finished run from the whole input, and compare all rows that are visible.

    `results` is the folder of its outputs, a folder each. Of `store` only this is looked at, because only the run
    decides it: which partition read which file, if late rows depend on that, and which were idle for a while.
    """
    reference = Reference(application, store)
    judgement = Judgement()
    for output, sink in with_results_in(application, results).sinks.items():
        try:
            expected = reference.output(output)
        except NotJudged as reason:
            judgement = replace(judgement, not_judged=(*judgement.not_judged, f"{output} ({reason})"))
            continue
        wrong = compared(output, sink, expected)
        judgement = replace(
            judgement,
            outputs=judgement.outputs + 1,
            rows=judgement.rows + expected.rows.height,
            lost=judgement.lost + wrong.lost,
            extra=judgement.extra + wrong.extra,
            different=judgement.different + wrong.different,
            examples=(*judgement.examples, *(f"{output} {example}" for example in wrong.examples)),
        )
    return judgement


def compared(output: str, sink: Sink, expected: Whole) -> Difference:
    """The rows of an output, as those see them who look at its sink's place, against those that are expected."""
    if isinstance(sink, ParquetSink):
        return _files_compared(sink.folder, expected)
    results = sink.results(output)
    assert results is not None, "a sink of a trial can be read back"
    frames = [rows for _, rows in sorted(results.final.items(), key=lambda item: item[0]) if rows.height]
    return _rows_compared(frames, expected)


def _files_compared(folder: Path, expected: Whole) -> Difference:
    """The rows of all files, as any reader of Parquet sees them."""
    frames = []
    for path in sorted(folder.glob("*.parquet")):
        try:
            frame = pl.from_arrow(parquet.read_table(path, use_threads=False, partitioning=None))
        except (pyarrow.ArrowException, OSError) as error:
            said = f"{path.name} cannot be read: {' '.join(str(error).split())}"
            return Difference(lost=expected.rows.height, examples=(said,))
        assert isinstance(frame, pl.DataFrame)
        frames.append(frame)
    return _rows_compared(frames, expected)


def _rows_compared(frames: Sequence[pl.DataFrame], expected: Whole) -> Difference:
    try:
        rows = pl.concat(frames, how="vertical_relaxed") if frames else pl.DataFrame()
    except pl.exceptions.PolarsError as error:
        said = f"files differ in their columns: {' '.join(str(error).split())}"
        return Difference(lost=expected.rows.height, examples=(said,))
    return difference(rows, expected.rows, expected.keys)


@dataclass(frozen=True, slots=True)
class Whole:
    """All rows of a stream.

    - `time` is the column of event times; `retimed` says why rows may come when their window is closed: that depends
      on where batches were cut.
    - `keys` tell rows apart, with their window; none if all columns do.
    - `inexact` are the floats whose last digits depend on the order of sums.
    - `ordered`: the rows are in the order in which the one task that makes them makes them.
    """

    rows: pl.DataFrame
    time: str
    retimed: str = ""
    keys: tuple[str, ...] = ()
    inexact: frozenset[str] = frozenset()
    ordered: bool = False


class Reference:
    """The streams of an application over its whole input, each computed once, when it is asked for."""

    def __init__(self, application: Application, store: Path) -> None:
        self._application = application
        self._store = store
        self._inputs: dict[str, WholeInput] = {}
        self._known: dict[str, Whole | NotJudged] = {}

    def output(self, name: str) -> Whole:
        """The rows of an output, or of the late rows of a source."""
        for source in self._application.sources:
            if name == late_output(source):
                self.stream(source)
                return Whole(self._inputs[source].late, self._application.sources[source].time)
        return self.stream(name)

    def stream(self, name: str) -> Whole:
        """The rows of an operator."""
        if name not in self._known:
            try:
                self._known[name] = self._made(name)
            except NotJudged as reason:
                self._known[name] = reason
            except Exception as error:  # whatever code of a user's says of so many rows at once
                said = f"{type(error).__name__}: {' '.join(str(error).split())}"
                self._known[name] = NotJudged(f"operator {name!r} does not take the whole input at once: {said}")
        known = self._known[name]
        if isinstance(known, NotJudged):
            raise NotJudged(str(known))
        return known

    def _made(self, name: str) -> Whole:
        if name in self._application.sources:
            source, partitions = self._application.sources[name], self._application.topology.operator(name).parallelism
            read = whole_input(name, source, partitions, lambda: _homes(self._store, name))
            self._inputs[name] = read
            idle = f"a partition of source {name!r} was idle and came back" if _came_back(self._store, name) else ""
            return Whole(read.on_time, source.time, idle, ordered=read.ordered)
        operator = self._application.topology.operator(name)
        given = [self.stream(stream.operator) for stream in operator.inputs]
        made = self._computed(name, self._application.computations[name], given)
        return replace(made, ordered=made.ordered and operator.parallelism == 1)

    def _computed(self, name: str, computation: Computation, given: Sequence[Whole]) -> Whole:
        match computation:
            case Stateless():
                return transformed(name, computation, given[0])
            case Windows():
                return windowed(name, computation, in_time(name, given[0], computation.time))
            case Join():
                return joined(name, computation, [in_time(name, whole, WINDOW_END) for whole in given])
            case Top():
                return best(name, computation, in_time(name, given[0], WINDOW_END))
            case Union():
                return united(given)
            case _:
                return stepped(name, computation, given)


def in_time(name: str, given: Whole, time: str) -> Whole:
    """A stream whose rows surely come before their windows close, without rows that have no time."""
    if given.retimed:
        raise NotJudged(f"{given.retimed}: what then comes too late depends on the run")
    if given.time != time:
        raise NotJudged(f"operator {name!r} goes by {time!r}, which is not the event time that its rows came with")
    return replace(given, rows=given.rows.drop_nulls(time))


def transformed(name: str, computation: Stateless, given: Whole) -> Whole:
    """Filter, select, with_columns, map."""
    rows_so_far = given
    for transformation in computation.transformations:
        rows = steady(name, rows_so_far.rows, rows_so_far.inexact, partial(_applied, transformation))
        by_row = isinstance(transformation, Select | WithColumns)
        retimed = rows_so_far.retimed or _put_back(name, rows_so_far.rows, rows, given.time, by_row=by_row)
        keys, inexact = _carried(transformation, rows_so_far, rows)
        rows_so_far = replace(rows_so_far, rows=rows, retimed=retimed, keys=keys, inexact=inexact)
    return rows_so_far


def _carried(
    transformation: Filter | Select | WithColumns | Map, given: Whole, rows: pl.DataFrame
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The keys that rows still have after a transformation, and their inexact floats."""
    if isinstance(transformation, Filter):
        return given.keys, given.inexact
    columns = () if isinstance(transformation, Map) else transformation.columns
    if isinstance(transformation, Map) or any(each.meta.has_multiple_outputs() for each in columns):
        return (), _floats(rows) if given.inexact else given.inexact
    made = {each.meta.output_name(): each for each in columns}
    same = {column for column, each in made.items() if each.meta.eq(pl.col(column))}
    stay = set(rows.columns) - set(made) | same
    touched = {column for column, each in made.items() if given.inexact & set(each.meta.root_names())}
    keys = given.keys if stay >= set(given.keys) else ()
    return keys, _floats(rows) & ((given.inexact & stay) | touched)


def windowed(name: str, computation: Windows, given: Whole) -> Whole:
    """Aggregates over [start, start + length), a start every `every`, of the windows that have rows.

    Windows whose starts are a whole length apart do not overlap, so that each row is in one of them: one grouping for
    each of the length ÷ every ways to cut time so.
    """
    _no_hair(name, "groups", computation.keys, given)
    kind = given.rows.schema[computation.time]
    ordered = [aggregate for aggregate in computation.aggregates if aggregate.kind in {"first", "last"}]
    roots = {root for expression in computation.expressions for root in expression.meta.root_names()}
    back_us = 1 if computation.time == WINDOW_END else 0  # a row of a window stands for its last microsecond
    instant = (pl.col(computation.time).cast(pl.Int64) - back_us).alias(INSTANT)
    needed = [column for column in given.rows.columns if column in {*computation.keys, *roots}]
    rows = given.rows.select(*needed, instant)
    rows = rows.sort(INSTANT, maintain_order=True) if ordered else rows

    def grouped(frame: pl.DataFrame) -> pl.DataFrame:
        windows = []
        for offset in range(0, computation.length_us, computation.every_us):
            start = (pl.col(INSTANT) - offset) // computation.length_us * computation.length_us + offset
            groups = frame.with_columns(start.alias(START)).lazy().group_by(*computation.keys, START)
            windows.append(groups.agg(*computation.expressions).collect(engine="in-memory"))
        return pl.concat(windows).sort(START, *computation.keys, nulls_last=True)

    for aggregate in ordered:
        end = pl.col(INSTANT).min() if aggregate.kind == "first" else pl.col(INSTANT).max()
        candidates = aggregate.value.filter(pl.col(INSTANT) == end).n_unique()
        pane = (pl.col(INSTANT) // computation.every_us).alias(START)
        if rows.group_by(*computation.keys, pane).agg(candidates.alias(RANK)).filter(pl.col(RANK) > 1).height:
            raise NotJudged(f"operator {name!r} takes the {aggregate.kind} of rows with one event time, in any order")
    made = steady(name, rows, given.inexact & roots, grouped)
    inexact = {
        aggregate.name
        for aggregate in computation.aggregates
        if made.schema[aggregate.name].is_float()
        and (aggregate.kind in {"sum", *MEANS} or given.inexact & set(aggregate.value.meta.root_names()))
    }
    result = made.with_columns(
        pl.col(START).cast(kind).alias(WINDOW_START),
        (pl.col(START) + computation.length_us).cast(kind).alias(WINDOW_END),
    ).drop(START)
    return Whole(result, WINDOW_END, keys=(*computation.keys, *WINDOW), inexact=frozenset(inexact))


def joined(name: str, computation: Join, given: Sequence[Whole]) -> Whole:
    """The inner join on the window and other columns; columns that several inputs have are numbered."""
    result = given[0]
    for number, side in enumerate(given[1:], start=2):
        _no_hair(name, "joins", computation.on, result, side)
        names = {
            column: f"{column}_{number}"
            for column in side.rows.columns
            if column not in computation.on and column in result.rows.columns
        }
        renamed = side.rows.rename(names)
        keys = dict.fromkeys([*result.keys, *(names.get(key, key) for key in side.keys), *computation.on])
        result = Whole(
            result.rows.join(renamed, on=list(computation.on), how="inner"),
            WINDOW_END,
            keys=tuple(keys) if result.keys and side.keys else (),
            inexact=result.inexact | {names.get(column, column) for column in side.inexact},
        )
    return replace(result, ordered=False)


def best(name: str, computation: Top, given: Whole) -> Whole:
    """The k rows of each window and group with the largest value; equal ones by all other columns."""
    rows = given.rows
    group = list(dict.fromkeys([*WINDOW, *computation.per]))
    _no_hair(name, "groups", group, given)
    order = [computation.by, *(column for column in rows.columns if column not in {computation.by, *group})]
    down = [column == computation.by for column in order]
    ranked = rows.sort(order, descending=down, nulls_last=True).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(group).alias(RANK)
    )
    last, next_one = (ranked.filter(pl.col(RANK) == rank) for rank in (computation.k - 1, computation.k))
    pairs = last.join(next_one, on=group, nulls_equal=True, suffix=RANK)
    undecided, by_a_hair = pl.lit(True), pl.lit(False)
    for column in order:
        own, other = pl.col(column), pl.col(f"{column}{RANK}")
        near = own.eq_missing(other)
        if column in given.inexact:
            near = close(own, other, rows.schema[column], largest_of(rows[column]))
            by_a_hair = by_a_hair | (undecided & near)
        undecided = undecided & near
    if pairs.filter(by_a_hair).height:
        raise NotJudged(f"operator {name!r} ranks rows by floats that differ by less than the order of sums does")
    kept = ranked.filter(pl.col(RANK) < computation.k).drop(RANK)
    return replace(given, rows=kept, ordered=False)


def united(given: Sequence[Whole]) -> Whole:
    """The rows of all inputs."""
    first = given[0]
    rows = pl.concat([whole.rows.select(first.rows.columns) for whole in given])
    return Whole(
        rows,
        first.time if all(whole.time == first.time for whole in given) else "",
        next((whole.retimed for whole in given if whole.retimed), ""),
        first.keys if all(whole.keys == first.keys for whole in given) else (),
        frozenset().union(*(whole.inexact for whole in given)),
    )


def stepped(name: str, computation: Computation, given: Sequence[Whole]) -> Whole:
    """A computation of a user's own, in one step, if it says that batches make no difference to it."""
    kind = type(computation).__name__
    if not computation.any_batches:
        raise NotJudged(f"operator {name!r} ({kind}) may depend on the batches: it does not say any_batches = True")
    if not all(whole.ordered for whole in given):
        raise NotJudged(f"operator {name!r} ({kind}) may depend on the order of rows that come from several tasks")
    first = given[0]

    def once(frame: pl.DataFrame) -> pl.DataFrame:
        frames = (frame, *(whole.rows for whole in given[1:]))
        return computation.step(computation.initial(), StepInput(frames, END_WATERMARK_US, 1)).rows

    rows = steady(name, first.rows, first.inexact, once)
    retimed = first.retimed or _put_back(name, first.rows, rows, first.time, by_row=False)
    return Whole(rows, first.time, retimed, (), _floats(rows), ordered=True)


def steady(
    name: str, rows: pl.DataFrame, inexact: frozenset[str], compute: Callable[[pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """What is computed from rows, if it does not hang on the last digits of floats that have none to rely on.

    A run adds them up in another order; where that could let a row in, or move a whole number, nothing is judged.
    """
    made = compute(rows)
    for variant in _variants(rows, sorted(inexact & set(rows.columns))):
        other = compute(variant)
        same = other.height == made.height and other.columns == made.columns
        if not same or not all(_near(made[column], other[column]) for column in made.columns):
            raise NotJudged(f"operator {name!r} decides by the last digits of floats, which follow the order of sums")
    return made


def _variants(rows: pl.DataFrame, inexact: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The rows with inexact floats a hair larger or smaller: all alike, and neighbouring columns against each other."""
    for sign, other in product((1.0, -1.0), repeat=2) if inexact else ():
        made = []
        for number, column in enumerate(inexact):
            kind = rows.schema[column]
            hair = HAIR_SINGLE if isinstance(kind, pl.Float32) else HAIR
            made.append((pl.col(column) * (1.0 + (sign if number % 2 else other) * hair)).cast(kind))
        yield rows.with_columns(made)


def _near(own: pl.Series, other: pl.Series) -> bool:
    if not own.dtype.is_float():
        return own.equals(other, null_equal=True)
    pair = pl.DataFrame([own.alias("one"), other.alias("other")])
    return bool(pair.select(close(pl.col("one"), pl.col("other"), own.dtype, largest_of(own)).all()).item())


def _applied(transformation: Filter | Select | WithColumns | Map, rows: pl.DataFrame) -> pl.DataFrame:
    match transformation:
        case Filter(predicates):
            return rows.filter(*predicates)
        case Select(columns):
            return rows.select(*columns)
        case WithColumns(columns):
            return rows.with_columns(*columns)
        case Map(function):
            return function(rows)


def _put_back(name: str, before: pl.DataFrame, after: pl.DataFrame, time: str, *, by_row: bool) -> str:
    """That rows may have earlier event times than before, in words: row by row where rows stay, else times anew."""
    if time not in before.columns or time not in after.columns:
        return ""
    if before.height == after.height and not (after[time] < before[time]).any():
        return ""
    same = not by_row and after[time].drop_nulls().unique().is_in(before[time].unique().implode()).all()
    return "" if same else f"operator {name!r} puts event times back"


def _no_hair(name: str, verb: str, columns: Sequence[str], *given: Whole) -> None:
    """Refuse floats that are compared for equality though their last digits follow the order of sums."""
    for whole in given:
        inexact = next((column for column in columns if column in whole.inexact), None)
        if inexact is not None:
            raise NotJudged(f"operator {name!r} {verb} by {inexact!r}, a float that follows the order of sums")


def _floats(rows: pl.DataFrame) -> frozenset[str]:
    return frozenset(column for column, kind in rows.schema.items() if kind.is_float())


def _came_back(store: Path, source: str) -> bool:
    """Whether a partition of a source had rows after it had been given up as idle, by the batch log."""
    given_up: set[Json] = set()
    for entry in journal.read(store / "batches") if (store / "batches").exists() else ():
        data = records.mapping(entry["data"])
        ranges = records.items(records.mapping(data["ranges"])[source])
        if any(partition in given_up and _has_rows(planned) for partition, planned in enumerate(ranges)):
            return True
        idle = data.get("idle")
        given_up |= set(records.items(records.mapping(idle).get(source, ()))) if idle else set()
    return False


def _has_rows(planned: Json) -> bool:
    """Whether a range has rows, as far as its form is known."""
    match planned:
        case None:
            return False
        case [int(first), int(end), int()]:
            return first < end
        case {"pieces": pieces}:
            return bool(pieces)
    return True


def _homes(store: Path, source: str) -> Mapping[str, int]:
    """Which partition of a source read which file, by the batch log; nothing if its ranges look otherwise."""
    homes: dict[str, int] = {}
    for entry in journal.read(store / "batches"):
        ranges = records.mapping(records.mapping(entry["data"])["ranges"])[source]
        for partition, planned in enumerate(records.items(ranges)):
            for piece in records.items(records.mapping(planned)["pieces"]) if planned is not None else ():
                match piece:
                    case [[str(name), *_], *_]:
                        homes.setdefault(name, partition)
    return homes
