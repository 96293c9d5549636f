"""What recovery should take and what it took: the paper's latency, the same on real nodes, and measured rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.planning.backups import recovery_latencies
from tenax.planning.backups.latency import propagate
from tenax.planning.levels import Layout, layout
from tenax_lab.sides.sides import Series

DECIMALS = 6  # of measured times: microseconds
MAX_ROUNDS = 10_000  # of one recovery


@dataclass(frozen=True, slots=True)
class Stepped:
    """A task that a round stepped on one of its nodes, and the seconds inside its steps."""

    task: int
    node: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Round:
    """A round of recovery: its batches, its steps, the tasks whose retained outputs it read, its time as a job."""

    first: int
    last: int
    seconds: float
    steps: tuple[Stepped, ...]
    read: tuple[int, ...]

    @property
    def batches(self) -> int:
        """How many batches it replayed."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen of one loss; times are in seconds.

    - `detection_s` is from the kill until the run knew of it, `recovery_s` from then until no task was missing.
    - `back_s` is when each of the lost tasks was back, counted from the moment at which the loss was known.
    - `replayed` is how many batches lost tasks had to catch up, `exact` what the oracle says, none if not asked.
    """

    lost: tuple[int, ...]
    retained: tuple[int, ...]
    detection_s: float
    recovery_s: float
    back_s: tuple[float, ...]
    replayed: int
    rounds: tuple[Round, ...]
    exact: bool | None = None


def to_series(name: str, facts: Facts) -> Series:
    """Facts as plain numbers, to be told from one process to another."""
    found: Series = {
        f"{name} lost": [float(one) for one in facts.lost],
        f"{name} retained": [float(one) for one in facts.retained],
        f"{name} back": list(facts.back_s),
        f"{name} times": [facts.detection_s, facts.recovery_s, float(facts.replayed)],
        f"{name} exact": [] if facts.exact is None else [float(facts.exact)],
    }
    for number, one in enumerate(facts.rounds):
        found[f"{name} round {number}"] = [float(one.first), float(one.last), one.seconds]
        found[f"{name} round {number} read"] = [float(task) for task in one.read]
        found[f"{name} round {number} steps"] = [
            value for step in one.steps for value in (float(step.task), float(step.node), step.seconds)
        ]
    return found


def from_series(name: str, found: Mapping[str, Sequence[float]]) -> Facts:
    """What `to_series` made plain."""
    rounds = []
    for number in range(MAX_ROUNDS):
        if f"{name} round {number}" not in found:
            break
        first, last, seconds = found[f"{name} round {number}"]
        steps = np.reshape(found[f"{name} round {number} steps"], (-1, 3)).tolist()
        rounds.append(
            Round(
                int(first),
                int(last),
                seconds,
                tuple(Stepped(int(task), int(node), spent) for task, node, spent in steps),
                tuple(int(task) for task in found[f"{name} round {number} read"]),
            )
        )
    detection_s, recovery_s, replayed = found[f"{name} times"]
    exact = found[f"{name} exact"]
    return Facts(
        lost=tuple(int(one) for one in found[f"{name} lost"]),
        retained=tuple(int(one) for one in found[f"{name} retained"]),
        detection_s=detection_s,
        recovery_s=recovery_s,
        back_s=tuple(found[f"{name} back"]),
        replayed=int(replayed),
        rounds=tuple(rounds),
        exact=bool(exact[0]) if exact else None,
    )


def reprocess_times(graph: TaskGraph, steps_s: Floats) -> Floats:
    """T(v) of every task, made of the measured time of its steps.

    - Sources retain nothing but their log: to read it again is part of the work of the tasks that they feed.
    - A replay does not write again what is committed, so tasks that only write results take no time.
    """
    times = np.where(graph.is_output, 0.0, steps_s)
    is_source = sources(graph)
    for number, streams in enumerate(graph.streams):
        for stream in streams:
            read = np.where(is_source, steps_s, 0.0)[graph.span(stream.producer)]
            times[graph.span(number)] += stream.highest(read).astype(np.float64)
    times[is_source] = 0.0
    return times.round(DECIMALS)


def sources(graph: TaskGraph) -> Bools:
    """Which tasks read from outside."""
    return np.array([not graph.streams[operator] for operator in graph.operator_of], dtype=np.bool_)


def latency_bounds(graph: TaskGraph, lengths: Sequence[int]) -> tuple[float, ...]:
    """For each length a bound that chains of so many tasks keep, and longer ones do not: half a task above them."""
    half = float(graph.reprocess.max()) / 2
    return tuple(round(longest_chain(graph, length) + half, DECIMALS) for length in lengths)


def longest_chain(graph: TaskGraph, length: int) -> float:
    """The longest time of so many tasks in a row, sources not counted. O(length × (tasks + operators))."""
    own = np.where(sources(graph), -np.inf, graph.reprocess)
    chain = own
    for _ in range(length - 1):
        above = np.full(len(graph), -np.inf)
        for number, streams in enumerate(graph.streams):
            for stream in streams:
                here = above[graph.span(number)]
                np.maximum(here, stream.highest(chain[graph.span(stream.producer)]).astype(np.float64), out=here)
        chain = own + above
    return float(chain.max())


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a plan says of a loss, for a whole checkpoint interval.

    - `alone_s` is L, the latency that the plan's bound is about: each lost task by itself, its retainers alive.
    - `together_s` is L_F: all of them at once, with what they retained for each other.
    - `retainers_live` says that no lost task needs what another has lost: only then does the bound hold for them.
    """

    alone_s: float
    together_s: float
    retainers_live: bool


