"""Checkpoints as the coordinator asks for them: new segments uploaded in a pass or a job, then committed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping

from tenax.application.application import Application
from tenax.control import events
from tenax.control.instructions import StoreCheckpoint
from tenax.control.load import LOAD
from tenax.control.versions import RebuildPoint
from tenax.engine.driver.jobs import JobRunner, Uploaded, group_of
from tenax.engine.driver.membership import Membership
from tenax.engine.driver.nodes import Nodes
from tenax.engine.driver.resuming import TakenOver
from tenax.engine.driver.uploads import Uploads
from tenax.engine.worker.orders import UploadOrder
from tenax.model.tasks import Task
from tenax.store import cuts
from tenax.store.checkpoints import Checkpoint, StoredSegment
from tenax.store.topology_versions import VERSION
from tenax.takeover.changes import NOTED

Segments = Mapping[Task, tuple[StoredSegment, ...]]


class Checkpoints:
    """Carries out `StoreCheckpoint`.

    - Only segments that the store does not hold are uploaded, every node its own tasks'.
    - The manifest is written last: a checkpoint is there when all of it is.
    - A run that suspends live passes for its checkpoints (`suspends`) has none that could take an upload along.
    """

    def __init__(
        self,
        application: Application,
        run: TakenOver,
        jobs: JobRunner,
        nodes: Nodes,
        membership: Membership,
        uploads: Uploads,
        *,
        deadline_s: float,
        suspends: bool,
    ) -> None:
        self._application = application
        self._run = run
        self._jobs = jobs
        self._nodes = nodes
        self._membership = membership
        self._uploads = uploads
        self._deadline_s = deadline_s
        self._suspends = suspends
        self._numbers = itertools.count(1)
        self._group = ""
        """The job that uploads, or did so last."""

    def carry_out(self, instruction: StoreCheckpoint) -> events.Event:
        """Store a checkpoint; what it cost."""
        cut, before = instruction.cut, self._run.ordering.newest
        known = {task: {part.segment: part for part in parts if not part.origin} for task, parts in before.items()}
        uploaded = self._uploaded(instruction, known)
        started, started_cpu, files = time.perf_counter(), time.thread_time(), uploaded.files
        segments = {
            point.task: () if isinstance(point, RebuildPoint) else files.get(point.task, before.get(point.task, ()))
            for point in cut.points
        }
        store = self._run.store
        positions = self._run.planner.batch(cut.newest_batch).positions
        notes = {**cuts.to_record(cut), **self._run.ordering.notes(cut), NOTED: len(store.changes)}
        notes[VERSION] = self._run.version.number
        if instruction.load is not None:
            notes[LOAD] = instruction.load.to_data()
        store.commit_checkpoint(Checkpoint(cut.number, store.epoch, segments, positions, notes, cut.oldest_batch))
        self._run.ordering.keep(cut, segments)
        held = _bytes(part for parts in files.values() for part in parts)
        new = (part for task, parts in files.items() for part in parts if part not in before.get(task, ()))
        seconds = uploaded.seconds + time.perf_counter() - started
        cpu_s = uploaded.cpu_s + time.thread_time() - started_cpu
        return events.CheckpointStored(cut.number, instruction.attempt, _bytes(new), seconds, held, cpu_s)

    def cancel(self) -> None:
        """The upload under way is no longer wanted."""
        self._uploads.cancel()
        self._jobs.cancel(self._group)

    def _uploaded(self, instruction: StoreCheckpoint, known: Mapping[Task, Mapping[str, StoredSegment]]) -> Uploaded:
        """Upload what the store does not hold: piggybacked on the next live pass, else in a job of its own."""
        cut = instruction.cut
        outputs = {point.task: cut.outputs_of(number) for number, point in enumerate(cut.points)}
        tasks = [version.task for version in instruction.versions]
        if not any(outputs[task] or self._application.has_state(task.operator) for task in tasks):
            return Uploaded({}, 0.0, 0.0)
        order = UploadOrder(instruction.versions, instruction.nodes, outputs, known)
        piggybacked = None if self._suspends else self._uploads.piggyback(order)
        return piggybacked or self._upload(cut.number, order)

    def _upload(self, number: int, order: UploadOrder) -> Uploaded:
        # one that was cancelled may be asked for again as its first attempt
        what = f"checkpoint {number} upload {next(self._numbers)}"
        self._group = group = group_of(self._run.run_id, what)
        names = tuple(sorted(set(order.nodes)))
        with self._membership.bounded(group, names, self._deadline_s):
            nodes = dict(zip(names, self._nodes.info(names), strict=True))
            return self._jobs.upload(self._run.run_id, group, order, nodes)


def _bytes(parts: Iterable[StoredSegment]) -> int:
    """What lies in the store, each piece that tasks share once."""
    return sum({part.place: part.bytes for part in parts}.values())
