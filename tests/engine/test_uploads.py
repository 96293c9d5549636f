"""Checkpoints ride in live passes if there are any, and are never left behind."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tenax.control.versions import PassId, Version
from tenax.engine.driver.passes import Outcome, Uploaded
from tenax.engine.driver.uploads import Passenger, Uploads
from tenax.engine.worker.orders import UploadOrder
from tenax.errors import ClusterFailed
from tenax.model.tasks import Task

TASK = Task("count", 0)
ORDER = UploadOrder((Version(TASK, 3, PassId(1, 1)),), ("one",), {}, {})
STORED = Uploaded({TASK: ()}, 0.5, 0.1)
DEADLINE_S = 30.0


def boarded(uploads: Uploads, nodes: tuple[str, ...] = ("one", "two")) -> tuple[Future[Uploaded | None], Passenger]:
    """A checkpoint that rides in a pass: passes begin and end until it does."""
    pool = ThreadPoolExecutor(1)
    uploads.board(nodes)  # so that it has something to wait for
    answer = pool.submit(uploads.ride, ORDER)
    pool.shutdown(wait=False)
    while (passenger := uploads.board(nodes)) is None:  # ends: it comes, because a pass runs
        uploads.alight(None, None)
    return answer, passenger


def test_the_next_live_pass_takes_a_checkpoint_along() -> None:
    uploads = Uploads()
    answer, passenger = boarded(uploads)
    assert passenger.order is ORDER
    uploads.alight(passenger, Outcome([], STORED, ""))
    assert answer.result(DEADLINE_S) is STORED


def test_without_a_live_pass_it_needs_a_job_of_its_own() -> None:
    assert Uploads().ride(ORDER) is None


def test_a_pass_without_its_nodes_does_not_take_it() -> None:
    uploads = Uploads()
    uploads.board(("two",))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(uploads.ride, ORDER)
        while not answer.done():  # ends: the first pass that begins while it waits refuses it
            assert uploads.board(("two",)) is None
            uploads.alight(None, None)
    assert answer.result() is None


def test_after_a_pass_that_failed_it_needs_a_job_of_its_own() -> None:
    uploads = Uploads()
    answer, passenger = boarded(uploads)
    uploads.alight(passenger, None)
    assert answer.result(DEADLINE_S) is None


def test_a_store_that_fails_on_the_way_fails_the_checkpoint() -> None:
    uploads = Uploads()
    answer, passenger = boarded(uploads)
    uploads.alight(passenger, Outcome([], STORED, "disk full"))
    with pytest.raises(ClusterFailed, match="disk full"):
        answer.result(DEADLINE_S)


def test_what_was_cancelled_is_not_stored_even_if_its_pass_ends_well() -> None:
    uploads = Uploads()
    answer, passenger = boarded(uploads)
    uploads.cancel()
    uploads.alight(passenger, Outcome([], STORED, ""))
    with pytest.raises(ClusterFailed, match="cancelled"):
        answer.result(DEADLINE_S)
    assert uploads.board(("one",)) is None
