"""Operators split and merge while they run: a rescale under load, a step of the rate, a day from night to night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tenax.control import events
from tenax.engine.driver import Driver
from tenax.model.topology_versions import Target
from tenax.store import topology_versions
from tenax.store.records import Json
from tenax_lab.arrivals import Arrivals
from tenax_lab.elasticity_cases import DAY, HAND, LARGE, OF, SIDES, SMALL, STEP, STRUCTURED, SWITCH, Case, ElasticPlan
from tenax_lab.elasticity_measures import NODES, OUTCOME, OUTPUT, PASS
from tenax_lab.elasticity_report import report
from tenax_lab.lab import WHAT, Bench, Experiment, Row, Trial
from tenax_lab.loads.layered import Tap
from tenax_lab.loads.varying import LOOKUPS, varying
from tenax_lab.processes import run_side
from tenax_lab.recorder import Kind, RunRecorder
from tenax_lab.runs import run

SIDE_DEADLINE_S = 1_200.0


class Conductor:
    """Lets rows come once the state is whole, asks for rescales in time, and ends what has to end.

    Tasks wait for rows as long as the tap is open: it is closed when all results are final.
    """

    def __init__(self, plan: ElasticPlan, trial: Trial[Case], tap: Tap, recorder: RunRecorder, driver: Driver) -> None:
        self._case, self._side, self._tap = trial.case, trial.side, tap
        self._recorder, self._driver = recorder, driver
        self._load = plan.load(trial.case, trial.side)
        self._logged: dict[int, int] = {}
        self._opened_s = 0.0
        self._wishes = [plan.grown, plan.few] if trial.side == HAND else []
        self.asked_s: list[float] = []
        recorder.after_event.append(self.learn)
        recorder.after_publication.append(self.published)

    def learn(self, event: events.Event) -> None:
        """After every event."""
        if isinstance(event, events.BatchesLogged) and event.last >= event.first:
            self._logged[event.last] = max(self._logged.values(), default=0) + event.rows
        if not self._opened_s:
            return
        now_s = self._recorder.now_s
        since_s = max([self._opened_s, *self._switched_s()])
        done = len(self.asked_s) == len(self._switched_s())
        if self._wishes and done and now_s > since_s + self._case.turn_s:
            nodes = self._wishes.pop(0)
            self.asked_s.append(now_s)
            topology_versions.ask(self._driver.store.folder, Target({LOOKUPS: nodes}, nodes, "by hand"))
        if self._side == SMALL and now_s > self._opened_s + self._case.turn_s:
            self._driver.request_stop()

    def _switched_s(self) -> list[float]:
        rows = self._recorder.rows
        return [float(str(row["at_s"])) for row in rows if row[WHAT] == Kind.SWITCHED]

    def published(self, last: int) -> None:
        """After every publication."""
        rows = max((rows for batch, rows in self._logged.items() if batch <= last), default=0)
        if rows >= self._load.keys and not self._opened_s:
            self._tap.open()
            self._opened_s = self._recorder.now_s
        if rows >= self._load.rows:
            self._tap.close()


def measure(bench: Bench, plan: ElasticPlan, trial: Trial[Case]) -> Iterator[Row]:
    """One side through one case, each on a cluster of its own: nodes come and go."""
    bench.close()
    if trial.side == STRUCTURED:
        yield from _structured(bench, plan, trial.case)
        return
    tap, load = Tap(bench.folder("tap")), plan.load(trial.case, trial.side)
    watched: list[tuple[Conductor, Arrivals]] = []

    def begin(recorder: RunRecorder, driver: Driver, _folder: Path) -> None:
        arrivals = Arrivals(recorder, after_s=load.rhythm.after_s, there=load.keys)
        watched.append((Conductor(plan, trial, tap, recorder, driver), arrivals))

    recorder = run(
        bench,
        varying(bench.seed, load, tap, plan.nodes(trial.side)),
        plan.settings(trial.case, trial.side),
        judged=trial.side != SMALL,
        stopped=trial.side == SMALL,
        prepare=begin,
    )
    ((conductor, arrivals),) = watched
    yield from rows_of(recorder, arrivals, conductor.asked_s, plan.batch_s)


def rows_of(recorder: RunRecorder, arrivals: Arrivals, asked_s: list[float], batch_s: float) -> Iterator[Row]:
    """What a run tells; times are since rows come."""
    came_s = arrivals.came_s
    began_s = arrivals.began_s
    final = recorder.of(Kind.FINAL)
    done, rows = min(came_s) - 1, arrivals.rows
    for last, at_s in final.select("last", "at_s").iter_rows():
        for batch in range(done + 1, last + 1):
            if batch in came_s:
                yield {
                    WHAT: OUTPUT,
                    "batch": batch,
                    "after_s": came_s[batch] - began_s,
                    "latency_s": max(0.0, at_s - came_s[batch]),
                    "final_s": max(0.0, at_s - began_s),
                    "rows": rows[batch],
                }
        done = max(done, last)
    for row in recorder.of(Kind.PASS).filter(pl.col("first") > min(came_s)).iter_rows(named=True):
        begun_s = row["at_s"] - row["seconds"]
        waiting = max(0.0, begun_s - came_s.get(row["first"] - 1, begun_s)) / batch_s
        measures = {name: row[name] for name in ("first", "last", "seconds", "read_bytes", "state_bytes")}
        yield {WHAT: PASS, "after_s": begun_s - began_s, "waiting": waiting, **measures}
    for kind in (Kind.NODES, Kind.SWITCHED, Kind.JUDGED):
        for row in recorder.of(kind).iter_rows(named=True):
            yield {**row, "after_s": row.pop("at_s") - began_s}
    for at_s in asked_s:
        yield {WHAT: "asked", "after_s": at_s - began_s}
    yield {WHAT: OUTCOME, "exact": recorder.exact}


def _structured(bench: Bench, plan: ElasticPlan, case: Case) -> Iterator[Row]:
    """The day in Structured Streaming, with as many executors as the large side has nodes."""
    arguments: dict[str, Json] = {
        "work": str(bench.folder("structured")),
        "nodes": plan.many,
        "keys": case.keys,
        "wait_us": plan.wait_us,
        "batch_s": plan.batch_s,
        "points": [list(point) for point in plan.load(case, STRUCTURED).rhythm.points],
    }
    yield from run_side("tenax_lab.sides.varying_structured", arguments, deadline_s=SIDE_DEADLINE_S).rows
    yield {WHAT: NODES, "after_s": 0.0, "nodes": plan.many}
    yield {WHAT: OUTCOME, "exact": None}


def _applies(case: Case, side: str) -> bool:
    return side in OF[case.what_happens]


EXPERIMENT = Experiment(
    full=ElasticPlan(
        (
            Case(SWITCH, 1_200, 84.0, keys=12_500, text_bytes=42_000),
            Case(STEP, 800, 80.0),
            Case(DAY, 2_700, 240.0),
        ),
        SIDES,
        applies=_applies,
    ),
    quick=ElasticPlan(
        (Case(SWITCH, 300, 40.0, keys=500, text_bytes=1_000), Case(STEP, 300, 36.0), Case(DAY, 900, 20.0)),
        SIDES,
        applies=lambda case, side: _applies(case, side) and side not in (SMALL, LARGE),
        few=1,
        many=3,
        grown=2,
        batch_s=1.0,
        checkpoint_s=3.0,
        target=0.9,
        period_s=2.0,
        cooldown_s=5.0,
    ),
    measure=measure,
    report=report,
)
