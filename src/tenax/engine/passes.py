"""Passes on Spark: a linear chain of stages, one per level, each Spark task pinned to its node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark import RDD, Broadcast, SparkContext
from pyspark.serializers import BatchedSerializer, CPickleSerializer, PairDeserializer

from tenax.control.versions import Version
from tenax.engine.errors import ClusterFailed
from tenax.engine.session import NodeInfo
from tenax.engine.store.checkpoints import SegmentFile
from tenax.engine.worker.orders import Bundle, Failure, Order, Report
from tenax.engine.worker.process import node_here, worker_of
from tenax.model.tasks import Task

Packed = tuple[int, Bundle]
Known = Mapping[Task, Mapping[str, SegmentFile]]
"""What the store holds already, by task and segment."""


class PassRunner:
    """Runs passes, one Spark job each.

    - A stage has one partition per node. Its Spark task sends exactly one bundle to each partition of the next stage,
      so bundles can be zipped with anchors: elements whose preferred location pins the partition to its node.
    - Anchors are built once per placement, because every element costs a call into the JVM.
    """

    def __init__(self, context: SparkContext, shipped: Broadcast[bytes], nodes: Sequence[NodeInfo]) -> None:
        self.context = context
        self.shipped = shipped
        self.nodes = tuple(nodes)
        self._first = self._anchors(1)
        self._later = self._anchors(len(self.nodes))

    def run(self, order: Order) -> list[Report] | Failure:
        """Run a pass to its end: the reports of all tasks, or why it failed."""
        self.context.setJobGroup(str(order.pass_id), f"batches {order.first} to {order.last}", interruptOnCancel=True)
        levels = len(order.layout.levels)
        rdd: RDD[Packed] = self._first.mapPartitionsWithIndex(Stage(self.shipped, order, 0))
        for level in range(1, levels):
            rdd = self._pinned(rdd).mapPartitionsWithIndex(Stage(self.shipped, order, level))
        try:
            last = [bundle for _, bundle in rdd.collect()]
        finally:
            self._clean(rdd)
        failures = [failure for bundle in last for failure in bundle.failures]
        if failures:
            return min(failures, key=lambda one: (one.batch, one.task))
        return sorted((report for bundle in last for report in bundle.reports), key=lambda one: one.task)

    def cancel(self, pass_id: str) -> None:
        """End a running pass and everything it would still start."""
        self.context._jsc.sc().cancelJobGroupAndFutureJobs(pass_id)

    def identify(self) -> tuple[str, ...]:
        """The names of the nodes, in the order of their partitions, as their own workers tell."""
        names = tuple(self._first.mapPartitions(_name_of_node).collect())
        if len(set(names)) < len(self.nodes):
            raise ClusterFailed(f"every node runs its own partition, found {names}: is something else on this cluster?")
        return names

    def upload(
        self, run: str, names: Sequence[str], homes: Sequence[int], versions: Sequence[Version], known: Known
    ) -> dict[Task, tuple[SegmentFile, ...]]:
        """Put versions into the store, every node its own tasks': what a checkpoint lists."""
        job = Upload(self.shipped, run, tuple(names), tuple(homes), tuple(versions), known)
        return dict(self._first.mapPartitionsWithIndex(job).collect())

    def _pinned(self, rdd: RDD[Packed]) -> RDD[tuple[int, Packed]]:
        """The bundles of a stage, delivered to the nodes they are for."""
        shuffled = rdd.partitionBy(len(self.nodes), _itself)
        zipped = self._later._jrdd.zip(shuffled._jrdd)
        serializer = PairDeserializer(self._later._jrdd_deserializer, shuffled._jrdd_deserializer)
        return RDD(zipped, self.context, serializer)

    def _anchors(self, elements: int) -> RDD[int]:
        """An RDD with one partition per node, pinned there, of so many elements each."""
        jvm: Any = self.context._jvm
        convert = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        data, places = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
        pickled = CPickleSerializer()
        for number, node in enumerate(self.nodes):
            for _ in range(elements):
                data.add(pickled.dumps([number]))
            preferred = jvm.java.util.ArrayList()
            preferred.add(node.location)
            places.put(number, convert(preferred).toSeq())
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        by_partition = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(places)
        made = jvm.org.apache.spark.rdd.ParallelCollectionRDD(
            self.context._jsc.sc(), convert(data).toSeq(), len(self.nodes), by_partition, tag
        )
        wrapped = jvm.org.apache.spark.api.java.JavaRDD(made, tag)
        return RDD(wrapped, self.context, BatchedSerializer(CPickleSerializer(), 1))

    def _clean(self, rdd: RDD[Packed]) -> None:
        """Delete the shuffle files of a pass now: Spark would keep them until its own garbage collection."""
        self.context.setJobGroup("", "")
        rdd._jrdd.rdd().cleanShuffleDependencies(False)


class Stage:
    """One level of a pass as Spark runs it: a function that is pickled with the ids of a pass and nothing more."""

    def __init__(self, shipped: Broadcast[bytes], order: Order, level: int) -> None:
        self.shipped = shipped
        self.order = order
        self.level = level

    def __call__(self, partition: int, elements: Iterable[Any]) -> Iterator[Packed]:
        """Step the tasks of this level on this node."""
        received = [element[1][1] for element in elements if isinstance(element, tuple)]
        worker = worker_of(self.shipped, self.order.run, self.order.layout.nodes[partition])
        sent = worker.run(self.order, self.level, partition, received)
        if self.level == len(self.order.layout.levels) - 1:
            yield partition, sent[partition]
        else:
            yield from enumerate(sent)


class Upload:
    """A background job that stores a checkpoint."""

    def __init__(
        self,
        shipped: Broadcast[bytes],
        run: str,
        names: tuple[str, ...],
        homes: tuple[int, ...],
        versions: tuple[Version, ...],
        known: Known,
    ) -> None:
        self.shipped = shipped
        self.run = run
        self.names = names
        self.homes = homes
        self.versions = versions
        self.known = known

    def __call__(self, partition: int, elements: Iterable[int]) -> Iterator[tuple[Task, tuple[SegmentFile, ...]]]:
        """Upload the tasks of this node."""
        _consume(elements)
        worker = worker_of(self.shipped, self.run, self.names[partition])
        for home, version in zip(self.homes, self.versions, strict=True):
            if home == partition:
                yield version.task, worker.upload(version, self.known.get(version.task, {}))


def _itself(number: int) -> int:
    return number


def _name_of_node(elements: Iterable[int]) -> Iterator[str]:
    _consume(elements)
    yield node_here()


def _consume(elements: Iterable[int]) -> None:
    """Read all input: Spark ends a Python worker that leaves some, and a new one takes seconds to warm up."""
    for _ in elements:
        pass
