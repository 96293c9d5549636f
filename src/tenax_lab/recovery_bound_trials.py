"""The measuring side: how long the steps of each task take, then one loss of a node after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tenax.application.application import Application
from tenax.chaos.injector import Injector
from tenax.chaos.oracle import judge, with_results_in
from tenax.chaos.record import Recorder, impacts
from tenax.chaos.runs import RESULTS, STORE
from tenax.chaos.schedule import Kind, parse_fault
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.control.versions import PassId
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.engine.worker.orders import Report
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph
from tenax.model.protection import Protection, Recovery
from tenax.model.settings import ClusterSettings, Settings
from tenax.model.tasks import Task
from tenax.store.records import Json, JsonObject, integer, items, mapping, number, text
from tenax_lab.recovery_bound_model import Facts, Round, Stepped, sources, to_series
from tenax_lab.recovery_bound_tree import Load, merge_tree
from tenax_lab.sides.sides import Series, Step, serve

PASS_DEADLINE_S = 300.0  # of a pass on a machine with other things to do


@dataclass(frozen=True, slots=True)
class Pace:
    """How a run goes: checkpoints every `interval` batches, passes and rounds of `per_pass` batches."""

    load: Load
    interval: int
    per_pass: int
    seed: int

    @property
    def batches(self) -> int:
        """The length of a run: one interval before the loss, one with it."""
        return 2 * self.interval

    @property
    def struck_at(self) -> int:
        """The batch after which a node is killed: the next pass would bring the next checkpoint."""
        return self.batches - self.per_pass

    def settings(self, protection: Protection, nodes: int) -> Settings:
        """How the driver runs it: a round takes as many batches as a pass, whatever outputs are retained."""
        return Settings(protection=protection).but(
            nodes=nodes,
            batch="0s",
            max_rows=self.load.batch_rows,
            keep_batches=True,
            max_batches_per_pass=self.per_pass,
            max_batches_ahead=17,
            max_unpublished=17,
            max_batches_per_round=self.per_pass,
            pass_deadline=timedelta(seconds=PASS_DEADLINE_S),
        )

    def to_json(self) -> dict[str, Json]:
        """As plain data."""
        return {
            "sensors": self.load.sensors,
            "resamples": self.load.resamples,
            "interval": self.interval,
            "per_pass": self.per_pass,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> Pace:
        """What `to_json` made plain."""
        load = Load(integer(data, "sensors"), integer(data, "resamples"))
        return cls(load, integer(data, "interval"), integer(data, "per_pass"), integer(data, "seed"))


def protection(pace: Pace, bound_s: float, recovery: Recovery) -> Protection:
    """What a user asks for who wants lost tasks back within a bound."""
    return Protection(
        recovery_latency=f"{round(bound_s * 1_000_000)}us", recovery=recovery.value, checkpoint_every=pace.interval
    )


def measure(arguments: JsonObject, step: Step) -> Series:
    """The part that is asked for, in a session of its own."""
    work, nodes = Path(text(arguments, "work")), integer(arguments, "nodes")
    pace = Pace.from_json(mapping(arguments["pace"]))
    session = Session(work / "cluster", ClusterSettings(nodes))
    try:
        if text(arguments, "part") == "times":
            return measure_times(session, work, pace, integer(arguments, "batches"), step)
        return measure_losses(session, work, pace, arguments, step)
    finally:
        session.stop()


@dataclass(slots=True)
class StepTimes(Observer):
    """Watches a run without failures: the seconds that each task takes for a batch, pass by pass."""

    batch_s: dict[int, list[float]] = field(default_factory=dict)

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:  # noqa: ARG002
        """A pass has finished."""
        for one in reports:
            self.batch_s.setdefault(one.task, []).append(one.seconds / (last - first + 1))


def measure_times(session: Session, work: Path, pace: Pace, batches: int, step: Step) -> Series:
    """Seconds per batch of every task; the first half warms the processes up."""
    application = with_results_in(merge_tree(pace.seed, pace.load, batches), work / RESULTS)
    watch = StepTimes()
    settings = pace.settings(Protection(checkpoint_every=pace.interval), len(session.nodes))
    _finished(Driver(application, work / STORE, settings, watch, session).run())
    step("time of the steps, without failures")
    return {f"batch s {task}": seconds[len(seconds) // 2 :] for task, seconds in watch.batch_s.items()}


def measure_losses(session: Session, work: Path, pace: Pace, arguments: JsonObject, step: Step) -> Series:
    """One run for each loss that is asked for."""
    times = mapping(arguments["times_s"])
    application = merge_tree(pace.seed, pace.load, pace.batches, [number(times, task) for task in times])
    found: Series = {}
    for position, asked in enumerate(map(mapping, items(arguments["losses"]))):
        facts = lose(session, work / f"run-{position}", pace, application, asked)
        found |= to_series(str(position), facts)
        step(text(asked, "label"))
    return found


def lose(session: Session, work: Path, pace: Pace, application: Application, asked: JsonObject) -> Facts:
    """Run the application, kill a node just before a checkpoint is due, and watch the way back."""
    graph = TaskGraph(application.topology)
    watch = WayBack(graph)
    recorder = Recorder(also=(watch,))
    how = protection(pace, number(asked, "bound_s"), Recovery(text(asked, "recovery")))
    settings = pace.settings(how, len(session.nodes))
    chaotic = with_results_in(application, work / RESULTS)
    driver = Driver(chaotic, work / STORE, settings, recorder, session)
    schedule = (parse_fault(Kind.KILL, f"{text(asked, 'kill')}@{pace.struck_at}b"),)
    _finished(Injector(session, settings.cluster.nodes, schedule, recorder).run(driver))
    exact = None
    if asked["judge"]:
        exact = judge(application, work / STORE, work / RESULTS, session, settings.cluster.nodes).held
    (strike,) = impacts(recorder.moments)
    if strike.detection_s is None or strike.recovered_s is None or not watch.lost:
        raise ClusterFailed(f"a killed node is missed and its tasks come back, found {strike}: run it again")
    return Facts(
        lost=tuple(watch.lost),
        retained=tuple(map(graph.number, driver.plan.retain)),
        detection_s=strike.detection_s,
        recovery_s=strike.recovered_s - strike.detection_s,
        back_s=tuple(watch.back_s[task] for task in watch.lost),
        replayed=watch.replayed,
        rounds=tuple(watch.rounds),
        exact=exact,
    )


class WayBack(Observer):
    """Watches one loss: who was lost, what each round did, when each lost task was back."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        self._is_source = sources(graph)
        self._homes: Mapping[int, str] = {}
        self._begun: dict[PassId, tuple[float, instructions.RunPass]] = {}
        self._lost_s = 0.0
        self.lost: list[int] = []
        self.rounds: list[Round] = []
        self.back_s: dict[int, float] = {}
        self.replayed = 0

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """Take down losses and rounds; called after the coordinator has learned of the event."""
        now_s = time.monotonic()
        tasks = coordinator.state.tasks
        match event:
            case events.NodesLost() if not self.lost:
                self._lost_s = now_s
                gone = set(event.nodes)
                self.lost = [one for one, home in self._homes.items() if home in gone and not self._is_source[one]]
                lowest = min((tasks[one].batch for one in self.lost), default=0)
                self.replayed = coordinator.state.finished - lowest
            case events.PassFinished() if event.pass_id in self._begun:
                self.rounds.append(self._round(event, now_s))
        for one in self.lost:
            if one not in self.back_s and tasks[one].batch >= coordinator.state.finished:
                self.back_s[one] = now_s - self._lost_s
        self._begun |= {
            one.pass_id: (now_s, one)
            for one in then
            if isinstance(one, instructions.RunPass) and one.kind is instructions.PassKind.ROUND
        }
        self._homes = {one: task.primary.node for one, task in enumerate(tasks) if task.primary is not None}

    def _round(self, event: events.PassFinished, now_s: float) -> Round:
        begun_s, told = self._begun.pop(event.pass_id)
        names = sorted({one.node for one in event.reports})
        return Round(
            told.first,
            told.last,
            now_s - begun_s,
            tuple(Stepped(self._number(one.version.task), names.index(one.node), one.busy_s) for one in event.reports),
            tuple(self._number(one.task) for one in told.readings),
        )

    def _number(self, task: Task) -> int:
        return self._graph.number(task)


def _finished(stop: instructions.Stop) -> None:
    if stop.outcome is not instructions.Outcome.FINISHED:
        raise ClusterFailed(f"a measured run finishes, found {stop.outcome} ({stop.reason}): correct that first")


if __name__ == "__main__":
    serve(measure)
