"""The worker of this Python process, made when its first stage runs, and the node that it belongs to."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import socket
import traceback

from pyspark import Broadcast, TaskContext

from tenax.engine.processes import parent
from tenax.engine.worker.earlier import Earlier
from tenax.engine.worker.orders import ORDER, VERSION_SIGN, Order, Shipped, unpacked
from tenax.engine.worker.steps import Worker


class WrongNode(Exception):
    """A stage runs on another node than planned."""


_workers: dict[str, Worker] = {}


def node_here() -> str:
    """The name of the node that this process belongs to: its host, and the process id of its executor."""
    return f"{socket.gethostname()}-{_executor_of(os.getppid())}"


@functools.cache
def _executor_of(daemon: int) -> int:
    """A Python worker is a child of a daemon, which is a child of the executor: as long as that lives, it stays so."""
    return parent(daemon) or daemon


def worker_of(shipped: Broadcast[bytes], run: str, node: str) -> Worker:
    """The worker of this process for a run; refuses to work for another node than planned."""
    here = node_here()
    if here != node:
        raise WrongNode(f"planned for node {node}, found node {here}")
    if run not in _workers:
        sent: Shipped = pickle.loads(shipped.value)  # written by this run's own driver
        before = next((worker.states for other, worker in _workers.items() if is_same_run(other, run)), None)
        close_workers()
        _workers[run] = Worker(sent.application, sent.places, node, None if before is None else Earlier(before))
        gc.freeze()  # the stock worker collects everything after every task; what is here will stay
    return _workers[run]


def is_same_run(name: str, other: str) -> bool:
    """Whether two names are of one driver's run, in different versions of its topology."""
    return name.partition(VERSION_SIGN)[0] == other.partition(VERSION_SIGN)[0]


def has_connections() -> bool:
    """Whether a source or sink at work in this process has something to close."""
    return any(worker.has_connections for worker in _workers.values())


def close_workers() -> None:
    """Let go of all that sources and sinks have connected in this process; what they raise does no harm any more."""
    while _workers:
        _, worker = _workers.popitem()
        try:
            worker.close()
        except Exception:
            traceback.print_exc()  # into the log of the node


def order_here() -> Order:
    """The order of the pass that this Spark task belongs to."""
    context = TaskContext.get()
    text = context.getLocalProperty(ORDER) if context is not None else None
    assert text is not None, "stages run inside passes"
    return unpacked(text)
