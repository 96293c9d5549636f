"""Steps of the tasks of one level on one node, for the batches of a pass."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tenax.application.application import Application, late_output
from tenax.application.scaling import state_keys
from tenax.application.schemas import inputs_of
from tenax.application.traces import RAISED, cause_of, place_of, trace_of
from tenax.connectors.lifecycle import Connections
from tenax.connectors.sink import Sink, Staged, stage
from tenax.connectors.source import Source
from tenax.control.copies import Role
from tenax.control.versions import PassId, Version
from tenax.engine.worker.earlier import Earlier
from tenax.engine.worker.orders import (
    Bundle,
    Failure,
    LateRows,
    Order,
    Places,
    Report,
    Sent,
    StepOrder,
    UploadOrder,
)
from tenax.engine.worker.parts import Part, store_parts
from tenax.engine.worker.retained import Address, drop_outputs, read_outputs, write_outputs
from tenax.engine.worker.sources import Made, SourceComputation
from tenax.engine.worker.states import Held, States
from tenax.errors import DamagedStore, SourceFailed, StoreFailed, UnreadableSource
from tenax.model.graph import Stream, TaskGraph
from tenax.model.tasks import Task
from tenax.operators.chunks import decode, encode
from tenax.operators.columns import ColumnsVary, conformed, is_users
from tenax.operators.computation import NO_WATERMARK_US, Computation, State, StepInput, StepOutput
from tenax.operators.keys import owners, split
from tenax.planning.levels import stays
from tenax.store.checkpoints import StoredSegment

TRIM_EVERY = 16  # batches between two looks for files that no task needs

Chunk = bytes | tuple[pl.DataFrame, int]
"""Encoded, or as rows and watermark where it stays in this process."""


@dataclass(slots=True)
class Work:
    """What a step has done so far in a pass."""

    order: StepOrder
    held: Held
    rows_in: int = 0
    rows_out: int = 0
    late: list[LateRows] = field(default_factory=list)
    bytes_out: int = 0
    watermark_us: int = 0
    seconds: float = 0.0
    staged: list[Staged] = field(default_factory=list)
    highest_us: list[int] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    retained_bytes: int = 0
    cpu_s: float = 0.0
    retaining_cpu_s: float = 0.0
    restore_s: float = 0.0
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a pass on this node: what its tasks have done, found and sent so far.

    - `staying` are the streams of its operators whose chunks stay in this process.
    - `present` are the tasks whose outputs the pass has, stepped or read.
    """

    order: Order
    node: int
    present: frozenset[int]
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
    - A step that does not find exactly the chunks it needs refuses; only a tentative one does without the producers
      that are missing, and leaves their watermarks out.
    """

    def __init__(self, application: Application, places: Places, node: str, earlier: Earlier | None = None) -> None:
        self.application = application
        self.graph = TaskGraph(application.topology)
        self.states = States(places, node)
        self.states.earlier = earlier or Earlier(self.states)
        self._first: PassId | None = None
        self.names = [str(task) for task in self.graph.tasks(range(len(self.graph)))]
        self.computations = [self._computation(operator.name) for operator in self.graph.operators]
        self.sinks = Connections(application.sinks)
        self._keys = [state_keys(application, operator.name) for operator in self.graph.operators]
        self._owners: dict[tuple[int, int, int], np.ndarray] = {}
        self._empty_outputs: dict[int, pl.DataFrame] = {}
        self._empty_inputs: dict[int, tuple[pl.DataFrame, ...]] = {}

    @property
    def has_connections(self) -> bool:
        """Whether any source or sink has something to close."""
        sources, sinks = self.application.sources.values(), self.application.sinks.values()
        return any(type(source).close is not Source.close for source in sources) or any(
            type(sink).close is not Sink.close for sink in sinks
        )

    def close(self) -> None:
        """Let go of what sources and sinks have connected in this process."""
        for connected in (self.sinks, *self.computations):
            if isinstance(connected, Connections | SourceComputation):
                connected.close()

    def run(self, order: Order, level: int, node: int, received: Sequence[Bundle]) -> list[Bundle]:
        """One stage of a pass on this node: a bundle for every node."""
        self._first = self._first or order.pass_id
        if order.pass_id != self._first:
            self.states.earlier = Earlier(self.states)  # what was in memory goes: by now every task here has begun
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
            except (StoreFailed, OSError) as error:
                if not self.states.refused(error):
                    raise
                where = f"node {order.layout.nodes[node]}"
                failures = [storage_failure(error, where, "", order.first)]
        if failures:
            first = min(failures, key=lambda failure: (failure.batch, failure.task))
            return [Bundle(failures=[first]) for _ in order.layout.nodes]
        return sent

    def upload(self, order: UploadOrder, node: str) -> dict[Task, tuple[StoredSegment, ...]]:
        """Put the versions that lie on this node into the store."""
        here = [version for home, version in zip(order.nodes, order.versions, strict=True) if home == node]
        return store_parts(self.states.store, {version.task: self._parts_of(order, version) for version in here})

    def _parts_of(self, order: UploadOrder, version: Version) -> list[Part]:
        """What a checkpoint has of a task: its version, and the outputs that go beside it."""
        task = version.task
        known = order.known.get(task, {})
        beside = self.states.retained_parts(task, order.outputs.get(task, ()), known)
        if self.computations[self.graph.operator_of[self.graph.number(task)]].stateless:
            return beside
        return self.states.parts(version, known) + beside

    def _run_level(self, order: Order, level: int, node: int, inbox: dict[Address, Chunk], sent: list[Bundle]) -> None:
        operators = order.layout.levels[level]
        if level == 0:
            self._send_retained(order, node, sent)
            self._tidy(order, node)
        steps = sorted(
            (step for step in order.steps if step.node == node and self.graph.operator_of[step.task] in operators),
            key=lambda step: step.task,
        )
        leaving = [stream for operator in operators for stream in self.graph.consumers[operator]]
        staying = frozenset(stream for stream in leaving if stays(self.graph, stream, order.layout.homes))
        work = {step.task: self._begin(step) for step in steps}
        present = frozenset(order.layout.homes) | {reading.task for reading in order.readings}
        here = Level(order, node, present, work, inbox, sent, staying)
        for batch in range(order.first, order.last + 1):
            for task in work:
                self._step(here, task, batch)
        sent[node].reports += [self._finish(order, done) for done in work.values()]

    def _send_retained(self, order: Order, node: int, sent: list[Bundle]) -> None:
        """What this node has retained of tasks that do not step: to every node where a consumer does."""
        for reading in order.readings:
            if reading.node != node:
                continue
            folder = self.states.folder(self.graph.task(reading.task))
            for batch in range(reading.first, reading.last + 1):
                if reading.stored is None:
                    outputs = read_outputs(folder, batch, reading.pass_id)
                else:
                    outputs = self.states.stored_outputs(reading.stored[batch])
                for address, chunk in outputs.items():
                    for home in order.layout.homes.get(address[0], ()):
                        sent[home].chunks[address] = chunk

    def _tidy(self, order: Order, node: int) -> None:
        """Let go of what tasks have left here that step elsewhere, or no more."""
        if _is_time_to_trim(order):
            here = {step.task for step in order.steps if step.node == node}
            for task in range(len(self.graph)):
                if task not in here and self.states.folder(self.graph.task(task)).exists():
                    self._trim(order, task)
                    self.states.forget(self.graph.task(task))

    def _trim(self, order: Order, task: int) -> None:
        """Delete the files of a task that no step will ask for."""
        name = self.graph.task(task)
        drop_outputs(self.states.folder(name), order.retained_before_of.get(task, order.retained_before))
        self.states.drop_before(name, order.keep)

    def _begin(self, step: StepOrder) -> Work:
        operator = int(self.graph.operator_of[step.task])
        computation = self.computations[operator]
        if computation.stateless:
            return Work(step, Held(step.start, {}, {}), highest_us=[step.highest_us])
        started, read = time.perf_counter(), self.states.read_bytes
        name = self.graph.operators[operator].name
        try:
            held = self.states.load(step.start, step.restored, computation, self._keys[operator])
        except (StoreFailed, DamagedStore, OSError):
            raise
        except RAISED as error:  # states that cannot be merged, or not by their own computation
            raise StepFailed(_failure(error, name, self.names[step.task], step.start.batch)) from error
        restore_s = 0.0 if step.restored is None else time.perf_counter() - started
        return Work(step, held, restore_s=restore_s, read_bytes=self.states.read_bytes - read)

    def _finish(self, order: Order, work: Work) -> Report:
        task = work.order.task
        computation = self.computations[self.graph.operator_of[task]]
        version = Version(self.graph.task(task), order.last, order.pass_id)
        state_bytes = 0
        if not computation.stateless:
            state_bytes = self.states.save(version, work.held.index, work.held.state)
        if _is_time_to_trim(order):
            self._trim(order, task)
        return Report(
            task=task,
            node=work.order.node,
            rows_in=work.rows_in,
            rows_out=work.rows_out,
            late=sum(late.rows for late in work.late),
            bytes_out=work.bytes_out,
            watermark_us=work.watermark_us,
            seconds=work.seconds,
            staged=tuple(work.staged),
            highest_us=tuple(work.highest_us[1:]),
            role=work.order.role,
            sent=work.sent,
            retained_bytes=work.retained_bytes,
            rebuild_from=_since(computation, work.held.state, order.last),
            cpu_s=work.cpu_s,
            retaining_cpu_s=work.retaining_cpu_s,
            late_rows=tuple(work.late),
            restore_s=work.restore_s,
            read_bytes=work.read_bytes,
            state_bytes=state_bytes,
        )

    def _step(self, level: Level, task: int, batch: int) -> None:
        started, started_cpu = time.perf_counter(), time.process_time()
        order, work = level.order, level.work[task]
        operator = int(self.graph.operator_of[task])
        index = task - int(self.graph.first[operator])
        computation = self.computations[operator]
        name = self.graph.operators[operator].name
        try:
            if isinstance(computation, SourceComputation):
                made = self._read(computation, level, operator, index, batch)
                work.highest_us.append(made.highest_us)
                output, watermark = StepOutput({}, made.rows), made.watermark_us
                late, rows_in = LateRows(batch, made.late.height, made.overdue), made.rows_in
                self._stage(order, late_output(name), index, batch, made.late, work)
            else:
                frames, watermark = self._inputs(level, task, batch)
                if work.order.takes_watermark_only and batch == order.first:
                    frames = tuple(frame.clear() for frame in frames)
                output = self._stepped(operator, work.held.state, StepInput(frames, watermark, batch))
                late, rows_in = LateRows(batch, output.late), sum(frame.height for frame in frames)
            chunks: Mapping[Address, bytes] = {}
            if not work.order.rebuilding:
                self._stage(order, name, index, batch, output.rows, work)
                chunks = self._send(level, operator, index, batch, output.rows, watermark)
        except StepFailed:
            raise
        except SourceFailed as error:
            raise StepFailed(storage_failure(error, f"source {name!r}", self.names[task], batch)) from error
        except RAISED as error:
            raise StepFailed(_failure(error, name, self.names[task], batch)) from error
        work.held = Held(work.held.version, output.state, work.held.index)
        work.bytes_out += sum(len(chunk) for chunk in chunks.values())
        self._deliver(level, work, chunks)
        if task in order.retain and not work.order.tentative and not work.order.rebuilding:
            folder, before = self.states.folder(self.graph.task(task)), time.process_time()
            work.retained_bytes += write_outputs(folder, batch, order.pass_id, chunks)
            work.retaining_cpu_s += time.process_time() - before
        work.rows_in += rows_in
        work.rows_out += output.rows.height
        work.late += [late] if late.rows else []
        work.watermark_us = watermark
        work.seconds += time.perf_counter() - started
        work.cpu_s += time.process_time() - started_cpu

    def _stepped(self, operator: int, state: State, given: StepInput) -> StepOutput:
        """One step; the columns that come out are held against those that were derived when the topology was built.

        A user's function without state has nothing to say of no rows, and need not be made for them.
        """
        computation, nothing = self.computations[operator], self._nothing(operator)
        if is_users(computation) and computation.stateless and not any(frame.height for frame in given.frames):
            return StepOutput(state, nothing)
        output = computation.step(state, given)
        return StepOutput(output.state, conformed(output.rows, nothing, computation), output.late)

    def _read(self, computation: SourceComputation, level: Level, operator: int, index: int, batch: int) -> Made:
        """The rows of a source task for a batch."""
        order, work = level.order, level.work[int(self.graph.first[operator]) + index]
        name = self.graph.operators[operator].name
        planned = order.ranges[name][batch - order.first][index]
        floor_us = order.floors[name][batch - order.first][index] if name in order.floors else None
        ended = batch == order.ended_at or batch >= order.ends.get(name, batch + 1)
        return computation.read(index, planned, work.highest_us[-1], self._nothing(operator), floor_us, ended)

    def _stage(self, order: Order, output: str, index: int, batch: int, rows: pl.DataFrame, work: Work) -> None:
        """Write a result where no reader sees it until it is published; only primaries have results."""
        sink = self.application.sinks.get(output)
        if sink is not None and work.order.role is Role.PRIMARY and batch > work.order.published:
            try:
                staged = stage(self.sinks[output], output, index, batch, str(order.pass_id), rows)
            except (StoreFailed, OSError) as error:
                where = f"output {output!r} in {sink.place}"
                raise StepFailed(storage_failure(error, where, self.names[work.order.task], batch)) from error
            work.staged.append(staged)

    def _deliver(self, level: Level, work: Work, chunks: Mapping[Address, bytes]) -> None:
        """Chunks to wherever their consumers step; a replica only feeds its own level, on its own node.

        Where replicas send as well, a consumer finds the same chunk twice under one address, and takes one.
        """
        replica = work.order.role is Role.REPLICA
        silent = replica and work.order.task not in level.order.active_active
        for address, chunk in chunks.items():
            for place, home in enumerate(level.order.layout.homes.get(address[0], ())):
                if home == level.node and address[0] in level.work:
                    level.inbox[address] = chunk
                elif not silent:
                    level.sent[home].chunks[address] = chunk
                    if home != level.node:
                        work.sent = work.sent.and_also(len(chunk), for_replica=replica or place > 0)

    def _inputs(self, level: Level, task: int, batch: int) -> tuple[tuple[pl.DataFrame, ...], int]:
        """One frame per input, its producers' chunks in order, and the smallest watermark."""
        operator = int(self.graph.operator_of[task])
        index = task - int(self.graph.first[operator])
        tentative = level.work[task].order.tentative
        frames: list[pl.DataFrame] = []
        watermarks: list[int] = []
        for number, stream in enumerate(self.graph.streams[operator]):
            parts: list[pl.DataFrame] = []
            first = int(self.graph.first[stream.producer])
            for producer in stream.producers_of(index):
                if tentative and first + producer not in level.present:
                    continue
                data = level.inbox.pop((task, number, producer, batch), None)
                if data is None:
                    raise MissingChunk(f"no chunk of input {number} from its task {producer}")
                rows, own = decode(data) if isinstance(data, bytes) else data
                parts.append(rows)
                watermarks.append(own)
            filled = [part for part in parts if part.height]
            if not filled:
                frames.append(parts[0] if parts else self._nothing_for(operator, number))
            else:
                frames.append(filled[0] if len(filled) == 1 else pl.concat(filled, rechunk=True))
        return tuple(frames), min(watermarks, default=NO_WATERMARK_US)

    def _nothing(self, operator: int) -> pl.DataFrame:
        """No rows, with the columns that an operator gives."""
        if operator not in self._empty_outputs:
            schema = self.application.schemas[self.graph.operators[operator].name]
            self._empty_outputs[operator] = pl.DataFrame(schema=schema)
        return self._empty_outputs[operator]

    def _nothing_for(self, operator: int, number: int) -> pl.DataFrame:
        """No rows for an input, as its producers would send them."""
        if operator not in self._empty_inputs:
            name = self.graph.operators[operator].name
            self._empty_inputs[operator] = inputs_of(self.application, name, self.application.schemas)
        return self._empty_inputs[operator][number]

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
            except RAISED as error:  # rows that do not fit their consumer: it is the one that says so
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
        producer, consumer = (self.graph.operators[number] for number in (stream.producer, stream.consumer))
        key = (stream.consumer, consumers.start, consumers.stop)
        if key not in self._owners:
            table = self.application.tables.get(consumer.name)
            weights = consumer.weights or (1.0,) * consumer.parallelism
            self._owners[key] = (
                owners(weights[consumers.start : consumers.stop]) if table is None else np.array(table, np.uint16)
            )
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


