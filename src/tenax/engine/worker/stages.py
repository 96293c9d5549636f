"""What Spark tasks run in Python workers: a level of a pass, an upload, the answer by which an executor is registered.

These objects are pickled by reference: every node has this module, from its own installation or from the archive that
the driver sends.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark import Broadcast
from pyspark.serializers import pack_long

from tenax.engine.worker.orders import NODE, Bundle, Failure, UploadOrder
from tenax.engine.worker.process import WrongNode, node_here, order_here, worker_of
from tenax.engine.worker.steps import Worker
from tenax.model.tasks import Task
from tenax.store.checkpoints import StoredSegment


class Stage:
    """One level of a pass as Spark runs it; the order of the pass is a property of the job."""

    def __init__(self, shipped: Broadcast[bytes], level: int, last: bool) -> None:
        self.shipped = shipped
        self.level = level
        self.last = last

    def __call__(self, partition: int, elements: Iterable[Any]) -> Iterator[bytes]:
        """Step the tasks of this level on this node; destination and bundle in turn, or the last bundle alone."""
        received: list[Bundle] = [pickle.loads(element[1]) for element in elements if self.level]
        order = order_here()
        planned = order.layout.nodes[partition]
        try:
            worker = worker_of(self.shipped, order.run, planned)
        except WrongNode as wrong:
            failure = Failure(NODE, "", planned, order.first, str(wrong))
            sent = [Bundle(failures=[failure]) for _ in order.layout.nodes]
        else:
            sent = worker.run(order, self.level, partition, received)
            if self.last and order.upload is not None:
                _upload(worker, order.upload, planned, sent[partition])
        if self.last:
            yield pickle.dumps(sent[partition], pickle.HIGHEST_PROTOCOL)
            return
        for destination, bundle in enumerate(sent):
            yield pack_long(destination)
            yield pickle.dumps(bundle, pickle.HIGHEST_PROTOCOL)


class UploadJob:
    """A background job that stores a checkpoint."""

    def __init__(self, shipped: Broadcast[bytes], run: str, names: tuple[str, ...], order: UploadOrder) -> None:
        self.shipped = shipped
        self.run = run
        self.names = names
        self.order = order

    def __call__(
        self, partition: int, elements: Iterable[int]
    ) -> Iterator[tuple[dict[Task, tuple[StoredSegment, ...]], float]]:
        """Upload the tasks of this node; with the processor time that it took."""
        _consume(elements)
        name = self.names[partition]
        worker, started = worker_of(self.shipped, self.run, name), time.process_time()
        yield worker.upload(self.order, name), time.process_time() - started


class Registration:
    """The first job of a run: every Python worker loads what it will need and says where it is."""

    def __init__(self, shipped: Broadcast[bytes]) -> None:
        self.shipped = shipped

    def __call__(self, elements: Iterable[int]) -> Iterator[str]:
        """The name of this node."""
        _consume(elements)
        len(self.shipped.value)  # fetched now, not with the first pass
        yield node_here()


def _upload(worker: Worker, order: UploadOrder, node: str, bundle: Bundle) -> None:
    started, started_cpu = time.perf_counter(), time.process_time()
    try:
        bundle.uploaded = worker.upload(order, node)
    except Exception as error:  # of the store, not of the pass
        bundle.not_uploaded = f"{type(error).__name__}: {error}"
    bundle.upload_s = time.perf_counter() - started
    bundle.upload_cpu_s = time.process_time() - started_cpu


def _consume(elements: Iterable[int]) -> None:
    """Read all input: Spark ends a Python worker that leaves some, and a new one takes seconds to warm up."""
    for _ in elements:
        pass
