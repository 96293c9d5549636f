"""Trials: a run under faults, from its settings to the outcome that both judges give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.application.application import Application
from tenax.chaos.injector import Injector
from tenax.chaos.oracle import Verdict, judge, with_results_in
from tenax.chaos.record import Moment, Outcome, Recorder, Timeline, What, impacts, median_batch_s, worst
from tenax.chaos.reference import Judgement, judge_by_input
from tenax.chaos.schedule import Kind, Schedule, check_tasks
from tenax.chaos.settings import CHAOS
from tenax.control.instructions import Outcome as Ending
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import ClusterFailed, InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.options import ALL
from tenax.model.protection import Backups, Outputs, Protection, Recovery, Strategy
from tenax.model.settings import Settings

STORE, RESULTS, TIMELINE = "store", "results", "timeline.jsonl"


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything that says what is run under which faults; equal trials do the same, up to timing."""

    settings: Settings = CHAOS
    schedule: Schedule = ()
    seed: int | None = None

    @property
    def nodes(self) -> int:
        """How many nodes there are before anything fails."""
        return self.settings.cluster.nodes


def varied(number: int, *, checkpoint_every: int = 6) -> Protection:
    """A protection for the n-th of many trials: neighbours differ, and many meet every combination."""
    return Protection(
        replicas=(0, 4, ALL)[number % 3],
        recovery_latency="2s" if number % 4 == 1 else None,
        backups=list(Backups)[number % 4],
        recovery=Recovery.BLOCKING if number % 5 == 3 else Recovery.INCREMENTAL,
        outputs=Outputs.HOLD if number % 5 == 1 else Outputs.TENTATIVE,
        checkpoint_every=checkpoint_every,
        checkpoint=list(Strategy)[number % 7 % len(Strategy)],
    )


def run_trial(
    application: Application, out: Path, trial: Trial, session: Session, recorder: Recorder, earlier: Sequence[Moment]
) -> None:
    """Run an application under faults to its good end; `earlier` is what drivers before this one have met."""
    chaotic = with_results_in(application, out / RESULTS)
    check_tasks(trial.schedule, TaskGraph(application.topology))
    driver = Driver(chaotic, out / STORE, trial.settings, recorder, session)
    injector = Injector(session, trial.nodes, trial.schedule, recorder, earlier)
    stop = injector.run(driver)
    if stop.outcome is not Ending.FINISHED:
        raise ClusterFailed(f"a run under faults finishes, found {stop.outcome}: {stop.reason}: see {out / TIMELINE}")


def run_and_judge(application: Application, out: Path, trial: Trial, session: Session) -> Outcome:
    """Run an application under faults in this process, then ask both judges; for schedules that spare the driver."""
    if any(fault.kind is Kind.DRIVER for fault in trial.schedule):
        raise InvalidRequest("a driver is killed in a process of its own, found --kill-driver: use `tenax chaos`")
    out.mkdir(parents=True, exist_ok=True)
    timeline = Timeline(out / TIMELINE)
    recorder = Recorder(timeline.append)
    run_trial(application, out, trial, session, recorder, ())
    verdict = judge(application, out / STORE, out / RESULTS, session, trial.nodes)
    judgement = judge_by_input(application, out / STORE, out / RESULTS)
    return outcome(trial, recorder.moments, verdict, judgement)


def outcome(trial: Trial, moments: Sequence[Moment], verdict: Verdict, judgement: Judgement) -> Outcome:
    """What chaos found: a run has held if both judges say so."""
    faults = impacts(moments)
    last = (
        moment.detail["last"] for moment in moments if moment.what is What.PUBLISHED and not moment.detail["tentative"]
    )
    return Outcome(
        held=verdict.held and judgement.held,
        final_equals_failure_free=not (verdict.lost or verdict.duplicated or verdict.different),
        lost=len(verdict.lost),
        duplicated=len(verdict.duplicated),
        different=len(verdict.different),
        final_results=verdict.final,
        tentative_results=verdict.tentative,
        corrected_results=verdict.corrected,
        detection_s=worst(impact.detection_s for impact in faults),
        first_output_after_failure_s=worst(impact.first_output_s for impact in faults),
        all_recovered_s=worst(impact.recovered_s for impact in faults),
        median_batch_s=median_batch_s(moments),
        batches=max((batch for batch in last if isinstance(batch, int)), default=0),
        drivers=sum(moment.what is What.STARTED for moment in moments),
        schedule=tuple(str(fault) for fault in trial.schedule),
        unreached=unreached(trial.schedule, moments),
        seed=trial.seed,
        faults=faults,
        findings=f"{verdict}; {judgement}",
        reference=judgement,
        settings=trial.settings.resolved().to_data(),
    )


def unreached(schedule: Schedule, moments: Sequence[Moment]) -> tuple[str, ...]:
    """The faults whose time did not come, as written."""
    made = {moment.detail["number"] for moment in moments if moment.what is What.FAULT}
    return tuple(str(fault) for number, fault in enumerate(schedule) if number not in made)