def predicted(graph: TaskGraph, retained: Sequence[int], lost: Sequence[int]) -> Prediction:
    """L and L_F of the lost tasks, the longest of each."""
    backups, failed = _mask(graph, retained), _mask(graph, lost)
    alone = recovery_latencies(graph, backups)[failed]
    together = recovery_latencies(graph, backups, failed)[failed]
    return Prediction(float(alone.max()), float(together.max()), not (together > alone).any())


def chain_s(graph: TaskGraph, rounds: Sequence[Round]) -> float:
    """The longest chain of measured steps: what recovery takes where every task has a processor of its own."""
    spent = np.zeros(len(graph))
    for one in rounds:
        for step in one.steps:
            spent[step.task] += step.seconds
    stepped = _mask(graph, [step.task for one in rounds for step in one.steps])
    return float(propagate(graph, spent, stepped).max())  # who did not step sent what was retained, at once


def steps_s(graph: TaskGraph, rounds: Sequence[Round]) -> float:
    """The time that rounds spent in steps: level by level, that of the node that takes longest."""
    return sum(
        float(level.max()) for one in rounds for level in _work(graph, one, [step.seconds for step in one.steps])
    )


def nodes_s(graph: TaskGraph, rounds: Sequence[Round], batch_s: Floats, cores: int) -> float:
    """The same as predicted of the time that each task takes for a batch.

    Tasks of a level on one node step one after the other, and no more nodes work at once than there are cores.
    """
    total = 0.0
    for one in rounds:
        seconds = [float(batch_s[step.task]) * one.batches for step in one.steps]
        total += sum(max(float(level.max()), float(level.sum()) / cores) for level in _work(graph, one, seconds))
    return total


def stages(graph: TaskGraph, rounds: Sequence[Round]) -> int:
    """The stages of all rounds together: what Spark has to schedule."""
    return sum(len(_layout(graph, one).levels) for one in rounds)


def _layout(graph: TaskGraph, one: Round) -> Layout:
    names = [str(node) for node in range(1 + max(step.node for step in one.steps))]
    read = frozenset(int(graph.operator_of[task]) for task in one.read)
    return layout(graph, names, {step.task: (step.node,) for step in one.steps}, read)


def _work(graph: TaskGraph, one: Round, seconds: Sequence[float]) -> list[Floats]:
    """For each level of a round, the work on each node."""
    placed = _layout(graph, one)
    level_of = {operator: number for number, level in enumerate(placed.levels) for operator in level}
    work = [np.zeros(len(placed.nodes)) for _ in placed.levels]
    for step, spent in zip(one.steps, seconds, strict=True):
        work[level_of[int(graph.operator_of[step.task])]][step.node] += spent
    return work


def _mask(graph: TaskGraph, tasks: Sequence[int]) -> Bools:
    mask = np.zeros(len(graph), dtype=np.bool_)
    mask[list(tasks)] = True
    return mask
