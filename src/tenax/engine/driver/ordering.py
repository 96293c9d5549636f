"""Orders of passes: instructions turned into what workers need, with what earlier passes have reported."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenax.application.application import Application
from tenax.application.schemas import SCHEMAS, to_record
from tenax.batching.batches import Batch, BatchPlanner
from tenax.control.copies import Role
from tenax.control.instructions import Reading, RunPass, Step, Trim
from tenax.control.versions import NO_PASS, Cut, Version
from tenax.engine.worker.orders import Order, ReadOrder, Report, StepOrder
from tenax.engine.worker.retained import retained_segment
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Partitioning
from tenax.operators.computation import NO_WATERMARK_US
from tenax.planning.levels import layout
from tenax.store.checkpoints import StoredSegment
from tenax.store.records import JsonObject


class Ordering:
    """What the driver carries from pass to pass on behalf of tasks.

    - `highest_us`: the highest event time that each source task has seen, after every batch that may be read again.
    - Where the versions of kept checkpoints lie in the store.

    Passes, checkpoints and trims use it at the same time, each in a thread of its own.
    """

    def __init__(self, application: Application, graph: TaskGraph, planner: BatchPlanner, run: str) -> None:
        self._application = application
        self.schemas = application.schemas
        self._graph = graph
        self._planner = planner
        self._run = run
        self._highest_us: dict[int, dict[int, int]] = {}
        for number in range(len(graph)):
            if not graph.streams[graph.operator_of[number]]:
                self._highest_us[number] = {0: NO_WATERMARK_US}
        self._manifests: dict[int, Mapping[Task, tuple[StoredSegment, ...]]] = {}
        self._versions: dict[Version, int] = {}
        self._lock = threading.RLock()
        self._retained_before = 0
        self._retained_before_of: Mapping[int, int] = {}

    def order(self, instruction: RunPass, published: Mapping[Task, int]) -> Order:
        """The order of a pass."""
        with self._lock:
            return self._order(instruction, published)

    def _order(self, instruction: RunPass, published: Mapping[Task, int]) -> Order:
        graph = self._graph
        batches = [self._planner.batch(number) for number in range(instruction.first, instruction.last + 1)]
        names = tuple(
            sorted({step.node for step in instruction.steps} | {reading.node for reading in instruction.readings})
        )
        place = {name: number for number, name in enumerate(names)}
        steps = [self._step(step, place, published) for step in instruction.steps]
        homes: dict[int, tuple[int, ...]] = {}
        for step in sorted(steps, key=lambda step: step.role is Role.REPLICA):  # the copy that sends comes first
            homes[step.task] = (*homes.get(step.task, ()), step.node)
        steps += self._read_beside(steps, homes)
        readings = tuple(self._reading(reading, place[reading.node]) for reading in instruction.readings)
        ranges = {name: tuple(batch.ranges[name] for batch in batches) for name in self._application.sources}
        read = frozenset(int(graph.operator_of[reading.task]) for reading in readings)
        return Order(
            run=self._run,
            pass_id=instruction.pass_id,
            first=instruction.first,
            last=instruction.last,
            layout=layout(graph, names, homes, read),
            steps=tuple(steps),
            readings=readings,
            ranges=ranges,
            ended_at=next((batch.number for batch in batches if batch.ended), None),
            ends={name: batch.number for batch in reversed(batches) for name in batch.done},
            floors=_floors(self._application, batches),
            keep=instruction.keep,
            retain=frozenset(graph.number(task) for task in instruction.retain),
            active_active=frozenset(graph.number(task) for task in instruction.active_active),
            retained_before=self._retained_before,
            retained_before_of=self._retained_before_of,
        )

    def learn(self, instruction: RunPass, reports: Sequence[Report]) -> None:
        """Remember what later passes need."""
        with self._lock:
            for report in reports:
                for batch, time_us in enumerate(report.highest_us, start=instruction.first):
                    self._highest_us[report.task][batch] = time_us

    def newest_event_times(self) -> dict[tuple[str, int], int]:
        """The highest event time that every source task is known to have seen."""
        with self._lock:
            newest = {
                self._graph.task(number): times_us[max(times_us)] for number, times_us in self._highest_us.items()
            }
        return {(task.operator, task.index): time_us for task, time_us in newest.items()}

    def trim(self, instruction: Trim) -> None:
        """Let go of what nothing needs any more."""
        with self._lock:
            self._retained_before = instruction.retained_before
            of_task = instruction.retained_before_of.items()
            self._retained_before_of = {self._graph.number(task): before for task, before in of_task}
            self._manifests = {
                number: files for number, files in self._manifests.items() if number >= instruction.checkpoints_before
            }
            self._versions = {
                version: number for version, number in self._versions.items() if number in self._manifests
            }
            for times_us in self._highest_us.values():
                for batch in [known for known in times_us if known < instruction.source_log_before - 1]:
                    del times_us[batch]

    def keep(self, cut: Cut, segments: Mapping[Task, tuple[StoredSegment, ...]]) -> None:
        """Remember where the versions of a checkpoint lie."""
        with self._lock:
            self._manifests[cut.number] = segments
            self._versions |= {point: cut.number for point in cut.points if isinstance(point, Version)}

    @property
    def newest(self) -> Mapping[Task, tuple[StoredSegment, ...]]:
        """Where the versions of the newest checkpoint lie; nowhere if there is none."""
        with self._lock:
            return self._manifests[max(self._manifests)] if self._manifests else {}

    def notes(self, cut: Cut) -> JsonObject:
        """What a checkpoint must say of sources and inputs, as plain data: highest event times for all its batches."""
        with self._lock:
            times_us = {
                str(self._graph.task(number)): [
                    times_us[batch] for batch in range(cut.oldest_batch, cut.newest_batch + 1)
                ]
                for number, times_us in self._highest_us.items()
            }
        return {"highest_us": times_us, SCHEMAS: to_record(self.schemas)}

    def restore(self, batch: int, highest_us: Mapping[str, Sequence[int]]) -> None:
        """What an earlier driver noted; the first event times are those after the batch."""
        for task, times_us in highest_us.items():
            self._highest_us[self._graph.number(Task.parse(task))] |= dict(enumerate(times_us, start=batch))

    def follow(self, before: Ordering) -> None:
        """Go on from what was known of the sources in the version of the topology before."""
        with before._lock:
            known = {before._graph.task(number): dict(times_us) for number, times_us in before._highest_us.items()}
        self._highest_us = {self._graph.number(task): times_us for task, times_us in known.items()}

    def _read_beside(self, steps: Sequence[StepOrder], homes: dict[int, tuple[int, ...]]) -> list[StepOrder]:
        """Sources once more wherever a partner of theirs has a replica: reading twice is cheaper than a shuffle."""
        beside = []
        for step in steps:
            if step.task not in self._highest_us:
                continue
            operator = int(self._graph.operator_of[step.task])
            index = step.task - int(self._graph.first[operator])
            for stream in self._graph.consumers[operator]:
                if stream.partitioning is not Partitioning.ONE_TO_ONE:
                    continue
                partner = int(self._graph.first[stream.consumer]) + index
                for node in homes.get(partner, ()):
                    if node not in homes[step.task]:
                        homes[step.task] = (*homes[step.task], node)
                        beside.append(replace(step, node=node, role=Role.REPLICA))
        return beside

    def _reading(self, reading: Reading, node: int) -> ReadOrder:
        number = self._graph.number(reading.task)
        stored = None
        if reading.stored:
            parts = {part.segment: part for files in self._manifests.values() for part in files.get(reading.task, ())}
            batches = range(reading.first, reading.last + 1)
            stored = {batch: parts[retained_segment(batch, reading.pass_id)] for batch in batches}
        return ReadOrder(number, node, reading.pass_id, reading.first, reading.last, stored)

    def _step(self, step: Step, place: Mapping[str, int], published: Mapping[Task, int]) -> StepOrder:
        number = self._graph.number(step.task)
        restored = None
        if step.stored and step.start.pass_id != NO_PASS and number not in self._highest_us:
            restored = self._manifests[self._versions[step.start]][step.task]
        return StepOrder(
            number,
            place[step.node],
            step.start,
            step.role,
            step.tentative,
            restored,
            self._highest_us[number][step.start.batch] if number in self._highest_us else 0,
            published.get(step.task, 0),
            step.rebuilding is not None,
        )


def _floors(application: Application, batches: Sequence[Batch]) -> dict[str, tuple[tuple[int | None, ...], ...]]:
    """What partitions count as having reached in each batch, of sources that have such."""
    floors = {}
    for name in {name for batch in batches for name in batch.idle.floors}:
        nothing = (None,) * application.topology.operator(name).parallelism
        floors[name] = tuple(batch.idle.floors.get(name, nothing) for batch in batches)
    return floors
