"""What is true of a run after every event, each by its name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenax.control.checkpoints.strategies import acknowledged
from tenax.control.copies import Role
from tenax.control.recovery.outages import partial
from tenax.control.recovery.standing import standing
from tenax.control.run import Run
from tenax.control.state import KEPT_CHECKPOINTS, Phase, RunState, Strategy
from tenax.control.transitions import through
from tenax.control.versions import Cut, PassId, Version


class InvariantBroken(AssertionError):
    """The coordinator contradicts itself: a bug, never a user's mistake."""


def check(run: Run, state: RunState) -> None:
    """Raise if an invariant does not hold. O(tasks)."""
    if state.phase is Phase.WAITING or not state.tasks:
        return
    broken = [name for name, holds in (*_of_tasks(run, state), *_of_passes(state), *_of_store(run, state)) if not holds]
    if broken:
        raise InvariantBroken("; ".join(broken))


def _of_tasks(run: Run, state: RunState) -> Iterator[tuple[str, bool]]:
    now = standing(run, state)
    alive = {node.name for node in state.nodes}
    newest = PassId(state.epoch, state.passes.begun)
    under_way = {running.pass_id for running in state.passes.running}
    for number, task in enumerate(state.tasks):
        name = str(run.tasks[number])
        copies = [copy for copy in (task.primary, task.replica, task.replay) if copy is not None]
        yield f"{name}: copies are on live nodes", all(copy.node in alive for copy in copies)
        yield f"{name}: its head is at or before what is finished", task.head.batch <= state.finished
        yield f"{name}: sources are never behind", not run.is_source[number] or task.head.batch == state.finished
        cited = [version for copy in copies for version in (copy.head, copy.fork) if isinstance(version, Version)]
        yield (
            f"{name}: only versions of finished passes are cited",
            all(version.pass_id <= newest and version.pass_id not in under_way for version in cited),
        )
        yield (
            f"{name}: only what is never stored is rebuilt",
            run.strategy_of[number] is Strategy.NONE or not task.rebuild_points,
        )
        forks = [copy.fork for copy in copies if copy.fork is not None]
        yield f"{name}: only degraded tasks have forks", bool(now.degraded[number]) or not forks
        if task.replica is not None and task.primary is not None:
            yield f"{name}: its replica is on another node", task.replica.node != task.primary.node
            yield f"{name}: its replica is not ahead", task.replica.batch <= task.batch
        yield f"{name}: outputs are retained on live nodes", all(set(span.nodes) <= alive for span in task.retained)
    yield (
        "an outage is known if and only if tasks are degraded, or will be by a partial pass",
        (now.healthy and not partial(run, state.passes.live)) is (state.outage is None),
    )
    for task_name, batch in state.logs.published.items():
        head = state.tasks[run.number[task_name]].head.batch
        most = through(state, task_name)
        yield f"{task_name}: published ≤ head, but for what is replayed", batch <= most
        yield (
            f"{task_name}: results wait for every batch after the published ones up to its head",
            most >= head or state.finished < most,
        )


def _of_passes(state: RunState) -> Iterator[tuple[str, bool]]:
    yield "finished ≤ logged", state.finished <= state.logs.logged
    alive = {node.name for node in state.nodes}
    for running in (state.passes.live, state.passes.round):
        if running is None:
            continue
        steps = running.steps
        yield "passes read logged batches", running.first <= running.last <= state.logs.logged
        yield "passes run on live nodes", all(step.node in alive for step in steps)
        yield "steps start before the first batch", all(step.start.batch == running.first - 1 for step in steps)
        sending = [step.task for step in steps if step.role is not Role.REPLICA and step.rebuilding is None]
        silent = {step.task for step in steps if step.rebuilding is not None}
        yield "a task that is rebuilt does not send", not silent & set(sending)
        yield "a task sends once in a pass", len(sending) == len(set(sending))
    if state.passes.live is not None:
        yield "the live pass starts behind what is finished", state.passes.live.first == state.finished + 1
    if state.passes.round is not None:
        yield "rounds are about finished batches", state.passes.round.last <= state.finished
        yield "rounds are accurate", not any(step.tentative for step in state.passes.round.steps)
    if state.phase is Phase.STOPPED:
        yield (
            "nothing runs after the stop",
            state.passes.live is None and state.passes.round is None and state.stop is not None,
        )


def _of_store(run: Run, state: RunState) -> Iterator[tuple[str, bool]]:
    by_number = np.flatnonzero(~run.is_source).tolist()
    for upload in (state.checkpoints.due, state.checkpoints.storing):
        if upload is not None:
            yield "checkpoints are of finished batches", upload.newest_batch <= state.finished
            yield "checkpoints are new", state.newest.number < upload.cut.number
    if state.checkpoints.storing is not None:
        yield "checkpoints are of published batches", state.checkpoints.storing.newest_batch <= state.final
    numbers, batches = (
        [cut.number for cut in state.checkpoints.kept],
        [cut.oldest_batch for cut in state.checkpoints.kept],
    )
    yield "kept checkpoints are few and in order", len(numbers) <= KEPT_CHECKPOINTS and numbers == sorted(set(numbers))
    yield "kept checkpoints are of published batches", state.checkpoints.kept[-1].newest_batch <= state.final
    for cut in state.checkpoints.kept[-1:] if not run.all_aligned else ():
        covered = all(_covered(run, cut, number) for number in by_number)
        yield "what a restored consumer asks for is retained beside the cut", covered
    if state.checkpoints.trimmed is not None:
        trim = state.checkpoints.trimmed
        yield "kept checkpoints are not trimmed", trim.checkpoints_before <= numbers[0]
        yield "the source log after the oldest kept checkpoint is not trimmed", trim.source_log_before <= batches[0] + 1
        yield "retained outputs after the newest checkpoint are not trimmed", trim.retained_before <= batches[-1] + 1
        yield "what is unpublished is not trimmed", trim.source_log_before <= state.final + 1
    if state.logs.logging is not None:
        yield "batches are logged in order", state.logs.logging.first == state.logs.logged + 1 and not state.logs.ended


def _covered(run: Run, cut: Cut, number: int) -> bool:
    """Whether the outputs beside a task cover what lies between the oldest point of its consumers and its own."""
    batch = acknowledged(run, cut, number) + 1
    for span in sorted(cut.outputs_of(number), key=lambda span: span.first):
        if span.first <= batch <= span.last:
            batch = span.last + 1
    return batch > cut.points[number].batch
