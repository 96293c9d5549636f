"""Liveness of Python workers: nodes that take long are asked for a proof, and those that hang are found."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tenax.engine.session import NodeInfo
from tenax.model.settings import ClusterSettings


class Question(Protocol):
    """A question to a node that is under way."""

    def answer(self) -> tuple[int, ...] | None:
        """The processes that are stopped, or None as long as the node has not answered; raises if it will not."""

    def began(self) -> bool:
        """Whether the node has had room for it: one that is busy in all of its slots cannot be asked."""

    def cancel(self) -> None:
        """It is not wanted any more."""


Ask = Callable[[NodeInfo], Question]


@dataclass(slots=True)
class _Doubt:
    """What is known of a node that takes long."""

    proven_s: float
    """When it last proved that its workers work, or began with what takes so long."""
    asked_s: float = 0.0
    question: Question | None = None
    stopped: bool = False


class Proofs:
    """Asks nodes that take long for a proof that their workers work.

    - A job that ends within a heartbeat's interval costs nothing. While it takes longer, each of its nodes is asked, at
      most once per interval, in a lane and a slot of its own.
    - The proof is an answer of a Python worker that has found none of the node's others stopped. So a step may take as
      long as its pass may: whether code still runs or never ends is for the deadline of the pass to say.
    - A node without proof for as long as it may miss heartbeats has hung workers.
    - A node that has no room for the question is not judged.
    """

    def __init__(self, ask: Ask, cluster: ClusterSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._interval_s = cluster.heartbeat_s
        self._patience_s = cluster.heartbeat_s * cluster.missed
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[object, tuple[float, tuple[str, ...]]] = {}
        self._doubts: dict[str, _Doubt] = {}

    @contextlib.contextmanager
    def owed(self, names: Iterable[str]) -> Iterator[None]:
        """While this lasts, a job runs on these nodes."""
        job = object()
        with self._lock:
            self._jobs[job] = self._clock(), tuple(names)
        try:
            yield
        finally:
            with self._lock:
                del self._jobs[job]

    def hung(self, nodes: Mapping[str, NodeInfo]) -> tuple[str, ...]:
        """The names of those of these nodes that owe a proof for too long; asks where it is time to."""
        now_s = self._clock()
        overdue = self._overdue(now_s)
        for name in [doubt for doubt in self._doubts if doubt not in overdue or doubt not in nodes]:
            _cancel(self._doubts.pop(name).question)
        hung = []
        for name, began_s in overdue.items():
            if name not in nodes:
                continue
            doubt = self._doubts.setdefault(name, _Doubt(began_s))
            self._hear(doubt, now_s)
            if self._is_hung(doubt, now_s):
                hung.append(name)
            elif doubt.question is None and now_s - doubt.asked_s >= self._interval_s:
                doubt.question, doubt.asked_s = self._ask(nodes[name]), now_s
        return tuple(hung)

    def _overdue(self, now_s: float) -> dict[str, float]:
        """Nodes with jobs that take longer than an interval, and since when."""
        since_s: dict[str, float] = {}
        with self._lock:
            for began_s, names in self._jobs.values():
                for name in names if now_s - began_s > self._interval_s else ():
                    since_s[name] = min(began_s, since_s.get(name, began_s))
        return since_s

    def _hear(self, doubt: _Doubt, now_s: float) -> None:
        """Take in an answer, if there is one."""
        if doubt.question is None:
            return
        try:
            stopped = doubt.question.answer()
        except Exception:  # its executor may be lost, which is seen elsewhere; else it is asked again
            doubt.question = None
            return
        if stopped is not None:
            doubt.question, doubt.stopped = None, bool(stopped)
            if not stopped:
                doubt.proven_s = doubt.asked_s
        elif not doubt.question.began():
            doubt.asked_s = now_s

    def _is_hung(self, doubt: _Doubt, now_s: float) -> bool:
        if now_s - doubt.proven_s < self._patience_s:
            return False
        silent = doubt.question is not None and now_s - doubt.asked_s >= self._interval_s
        return doubt.stopped or silent


def _cancel(question: Question | None) -> None:
    if question is not None:
        with contextlib.suppress(Exception):  # it may have ended with its node
            question.cancel()
