"""Topologies as users write them: each call adds an operator, `build` gives the application that runs."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, get_overloads, overload

import polars as pl

from tenax.api import arguments, checks
from tenax.api.partitioning import partitioning
from tenax.api.places import calling_line
from tenax.application.application import Application, late_output
from tenax.application.collisions import check_collisions
from tenax.application.schemas import Parts, derived
from tenax.connectors.sink import Sink
from tenax.connectors.source import Source
from tenax.errors import InvalidRequest, InvalidTopology, TenaxError
from tenax.model import topology as model
from tenax.model.durations import Span, as_text
from tenax.model.elasticity import Elasticity
from tenax.model.options import options_of
from tenax.model.protection import OperatorProtection, Protection
from tenax.model.topology import Input, Operator, Output, suggestion
from tenax.operators.computation import Computation
from tenax.operators.event_time import WINDOW, WINDOW_END
from tenax.operators.join import join
from tenax.operators.stateless import Stateless, filter_rows, map_frames, select_columns, with_columns
from tenax.operators.top import top
from tenax.operators.union import Union
from tenax.operators.windows import check_lengths, windows

Function = Callable[[pl.DataFrame], pl.DataFrame]
SchemaType = pl.DataType | type[pl.DataType]
Parallelism = int | tuple[int, int]  # of an operator; or the fewest tasks, with which it begins, and the most


class Topology:
    """A topology in the making.

    - Operators get names by what they do (`window-1`), or the name that a call is given.
    - Nothing runs while it is written; `build` checks it as a whole.
    """

    def __init__(self, name: str) -> None:
        checks.name("topology", name)
        self.name = name
        self._operators: dict[str, Operator] = {}
        self._sources: dict[str, Source] = {}
        self._computations: dict[str, Computation] = {}
        self._sinks: dict[str, Sink] = {}
        self._keys: dict[tuple[str, str], tuple[str, ...]] = {}
        self._paired: set[tuple[str, str]] = set()
        self._protection = Protection()
        self._elastic = Elasticity()
        self._bounds: dict[str, tuple[int, int]] = {}
        self._single: list[dict[str, dict[str, str]]] = []
        self._places: dict[str, str] = {}
        self._schemas: dict[str, pl.Schema] = {}

    def source(self, name: str, source: Source, *, partitions: int = 1, late: Sink | None = None) -> Stream:
        """Rows from outside, read by so many tasks; late ones are dropped, or go to a sink of their own."""
        checks.name("source", name)
        checks.source(name, source)
        checks.count(f"the number of partitions of source {name!r}", partitions)
        if late is not None:
            checks.sink(late_output(name), late)
            if late_output(name) in self._operators:
                raise InvalidTopology(f"late rows of source {name!r} are called {late_output(name)!r}: rename one")
        self._add(Operator(name, partitions))
        self._sources[name] = source
        if late is not None:
            self._sinks[late_output(name)] = late
        return Stream(self, name, source.time)

    @overload
    def protect(
        self,
        *,
        replicas: int | str | Sequence[str] = 0,
        recovery_latency: Span | None = None,
        backups: str | Sequence[str] | None = None,
        recovery: str = "incremental",
        outputs: str = "tentative",
        order: str = "best-density",
        tentative_delay: Span = "0s",
        checkpoint_every: int | Span = 10,
        checkpoint: str = "aligned",
        checkpoints: Mapping[str, str] = MappingProxyType({}),
        failure_every: Span | None = None,
        standby: Mapping[str, str] = MappingProxyType({}),
        follow_load: float = 0.05,
        storage_patience: Span = "5m",
        correlated_losses: int = 2,
        cutover_lag: int = 2,
        patience: int = 3,
        max_outage_bytes: int = 4294967296,
        max_attempts: int = 3,
    ) -> None: ...

    @overload
    def protect(
        self, operator: str, /, *operators: str, checkpoint: str | None = None, standby: str | None = None
    ) -> None: ...

    def protect(self, *operators: str, **words: Any) -> None:
        """How the run meets the loss of nodes; `docs/running.md` explains each setting.

        With names of operators before them, `checkpoint` and `standby` are for these alone:
        `topology.protect("speed", standby="active")`. Settings files and options of `tenax run` win over all of it.
        """
        record = OperatorProtection if operators else Protection
        for word in words:
            if word not in options_of(record):
                likely = suggestion(word, options_of(record))
                raise TypeError(f"Topology.protect() got an unexpected keyword argument {word!r}{likely}")
        if operators:
            single = OperatorProtection(**words)
            self._single = [*self._single, *(single.words(operator) for operator in operators)]
        protection = self._protection if operators else Protection(**words)
        for said in self._single:
            protection = protection.but(**said)
        self._protection = protection

    def elastic(
        self,
        *,
        policy: str = "rates",
        target: float = 0.7,
        nodes: tuple[int, int] = (2, 8),
        cycles: int = 2,
        period: Span = "10s",
        cooldown: Span = "60s",
        handover: str = "checkpoint",
    ) -> None:
        """Let operators split and merge, and nodes come and go, with the load; docs/running.md explains each word."""
        self._elastic = Elasticity(True, policy, target, nodes, cycles, period, cooldown, handover)

    def build(self) -> Application:
        """The application: the checked topology with everything that runs in it.

        Every operator's columns follow from those of the sources: a column, type or key that is not there is told here.
        """
        if not any(operator.output for operator in self._operators.values()):
            raise InvalidTopology(f"topology {self.name!r} has an output, found none: end a stream with output(...)")
        topology = model.Topology(self.name, tuple(self._operators.values()))
        check_collisions(self._sources, self._sinks)
        return Application(
            topology,
            self._sources,
            self._computations,
            self._sinks,
            self._keys,
            self._protection,
            self._places,
            self._derived(),
            self._elastic,
            self._bounds,
            paired=frozenset(self._paired),
        )

    def __repr__(self) -> str:
        outputs = ", ".join(name for name, operator in self._operators.items() if operator.output) or "none yet"
        return f"<Topology {self.name!r}: {len(self._operators)} operators, outputs {outputs}>"

    def _repr_svg_(self) -> str | None:
        """The topology as a notebook draws it; None while it cannot be drawn, as before its first output."""
        from tenax.api.pictures import topology_svg

        return topology_svg(self)

    def _derived(self, last: str | None = None) -> dict[str, pl.Schema]:
        """The schemas of all operators so far, or of one and those before it; what was derived once is known."""
        wanted = set(self._operators) if last is None else {last}
        for operator in reversed(self._operators.values()):  # consumers come after their producers
            if operator.name in wanted:
                wanted |= {stream.operator for stream in operator.inputs}
        parts = Parts(self._sources, self._computations, self._keys, self._places)
        operators = [operator for name, operator in self._operators.items() if name in wanted]
        self._schemas = derived(operators, parts, self._schemas)
        return dict(self._schemas)

    def _add(self, operator: Operator) -> None:
        if operator.name in self._operators:
            raise InvalidTopology(f"operator names are unique, found {operator.name!r} twice: rename one")
        if operator.name in self._sinks:
            raise InvalidTopology(f"the late rows of a source are called {operator.name!r}: rename this operator")
        self._operators[operator.name] = operator
        self._places[operator.name] = calling_line(__name__)

    def _add_computation(
        self,
        verb: str,
        name: str | None,
        computation: Computation,
        parallelism: Parallelism,
        inputs: Sequence[Stream],
        *,
        follows: bool = False,
    ) -> str:
        """A new operator that reads these streams: task by task where the tasks match, by key or all together else.

        One that `follows` has as many tasks as its input by nature: whatever is one task now, it is its partner.
        """
        chosen = self._unused(verb) if name is None else name
        checks.name("operator", chosen)
        tasks, _ = checks.parallelism(f"the parallelism of operator {chosen!r}", parallelism)
        read = []
        for stream in inputs:
            if stream.topology is not self:
                raise InvalidTopology(f"operator {chosen!r}: its inputs are of one topology, found two: use one")
            how, alike = partitioning(chosen, stream.parallelism, tasks, stream.keys, stream.shared)
            read.append(Input(stream.operator, how))
            self._keys[stream.operator, chosen] = stream.keys
            if alike or (follows and not stream.keys):
                self._paired.add((stream.operator, chosen))
        joins = len(inputs) > 1 and computation.correlated
        self._add(Operator(chosen, tasks, tuple(read), correlated=joins))
        if isinstance(parallelism, tuple):
            self._bounds[chosen] = parallelism
        self._computations[chosen] = computation
        return chosen

    def _unused(self, verb: str) -> str:
        names = (f"{verb}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in self._operators)


# What editors and notebooks show: the settings for the whole topology.
Topology.protect.__signature__ = inspect.signature(get_overloads(Topology.protect)[0])  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Stream:
    """The rows of an operator; every method gives the stream of a new operator.

    - `time` is the event-time column, `keys` the columns by which the next operator's tasks share the rows.
    - `shared` are the columns by which its own tasks share them already: where the next operator shares them alike, a
      task's rows are all for its partner, and nothing is shuffled.
    """

    topology: Topology
    operator: str
    time: str
    keys: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    def filter(
        self, *conditions: pl.Expr | Sequence[pl.Expr], name: str | None = None, **values: arguments.Value
    ) -> Stream:
        """Only the rows for which all conditions hold; `page="home"` is one, too."""
        name = arguments.operator_name("filter", name)
        holding = arguments.expressions("filter", conditions, {}, example="pl.col('speed') > 20")
        holding += arguments.equalities(values)
        return replace(self._stateless("filter", name, filter_rows(*holding)), shared=self.shared)

    def select(
        self,
        *columns: arguments.Column | Sequence[arguments.Column],
        name: str | None = None,
        **named: arguments.Value,
    ) -> Stream:
        """These columns and no others; the time column stays. `kmh=pl.col("speed") * 3.6` names one."""
        name = arguments.operator_name("select", name)
        example = "'segment', pl.col('speed') * 3.6"
        expressions = arguments.expressions("select", columns, named, example=example, columns=True)
        outputs = {column.meta.output_name(raise_if_undetermined=False) for column in expressions}
        times = WINDOW if self.time == WINDOW_END else (self.time,)
        expressions += [pl.col(time) for time in times if time not in outputs]
        return self._stateless("select", name, select_columns(*expressions))

    def with_columns(
        self, *columns: pl.Expr | Sequence[pl.Expr], name: str | None = None, **named: arguments.Value
    ) -> Stream:
        """All columns, and these computed from them: `kmh=pl.col("speed") * 3.6`, or an expression with an alias."""
        name = arguments.operator_name("with_columns", name)
        expressions = arguments.expressions("with_columns", columns, named, example="kmh=pl.col('speed') * 3.6")
        return self._stateless("with-columns", name, with_columns(*expressions))

    def map(
        self, function: Function, *, schema: Mapping[str, SchemaType] | None = None, name: str | None = None
    ) -> Stream:
        """What a function makes of each batch of rows; it must not depend on how batches are cut.

        The columns of what is returned, their order and types are always the same. They are declared by `schema`, or
        the function is tried with a frame without rows when the topology is built.
        """
        checks.function(function)
        columns = None if schema is None else checks.schema("map", schema)
        return self._stateless("map", name, map_frames(function, columns))

    def key_by(self, *columns: str | Sequence[str]) -> Stream:
        """The same rows, shared by these columns among the tasks of the next operator."""
        keys = arguments.flat(columns)
        checks.columns("key_by", keys)
        return replace(self, keys=tuple(str(key) for key in keys))

    def union(self, *others: Stream, name: str | None = None) -> Stream:
        """The rows of several streams of the same columns."""
        _check_streams("union", others)
        if not others:
            raise InvalidRequest("union takes at least one other stream, found none: pass one")
        streams = (self, *others)
        for other in others:
            self._check_union(other)
        operator = self.topology._add_computation("union", name, Union(), self.parallelism, streams, follows=True)
        return replace(self, operator=operator, shared=())

    def window(self, length: Span, *, every: Span | None = None) -> Windowed:
        """Event-time windows of a length; without `every` they follow each other, with it a new one begins so often.

        Lengths are text such as "10s" and "1h30m", or a `timedelta`.
        """
        size = as_text(length)
        step = size if every is None else as_text(every)
        check_lengths(size, step)
        return Windowed(self, size, step)

    def join(
        self, other: Stream, *, on: Sequence[str], parallelism: Parallelism | None = None, name: str | None = None
    ) -> Stream:
        """Rows of two window streams that agree in these columns; "window" stands for the window itself."""
        _check_streams("join", (other,))
        checks.column_list("on", on)
        for stream in (self, other):
            stream._check_windowed("join")
        keys = tuple(column for column in on if column != "window")
        streams = (replace(self, keys=keys), replace(other, keys=keys))
        tasks = self.parallelism if parallelism is None else parallelism
        _, most = checks.parallelism("the parallelism of a join", tasks)
        if not keys and most > 1:
            raise InvalidTopology(
                f"rows that are joined meet in one task, found {most} tasks and no key beside the window: "
                "add a column to on, or use parallelism=1"
            )
        operator = self.topology._add_computation("join", name, join(on), tasks, streams)
        return Stream(self.topology, operator, WINDOW_END, shared=keys)

    def top(self, count: int, by: str, *, name: str | None = None) -> Stream:
        """The `count` rows of each window with the highest values: first in every task, then of all tasks together."""
        checks.count("how many rows top keeps", count)
        checks.column("by", by)
        self._check_windowed("top")
        local = replace(self, keys=())
        if self.parallelism > 1 or self.topology._bounds.get(self.operator, (1, 1))[1] > 1:  # at any time
            local = Stream(self.topology, self._followed("top-local", None, top(count, by)), WINDOW_END)
        operator = self.topology._add_computation("top", name, top(count, by), 1, (local,))
        return Stream(self.topology, operator, WINDOW_END)

    def apply(
        self,
        computation: Computation,
        *,
        parallelism: Parallelism | None = None,
        time: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """Your own computation; `key_by` before it decides which task gets which rows. `tx.apply` takes several."""
        return apply([self], computation, parallelism=parallelism, time=time, name=name)

    def output(self, name: str, sink: Sink, *, priority: float | Sequence[float] = 1.0) -> Stream:
        """Send the rows to a sink; higher priorities come back first after a failure.

        A priority is one number, or one for each task of the stream: `priority=[3, 1, 1]`.
        """
        checks.name("output", name)
        checks.sink(name, sink)
        checks.priority(name, self.parallelism, priority)
        operator = self._followed(name, name, Stateless(()))
        matters = Output(tuple(map(float, priority)) if isinstance(priority, Sequence) else float(priority))
        self.topology._operators[operator] = replace(self.topology._operators[operator], output=matters)
        self.topology._sinks[operator] = sink
        return self

    def _check_windowed(self, verb: str) -> None:
        if self.time != WINDOW_END:
            raise InvalidRequest(
                f"{verb} takes streams of windows, found {self.operator!r} with the time {self.time!r}: "
                "use window(...).aggregate(...) before it"
            )

    def _check_union(self, other: Stream) -> None:
        if other.time != self.time:
            raise InvalidRequest(
                f"the streams of a union have one time column, found {self.time!r} of {self.operator!r} and "
                f"{other.time!r} of {other.operator!r}: name the columns alike"
            )
        if other.parallelism not in {self.parallelism, 1} and self.parallelism > 1 and not other.keys:
            raise InvalidRequest(
                f"the streams of a union have as many tasks, or keys to spread them by, found {self.parallelism} of "
                f"{self.operator!r} and {other.parallelism} of {other.operator!r}: give sources as many partitions, "
                "or use key_by(...) on each stream"
            )

    def __repr__(self) -> str:
        try:
            columns = ", ".join(f"{name} {kind}" for name, kind in self.schema.items())
        except TenaxError as error:
            columns = str(error)
        keys = f", by {', '.join(self.keys)}" if self.keys else ""
        return f"<Stream {self.operator!r}, {self.parallelism} tasks, time {self.time!r}{keys}: {columns}>"

    @property
    def schema(self) -> pl.Schema:
        """The columns of the rows and their types, as they follow from those of the sources."""
        known = self.topology._derived(self.operator)
        if self.operator not in known:
            raise InvalidRequest(
                f"the columns of {self.operator!r} follow from those of its sources, found one that cannot tell them "
                "yet: state a schema there"
            )
        return known[self.operator]

    @property
    def parallelism(self) -> int:
        """The number of tasks that make this stream."""
        return self.topology._operators[self.operator].parallelism

    def _stateless(self, verb: str, name: str | None, computation: Stateless) -> Stream:
        return replace(self, operator=self._followed(verb, name, computation), shared=())  # columns may have changed

    def _followed(self, verb: str, name: str | None, computation: Computation) -> str:
        """A new operator with a task for each of this stream."""
        plain = replace(self, keys=())
        return self.topology._add_computation(verb, name, computation, self.parallelism, (plain,), follows=True)


@dataclass(frozen=True, slots=True)
class Windowed:
    """A stream cut into event-time windows, to be aggregated."""

    stream: Stream
    length: str
    every: str

    def aggregate(
        self,
        *aggregates: pl.Expr | Sequence[pl.Expr],
        parallelism: Parallelism | None = None,
        name: str | None = None,
        **named: pl.Expr,
    ) -> Stream:
        """One row per key and window: the keys, the aggregates, `window_start` and `window_end`.

        `mean=pl.col("speed").mean()` names an aggregate, as `.alias("mean")` does.
        """
        name = arguments.operator_name("aggregate", name)
        expressions = arguments.expressions("aggregate", aggregates, named, example="pl.col('speed').mean()")
        stream = self.stream
        tasks = stream.parallelism if parallelism is None else parallelism
        _, most = checks.parallelism("the parallelism of a window", tasks)
        if not stream.keys and most > 1:
            raise InvalidTopology("windows of several tasks need keys, found none: use key_by(...) or parallelism=1")
        computation = windows(stream.time, stream.keys, self.length, self.every, expressions)
        operator = stream.topology._add_computation("window", name, computation, tasks, (stream,))
        return Stream(stream.topology, operator, WINDOW_END, shared=stream.keys)


def apply(
    streams: Sequence[Stream],
    computation: Computation,
    *,
    parallelism: Parallelism | None = None,
    time: str | None = None,
    name: str | None = None,
) -> Stream:
    """Your own computation with several inputs: a step gets one frame for each stream, in this order.

    - `key_by` on each stream decides which task gets which of its rows: those that must meet have equal keys.
    - Without `parallelism` it has as many tasks as the first stream; without `time` the time column of the first.
    - A computation with `correlated = True` says that each input is worthless without the others, as in a join.
    """
    if isinstance(streams, Stream) or not isinstance(streams, Sequence) or not streams:
        raise InvalidRequest(
            f"apply takes a list of streams, found {checks.shown(streams)}: write tx.apply([a, b], ...)"
        )
    first = streams[0]
    _check_streams("apply", streams)
    producers = [stream.operator for stream in streams]
    for producer in producers:
        if producers.count(producer) > 1:
            raise InvalidRequest(f"apply reads each stream once, found {producer!r} twice: leave one out")
    checks.computation(computation)
    if time is not None:
        checks.column("time", time)
    tasks = first.parallelism if parallelism is None else parallelism
    follows = parallelism is None and computation.stateless
    operator = first.topology._add_computation("apply", name, computation, tasks, streams, follows=follows)
    return Stream(first.topology, operator, first.time if time is None else time)


def _check_streams(verb: str, given: Sequence[object]) -> None:
    for other in given:
        if not isinstance(other, Stream):
            remedy = "aggregate it first" if isinstance(other, Windowed) else "pass what a source or operator gives"
            raise InvalidRequest(f"{verb} takes streams, found {checks.shown(other)}: {remedy}")
