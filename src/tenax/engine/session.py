"""The Spark session that Tenax runs on: settings it needs, nodes it has, an embedded cluster if no other is named."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from tenax.engine.gateway import Gateway, no_machine, one_line
from tenax.engine.scratch import Scratch
from tenax.engine.virtual_machine import (
    JVM_OPTIONS,
    LOG,
    LOOPBACK,
    QUIET_OPTIONS,
    SPARK_HOME,
    VirtualMachine,
    end_ahead,
    java,
    taken_ahead,
)
from tenax.errors import ClusterFailed, StartStopped
from tenax.model.settings import ClusterSettings

NODE_SLOTS = 2  # one for live passes, one for background work; nodes of an embedded cluster have one more, for proofs
SECRET_BYTES = 32
SCRATCH = "scratch"  # in the folder of a session: a link
START_DEADLINE_S = 120.0
POLL_S = 0.05

# What a pass relies on, and why Spark's default would break it.
SETTINGS: Mapping[str, str] = {
    "spark.locality.wait": "1d",  # a pinned task never moves: loss is handled by cancelling
    "spark.shuffle.reduceLocality.enabled": "false",  # the anchors alone decide where a stage runs
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.python.task.killTimeout": "100ms",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.decommission.enabled": "false",
    "spark.excludeOnFailure.enabled": "false",
    "spark.executor.maxNumFailures": "1000000",
    "spark.deploy.maxExecutorRetries": "-1",  # of an embedded master: it would end the application after ten
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.scheduler.mode": "FAIR",
    "spark.shuffle.compress": "false",
    "spark.broadcast.compress": "false",
}

DAEMON = "tenax.engine.worker.daemon"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """An executor: its id in this application, and the host it runs on."""

    executor: str
    host: str

    @property
    def location(self) -> str:
        """How Spark names it as a preferred location."""
        return f"executor_{self.host}_{self.executor}"


class Session:
    """A Spark context with the settings that passes need, and its nodes.

    - Without a master it starts an embedded cluster of real executor processes on loopback. An executor must
      know its secret, which is made anew each time and stands in no command line.
    - A setting of the user's that would break a pass is refused, with the reason.
    - Once `stop_asked` says so, a session that starts gives up (`StartStopped`).
    """

    def __init__(
        self,
        folder: Path,
        cluster: ClusterSettings | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        java()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ended: set[str] = set()
        self.cluster = cluster = cluster or ClusterSettings()
        self._machine = None
        if cluster.master is None and no_machine():
            self._machine = taken_ahead() or VirtualMachine(folder)
        end_ahead()
        self.scratch = Scratch() if self._machine is None else self._machine.scratch
        (folder / SCRATCH).unlink(missing_ok=True)
        (folder / SCRATCH).symlink_to(self.scratch.folder)
        self.scratch.also += [folder / SCRATCH, folder / SPARK_HOME]
        conf = SparkConf().setAppName("tenax")
        self._workers = self._wanted = cluster.executors
        self._given: int | None = None
        self._requesting = threading.Lock()
        conf.setMaster(cluster.master or f"local-cluster[{cluster.executors},{NODE_SLOTS + 1},{cluster.memory_mb}]")
        for name, value in (*SETTINGS.items(), *heartbeat_settings(cluster).items()):
            conf.set(name, value)
        conf.set("spark.driver.bindAddress", LOOPBACK).set("spark.driver.host", LOOPBACK)
        conf.set("spark.executorEnv.POLARS_MAX_THREADS", "1").set("spark.executorEnv.POLARS_NO_PARTITION", "1")
        conf.set("spark.executorEnv.PYTHONHASHSEED", "0").set("spark.executorEnv.OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        private = f"{QUIET_OPTIONS} -Djava.io.tmpdir={self.scratch.folder}"
        conf.set("spark.local.dir", str(self.scratch.folder)).set("spark.driver.defaultJavaOptions", private)
        kept_secret: dict[str, str] = {}
        if cluster.master is None:
            conf.set("spark.driver.extraJavaOptions", JVM_OPTIONS)
            ready = "" if self._machine is None else self._machine.executor_options
            conf.set("spark.executor.extraJavaOptions", f"{JVM_OPTIONS} {private} {ready}".strip())
            conf.set("spark.executorEnv.TMPDIR", str(self.scratch.folder))
            conf.set("spark.python.unix.domain.socket.dir", str(self.scratch.folder))
            conf.set("spark.python.daemon.module", DAEMON)
            conf.set("spark.authenticate", "true")
            kept_secret["spark.authenticate.secret"] = secrets.token_hex(SECRET_BYTES)
        self._gateway = Gateway(self.scratch, folder / LOG, conf, kept_secret, self._machine)
        try:
            self.context = self._started(folder, stop_asked)
            self.context.setLogLevel("OFF")
            if cluster.master is not None:  # other machines have Spark and the libraries, but not necessarily Tenax
                self.context.addPyFile(str(_package(folder)))
            self.nodes = self._wait_for(cluster.executors, stop_asked)
        except BaseException:
            self.stop()
            raise

    def _started(self, folder: Path, stop_asked: Callable[[], bool]) -> SparkContext:
        try:
            return self._gateway.start(stop_asked)
        except StartStopped:
            raise
        except Exception as error:
            raise ClusterFailed(f"Spark cannot be started, found {one_line(error)}: see {folder / LOG}") from error

    def _wait_for(self, count: int, stop_asked: Callable[[], bool]) -> tuple[NodeInfo, ...]:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            live = self.live_nodes()
            if len(live) >= count:
                return live
            if stop_asked():
                raise StartStopped("asked to stop while nodes started")
            time.sleep(POLL_S)
        raise ClusterFailed(f"{count} nodes are needed, found {len(self.live_nodes())} after {START_DEADLINE_S:g} s")

    def live_nodes(self) -> tuple[NodeInfo, ...]:
        """The executors that live now, by id.

        Spark lists one some time before it gives it work, and runs what is pinned to it elsewhere until then. One that
        is to end is not among them, however long that takes.
        """
        listed = self.context._jsc.sc().statusStore().executorList(True)
        scheduler = self.context._jsc.sc().taskScheduler()
        live = []
        for position in range(listed.size()):
            executor = listed.apply(position)
            if executor.id() not in {"driver", *self._ended} and scheduler.isExecutorAlive(executor.id()):
                live.append(NodeInfo(str(executor.id()), str(executor.hostPort()).split(":")[0]))
        return tuple(sorted(live, key=lambda executor: (len(executor.executor), executor.executor)))

    def request_nodes(self, total: int) -> None:
        """Ask the cluster to keep so many executors up; it may not have them, or not now.

        An embedded cluster gets as many machines more.
        """
        with self._requesting:
            self._wanted = max(self._wanted, total)
            while self.cluster.master is None and self._workers < self._wanted:
                self._workers += 1
                self._add_worker(self._workers)
            self._request()

    def release_nodes(self, executors: Sequence[str], total: int) -> None:
        """Give these executors back, so that the cluster keeps so many up."""
        with self._requesting:
            self._ended |= set(executors)
            jvm: Any = self.context._jvm
            spark = self.context._jsc.sc()
            spark.killExecutors(jvm.scala.jdk.javaapi.CollectionConverters.asScala(list(executors)).toSeq())
            self._wanted = total  # Spark has lowered what it asks for by those that end: now it is what is wanted
            self._request()

    def limit_nodes(self, count: int) -> None:
        """How many executors the cluster gives at most, whoever asks: lost ones beyond that are not replaced."""
        with self._requesting:
            self._given = count
            self._request()

    def _request(self) -> None:
        count = self._wanted if self._given is None else min(self._wanted, self._given)
        jvm = self.context._jvm
        assert jvm is not None
        self.context._jsc.sc().requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()))

    def _add_worker(self, number: int) -> None:
        """One more worker of Spark's embedded cluster, like those that it began with: each runs an executor."""
        jvm: Any = self.context._jvm
        spark = self.context._jsc.sc()
        backend = spark.schedulerBackend()
        masters = backend.getClass().getDeclaredField("masters")
        masters.setAccessible(True)
        option = jvm.scala.Option.apply
        jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
            *(LOOPBACK, 0, 0, NODE_SLOTS + 1, self.cluster.memory_mb, masters.get(backend), None, option(number)),
            *(spark.getConf(), option(None)),
        )

    def end_node(self, executor: str) -> None:
        """End an executor with its Python workers, whatever they do; the cluster starts another in its place."""
        self._ended.add(executor)
        self.context._jsc.sc().killAndReplaceExecutor(executor)

    def stop(self) -> None:
        """End the context, and with it the embedded cluster; nothing of it stays."""
        self._gateway.stop()
        if self._machine is not None:
            self._machine.keep_logs(self._folder)
        self.scratch.end()
        (self._folder / SCRATCH).unlink(missing_ok=True)


def heartbeat_settings(cluster: ClusterSettings) -> dict[str, str]:
    """What Spark must be given: how often a node reports, for how long it may not, how often that is looked at."""
    interval, patience = (f"{max(1, round(1000 * cluster.heartbeat_s * count))}ms" for count in (1, cluster.missed))
    return {
        "spark.executor.heartbeatInterval": interval,
        "spark.network.timeoutInterval": interval,
        "spark.storage.blockManagerHeartbeatTimeoutMs": patience,
    }


def _package(folder: Path) -> Path:
    """Tenax itself as one file that Spark sends to every node."""
    root = Path(__file__).parents[1]
    path = folder / "tenax.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*.py")):
            archive.write(file, file.relative_to(root.parent))
    return path


@contextmanager
def errors_to(path: Path) -> Iterator[None]:
    """Let the JVM that is started meanwhile write its standard error to a file: it is for developers of Spark."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
