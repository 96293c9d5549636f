"""Steps of the tasks of one level on one node, for the batches of a pass."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tenax.control.versions import Version
from tenax.engine.application import Application, late_output
from tenax.engine.errors import UnreadableSource
from tenax.engine.layout import stays
from tenax.engine.store.checkpoints import SegmentFile
from tenax.engine.worker.orders import Bundle, Failure, Order, Places, Report, Restored, Staged
from tenax.engine.worker.retained import Address, drop_outputs, write_outputs
from tenax.engine.worker.sources import SourceComputation
from tenax.engine.worker.states import Held, States
from tenax.model.graph import Stream, TaskGraph
from tenax.operators.chunks import decode, encode
from tenax.operators.computation import END_WATERMARK_US, Computation, StepInput
from tenax.operators.keys import owners, split

TRIM_EVERY = 16  # batches between two looks for files that nobody needs

Chunk = bytes | tuple[pl.DataFrame, int]
"""Encoded, or as rows and watermark where it stays in this process."""


@dataclass(slots=True)
class Work:
    """What a task has done so far in a pass."""

    held: Held
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    bytes_out: int = 0
    watermark_us: int = 0
    seconds: float = 0.0
    staged: list[Staged] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a pass on this node: what its tasks have done, found and sent so far.

    `staying` are the streams of its operators whose chunks stay in this process.
    """

    order: Order
    work: Mapping[int, Work]
    inbox: dict[Address, Chunk]
    sent: Sequence[Bundle]
    staying: frozenset[Stream]


