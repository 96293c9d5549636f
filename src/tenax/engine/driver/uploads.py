"""Checkpoints on their way into the store: within a live pass that begins soon, else as jobs of their own."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from tenax.engine.driver.passes import Outcome, Uploaded
from tenax.engine.worker.orders import UploadOrder
from tenax.errors import ClusterFailed

IDLE_S = 0.05  # between two live passes, if there is enough to do


@dataclass(frozen=True, slots=True)
class Passenger:
    """An upload that waits for a pass, or is on its way in one; answered with None if it needs a job of its own."""

    order: UploadOrder
    answer: Future[Uploaded | None] = field(default_factory=Future)


class Uploads:
    """Lets a checkpoint ride in the next live pass.

    A Spark job costs more than what it stores, and on a busy node it takes its time from the pass beside it. So if live
    passes follow each other, the next one takes the checkpoint along. One without its nodes, or that fails, does not:
    then it needs a job of its own.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._waiting: Passenger | None = None
        self._riding: Passenger | None = None

    def ride(self, order: UploadOrder) -> Uploaded | None:
        """What a live pass has stored on its way; None if none begins."""
        passenger = Passenger(order)
        with self._changed:
            self._waiting = passenger
            while self._waiting is passenger:  # ends: passes have deadlines
                if not self._changed.wait(IDLE_S) and not self._running:
                    self._waiting = None
                    return None
        return passenger.answer.result()

    def board(self, nodes: tuple[str, ...]) -> Passenger | None:
        """A live pass begins: whom it takes along."""
        with self._changed:
            self._running += 1
            passenger, self._waiting = self._waiting, None
            self._changed.notify_all()
            if passenger is not None and not set(passenger.order.nodes) <= set(nodes):
                passenger.answer.set_result(None)
                return None
            self._riding = passenger
            return passenger

    def alight(self, passenger: Passenger | None, outcome: Outcome | None) -> None:
        """The pass is over; None if it failed."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
            if passenger is None:
                return
            self._riding = None
            if passenger.answer.done():
                return
            if outcome is not None and outcome.not_uploaded:
                passenger.answer.set_exception(ClusterFailed(outcome.not_uploaded))
            else:
                passenger.answer.set_result(None if outcome is None else outcome.uploaded)

    def cancel(self) -> None:
        """Whatever waits or rides is no longer wanted."""
        with self._changed:
            for passenger in (self._waiting, self._riding):
                if passenger is not None and not passenger.answer.done():
                    passenger.answer.set_exception(ClusterFailed("the checkpoint was cancelled"))
            self._waiting = None
            self._changed.notify_all()
