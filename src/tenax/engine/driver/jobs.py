"""Spark jobs of a run: passes as linear chains of stages pinned to their nodes, uploads, questions to executors."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, Broadcast, SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import BatchedSerializer, CPickleSerializer, NoOpSerializer, PairDeserializer
from pyspark.util import _load_from_socket

from tenax.engine.session import NODE_SLOTS, NodeInfo
from tenax.engine.worker.orders import ORDER, Bundle, Failure, Order, Report, UploadOrder, packed
from tenax.engine.worker.proof import Proof
from tenax.engine.worker.stages import Registration, Stage, UploadJob
from tenax.errors import ClusterFailed
from tenax.model.tasks import Task
from tenax.store.checkpoints import StoredSegment

REGISTRATION_DEADLINE_S = 60.0
QUESTIONS = itertools.count(1)  # of this process: a group that was cancelled stays so, for later runs as well
LIVE, BACKGROUND, PROOF = "live", "background", "proof"
"""Lanes of jobs: within one, Spark lets the older job go first in everything, and a live pass is mostly the younger."""
MAX_ANCHORS = 64  # sets of nodes whose anchors are kept
MAX_TASKS = 10_000  # of a stage: as many as nodes
RUNNING = "RUNNING"  # as Spark names it


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What a checkpoint lists, by task; how long the slowest node took to store it, and all nodes' processor time."""

    files: Mapping[Task, tuple[StoredSegment, ...]]
    seconds: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What a pass that finished brought: the reports of all steps, and what became of an upload on the way."""

    reports: list[Report]
    uploaded: Uploaded
    not_uploaded: str


class JobRunner:
    """Runs passes and what else nodes are asked for, one Spark job each.

    - A stage has one partition per node. Its Spark task sends exactly one bundle to each partition of the next stage,
      so bundles can be zipped with anchors: elements whose preferred location pins the partition to its node.
    - What does not change from pass to pass is made once, because every call into the JVM costs: the anchors of a set
      of nodes, and the function of each stage. The order of a pass travels as a property of its job.
    """

    def __init__(self, context: SparkContext, shipped: Broadcast[bytes]) -> None:
        self.context = context
        self.shipped = shipped
        jvm: Any = context._jvm
        self._python_rdd, self._pairs, self._partitioner = jvm.PythonRDD, jvm.PairwiseRDD, jvm.PythonPartitioner
        self._functions: dict[tuple[int, bool], Any] = {}
        self._made: dict[tuple[tuple[NodeInfo, ...], int], RDD[int]] = {}
        self._registration = ""
        self._proof: Any = None
        self._shipped_before: Broadcast[bytes] | None = None

    def ship(self, shipped: Broadcast[bytes]) -> None:
        """Run what was sent now from now on; no pass runs meanwhile, but a new node may still fetch what was before."""
        if self._shipped_before is not None:
            self._shipped_before.unpersist()
        self._shipped_before, self.shipped = self.shipped, shipped
        self._functions.clear()

    def run(self, order: Order, nodes: tuple[NodeInfo, ...], lane: str) -> PassOutcome | Failure:
        """Run a pass on its nodes to its end."""
        group = group_of(order.run, str(order.pass_id))
        self._begin(group, f"batches {order.first} to {order.last}", lane)
        self.context.setLocalProperty(ORDER, packed(order))
        rdd = self._chain(len(order.layout.levels), nodes)
        try:
            served = self._python_rdd.collectAndServe(rdd)
            with _load_from_socket(served, NoOpSerializer()) as stream:
                last: list[Bundle] = [pickle.loads(data) for data in stream]  # written by this run's own workers
        finally:
            self._clean(rdd)
        failures = [failure for bundle in last for failure in bundle.failures]
        if failures:
            return min(failures, key=lambda failure: (failure.batch, failure.task))
        reports = sorted(
            (report for bundle in last for report in bundle.reports), key=lambda report: (report.task, report.node)
        )
        uploaded = {task: files for bundle in last for task, files in bundle.uploaded.items()}
        slowest, cpu_s = max(bundle.upload_s for bundle in last), sum(bundle.upload_cpu_s for bundle in last)
        cause = next((bundle.not_uploaded for bundle in last if bundle.not_uploaded), "")
        return PassOutcome(reports, Uploaded(uploaded, slowest, cpu_s), cause)

    def cancel(self, group: str) -> None:
        """End a running pass or upload and everything it would still start."""
        self.context._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def cancel_registration(self) -> None:
        """End the question of nodes for their names, if one is under way."""
        if self._registration:
            self.cancel(self._registration)

    def at_work(self, group: str) -> frozenset[str]:
        """The executors that have not yet done their part of the stage that a job is in."""
        spark = self.context._jsc.sc()
        executors: set[str] = set()
        for job in self.context.statusTracker().getJobIdsForGroup(group):
            for stage in spark.statusTracker().getJobInfo(job).get().stageIds():
                tasks = spark.statusStore().taskList(stage, 0, MAX_TASKS)
                listed = (tasks.apply(position) for position in range(tasks.size()))
                executors.update(str(task_info.executorId()) for task_info in listed if task_info.status() == RUNNING)
        return frozenset(executors)

    def ask(self, node: NodeInfo) -> ProofAsked:
        """Ask a node for a proof that its workers work, without waiting for it."""
        if self._proof is None:
            self._proof = _wrap_function(self.context, Proof(), NoOpSerializer(), NoOpSerializer())
        self._begin(f"proof {next(QUESTIONS)} of {node.executor}", "proof", PROOF)
        asked = self._python_rdd(self._anchors((node,), 1)._jrdd.rdd(), self._proof, True, False)
        return ProofAsked(self.context, asked.asJavaRDD().collectAsync())

    def names_of(self, nodes: tuple[NodeInfo, ...]) -> tuple[str, ...]:
        """The names of nodes as their own workers tell.

        Asks as many workers of each node as can work at once, so that later none has to start up first.
        """
        self._registration = group = f"registration {next(QUESTIONS)} of {' '.join(node.executor for node in nodes)}"
        self._begin(group, "new nodes", BACKGROUND)
        asked = self._anchors(nodes * NODE_SLOTS, 1).mapPartitions(Registration(self.shipped))
        overdue = threading.Timer(REGISTRATION_DEADLINE_S, self.cancel, [group])  # a node may die before it answers
        overdue.start()
        try:
            answers = tuple(asked.collect())
        finally:
            overdue.cancel()
        names = answers[: len(nodes)]
        # should one have answered for another, its workers hardly all did
        if len(set(names)) < len(nodes) or answers != names * NODE_SLOTS:
            raise ClusterFailed(f"every node answers for itself, found {answers}: is something else on this cluster?")
        return names

    def upload(self, run: str, group: str, order: UploadOrder, nodes: Mapping[str, NodeInfo]) -> Uploaded:
        """Put versions into the store, every node its own tasks', in a job of its own."""
        self._begin(group, "checkpoint", BACKGROUND)
        started = time.perf_counter()
        job = UploadJob(self.shipped, run, tuple(nodes), order)
        answers = self._anchors(tuple(nodes.values()), 1).mapPartitionsWithIndex(job).collect()
        files = {task: files for stored, _ in answers for task, files in stored.items()}
        return Uploaded(files, time.perf_counter() - started, sum(cpu_s for _, cpu_s in answers))

    def _begin(self, group: str, what: str, lane: str) -> None:
        """What this thread runs from here on can be cancelled by its group, and takes turns with other lanes."""
        self.context.setJobGroup(group, what, interruptOnCancel=True)
        self.context.setLocalProperty("spark.scheduler.pool", lane)

    def _chain(self, levels: int, nodes: tuple[NodeInfo, ...]) -> Any:
        """The stages of a pass, each delivered to the nodes of the next."""
        given, rdd = self._anchors(nodes, 1)._jrdd.rdd(), None
        anchors = self._anchors(nodes, len(nodes))._jrdd
        partitioner = self._partitioner(len(nodes), 0)
        for level in range(levels):
            if rdd is not None:
                delivered = self._python_rdd.valueOfPair(self._pairs(rdd).asJavaPairRDD().partitionBy(partitioner))
                given = anchors.zip(delivered).rdd()
            rdd = self._python_rdd(given, self._function(level, level == levels - 1), True, False)
        return rdd

    def _function(self, level: int, last: bool) -> Any:
        """The Python function of a stage as the JVM holds it; raw bytes go in and out."""
        if (level, last) not in self._functions:
            raw = NoOpSerializer()
            given = PairDeserializer(raw, raw) if level else raw
            self._functions[level, last] = _wrap_function(self.context, Stage(self.shipped, level, last), given, raw)
        return self._functions[level, last]

    def _anchors(self, nodes: tuple[NodeInfo, ...], elements: int) -> RDD[int]:
        """An RDD with one partition for each of the nodes, pinned there, of so many elements each."""
        if (nodes, elements) not in self._made:
            while len(self._made) >= MAX_ANCHORS:
                del self._made[next(iter(self._made))]
            self._made[nodes, elements] = self._make_anchors(nodes, elements)
        return self._made[nodes, elements]

    def _make_anchors(self, nodes: tuple[NodeInfo, ...], elements: int) -> RDD[int]:
        jvm: Any = self.context._jvm
        convert = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        data, places = jvm.java.util.ArrayList(), jvm.java.util.HashMap()
        pickled = CPickleSerializer()
        for number, node in enumerate(nodes):
            for _ in range(elements):
                data.add(pickled.dumps([number]))
            preferred = jvm.java.util.ArrayList()
            preferred.add(node.location)
            places.put(number, convert(preferred).toSeq())
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        by_partition = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(places)
        made = jvm.org.apache.spark.rdd.ParallelCollectionRDD(
            self.context._jsc.sc(), convert(data).toSeq(), len(nodes), by_partition, tag
        )
        wrapped = jvm.org.apache.spark.api.java.JavaRDD(made, tag)
        return RDD(wrapped, self.context, BatchedSerializer(CPickleSerializer(), 1))

    def _clean(self, rdd: Any) -> None:
        """Delete the shuffle files of a pass now: Spark would keep them until its own garbage collection."""
        self.context.setJobGroup("", "")
        rdd.cleanShuffleDependencies(False)


class ProofAsked:
    """A question to a node, which Spark carries."""

    def __init__(self, context: SparkContext, future: Any) -> None:
        self._context = context
        self._future = future

    def answer(self) -> tuple[int, ...] | None:
        """The processes that are stopped, or None as long as the node has not answered."""
        if not self._future.isDone():
            return None
        (said,) = self._future.get()
        return tuple(json.loads(bytes(said)))

    def began(self) -> bool:
        """Whether the node has had room for it."""
        tracker = self._context._jsc.sc().statusTracker()
        for job in self._future.jobIds():
            info = tracker.getJobInfo(job)
            for stage in info.get().stageIds() if info.isDefined() else ():
                of_stage = tracker.getStageInfo(stage)
                if of_stage.isDefined() and of_stage.get().numActiveTasks():
                    return True
        return False

    def cancel(self) -> None:
        """It is not wanted any more."""
        self._future.cancel(True)


def group_of(run: str, what: str) -> str:
    """The job group of a pass or checkpoint; a group that was cancelled must never be used again, by no other run."""
    return f"{run} {what}"