class StepFailed(Exception):
    """A step could not be done; carries why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.cause)
        self.failure = failure


class Worker:
    """The tasks of one node, as one Python process runs them.

    - It holds the application and the states it has seen; everything else comes with the order of a pass.
    - A step that does not find exactly the chunks it needs refuses: nothing is ever computed from less.
    """

    def __init__(self, application: Application, places: Places, node: str, restored: Restored | None = None) -> None:
        self.application = application
        self.graph = TaskGraph(application.topology)
        self.states = States(places, node, restored)
        self.names = [str(task) for task in self.graph.tasks(range(len(self.graph)))]
        self.computations = [self._computation(operator.name) for operator in self.graph.operators]
        self._owners: dict[tuple[int, int, int], np.ndarray] = {}

    def run(self, order: Order, level: int, node: int, received: Sequence[Bundle]) -> list[Bundle]:
        """One stage of a pass on this node: a bundle for every node."""
        sent = [Bundle() for _ in order.layout.nodes]
        inbox: dict[Address, Chunk] = {}
        failures: list[Failure] = []
        for bundle in received:
            inbox.update(bundle.chunks)
            sent[node].reports += bundle.reports
            failures += bundle.failures
        if not failures:
            try:
                self._run_level(order, level, node, inbox, sent)
                sent[node].chunks.update(_encoded(inbox))  # what is left is for later levels on this node
            except StepFailed as failed:
                failures = [failed.failure]
        if failures:
            first = min(failures, key=lambda one: (one.batch, one.task))
            return [Bundle(failures=[first]) for _ in order.layout.nodes]
        return sent

    def upload(self, version: Version, known: Mapping[str, SegmentFile]) -> tuple[SegmentFile, ...]:
        """Put a task's version into the store."""
        if self.computations[self.graph.operator_of[self.graph.number(version.task)]].stateless:
            return ()
        return self.states.upload(version, known)

    def _run_level(self, order: Order, level: int, node: int, inbox: dict[Address, Chunk], sent: list[Bundle]) -> None:
        operators = order.layout.levels[level]
        tasks = [
            task
            for operator in operators
            for task in range(self.graph.first[operator], self.graph.first[operator + 1])
            if order.layout.homes[task] == node
        ]
        leaving = [stream for operator in operators for stream in self.graph.consumers[operator]]
        staying = frozenset(stream for stream in leaving if stays(self.graph, stream, order.layout.homes))
        work = {task: self._begin(task, order.starts[task]) for task in tasks}
        here = Level(order, work, inbox, sent, staying)
        for batch in range(order.first, order.last + 1):
            for task in tasks:
                self._step(here, task, batch)
        for task in tasks:
            sent[node].reports.append(self._finish(order, task, work[task]))

    def _begin(self, task: int, version: Version) -> Work:
        computation = self.computations[self.graph.operator_of[task]]
        if computation.stateless:
            return Work(Held(version, {}, {}))
        return Work(self.states.load(version, computation.initial()))

    def _finish(self, order: Order, task: int, work: Work) -> Report:
        computation = self.computations[self.graph.operator_of[task]]
        version = Version(self.graph.task(task), order.last, order.pass_id)
        if task in order.retain:
            drop_outputs(self.states.folder(version.task), order.retained_before)
        if not computation.stateless:
            self.states.save(version, work.held.index, work.held.state)
            if order.last // TRIM_EVERY != (order.first - 1) // TRIM_EVERY:
                self.states.drop_before(version.task, order.keep)
        return Report(
            task,
            work.rows_in,
            work.rows_out,
            work.late,
            work.bytes_out,
            work.watermark_us,
            work.seconds,
            tuple(work.staged),
        )

    def _step(self, level: Level, task: int, batch: int) -> None:
        started = time.perf_counter()
        order, work = level.order, level.work[task]
        operator = int(self.graph.operator_of[task])
        index = task - int(self.graph.first[operator])
        computation = self.computations[operator]
        name = self.graph.operators[operator].name
        try:
            if isinstance(computation, SourceComputation):
                ended = order.ended and batch == order.last
                given_range = order.ranges[name][batch - order.first][index]
                made = computation.read(work.held.state, index, given_range, batch, ended)
                output, watermark, late, rows_in = made.output, made.watermark_us, made.late.height, made.rows
                self._stage(order, late_output(name), index, batch, made.late, work)
            else:
                frames, watermark = self._inputs(operator, task, index, batch, level.inbox)
                output = computation.step(work.held.state, StepInput(frames, watermark, batch))
                late, rows_in = 0, sum(frame.height for frame in frames)
            self._stage(order, name, index, batch, output.rows, work)
            chunks = self._send(level, operator, index, batch, output.rows, watermark)
        except StepFailed:
            raise
        except Exception as error:
            raise StepFailed(_failure(error, name, self.names[task], batch)) from error
        work.held = Held(work.held.version, output.state, work.held.index)
        work.bytes_out += sum(len(chunk) for chunk in chunks.values())
        for address, chunk in chunks.items():
            home = order.layout.homes[address[0]]
            if home == order.layout.homes[task] and address[0] in level.work:
                level.inbox[address] = chunk
            else:
                level.sent[home].chunks[address] = chunk
        if task in order.retain:
            write_outputs(self.states.folder(self.graph.task(task)), batch, order.pass_id, chunks)
        work.rows_in += rows_in
        work.rows_out += output.rows.height
        work.late += late
        work.watermark_us = watermark
        work.seconds += time.perf_counter() - started

    def _stage(self, order: Order, output: str, index: int, batch: int, rows: pl.DataFrame, work: Work) -> None:
        """Write a result where nobody sees it until it is published."""
        sink = self.application.sinks.get(output)
        if sink is not None and batch > order.published:
            work.staged.append(Staged(output, sink.write(output, index, batch, str(order.pass_id), rows)))

    def _inputs(
        self, operator: int, task: int, index: int, batch: int, inbox: dict[Address, Chunk]
    ) -> tuple[tuple[pl.DataFrame, ...], int]:
        """One frame per input, its producers' chunks in order, and the smallest watermark."""
        frames, watermark = [], END_WATERMARK_US
        for number, stream in enumerate(self.graph.streams[operator]):
            parts = []
            for producer in stream.producers_of(index):
                data = inbox.pop((task, number, producer, batch), None)
                if data is None:
                    raise MissingChunk(f"no chunk of input {number} from its task {producer}")
                rows, own = decode(data) if isinstance(data, bytes) else data
                parts.append(rows)
                watermark = min(watermark, own)
            filled = [part for part in parts if part.height] or parts[:1]
            frames.append(filled[0] if len(filled) == 1 else pl.concat(filled, rechunk=True))
        return tuple(frames), watermark

    def _send(
        self, level: Level, operator: int, index: int, batch: int, rows: pl.DataFrame, watermark_us: int
    ) -> dict[Address, bytes]:
        """A chunk for every consumer task; where it stays in this process it goes there as it is, unless retained."""
        chunks: dict[Address, bytes] = {}
        retained = int(self.graph.first[operator]) + index in level.order.retain
        for stream in self.graph.consumers[operator]:
            number = self.graph.streams[stream.consumer].index(stream)
            first = int(self.graph.first[stream.consumer])
            consumers = stream.consumers_of(index)
            try:
                parts = self._parts(stream, consumers, self.computations[stream.consumer].combined(number, rows))
            except Exception as error:  # rows that do not fit their consumer: it is the one that says so
                name = self.graph.operators[stream.consumer].name
                raise StepFailed(_failure(error, name, self.names[first + consumers[0]], batch)) from error
            if stream in level.staying and not retained:
                level.inbox[first + index, number, index, batch] = (parts[0], watermark_us)
                continue
            for consumer, chunk in zip(consumers, _chunks(parts, watermark_us), strict=True):
                chunks[first + consumer, number, index, batch] = chunk
        return chunks

    def _parts(self, stream: Stream, consumers: range, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """The rows for each consumer task."""
        if len(consumers) == 1 or not rows.height:
            return [rows] * len(consumers)
        producer, consumer = (self.graph.operators[one] for one in (stream.producer, stream.consumer))
        key = (stream.consumer, consumers.start, consumers.stop)
        if key not in self._owners:
            weights = consumer.weights or (1.0,) * consumer.parallelism
            self._owners[key] = owners(weights[consumers.start : consumers.stop])
        keys = self.application.keys[producer.name, consumer.name]
        return split(rows, keys, self._owners[key], len(consumers))

    def _computation(self, name: str) -> Computation:
        source = self.application.sources.get(name)
        return self.application.computations[name] if source is None else SourceComputation(source)


def _chunks(parts: Sequence[pl.DataFrame], watermark_us: int) -> list[bytes]:
    """The chunks of parts of one frame: those without rows are alike and made once."""
    empty = next((part for part in parts if not part.height), None)
    nothing = b"" if empty is None else encode(empty, watermark_us)
    return [encode(part, watermark_us) if part.height else nothing for part in parts]


def _encoded(inbox: Mapping[Address, Chunk]) -> dict[Address, bytes]:
    return {address: one if isinstance(one, bytes) else encode(*one) for address, one in inbox.items()}


class MissingChunk(Exception):
    """A step did not get all chunks of its batch."""


def _failure(error: Exception, operator: str, task: str, batch: int) -> Failure:
    kind = (
        "source" if isinstance(error, UnreadableSource) else "chunk" if isinstance(error, MissingChunk) else "operator"
    )
    cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return Failure(kind, operator, task, batch, cause, "".join(traceback.format_exception(error)))
