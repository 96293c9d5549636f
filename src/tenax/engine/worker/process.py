"""The one worker of this Python process, made when its first stage runs."""

from __future__ import annotations

import base64
import gc
import os
import pickle
import socket
from dataclasses import dataclass
from pathlib import Path

from pyspark import Broadcast, TaskContext

from tenax.application.application import Application
from tenax.engine.worker.orders import Order, Places
from tenax.engine.worker.steps import Worker


@dataclass(frozen=True, slots=True)
class Shipped:
    """What is sent to every node once per run."""

    application: Application
    places: Places


class WrongNode(Exception):
    """A stage runs on another node than planned."""


ORDER = "tenax.order"  # the property of a Spark job that holds the order of its pass

_workers: dict[str, Worker] = {}


def node_here() -> str:
    """The name of the node that this process belongs to: its host, and the process id of its executor.

    A Python worker is a child of a daemon, which is a child of the executor.
    """
    daemon = os.getppid()
    try:
        status = Path(f"/proc/{daemon}/stat").read_text()
        executor = int(status.rsplit(")", 1)[1].split()[1])
    except OSError:
        executor = daemon
    return f"{socket.gethostname()}-{executor}"


def worker_of(shipped: Broadcast[bytes], run: str, node: str) -> Worker:
    """The worker of this process for a run; refuses to work for another node than planned."""
    here = node_here()
    if here != node:
        raise WrongNode(f"planned for node {node}, found node {here}")
    if run not in _workers:
        sent: Shipped = pickle.loads(shipped.value)  # written by this run's own driver
        _workers.clear()
        _workers[run] = Worker(sent.application, sent.places, node)
        gc.freeze()  # the stock worker collects everything after every task; what is here will stay
    return _workers[run]


def packed(order: Order) -> str:
    """An order as a property of a job."""
    return base64.b64encode(pickle.dumps(order, pickle.HIGHEST_PROTOCOL)).decode()


def order_here() -> Order:
    """The order of the pass that this Spark task belongs to."""
    context = TaskContext.get()
    text = context.getLocalProperty(ORDER) if context is not None else None
    assert text is not None, "stages run inside passes"
    order: Order = pickle.loads(base64.b64decode(text))  # written by this run's own driver
    return order
