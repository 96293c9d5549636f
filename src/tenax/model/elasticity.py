"""How the tasks and nodes of an application follow its load: the record of its elasticity, and the words it knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenax.model.durations import Span, seconds
from tenax.model.options import check_fields, choice, count, number, option, pair, switch, time

POLICIES = ("rates", "threshold")


class Handover(StrEnum):
    """Where the new owners of key groups have their states from."""

    CHECKPOINT = "checkpoint"
    """From the store."""
    REPLAY = "replay"
    """Rebuilt by stepping what the tasks before them retain."""


@dataclass(frozen=True, slots=True)
class Elasticity:
    """When operators split and merge while they run, and nodes come and go.

    - It is off unless it is asked for; then nothing of it is looked at.
    - Spans of time are kept as text; the properties that end in `_s` have them in seconds.
    """

    elastic: bool = option(
        switch(),
        False,
        "Operators split and merge, and nodes come and go, as the load asks for it.",
        details="Operators that are shared by key may have 1 to 128 tasks, or as many as their `parallelism=(1, 16)` "
        "says; sources keep their partitions.",
    )
    policy: str = option(
        choice(POLICIES),
        POLICIES[0],
        "rates: one decision for all operators, by what a row costs; threshold: the busiest operator alone.",
        details="`rates`: the fewest nodes and tasks with which a pass is predicted to stay below `target`. "
        "`threshold`: the operator of the busiest task gets as many more tasks as its busy part asks for.",
    )
    target: float = option(
        number(0.05, 1), 0.7, "The part of a batch interval that a pass shall take at most, so predicted."
    )
    elastic_nodes: tuple[int, int] = option(
        pair(),
        (2, 8),
        "The fewest and the most nodes, like 2..8.",
        details="A run begins with `nodes`, or with what is nearest to it here. `topology.elastic(nodes=(2, 8))` in an "
        "application.",
        unit="nodes",
    )
    cycles: int = option(count(), 2, "So many periods in a row ask for a rescale before there is one.", unit="periods")
    period: Span = option(time(), "10s", "How often the load is looked at.")
    cooldown: Span = option(
        time(positive=False),
        "60s",
        "After a rescale there is no scale-in for so long.",
        details="A scale-out waits for measures of the new tasks only.",
    )
    handover: str = option(
        choice(Handover),
        Handover.CHECKPOINT,
        "Where new owners have states from: checkpoint, the store; replay, what the tasks before them retain.",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def period_s(self) -> float:
        """How many seconds are between two looks at the load."""
        return seconds(self.period)

    @property
    def cooldown_s(self) -> float:
        """For how many seconds a scale-in waits after a rescale."""
        return seconds(self.cooldown)

    def nearest(self, nodes: int) -> int:
        """The number of nodes nearest to this one that there may be; the same number while nothing is elastic."""
        fewest, most = self.elastic_nodes
        return min(max(nodes, fewest), most) if self.elastic else nodes
