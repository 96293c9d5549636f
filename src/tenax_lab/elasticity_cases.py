"""What an elastic run goes through: a rescale by hand under load, a step of the rate, a day; and how it is set."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tenax.model.settings import Settings
from tenax_lab.arrivals import HEADROOM
from tenax_lab.lab import Plan
from tenax_lab.loads.varying import Load, Rhythm

SWITCH, STEP, DAY = "rescale", "step", "day"
HAND, ELASTIC, SMALL, LARGE, STRUCTURED = "by hand", "elastic", "fixed, small", "fixed, large", "Structured Streaming"
SIDES = (HAND, ELASTIC, SMALL, LARGE, STRUCTURED)
OF = {SWITCH: (HAND,), STEP: (ELASTIC,), DAY: (ELASTIC, SMALL, LARGE, STRUCTURED)}
STEP_TIMES, DAY_TIMES = 3, 10


@dataclass(frozen=True, slots=True)
class Case:
    """What happens: `rate` is the highest but for a step, which makes it three times as high."""

    what_happens: str
    rate: int
    lasts_s: float
    keys: int = 2_000
    text_bytes: int = 8

    @property
    def turn_s(self) -> float:
        """When something happens: the first rescale, the next as long after it; the step; noon."""
        return self.lasts_s / (2 if self.what_happens == DAY else 3 if self.what_happens == STEP else 4)

    @property
    def rhythm(self) -> Rhythm:
        """How rows come."""
        if self.what_happens == DAY:
            return Rhythm.day(self.rate, DAY_TIMES, self.lasts_s)
        if self.what_happens == STEP:
            return Rhythm.step(self.rate, STEP_TIMES, self.turn_s, self.lasts_s)
        return Rhythm.even(self.rate, self.lasts_s)


@dataclass(frozen=True, slots=True)
class ElasticPlan(Plan[Case]):
    """The operator has a task on every node, from the first of `few` nodes to `many`, and waits for its rows.

    Sides whose nodes are fixed have the day until noon, what comes later is no harder; the small one is stopped there.
    """

    few: int = 2
    many: int = 6
    grown: int = 4
    wait_us: int = 1_000
    batch_s: float = 2.0
    checkpoint_s: float = 10.0
    period_s: float = 4.0
    cooldown_s: float = 20.0
    target: float = 0.7

    def load(self, case: Case, side: str) -> Load:
        """What comes, and what it takes."""
        is_fixed = case.what_happens == DAY and side != ELASTIC
        rhythm = case.rhythm.until(case.turn_s) if is_fixed else case.rhythm
        return Load(rhythm, self.wait_us, case.keys, case.text_bytes)

    def nodes(self, side: str) -> int:
        """How many a side begins with."""
        return self.many if side in (LARGE, STRUCTURED) else self.few

    def settings(self, case: Case, side: str) -> Settings:
        """How a side is run: a batch has the rows of an interval, and where a run is behind those of several."""
        most = STEP_TIMES * case.rate if case.what_happens == STEP else case.rate
        settings = Settings.of(
            nodes=self.nodes(side),
            batch=timedelta(seconds=self.batch_s),
            max_rows=round(HEADROOM * most * self.batch_s),
            checkpoint_every=timedelta(seconds=self.checkpoint_s),
        )
        if side != ELASTIC:
            return settings
        return settings.but(
            elastic=True,
            target=self.target,
            elastic_nodes=(self.few, self.many),
            period=timedelta(seconds=self.period_s),
            cooldown=timedelta(seconds=self.cooldown_s),
        )
