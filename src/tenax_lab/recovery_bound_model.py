"""What recovery should take and what it took: the paper's latency, the same on real nodes, and measured rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tenax.model.graph import Bools, Floats, TaskGraph
from tenax.planning.backups import recovery_latencies
from tenax.planning.backups.latency import propagate
from tenax.planning.levels import Layout, layout
from tenax_lab.lab import Row
from tenax_lab.loads.tree import with_times
from tenax_lab.recorder import Kind

DECIMALS = 6  # of measured times: microseconds


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


def rounds_of(rows: Sequence[Row]) -> tuple[Round, ...]:
    """The rounds of a recovery, from what the recorder has seen of it."""
    seen = pl.DataFrame([row for row in rows if row["what"] in (Kind.ROUND, Kind.STEP, Kind.READ)])
    rounds = []
    for number, first, last, seconds in (
        seen.filter(what=Kind.ROUND).select("number", "first", "last", "seconds").iter_rows()
    ):
        own = seen.filter(number=number)
        steps = own.filter(what=Kind.STEP).select("task", "node", "seconds").iter_rows()
        read = tuple(own.filter(what=Kind.READ)["task"])
        rounds.append(Round(first, last, seconds, tuple(Stepped(*step) for step in steps), read))
    return tuple(rounds)


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
    for each in rounds:
        for step in each.steps:
            spent[step.task] += step.seconds
    stepped = _mask(graph, [step.task for each in rounds for step in each.steps])
    return float(propagate(graph, spent, stepped).max())  # tasks that did not step sent what was retained, at once


def steps_s(graph: TaskGraph, rounds: Sequence[Round]) -> float:
    """The time that rounds spent in steps: level by level, that of the node that takes longest."""
    return sum(
        float(level.max()) for each in rounds for level in _work(graph, each, [step.seconds for step in each.steps])
    )


def nodes_s(graph: TaskGraph, rounds: Sequence[Round], batch_s: Floats, cores: int) -> float:
    """The same as predicted of the time that each task takes for a batch.

    Tasks of a level on one node step one after the other, and no more nodes work at once than there are cores.
    """
    total = 0.0
    for each in rounds:
        seconds = [float(batch_s[step.task]) * each.batches for step in each.steps]
        total += sum(max(float(level.max()), float(level.sum()) / cores) for level in _work(graph, each, seconds))
    return total


def stages(graph: TaskGraph, rounds: Sequence[Round]) -> int:
    """The stages of all rounds together: what Spark has to schedule."""
    return sum(len(_layout(graph, each).levels) for each in rounds)


def _layout(graph: TaskGraph, replayed: Round) -> Layout:
    names = [str(node) for node in range(1 + max(step.node for step in replayed.steps))]
    read = frozenset(int(graph.operator_of[task]) for task in replayed.read)
    return layout(graph, names, {step.task: (step.node,) for step in replayed.steps}, read)


def _work(graph: TaskGraph, replayed: Round, seconds: Sequence[float]) -> list[Floats]:
    """For each level of a round, the work on each node."""
    placed = _layout(graph, replayed)
    level_of = {operator: number for number, level in enumerate(placed.levels) for operator in level}
    work = [np.zeros(len(placed.nodes)) for _ in placed.levels]
    for step, spent in zip(replayed.steps, seconds, strict=True):
        work[level_of[int(graph.operator_of[step.task])]][step.node] += spent
    return work


def _mask(graph: TaskGraph, tasks: Sequence[int]) -> Bools:
    mask = np.zeros(len(graph), dtype=np.bool_)
    mask[list(tasks)] = True
    return mask


def planned_graph(bare: TaskGraph, times: pl.DataFrame, interval: int) -> TaskGraph:
    """The tree with T(v) of every task: what a batch takes, times the batches of an interval."""
    return TaskGraph(with_times(bare.topology, reprocess_times(bare, interval * typical_s(bare, times)).tolist()))


def typical_s(graph: TaskGraph, times: pl.DataFrame) -> Floats:
    """The seconds of each task for a batch: the median over its operator, whose tasks all do the same work."""
    medians = dict(times.group_by("operator").agg(pl.col("batch_s").median()).iter_rows())
    return np.array([medians[graph.operators[operator].name] for operator in graph.operator_of])


def named(graph: TaskGraph, tasks: Sequence[int]) -> str:
    """Tasks by operator: `o1[0 4] o2[0]`."""
    by_operator: dict[str, list[int]] = {}
    for task in graph.tasks(tasks):
        by_operator.setdefault(task.operator, []).append(task.index)
    return " ".join(f"{name}[{' '.join(map(str, indices))}]" for name, indices in by_operator.items())
