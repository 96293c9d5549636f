"""Piggybacked uploads: a checkpoint goes to the store within the next live pass, if one begins soon."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from tenax.engine.driver.jobs import PassOutcome, Uploaded
from tenax.engine.worker.orders import UploadOrder
from tenax.errors import ClusterFailed

IDLE_S = 0.05  # between two live passes, if there is enough to do


@dataclass(frozen=True, slots=True)
class PiggybackedUpload:
    """An upload that waits for a pass, or is on its way in one; answered with None if it needs a job of its own."""

    order: UploadOrder
    answer: Future[Uploaded | None] = field(default_factory=Future)


class Uploads:
    """Lets the next live pass carry the upload of a checkpoint.

    A Spark job costs more than what it stores, and on a busy node it takes its time from the pass beside it. So if live
    passes follow each other, the next one takes the checkpoint along. One without its nodes, or that fails, does not:
    then it needs a job of its own.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._waiting: PiggybackedUpload | None = None
        self._carried: PiggybackedUpload | None = None

    def piggyback(self, order: UploadOrder) -> Uploaded | None:
        """What a live pass has stored on its way; None if none begins."""
        upload = PiggybackedUpload(order)
        with self._changed:
            self._waiting = upload
            while self._waiting is upload:  # ends: passes have deadlines
                if not self._changed.wait(IDLE_S) and not self._running:
                    self._waiting = None
                    return None
        return upload.answer.result()

    def pass_begins(self, nodes: tuple[str, ...]) -> PiggybackedUpload | None:
        """A live pass begins: the upload that it carries."""
        with self._changed:
            self._running += 1
            upload, self._waiting = self._waiting, None
            self._changed.notify_all()
            if upload is not None and not set(upload.order.nodes) <= set(nodes):
                upload.answer.set_result(None)
                return None
            self._carried = upload
            return upload

    def pass_ended(self, upload: PiggybackedUpload | None, outcome: PassOutcome | None) -> None:
        """The pass is over; None if it failed."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
            if upload is None:
                return
            self._carried = None
            if upload.answer.done():
                return
            if outcome is not None and outcome.not_uploaded:
                upload.answer.set_exception(ClusterFailed(outcome.not_uploaded))
            else:
                upload.answer.set_result(None if outcome is None else outcome.uploaded)

    def cancel(self) -> None:
        """An upload that waits or is carried is no longer wanted."""
        with self._changed:
            for upload in (self._waiting, self._carried):
                if upload is not None and not upload.answer.done():
                    upload.answer.set_exception(ClusterFailed("the checkpoint was cancelled"))
            self._waiting = None
            self._changed.notify_all()
