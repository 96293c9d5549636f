"""Trials: a run under faults, from its settings to the outcome that both judges give."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
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
from tenax.engine.observer import Observer
from tenax.engine.protection import Protected
from tenax.engine.session import Session
from tenax.errors import ClusterFailed, InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.options import ALL
from tenax.model.protection import Backups, Outputs, Protection, Recovery, Strategy
from tenax.model.settings import Settings

STORE, RESULTS, CLUSTER, TIMELINE = "store", "results", "cluster", "timeline.jsonl"  # in the folder of a trial


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything that says what is run under which faults; equal trials do the same, up to timing."""

    settings: Settings = CHAOS
    schedule: Schedule = ()
    seed: int | None = None

    @property
    def nodes(self) -> int:
        """How many nodes there are before anything fails."""
        return self.settings.cluster.executors


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


class TrialStopped(ClusterFailed):
    """A trial was asked to stop before it could be judged."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a command does around a trial.

    - `origin_s` is asked when the driver is made: from when on times count, on the monotonic clock.
    - `observers` watch the run.
    - `running` holds while the driver runs; `status` while something takes long that is not the run itself.
    - Once `stop_asked` says so, a session that starts gives up.
    - `in_place`: results stay where the application puts them, which is below the trial's folder; else its sinks are
      put there.
    - `protected` is what was planned for its protection; it is planned if it is not given.
    """

    origin_s: Callable[[], float] = time.monotonic
    observers: Sequence[Observer] = ()
    running: Callable[[Driver], AbstractContextManager[object]] = nullcontext
    status: Callable[[str], AbstractContextManager[object]] = nullcontext
    stop_asked: Callable[[], bool] = lambda: False
    in_place: bool = False
    protected: Protected | None = None


def run_and_judge(
    application: Application, out: Path, trial: Trial, session: Session | None = None, around: Around | None = None
) -> Outcome:
    """Run an application under faults to its good end, on a session of its own if none is given, and ask both judges.

    Faults that drivers before this one have met, by the timeline in `out`, are not made again.
    """
    around = around or Around()
    if session is not None and any(fault.kind is Kind.DRIVER for fault in trial.schedule):
        raise InvalidRequest("a driver is killed in a process of its own, found --kill-driver: use `tenax chaos`")
    out.mkdir(parents=True, exist_ok=True)
    timeline, results = Timeline(out / TIMELINE), out if around.in_place else out / RESULTS
    with ExitStack() as stack:
        if session is None:
            with around.status(f"starting {trial.nodes} nodes"):
                session = Session(out / CLUSTER, trial.settings.cluster, stop_asked=around.stop_asked)
            stack.callback(session.stop)
        _run(application, out, trial, session, around)
        with around.status("running the same batches again without failures, to compare"):
            verdict = judge(application, out / STORE, results, session, trial.nodes)
    with around.status("computing all outputs from the whole input at once, to compare"):
        judgement = judge_by_input(application, out / STORE, results)
    return outcome(trial, timeline.read(), verdict, judgement)


def _run(application: Application, out: Path, trial: Trial, session: Session, around: Around) -> None:
    check_tasks(trial.schedule, TaskGraph(application.topology))
    running = application if around.in_place else with_results_in(application, out / RESULTS)
    timeline = Timeline(out / TIMELINE)
    earlier, recorder = timeline.read(), Recorder(timeline.append, around.origin_s(), also=around.observers)
    driver = Driver(running, out / STORE, trial.settings, recorder, session, around.protected)
    injector = Injector(session, trial.nodes, trial.schedule, recorder, earlier, trial.settings.cluster.most_nodes)
    with around.running(driver):
        stop = injector.run(driver)
    if stop.outcome is Ending.STOPPED:
        raise TrialStopped(f"a run under faults is judged when it has finished, found it stopped: {stop.reason}")
    if stop.outcome is not Ending.FINISHED:
        raise ClusterFailed(f"a run under faults finishes, found {stop.outcome}: {stop.reason}: see {out / TIMELINE}")


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
