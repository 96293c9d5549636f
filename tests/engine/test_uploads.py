"""Live passes carry the uploads of checkpoints if there are any, and none is left behind."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tenax.control.versions import PassId, Version
from tenax.engine.driver.jobs import PassOutcome, Uploaded
from tenax.engine.driver.uploads import PiggybackedUpload, Uploads
from tenax.engine.worker.orders import UploadOrder
from tenax.errors import ClusterFailed
from tenax.model.tasks import Task

TASK = Task("count", 0)
ORDER = UploadOrder((Version(TASK, 3, PassId(1, 1)),), ("one",), {}, {})
STORED = Uploaded({TASK: ()}, 0.5, 0.1)
DEADLINE_S = 30.0


def carried(
    uploads: Uploads, nodes: tuple[str, ...] = ("one", "two")
) -> tuple[Future[Uploaded | None], PiggybackedUpload]:
    """A checkpoint that a pass carries: passes begin and end until it does."""
    pool = ThreadPoolExecutor(1)
    uploads.pass_begins(nodes)  # so that it has something to wait for
    answer = pool.submit(uploads.piggyback, ORDER)
    pool.shutdown(wait=False)
    while (upload := uploads.pass_begins(nodes)) is None:  # ends: it comes, because a pass runs
        uploads.pass_ended(None, None)
    return answer, upload


def test_the_next_live_pass_takes_a_checkpoint_along() -> None:
    uploads = Uploads()
    answer, upload = carried(uploads)
    assert upload.order is ORDER
    uploads.pass_ended(upload, PassOutcome([], STORED, ""))
    assert answer.result(DEADLINE_S) is STORED


def test_without_a_live_pass_it_needs_a_job_of_its_own() -> None:
    assert Uploads().piggyback(ORDER) is None


def test_a_pass_without_its_nodes_does_not_take_it() -> None:
    uploads = Uploads()
    uploads.pass_begins(("two",))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(uploads.piggyback, ORDER)
        while not answer.done():  # ends: the first pass that begins while it waits refuses it
            assert uploads.pass_begins(("two",)) is None
            uploads.pass_ended(None, None)
    assert answer.result() is None


def test_after_a_pass_that_failed_it_needs_a_job_of_its_own() -> None:
    uploads = Uploads()
    answer, upload = carried(uploads)
    uploads.pass_ended(upload, None)
    assert answer.result(DEADLINE_S) is None


def test_a_store_that_fails_on_the_way_fails_the_checkpoint() -> None:
    uploads = Uploads()
    answer, upload = carried(uploads)
    uploads.pass_ended(upload, PassOutcome([], STORED, "disk full"))
    with pytest.raises(ClusterFailed, match="disk full"):
        answer.result(DEADLINE_S)


def test_what_was_cancelled_is_not_stored_even_if_its_pass_ends_well() -> None:
    uploads = Uploads()
    answer, upload = carried(uploads)
    uploads.cancel()
    uploads.pass_ended(upload, PassOutcome([], STORED, ""))
    with pytest.raises(ClusterFailed, match="cancelled"):
        answer.result(DEADLINE_S)
    assert uploads.pass_begins(("one",)) is None
