"""Invariants of the coordinator: what is true of a run after every event, each by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tenax.control.checkpoints.strategies import acknowledged
from tenax.control.copies import Role, TaskState
from tenax.control.instructions import Trim
from tenax.control.recovery.outages import partial
from tenax.control.recovery.standing import standing
from tenax.control.rescaling import last_batch
from tenax.control.run import Run
from tenax.control.state import KEPT_CHECKPOINTS, Phase, Running, RunState, Stage
from tenax.control.transitions import through
from tenax.control.versions import Cut, PassId, Version
from tenax.model.protection import Strategy
from tenax.model.tasks import Task


class Claim(NamedTuple):
    """Something that is true of every run, whether it is of this one, and of which tasks it speaks; none is of all."""

    text: str
    holds: bool
    tasks: tuple[Task, ...] = ()


def broken(run: Run, state: RunState) -> list[Claim]:
    """The claims that do not hold. O(tasks)."""
    if state.phase is Phase.WAITING or not state.tasks:
        return []
    claims = (*_of_tasks(run, state), *_of_passes(state), *_of_store(run, state), *_of_rescaling(run, state))
    return [claim for claim in claims if not claim.holds]


def _of_tasks(run: Run, state: RunState) -> Iterator[Claim]:
    now = standing(run, state)
    for number, task in enumerate(state.tasks):
        degraded = bool(now.degraded[number])
        for text, holds in (*_of_copies(state, task, degraded), *_of_task(run, state, number)):
            yield Claim(f"{run.tasks[number]}: {text}", holds, (run.tasks[number],))
    yield Claim(
        "an outage is known if and only if tasks are degraded, or will be by a partial pass",
        (now.healthy and not partial(run, state.passes.live)) is (state.outage is None),
        tuple(run.tasks[number] for number in np.flatnonzero(now.degraded)),
    )


def _of_copies(state: RunState, task: TaskState, degraded: bool) -> Iterator[tuple[str, bool]]:
    alive = {node.name for node in state.nodes}
    newest = PassId(state.epoch, state.passes.begun)
    under_way = {running.pass_id for running in state.passes.running}
    copies = [copy for copy in (task.primary, task.replica, task.replay) if copy is not None]
    forks = [copy.fork for copy in copies if copy.fork is not None]
    made = {version.pass_id for copy in copies for version in (copy.head, copy.fork) if isinstance(version, Version)}
    yield "copies are on live nodes", all(copy.node in alive for copy in copies)
    yield (
        "only versions of finished passes are cited",
        not made & under_way and all(number <= newest for number in made),
    )
    yield "only degraded tasks have forks", degraded or not forks
    if task.replica is not None and task.primary is not None:
        yield "its replica is on another node", task.replica.node != task.primary.node
        yield "its replica is not ahead", task.replica.batch <= task.batch
    yield "outputs are retained on live nodes", all(set(span.nodes) <= alive for span in task.retained)


def _of_task(run: Run, state: RunState, number: int) -> Iterator[tuple[str, bool]]:
    name, task = run.tasks[number], state.tasks[number]
    never_stored = run.strategy_of[number] is Strategy.NONE
    yield "its head is at or before what is finished", task.head.batch <= state.finished
    yield "sources are never behind", not run.is_source[number] or task.head.batch == state.finished
    yield "only what is never stored is rebuilt", never_stored or not task.rebuild_points
    if name in state.logs.published:
        most, head = through(state, name), task.head.batch
        yield "published ≤ head, but for what is replayed", state.logs.published[name] <= most
        waits = most >= head or state.finished < most
        yield "results wait for every batch after the published ones up to its head", waits


def _of_passes(state: RunState) -> Iterator[Claim]:
    yield Claim("finished ≤ logged", state.finished <= state.logs.logged)
    for running in state.passes.running:
        tasks = tuple(step.task for step in running.steps)
        for text, holds in _of_pass(state, running):
            yield Claim(text, holds, tasks)
    if state.passes.live is not None:
        yield Claim("the live pass starts behind what is finished", state.passes.live.first == state.finished + 1)
    if state.passes.round is not None:
        tentative = tuple(step.task for step in state.passes.round.steps if step.tentative)
        yield Claim("rounds are about finished batches", state.passes.round.last <= state.finished)
        yield Claim("rounds are accurate", not tentative, tentative)
    if state.phase is Phase.STOPPED:
        yield Claim("nothing runs after the stop", not state.passes.running and state.stop is not None)


def _of_pass(state: RunState, running: Running) -> Iterator[tuple[str, bool]]:
    alive, steps = {node.name for node in state.nodes}, running.steps
    sending = [step.task for step in steps if step.role is not Role.REPLICA and step.rebuilding is None]
    silent = {step.task for step in steps if step.rebuilding is not None}
    yield "passes read logged batches", running.first <= running.last <= state.logs.logged
    yield "passes run on live nodes", all(step.node in alive for step in steps)
    yield "steps start before the first batch", all(step.start.batch == running.first - 1 for step in steps)
    yield "a task that is rebuilt does not send", not silent & set(sending)
    yield "a task sends once in a pass", len(sending) == len(set(sending))


def _of_store(run: Run, state: RunState) -> Iterator[Claim]:
    kept, storing, logging = state.checkpoints.kept, state.checkpoints.storing, state.logs.logging
    for upload in state.checkpoints.uploads:
        tasks = tuple(version.task for version in upload.versions)
        yield Claim("checkpoints are of finished batches", upload.newest_batch <= state.finished, tasks)
        yield Claim("checkpoints are new", state.newest.number < upload.cut.number, tasks)
    if storing is not None:
        yield Claim("checkpoints are of published batches", storing.newest_batch <= state.final)
    numbers, batches = [cut.number for cut in kept], [cut.oldest_batch for cut in kept]
    in_order = len(numbers) <= KEPT_CHECKPOINTS and numbers == sorted(set(numbers))
    yield Claim("kept checkpoints are few and in order", in_order)
    yield Claim("kept checkpoints are of published batches", kept[-1].newest_batch <= state.final)
    if not run.all_aligned:
        stored = np.flatnonzero(~run.is_source).tolist()
        lacking = tuple(run.tasks[number] for number in stored if not _covered(run, kept[-1], number))
        yield Claim("what a restored consumer asks for is retained beside the cut", not lacking, lacking)
    if state.checkpoints.trimmed is not None:
        for text, holds in _of_trim(state, state.checkpoints.trimmed, numbers[0], batches):
            yield Claim(text, holds)
    if logging is not None:
        in_order = logging.first == state.logs.logged + 1 and not state.logs.ended
        yield Claim("batches are logged in order", in_order)


def _of_trim(state: RunState, trim: Trim, oldest: int, batches: Sequence[int]) -> Iterator[tuple[str, bool]]:
    yield "kept checkpoints are not trimmed", trim.checkpoints_before <= oldest
    yield "the source log after the oldest kept checkpoint is not trimmed", trim.source_log_before <= batches[0] + 1
    yield "retained outputs after the newest checkpoint are not trimmed", trim.retained_before <= batches[-1] + 1
    yield "what is unpublished is not trimmed", trim.source_log_before <= state.final + 1


def _of_rescaling(run: Run, state: RunState) -> Iterator[Claim]:
    known, last = state.rescaling, last_batch(state)
    if known is None:
        return
    if known.stage is not Stage.WAITING:
        yield Claim("a paused run begins nothing", state.passes.begun == known.begun)
    if known.stage is Stage.PAUSED:
        yield Claim("a paused run has all its tasks", state.outage is None and standing(run, state).healthy)
    if known.stage is Stage.SWITCHING:
        working = state.passes.running or state.checkpoints.uploads or state.logs.unpublished
        yield Claim("nothing runs while a rescale switches", not working)
        points = state.newest.points
        whole = all(isinstance(point, Version) and point.batch == state.finished for point in points)
        yield Claim("a version begins where all tasks are stored", whole)
        yield Claim("a version begins behind a batch whose results are all committed", state.final >= state.finished)
        ahead = last is None and max(state.logs.published.values(), default=0) > state.finished
        yield Claim("a new version begins behind all results that are committed", not ahead)
    if last is not None:
        spanning = [running for running in state.passes.running if running.last > last]
        yield Claim("no pass spans two versions", not spanning and state.finished <= last)


def _covered(run: Run, cut: Cut, number: int) -> bool:
    """Whether the outputs beside a task cover what lies between the oldest point of its consumers and its own."""
    batch = acknowledged(run, cut, number) + 1
    for span in sorted(cut.outputs_of(number), key=lambda span: span.first):
        if span.first <= batch <= span.last:
            batch = span.last + 1
    return batch > cut.points[number].batch
