"""How a figure is declared and observed: cases, sides and rounds as data, one frame of observations.

See the README beside this file for how to add a figure.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import polars as pl

from tenax.errors import TenaxError
from tenax_lab.findings import Findings

if TYPE_CHECKING:
    from tenax.engine.session import Session
    from tenax.model.settings import ClusterSettings

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = dict[str, Value]
"""One observation: its measures by column."""
WHAT, SIDE, ROUND, EXPERIMENT = "what", "side", "round", "experiment"


class InvalidObservation(TenaxError):
    """What was measured is no measurement: nothing, or a number that is none."""


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Trial(Generic[C]):
    """One cell of an experiment: a case, the side that is measured under it, and the round."""

    case: C
    side: str
    round: int

    @property
    def columns(self) -> Row:
        """Every observation of this trial begins with these: all fields of the case that are plain values."""
        return {**plain_fields(self.case), SIDE: self.side, ROUND: self.round}

    @property
    def label(self) -> str:
        """For those who wait."""
        said = [f"{name.replace('_', ' ')} {_said(value)}" for name, value in plain_fields(self.case).items()]
        return ", ".join([*([self.side] if self.side else []), *said, *([f"round {self.round}"] * (self.round > 1))])


def plain_fields(case: object) -> Row:
    """The fields of a case that can stand in a column, by name; a case that is no dataclass has none."""
    columns: Row = {}
    for each in fields(case) if hasattr(case, "__dataclass_fields__") else ():  # type: ignore[arg-type]
        value = getattr(case, each.name)
        if isinstance(value, Enum):
            columns[each.name] = str(value.value)
        elif value is None or isinstance(value, str | int | float | bool):
            columns[each.name] = value
    return columns


def _said(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True)
class Plan(Generic[C]):
    """What is measured: every side under every case, in as many rounds; a figure may add fields of its own.

    - A case is a frozen dataclass; its plain fields become columns.
    - Rounds are outermost, and every other round takes the sides in the opposite order: what disturbs the machine, or
      makes a session faster as it grows older, meets all sides alike.
    - `applies` leaves out the sides that a case does not have.
    """

    cases: tuple[C, ...]
    sides: tuple[str, ...] = ("",)
    rounds: int = 1
    applies: Callable[[Any, str], bool] = lambda _case, _side: True

    def trials(self) -> tuple[Trial[C], ...]:
        """All cells, in the order in which they are run."""
        return tuple(
            Trial(case, side, number)
            for number in range(1, self.rounds + 1)
            for case in self.cases
            for side in (self.sides if number % 2 else tuple(reversed(self.sides)))
            if self.applies(case, side)
        )


class Progress(Protocol):
    """Where an experiment says how far it is."""

    def total(self, steps: int) -> None:
        """How many steps there will be; said once, before the first."""

    def advance(self, label: str) -> None:
        """One step is done; the label says which."""


class NoProgress:
    """Progress that is not watched."""

    def total(self, steps: int) -> None:
        """Ignore it."""

    def advance(self, label: str) -> None:
        """Ignore it."""


@dataclass(slots=True)
class Bench:
    """Where trials are run: a folder of their own, and one cluster at a time.

    - `session(nodes)` starts an embedded cluster when it is first asked for, and keeps it as long as the same is asked
      for. One that was `given` is used as it is, however many nodes it has, and stays when the bench is closed.
    - `nodes` is how many nodes the cluster has.
    - `prepared` is whatever the preparation of an experiment leaves for its trials.
    """

    seed: int
    work: Path
    given: Session | None = None
    given_nodes: int = 0
    prepared: Any = None
    _session: Session | None = None
    _asked: ClusterSettings | None = None
    _numbers: Iterator[int] = field(default_factory=count)

    def session(self, cluster: ClusterSettings) -> Session:
        """A cluster as it is asked for, or the one that was given; what its nodes may hold is up to each run."""
        if self.given is not None:
            return self.given
        cluster = replace(cluster, racks=None, slots=None, node_limit=1.0, standby_nodes=0, standby_slots=None)
        if self._session is None or self._asked != cluster:
            from tenax.engine.session import Session

            self.close()
            self._session = Session(self.folder("cluster"), cluster)
            self._asked = cluster
        return self._session

    @property
    def nodes(self) -> int:
        """The nodes of the cluster that trials run on."""
        return self.given_nodes if self.given is not None else self._asked.nodes if self._asked else 0

    def folder(self, what: str = "trial") -> Path:
        """A folder that no other trial has, not made yet."""
        return self.work / f"{what}-{next(self._numbers)}"

    def close(self) -> None:
        """End the cluster, unless it was given."""
        if self._session is not None:
            self._session.stop()
            self._session = self._asked = None


P = TypeVar("P", bound=Plan[Any])


@dataclass(frozen=True, slots=True)
class Experiment(Generic[P]):
    """A figure: what is measured, how one trial is measured, and what is said of all observations.

    - `measure` returns the observations of one trial, one row each; a column `what` tells kinds of rows apart where
      there are several. Case, side and round are added here.
    - `report` reads nothing but the plan and the frame: tables, claims and panels by column.
    - `prepare`, where there is one, comes before all trials: what it returns belongs to no case, and what trials need
      of it is left in `bench.prepared`.
    """

    full: P
    quick: P
    measure: Callable[[Bench, P, Trial[Any]], Iterable[Row]]
    report: Callable[[P, pl.DataFrame], Findings]
    prepare: Callable[[Bench, P], Iterable[Row]] | None = None

    def plan(self, *, quick: bool) -> P:
        """What a run measures."""
        return self.quick if quick else self.full

    def observe(self, name: str, plan: P, bench: Bench, progress: Progress) -> pl.DataFrame:
        """Run all trials of a plan; one row per observation."""
        trials = plan.trials()
        progress.total(len(trials) + (self.prepare is not None))
        rows: list[Row] = []
        if self.prepare is not None:
            rows += [{EXPERIMENT: name, **row} for row in self.prepare(bench, plan)]
            progress.advance("preparation")
        for trial in trials:
            observed = [{EXPERIMENT: name, **trial.columns, **row} for row in self.measure(bench, plan, trial)]
            if not observed:
                raise InvalidObservation(f"a trial is observed at least once, found nothing of {trial.label}")
            rows += observed
            progress.advance(trial.label)
        return frame(rows)


def frame(rows: Iterable[Row]) -> pl.DataFrame:
    """Observations as one frame: a column that some rows do not have is null there; a number is finite."""
    listed = list(rows)
    for row in listed:
        wrong = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
        if wrong:
            raise InvalidObservation(f"a measure is a finite number, found {row[wrong[0]]} in {wrong[0]!r} of {row}")
    names = dict.fromkeys(name for row in listed for name in row)
    return pl.DataFrame({name: pl.Series(name, [row.get(name) for row in listed], strict=False) for name in names})


def observe_and_report(
    experiment: Experiment[P],
    name: str,
    *,
    seed: int,
    quick: bool,
    progress: Progress,
    session: Session | None = None,
    nodes: int = 0,
) -> tuple[pl.DataFrame, Findings]:
    """All trials of an experiment in a folder that goes after it, and what they say."""
    plan = experiment.plan(quick=quick)
    with tempfile.TemporaryDirectory(prefix=f"tenax-{name}-") as folder:
        bench = Bench(seed, Path(folder), session, nodes)
        try:
            observations = experiment.observe(name, plan, bench, progress)
        finally:
            bench.close()
    return observations, experiment.report(plan, observations)
