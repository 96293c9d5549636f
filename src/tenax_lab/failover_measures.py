"""How an outage was met, computed from what was shown when: silence, gaps, latencies, the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import polars as pl

APPEARED, SHOWN, OUTCOME = "appeared", "shown", "outcome"
"""What rows tell of: a second of input, results as readers see them, and how the run went."""
OUTCOME_COLUMNS = (
    "killed_s",
    "returned_s",
    "killed",
    "detection_s",
    "restarts",
    "tentative",
    "corrected",
    "exact",
    "state_mb",
)
STEADY = 3  # outputs in a row that are as prompt as before: a single one may have been on its way at the kill


class Period(StrEnum):
    """Where a second of input lies, by when it appeared and when it was shown."""

    BEFORE = "before"
    """Shown before the kill; as long before it as the nodes stay away, so that the start of a run is left out."""
    DURING = "during"
    """Not shown at the kill, and appeared before nodes could return."""
    AFTER = "after"
    """Appeared when nodes could return."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What readers saw of a second of input from a moment on: which share of its partitions, final or tentative."""

    at_s: float
    second: int
    final: float
    tentative: float

    @property
    def whole(self) -> bool:
        """Whether it is complete and final."""
        return self.final >= 1.0

    @property
    def share(self) -> float:
        """The share of partitions that show something."""
        return self.final + self.tentative


@dataclass(frozen=True, slots=True)
class SideRun:
    """One run of one side; times are of one clock, counts as the side says them.

    `exact` is what the oracle says of final results; None if there is no oracle for this side. `state_mb` is how large
    the state was at the kill, as the side tells it.
    """

    side: str
    number: int
    appeared_s: tuple[float, ...]
    shown: tuple[Shown, ...]
    killed_s: float
    returned_s: float
    killed: int
    detection_s: float | None
    restarts: int
    tentative: int
    corrected: int
    exact: bool | None
    state_mb: float

    @classmethod
    def from_rows(cls, rows: pl.DataFrame) -> SideRun:
        """One trial of a frame of observations."""
        end = rows.filter(what=OUTCOME).row(0, named=True)
        shown = rows.filter(what=SHOWN).sort("at_s", "second").select("at_s", "second", "final", "tentative_part")
        return cls(
            side=end["side"],
            number=end["round"],
            appeared_s=tuple(rows.filter(what=APPEARED).sort("second")["at_s"]),
            shown=tuple(Shown(*row) for row in shown.iter_rows()),
            **{name: end[name] for name in OUTCOME_COLUMNS},
        )

    def advances(self, *, whole: bool) -> list[Shown]:
        """The outputs that held a newer second than any before; `whole` counts complete and final ones alone."""
        newest, advances = -1, []
        for output in self.shown:
            if output.second > newest and (output.whole or not whole):
                newest = output.second
                advances.append(output)
        return advances

    def after_kill(self, *, whole: bool) -> list[Shown]:
        """The same after the kill: each holds a second that was not out at that moment."""
        return [output for output in self.advances(whole=whole) if output.at_s > self.killed_s]

    def silence_s(self, *, whole: bool) -> float | None:
        """From the kill to the next output."""
        after = self.after_kill(whole=whole)
        return after[0].at_s - self.killed_s if after else None

    def longest_gap_s(self) -> float | None:
        """The longest time without an output, from the kill to the end."""
        times = [self.killed_s, *(output.at_s for output in self.after_kill(whole=False))]
        return max((later - earlier for earlier, later in pairwise(times)), default=None)

    def first_share(self) -> float | None:
        """The share of partitions in the first outputs after the kill, as they were shown at that moment."""
        after = self.after_kill(whole=False)
        return after[0].share if after else None

    def incomplete(self) -> int:
        """The seconds that were shown before they were complete and final."""
        first: dict[int, Shown] = {}
        for output in self.shown:
            first.setdefault(output.second, output)
        return sum(not output.whole for output in first.values())

    def latencies(self, *, whole: bool) -> dict[int, tuple[float, float]]:
        """For each second that was shown: when that was, and how long after it appeared."""
        covered: dict[int, tuple[float, float]] = {}
        next_second = 1  # the first second completes no window
        for output in self.advances(whole=whole):
            for second in range(next_second, output.second + 1):
                covered[second] = (output.at_s, output.at_s - self.appeared_s[second])
            next_second = output.second + 1
        return covered

    def periods(self, *, whole: bool) -> dict[Period, list[float]]:
        """Latencies by period."""
        by_period: dict[Period, list[float]] = {period: [] for period in Period}
        begin_s = self.killed_s - (self.returned_s - self.killed_s)
        for second, (at_s, latency_s) in self.latencies(whole=whole).items():
            appeared_s = self.appeared_s[second]
            if appeared_s >= self.returned_s:
                by_period[Period.AFTER].append(latency_s)
            elif at_s > self.killed_s:
                by_period[Period.DURING].append(latency_s)
            elif appeared_s >= begin_s:
                by_period[Period.BEFORE].append(latency_s)
        return by_period

    def back_s(self) -> float | None:
        """From the kill until all is final and up to date: complete, and as prompt as the slowest before."""
        usual_s = max(self.periods(whole=True)[Period.BEFORE], default=None)
        if usual_s is None:
            return None
        after = self.after_kill(whole=True)
        prompt = [output.at_s - self.appeared_s[output.second] <= usual_s for output in after]
        for place, output in enumerate(after):
            if all(prompt[place : place + STEADY]):
                return output.at_s - self.killed_s
        return None


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The smallest value that so many percent of the values do not exceed; None of none."""
    if not values:
        return None
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
