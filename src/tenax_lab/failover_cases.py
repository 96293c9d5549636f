"""What is compared when half of the nodes die: the sides, and the cases with a small and with a large state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tenax.model.protection import Protection
from tenax_lab.lab import Plan, Trial
from tenax_lab.sides.failover_files import Scenario
from tenax_lab.sides.failover_queries import MATCHES, MEANS, Query
from tenax_lab.sides.inputs import Shape

REPLICAS, PASSIVE, BLOCKING, STRUCTURED = "replicas", "passive", "blocking", "structured"
SIDES = {
    REPLICAS: "Tenax, replicas",
    PASSIVE: "Tenax, tentative",
    BLOCKING: "Tenax, blocking",
    STRUCTURED: "Structured Streaming",
}
PROTECTIONS = {REPLICAS: Protection(replicas="all"), PASSIVE: Protection(), BLOCKING: Protection(recovery="blocking")}
GOING_ON = (REPLICAS, PASSIVE)  # the sides of which we want the next output soon
EQUAL = "equal"
NODES, RACKS = 4, 2
INTERVAL_S = 1.0
SHUFFLE_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Case:
    """What every side goes through; each round kills at another moment of the second, after so long.

    With a `backlog`, the input of so many seconds is there from the start.
    """

    state: str
    query: Query
    shape: Shape
    backlog: int
    kills_after_s: tuple[float, ...]
    away_s: float
    tail_s: float

    def scenario(self, inputs: Path, number: int) -> Scenario:
        """That of a round."""
        kill_after_s = self.kills_after_s[number - 1]
        times = INTERVAL_S, kill_after_s, self.away_s, self.tail_s
        return Scenario(self.query, inputs, self.shape, self.backlog, NODES, RACKS, *times)


@dataclass(frozen=True, slots=True)
class FailoverPlan(Plan[Case]):
    """A case has as many rounds as moments of its kills: one with a large state takes minutes."""

    def trials(self) -> tuple[Trial[Case], ...]:
        """All cells, in the order in which they are run."""
        every = super(FailoverPlan, self).trials()
        return tuple(trial for trial in every if trial.round <= len(trial.case.kills_after_s))


SMALL = Case(
    state="small",
    query=Query(MEANS, 10),
    shape=Shape(150, 10_000, 1_000, NODES),
    backlog=0,
    kills_after_s=(26.8,),
    away_s=15.0,
    tail_s=12.0,
)
LARGE = Case(
    state="large",
    query=Query(MATCHES, 240, 4_000),
    shape=Shape(460, 1_280, 0, NODES),
    backlog=240,
    kills_after_s=(60.3, 63.8),
    away_s=30.0,
    tail_s=20.0,
)


def quick(case: Case, query: Query, shape: Shape, backlog: int) -> Case:
    """The same with little of everything."""
    return replace(case, query=query, shape=shape, backlog=backlog, kills_after_s=(6.3,), away_s=5.0, tail_s=5.0)


QUICK_SMALL = quick(SMALL, SMALL.query, Shape(150, 2_000, 100, NODES), 0)
QUICK_LARGE = quick(LARGE, Query(MATCHES, 10, 200), Shape(150, 400, 0, NODES), 10)
