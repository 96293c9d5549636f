"""Checkpoints: which tasks are stored when, and what must lie beside their states. One policy per strategy.

The store holds a cut through the run: of every task the version that was stored last, and beside it the retained
outputs that a consumer, restored at its own version, would still ask for. So any set of tasks can be lost together:
each is restored where the cut has it, and its producers come from further back, or what it needs lies beside them.

A task that is never stored is on the cut as a rebuild point: from which batch on it is stepped again. That batch counts
in place of its own in all that must be there for it: the source log, the outputs of its producers. It is at a batch
from which it feeds its own consumers, so that no outputs of it are needed.

A policy only says which tasks are due, from the cut and the batches that are finished; it remembers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tenax.control.copies import TaskState
from tenax.control.run import Run
from tenax.control.state import RunState, Upload
from tenax.control.versions import Cut, RebuildPoint, RestorePoint, Span, Version
from tenax.model.protection import Strategy

MAX_SWEEPS = 4  # under way at a time: the versions that they have yet to come by stay on nodes

Policy = Callable[[Run, RunState, Sequence[int]], Collection[int]]
"""Those of the given tasks whose checkpoint is due."""


def wanted(run: Run, state: RunState) -> set[int]:
    """The tasks that should be stored now. O(tasks)."""
    cut = state.newest
    due: set[int] = set()
    for strategy, numbers in run.by_strategy.items():
        due.update(POLICIES[strategy](run, state, numbers))
    return {number for number in due if _is_behind(run, cut, number, state.finished)}


def is_last(run: Run, state: RunState, cut: Cut) -> bool:
    """Whether a cut has all that is finished."""
    return not any(_is_behind(run, cut, number, state.finished) for number in stored_tasks(run))


def stored_tasks(run: Run) -> list[int]:
    """All tasks but the sources."""
    return np.flatnonzero(~run.is_source).tolist()


def _is_behind(run: Run, cut: Cut, number: int, finished: int) -> bool:
    """Whether a cut could have a newer point of a task; a rebuild point is drawn anew with every cut."""
    here = cut.newest_batch if run.strategy_of[number] is Strategy.NONE else cut.points[number].batch
    return here < finished


def interval(run: Run, state: RunState) -> int:
    """Batches from one checkpoint to the next.

    Given in seconds it follows the measured pace. By Young's formula it is √(2 × the time that a checkpoint takes × the
    time between failures): more often costs more than it saves, and less often as well.
    """
    asked = run.protection
    seconds = asked.checkpoint_every_s
    if asked.failure_every_s is not None and state.checkpoints.checkpoint_s:
        seconds = math.sqrt(2.0 * state.checkpoints.checkpoint_s * asked.failure_every_s)
    if seconds is None or not state.checkpoints.batch_s:
        return asked.checkpoint_every_batches
    return max(1, round(seconds / state.checkpoints.batch_s))


def acknowledged(run: Run, cut: Cut, number: int) -> int:
    """The batch that all consumers of a task are through at their points of a cut; the newest if there are none."""
    consumers = run.graph.consumers_of(number)
    return min((cut.points[consumer].inputs_after for consumer in consumers), default=cut.newest_batch)


def sweeping(run: Run, state: RunState, numbers: Collection[int]) -> RunState:
    """Begin a sweep if the last tasks are among these: all others are to be stored as they are now."""
    if not any(run.sweeps[number] and not run.graph.consumers_of(number) for number in numbers):
        return state
    heads = tuple(task.head for task in state.tasks)
    return replace(
        state, checkpoints=replace(state.checkpoints, sweeps=(*state.checkpoints.sweeps, heads)[-MAX_SWEEPS:])
    )


def swept(run: Run, state: RunState) -> RunState:
    """End the sweeps that have come to their first tasks."""
    numbers, points = run.by_strategy.get(Strategy.SWEEPING, ()), state.newest.points
    left = (
        heads for heads in state.checkpoints.sweeps if any(points[task].batch < heads[task].batch for task in numbers)
    )
    return replace(state, checkpoints=replace(state.checkpoints, sweeps=tuple(left)))


def captured(run: Run, state: RunState, numbers: Collection[int]) -> Upload | None:
    """What is stored if these tasks are; None if there is nothing that can be."""
    cut = state.newest
    offers = _offers(run, state, numbers)
    chosen = {number for number, point in offers.items() if point != cut.points[number]}
    rebuilds = not chosen.isdisjoint(run.rebuilt)
    chosen.difference_update(run.rebuilt)
    if run.all_aligned and cut.oldest_batch == cut.newest_batch:
        heads = tuple(_made(task.head) for task in state.tasks)
        return Upload(Cut(next_number(state), heads), heads, tuple(map(_node, state.tasks)))
    while chosen or rebuilds:  # ends: the chosen only become fewer
        drawn = _cut(run, state, {number: _made(offers[number]) for number in chosen})
        if drawn.points == cut.points:
            return None
        outputs = {number: _outputs(state.tasks[number], cut.outputs_of(number), drawn, number) for number in chosen}
        lacking = {number for number, spans in outputs.items() if spans is None}
        if not lacking:
            ready = {number: spans for number, spans in outputs.items() if spans is not None}
            return _upload(run, state, drawn, ready)
        chosen -= lacking  # its outputs lie elsewhere; when its consumers have come further they are not needed
    return None


def _made(point: RestorePoint) -> Version:
    """A version that is to be stored: a task that has stepped since the newest cut has made one."""
    assert isinstance(point, Version), f"what is stored was made by a pass, found {point}"
    return point


def next_number(state: RunState) -> int:
    """Cuts are numbered by batches; several of one batch have the numbers after it, which the next must not meet."""
    return max(state.newest.number + 1, state.finished)


def _cut(run: Run, state: RunState, chosen: Mapping[int, Version]) -> Cut:
    """The cut that there will be; sources are wherever the batch log is."""
    cut = state.newest
    points: list[RestorePoint] = [
        chosen.get(number, task.head if run.is_source[number] else cut.points[number])
        for number, task in enumerate(state.tasks)
    ]
    for number in run.rebuilt:  # consumers first
        consumers = run.graph.consumers_of(number)
        bound = min((points[consumer].inputs_after for consumer in consumers), default=state.finished)
        points[number] = state.tasks[number].rebuild_point(points[number], bound)
    drawn = replace(cut, number=next_number(state), points=tuple(points))
    for_chosen = {number: acknowledged(run, drawn, number) for number in chosen}
    return replace(
        drawn, acknowledged=tuple(for_chosen.get(number, known) for number, known in enumerate(cut.known_acknowledged))
    )


def _offers(run: Run, state: RunState, numbers: Collection[int]) -> dict[int, RestorePoint]:
    """The points of these tasks that would be on a cut now.

    That is the head; of one that a sweep comes by, what it was when the sweep began, if no consumer is behind that.
    """
    cut, offers = state.newest.points, dict[int, RestorePoint]()
    for number in sorted(numbers, reverse=True):  # consumers before their producers
        offers[number] = state.tasks[number].head
        consumers = run.graph.consumers_of(number)
        if run.sweeps[number] and consumers and state.checkpoints.sweeps:
            bound = min(offers.get(consumer, cut[consumer]).inputs_after for consumer in consumers)
            heads = (
                swept[number] for swept in state.checkpoints.sweeps if cut[number].batch < swept[number].batch <= bound
            )
            offers[number] = max(heads, key=lambda head: head.batch, default=offers[number])
    return offers


def _outputs(task: TaskState, stored: Sequence[Span], cut: Cut, number: int) -> tuple[Span, ...] | None:
    """The outputs that go beside a task's version, oldest first; None if some are neither on its node nor stored."""
    assert task.primary is not None
    here = [span for span in task.retained if task.primary.node in span.nodes]
    spans: list[Span] = []
    batch, last = cut.acknowledged[number] + 1, cut.points[number].batch
    while batch <= last:  # ends: each span reaches further
        covering = next((span for span in (*here, *stored) if span.first <= batch <= span.last), None)
        if covering is None:
            return None
        spans.append(Span(batch, min(covering.last, last), covering.pass_id))
        batch = spans[-1].last + 1
    return tuple(spans)


