"""What is true of a run after every event, each by its name."""

from __future__ import annotations

from collections.abc import Iterator

from tenax.control.state import KEPT_CHECKPOINTS, Phase, RunState
from tenax.control.versions import PassId


class InvariantBroken(AssertionError):
    """The coordinator contradicts itself: a bug, never a user's mistake."""


def check(state: RunState) -> None:
    """Raise if an invariant does not hold. O(tasks)."""
    if state.phase is Phase.WAITING or (state.phase is Phase.STOPPED and not state.heads):
        return
    broken = [name for name, holds in _claims(state) if not holds]
    if broken and not (state.phase is Phase.STOPPED and state.passes == 0):  # a start that was refused is as it is
        raise InvariantBroken("; ".join(broken))


def _claims(state: RunState) -> Iterator[tuple[str, bool]]:
    yield "heads of all tasks are at the same batch", {head.batch for head in state.heads} == {state.finished}
    newest = PassId(state.epoch, state.passes)
    live = state.live
    yield (
        "heads were made by passes that are over",
        all(head.pass_id <= newest and (live is None or head.pass_id != live.pass_id) for head in state.heads),
    )
    yield "finished ≤ logged", state.finished <= state.logged
    yield (
        "published ≤ finished, but for what is replayed",
        state.published <= max(state.finished, state.replayed_through),
    )
    if live is not None:
        yield "the live pass is the newest", live.pass_id == newest
        yield "the live pass starts from the heads", live.first == state.finished + 1
        yield "the live pass reads logged batches", live.first <= live.last <= state.logged
        yield "no pass runs before its versions are restored", state.restoration is None
    yield "finished results are published, or wait in order", _waits_in_order(state)
    for upload in (state.due, state.storing):
        if upload is not None:
            yield "checkpoints are of finished batches", state.kept[-1] < upload.batch <= state.finished
            yield "checkpoints hold versions of one batch", {v.batch for v in upload.versions} == {upload.batch}
    if state.storing is not None:
        yield "checkpoints are of published batches", state.storing.batch <= state.published
        yield "checkpoints are stored in order", state.due is None or state.storing.batch < state.due.batch
    yield (
        "kept checkpoints are few and in order",
        (1 <= len(state.kept) <= KEPT_CHECKPOINTS and list(state.kept) == sorted(set(state.kept))),
    )
    yield (
        "kept checkpoints are of finished and published batches",
        state.kept[-1] <= min(state.finished, state.published),
    )
    if state.trimmed is not None:
        trim = state.trimmed
        yield "kept checkpoints are not trimmed", trim.checkpoints_before <= state.kept[0]
        yield (
            "the source log after the oldest kept checkpoint is not trimmed",
            trim.source_log_before <= state.kept[0] + 1,
        )
        yield "retained outputs after the newest checkpoint are not trimmed", trim.retained_before <= state.kept[-1] + 1
        yield "what a pass reads is not trimmed", live is None or trim.source_log_before <= live.first
        yield "what is unpublished is not trimmed", trim.source_log_before <= state.published + 1
    if state.logging is not None:
        yield "batches are logged in order", state.logging.first == state.logged + 1 and not state.ended
    if state.phase is Phase.STOPPED:
        yield "nothing runs after the stop", live is None and state.stop is not None


def _waits_in_order(state: RunState) -> bool:
    """Whether the unpublished results are exactly the batches after the published ones up to the finished ones."""
    after = state.published
    for results in state.unpublished:
        if results.first != after + 1 or results.last < results.first:
            return False
        after = results.last
    return after == max(state.finished, state.published)
