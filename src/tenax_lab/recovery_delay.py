"""How long results stay away when a node is lost: detection, redeployment and replay, and what the output shows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import polars as pl

from tenax.chaos.injector import Injector
from tenax.chaos.oracle import judge, with_results_in
from tenax.chaos.record import Moment, Recorder, What, impacts
from tenax.chaos.runs import RESULTS, STORE
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.control.instructions import Outcome
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import ClusterFailed
from tenax.model.protection import Protection, Recovery, Strategy
from tenax.model.settings import ClusterSettings, Settings
from tenax.store.records import Json, JsonObject, integer, items, mapping, number, text
from tenax_lab.element_chain import NODES, Load, chain, chain_plan
from tenax_lab.processes import run_side
from tenax_lab.recovery_delay_findings import ACTIVE, Case, Plan, findings
from tenax_lab.results import Findings, Progress
from tenax_lab.sides.sides import Series, Step, serve

SIDE = "tenax_lab.recovery_delay"
DEADLINE_S = 3_600.0
VICTIM = "pe5[0]"  # on the third of the four nodes, with pe6
OUTPUT = "pe8"

FULL = Plan(
    rate=3_000,
    batch_s=0.5,
    after=10,
    interval=8,
    intervals=(4, 8, 16),
    heartbeats_s=(0.5, 1.0, 2.0),
    heartbeat_s=1.0,
    repeats=3,
)
QUICK = Plan(
    rate=400,
    batch_s=0.5,
    after=3,
    interval=3,
    intervals=(3,),
    heartbeats_s=(5.0,),
    heartbeat_s=5.0,
    repeats=1,
)


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Lose a node in run after run; those with other heartbeats need a cluster of their own."""
    plan = QUICK if quick else FULL
    cases = plan.cases()
    progress.total(len(cases))
    found: Series = {}
    with tempfile.TemporaryDirectory(prefix="tenax-recovery-delay-") as folder:
        for heartbeat_s in dict.fromkeys(one.heartbeat_s for one in cases):
            asked: dict[str, Json] = {
                "work": str(Path(folder, f"heartbeat-{heartbeat_s:g}")),
                "seed": seed,
                "rate": plan.rate,
                "batch_s": plan.batch_s,
                "after": plan.after,
                "cases": [one.to_json() for one in cases if one.heartbeat_s == heartbeat_s],
            }
            found |= run_side(SIDE, asked, deadline_s=DEADLINE_S, step=progress.advance).series
    return findings(plan, found)


@dataclass(frozen=True, slots=True)
class Pace:
    """How elements come: so many a second, in batches of `batch_s`; the run ends `after` batches after the strike."""

    seed: int
    rate: int
    batch_s: float
    after: int


def measure(arguments: JsonObject, step: Step) -> Series:
    """All cases of one cluster."""
    work = Path(text(arguments, "work"))
    cases = [Case.from_json(mapping(one)) for one in items(arguments["cases"])]
    pace = Pace(
        integer(arguments, "seed"),
        integer(arguments, "rate"),
        number(arguments, "batch_s"),
        integer(arguments, "after"),
    )
    session = Session(work / "cluster", ClusterSettings(NODES, heartbeat=timedelta(seconds=cases[0].heartbeat_s)))
    found: Series = {}
    try:
        for position, case in enumerate(cases):
            found |= lose(session, work / f"run-{position}", pace, case)
            step(case.name)
    finally:
        session.stop()
    return found


def protection(case: Case) -> Protection:
    """What a case asks for. All results depend on what is lost, so nothing goes on meanwhile."""
    return Protection(
        replicas="all" if case.standby == ACTIVE else 0,
        recovery=Recovery.BLOCKING.value,
        checkpoint=Strategy.SWEEPING.value,
        checkpoint_every=case.interval,
    )


def lose(session: Session, work: Path, pace: Pace, case: Case) -> Series:
    """Run the chain as the clock goes, strike a node, and ask the oracle about all results."""
    batch_rows = round(pace.rate * pace.batch_s)
    load = Load(case.struck_at + pace.after, batch_rows)
    application = chain(pace.seed, load, work / RESULTS, rate=pace.rate, paced=True)
    schedule = (Fault(Kind(case.fault), VICTIM, When(case.struck_at, Unit.BATCHES)),)
    settings = Settings(protection=protection(case)).but(
        nodes=NODES, batch=timedelta(seconds=pace.batch_s), max_rows=batch_rows, keep_batches=True
    )
    plan = chain_plan(application, settings.protection)
    recorder = Recorder()
    driver = Driver(with_results_in(application, work / RESULTS), work / STORE, settings, recorder, session, plan)
    stop = Injector(session, NODES, schedule, recorder).run(driver)
    if stop.outcome is not Outcome.FINISHED:
        raise ClusterFailed(f"a run under faults finishes, found {stop.reason}: correct that first")
    exact = judge(application, work / STORE, work / RESULTS, session, NODES).held
    told = {**delay(recorder.moments), **shown(recorder.moments, sequences(work / RESULTS / OUTPUT))}
    return {f"{case.name} {name}": values for name, values in {**told, "exact": [float(exact)]}.items()}


def delay(moments: Sequence[Moment]) -> Series:
    """The parts of the recovery delay, one after the other, in seconds.

    Detection ends when the run knows that the node is gone, redeployment when it begins to run what was lost again (or
    goes on, if nothing was), replay when that is through, and the first new pass when its results are there.
    """
    (strike,) = impacts(moments)
    if strike.detection_s is None or strike.first_output_s is None:
        raise ClusterFailed(f"a struck node is missed and results come again, found {strike}: run it again")
    known_s, output_s = strike.at_s + strike.detection_s, strike.at_s + strike.first_output_s
    begun = [one for one in moments if one.what is What.PASS_BEGUN and known_s <= one.at_s <= output_s]
    live = [one.at_s for one in begun if one.detail["kind"] == "live"]
    if not live:
        raise ClusterFailed(f"new results come of a new pass, found {strike} without one: run it again")
    first_s, live_s = begun[0].at_s, live[0]
    return {
        "detection s": [strike.detection_s],
        "redeployment s": [first_s - known_s],
        "replay s": [live_s - first_s],
        "new pass s": [output_s - live_s],
        "replayed batches": [float(replayed([one for one in begun if one.at_s < live_s]))],
    }


def replayed(begun: Sequence[Moment]) -> int:
    """How many batches rounds run again."""
    found: set[int] = set()
    for one in begun:
        match one.detail:
            case {"kind": "round", "first": int(first), "last": int(last)}:
                found |= set(range(first, last + 1))
            case _:
                pass
    return len(found)


def shown(moments: Sequence[Moment], newest: dict[int, int]) -> Series:
    """Seconds since the strike, and the highest sequence number among the results that are final by then."""
    (strike,) = impacts(moments)
    times: list[float] = []
    numbers: list[float] = []
    for one in moments:
        match one.what, one.detail:
            case What.PUBLISHED, {"tentative": False, "last": int(last)} if last in newest:
                times.append(one.at_s - strike.at_s)
                numbers.append(float(newest[last]))
            case _:
                pass
    return {"shown s": times, "shown sequence": numbers}


def sequences(results: Path) -> dict[int, int]:
    """The highest sequence number of each batch that has results."""
    found: dict[int, int] = {}
    for path in results.glob("*.parquet"):
        highest = pl.read_parquet(path, columns=["sequence"])["sequence"].max()
        if isinstance(highest, int):
            batch = int(path.name.split("-b")[1].split("-")[0])
            found[batch] = max(highest, found.get(batch, 0))
    return found


if __name__ == "__main__":
    serve(measure)