def _upload(run: Run, state: RunState, cut: Cut, outputs: Mapping[int, tuple[Span, ...]]) -> Upload:
    before = state.newest
    lying = tuple(
        () if isinstance(point, RebuildPoint) else outputs.get(number, before.outputs_of(number))
        for number, point in enumerate(cut.points)
    )
    stored = sorted({*outputs, *(number for number, source in enumerate(run.is_source) if source)})
    versions = tuple(_made(cut.points[number]) for number in stored)
    nodes = tuple(_node(state.tasks[number]) for number in stored)
    return Upload(replace(cut, outputs=lying if any(lying) else ()), versions, nodes)


def _node(task: TaskState) -> str:
    assert task.primary is not None
    return task.primary.node


def stored_outputs(state: RunState, number: int, batch: int) -> Span | None:
    """Outputs of a task for a batch that lie in the store; after a rollback the older checkpoints are asked first."""
    cuts = state.checkpoints.kept[::-1]
    cuts = cuts[state.failures.rollbacks :] + cuts[: state.failures.rollbacks]
    spans = (span for cut in cuts for span in cut.outputs_of(number))
    return next((span for span in spans if span.first <= batch <= span.last), None)


def stored_point(state: RunState, number: int, batch: int) -> RestorePoint | None:
    """The newest restore point of a task that is not after a batch.

    Of two rebuild points of one batch it is the one that reaches back less: what the other needs may be trimmed.
    """
    points = (cut.points[number] for cut in state.checkpoints.kept if cut.points[number].batch <= batch)
    return max(points, key=lambda point: (point.batch, point.inputs_after), default=None)