def _since(computation: Computation, state: State, batch: int) -> int:
    """The first batch to step so as to rebuild a state: before the oldest that it needs, one for the watermark."""
    if computation.stateless:
        return batch + 1
    return max(1, min(computation.oldest(state, batch) - 1, batch)) if computation.bounded else 0


def _is_time_to_trim(order: Order) -> bool:
    return order.last // TRIM_EVERY != (order.first - 1) // TRIM_EVERY


def _encoded(inbox: Mapping[Address, Chunk]) -> dict[Address, bytes]:
    return {address: chunk if isinstance(chunk, bytes) else encode(*chunk) for address, chunk in inbox.items()}


class MissingChunk(Exception):
    """A step did not get all chunks of its batch."""


def storage_failure(error: Exception, where: str, task: str, batch: int) -> Failure:
    """A disk has refused something: no operator's fault; `where` takes the place of one."""
    return Failure("storage", where, task, batch, " ".join(str(error).split()))


def _failure(error: BaseException, operator: str, task: str, batch: int) -> Failure:
    kind = (
        "source" if isinstance(error, UnreadableSource) else "chunk" if isinstance(error, MissingChunk) else "operator"
    )
    cause = str(error) if isinstance(error, ColumnsVary) else cause_of(error)
    return Failure(kind, operator, task, batch, cause, trace_of(error), place_of(error))
