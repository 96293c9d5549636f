"""Losses of nodes as cases: what was asked for, what was seen, and what was to be expected of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenax.model.graph import Floats, TaskGraph
from tenax.model.protection import Recovery
from tenax.store.records import Json
from tenax_lab.recovery_bound_model import (
    Facts,
    Prediction,
    chain_s,
    nodes_s,
    predicted,
    reprocess_times,
    stages,
    steps_s,
)
from tenax_lab.recovery_bound_tree import Load, with_times

NODES = 4
VICTIM = "o2"  # the operator with one task on each of the nodes: whoever holds its n-th task is the n-th node


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    - `lengths`: for each a bound that chains of so many tasks keep, and longer ones do not.
    - `victims`: the nodes that are killed in turn; `incremental`: the lengths for which live passes go on meanwhile.
    - `batches` of the run without failures.
    """

    load: Load
    interval: int
    per_pass: int
    batches: int
    lengths: tuple[int, ...]
    victims: tuple[int, ...]
    incremental: tuple[int, ...]


FULL = Plan(Load(255, 12_000), 8, 2, 24, (1, 2, 3, 4), (0, 1, 2, 3), (2,))
QUICK = Plan(Load(63, 500), 4, 2, 8, (2,), (1,), ())


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss to be measured: the bound that was asked for, the node that is killed, what goes on meanwhile."""

    length: int
    bound_s: float
    victim: int
    recovery: Recovery
    judged: bool

    @property
    def label(self) -> str:
        """For those who wait."""
        return f"R = {self.bound_s:.2f} s, node {self.victim + 1}, {self.recovery}"

    def to_json(self) -> dict[str, Json]:
        """As plain data for the process that measures."""
        return {
            "bound_s": self.bound_s,
            "kill": f"{VICTIM}[{self.victim}]",
            "recovery": self.recovery.value,
            "judge": self.judged,
            "label": self.label,
        }


@dataclass(frozen=True, slots=True)
class Case:
    """A loss, what was seen of it, and what was to be expected.

    - What was replayed is `share` of a checkpoint interval; expectations and the bound are scaled to it.
    - `chain_s` is the longest chain of measured steps, `steps_s` the time in steps on the nodes, one after the other;
      all else of the recovery is `scheduling_s`: jobs, stages, checkpoints read, outputs read.
    """

    loss: Loss
    facts: Facts
    share: float
    prediction: Prediction
    chain_s: float
    nodes_s: float
    steps_s: float
    stages: int

    @property
    def bound_s(self) -> float:
        """The bound for what was replayed."""
        return self.loss.bound_s * self.share

    @property
    def expected_s(self) -> float:
        """L_F for what was replayed."""
        return self.prediction.together_s * self.share

    @property
    def scheduling_s(self) -> float:
        """What recovery took beside steps."""
        return self.facts.recovery_s - self.steps_s


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that the tables are made of; `batch_s` are the seconds of each task for a batch, pass by pass."""

    plan: Plan
    graph: TaskGraph
    batch_s: tuple[tuple[float, ...], ...]
    cases: tuple[Case, ...]
    cores: int

    def of(self, recovery: Recovery, length: int | None = None) -> list[Case]:
        """The cases of a kind of recovery, of one bound or of all."""
        return [one for one in self.cases if one.loss.recovery is recovery and length in (None, one.loss.length)]


def planned_graph(bare: TaskGraph, batch_s: Sequence[Sequence[float]], interval: int) -> TaskGraph:
    """The tree with T(v) of every task: what a batch takes, times the batches of an interval."""
    return TaskGraph(with_times(bare.topology, reprocess_times(bare, interval * typical_s(bare, batch_s)).tolist()))


def typical_s(graph: TaskGraph, batch_s: Sequence[Sequence[float]]) -> Floats:
    """The seconds of each task for a batch: the median over its operator, whose tasks all do the same work."""
    found = np.zeros(len(graph))
    for operator in range(len(graph.operators)):
        span = graph.span(operator)
        found[span] = statistics.median(seconds for task in batch_s[span] for seconds in task)
    return found


def measured(
    plan: Plan,
    graph: TaskGraph,
    batch_s: tuple[tuple[float, ...], ...],
    losses: Sequence[Loss],
    facts: Sequence[Facts],
    cores: int,
) -> Measured:
    """Facts beside what was to be expected of them."""
    own = np.where(graph.is_output, 0.0, typical_s(graph, batch_s))  # a replay writes no results again
    cases = tuple(
        Case(
            loss,
            one,
            one.replayed / plan.interval,
            predicted(graph, one.retained, one.lost),
            chain_s(graph, one.rounds),
            nodes_s(graph, one.rounds, own, cores),
            steps_s(graph, one.rounds),
            stages(graph, one.rounds),
        )
        for loss, one in zip(losses, facts, strict=True)
    )
    return Measured(plan, graph, batch_s, cases, cores)