def _crossed(every: int, before: int, now: int, phase: int = 0) -> bool:
    """Whether a multiple of the interval lies between two batches; a pass may go beyond it."""
    return (now + phase) // every > (before + phase) // every


def _aligned(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """All together, at one batch: no outputs lie between them."""
    before = min((state.newest.points[number].batch for number in numbers), default=state.finished)
    return numbers if _crossed(interval(run, state), before, state.finished) else ()


def _synchronous(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """All of a node together, every node by its own timer."""
    by_node: dict[str, list[int]] = {}
    for number in numbers:
        by_node.setdefault(_node(state.tasks[number]), []).append(number)
    every = interval(run, state)
    due: list[int] = []
    for place, node in enumerate(sorted(by_node)):
        here = by_node[node]
        before = min(state.newest.points[number].batch for number in here)
        if _crossed(every, before, state.finished, place * every // len(by_node)):
            due += here
    return due


def _individual(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """Every task by its own timer."""
    every = interval(run, state)
    return [
        number
        for place, number in enumerate(numbers)
        if _crossed(every, state.newest.points[number].batch, state.finished, place * every // len(numbers))
    ]


def _none(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """By one timer: nothing is stored but that the cut has moved on, so that the log before it can go."""
    return numbers if _crossed(interval(run, state), state.newest.newest_batch, state.finished) else ()


def _sweeping(run: Run, state: RunState, numbers: Sequence[int]) -> Collection[int]:
    """The last tasks by a timer; every other one when its consumers have let go of some of its outputs.

    It is then stored as it was when the sweep began: all that it had sent until then is acknowledged, so that no
    outputs of it lie beside its version.

    Tasks of a node that feed only each other let go at once, so that a sweep takes them in one step.
    """
    cut, every = state.newest, interval(run, state)
    before = cut.known_acknowledged
    due: set[int] = set()
    for number in reversed(numbers):  # consumers before their producers
        if not run.graph.consumers_of(number):
            is_due = _crossed(every, cut.points[number].batch, state.finished)
        elif (follower := _followed_by(run, state, number)) is not None:
            is_due = follower in due
        else:
            is_due = acknowledged(run, cut, number) > before[number]
        if is_due:
            due.add(number)
    return due


def _followed_by(run: Run, state: RunState, number: int) -> int | None:
    """The only consumer of a task, if it sweeps and is on the same node as well: the two are stored together."""
    consumers = run.graph.consumers_of(number)
    if len(consumers) != 1 or not run.sweeps[number] or not run.sweeps[consumers[0]]:
        return None
    here, there = (state.tasks[task].primary for task in (number, consumers[0]))
    together = here is not None and there is not None and here.node == there.node
    return int(consumers[0]) if together else None


POLICIES: Mapping[Strategy, Policy] = {
    Strategy.ALIGNED: _aligned,
    Strategy.SYNCHRONOUS: _synchronous,
    Strategy.INDIVIDUAL: _individual,
    Strategy.SWEEPING: _sweeping,
    Strategy.NONE: _none,
}
