"""One loss of nodes while the tree of windows runs: who is killed, how long outputs wait, whether they are exact."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tenax.chaos.injector import Injector
from tenax.chaos.oracle import judge, with_results_in
from tenax.chaos.record import Moment, Recorder, What, finished_through, impacts
from tenax.chaos.runs import RESULTS, STORE
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.control import events
from tenax.control.coordinator import Coordinator
from tenax.control.instructions import Decided, Outcome
from tenax.control.records import Data
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph
from tenax.model.protection import Protection
from tenax.model.settings import ClusterSettings, Settings
from tenax_lab.sides.sides import Series
from tenax_lab.tree_windows import Arrival, Ending, Load, tree_topology, window_tree

NODES = 4
STANDBY = 2  # hold the replicas; the others hold all primaries
VICTIM = "o2[0]"  # the node of this task is the one that is killed where only one is; it has tasks of every operator
PER_ROUND = 8  # batches that a round of recovery takes at most
PASS_DEADLINE_S = 300.0  # on a machine with other things to do
# nor is a node lost that waits for a processor; one that is killed is missed at once
PATIENT = ClusterSettings(NODES, heartbeat="20s")
MAX_ROWS = 1 << 30  # a batch is a span of time, however many rows it has
WARM = 2  # batches that say nothing of how long one takes


@dataclass(frozen=True, slots=True)
class Publication:
    """Results of some batches, so long after the kill; `quality` is what the run says of them."""

    after_s: float
    tentative: bool
    first: int
    last: int
    quality: float


@dataclass(frozen=True, slots=True)
class Facts:
    """How a loss of nodes was met; times are in seconds from the kill, unless said otherwise.

    - `killed` nodes with `lost` tasks that are no sources; `detection_s` until the run knew.
    - `back_s` from that moment until every lost task was where it had been before: what the paper calls recovery.
    - `final_s` until the first new batch was complete and final; `batches` were run for it, of them `replayed` again.
    - `whole_s` until no task was missing any more; `publications` are all since the kill, of batches not finished then.
    - `batch_s` is what a batch took before the kill.
    """

    killed: int
    lost: int
    detection_s: float
    back_s: float
    final_s: float
    batches: int
    replayed: int
    rounds: int
    whole_s: float
    batch_s: float
    exact: bool
    publications: tuple[Publication, ...] = ()

    @property
    def tentative_s(self) -> float | None:
        """Until the first tentative output; none if there was none."""
        return next((one.after_s for one in self.publications if one.tentative), None)

    @property
    def output_s(self) -> float:
        """Until the first output, final or tentative."""
        return self.final_s if self.tentative_s is None else min(self.final_s, self.tentative_s)


NUMBERS = (
    "killed",
    "lost",
    "detection_s",
    "back_s",
    "final_s",
    "batches",
    "replayed",
    "rounds",
    "whole_s",
    "batch_s",
    "exact",
)


def to_series(name: str, facts: Facts) -> Series:
    """As series, to travel between processes."""
    shown = facts.publications
    return {
        f"{name} numbers": [float(getattr(facts, one)) for one in NUMBERS],
        f"{name} published s": [one.after_s for one in shown],
        f"{name} tentative": [float(one.tentative) for one in shown],
        f"{name} first": [float(one.first) for one in shown],
        f"{name} last": [float(one.last) for one in shown],
        f"{name} quality": [one.quality for one in shown],
    }


def from_series(name: str, found: Mapping[str, Sequence[float]]) -> Facts:
    """What `to_series` made series of."""
    numbers = dict(zip(NUMBERS, found[f"{name} numbers"], strict=True))
    columns = (found[f"{name} {one}"] for one in ("published s", "tentative", "first", "last", "quality"))
    shown = tuple(
        Publication(after_s, bool(tentative), int(first), int(last), quality)
        for after_s, tentative, first, last, quality in zip(*columns, strict=True)
    )
    return Facts(
        killed=int(numbers["killed"]),
        lost=int(numbers["lost"]),
        detection_s=numbers["detection_s"],
        back_s=numbers["back_s"],
        final_s=numbers["final_s"],
        batches=int(numbers["batches"]),
        replayed=int(numbers["replayed"]),
        rounds=int(numbers["rounds"]),
        whole_s=numbers["whole_s"],
        batch_s=numbers["batch_s"],
        exact=bool(numbers["exact"]),
        publications=shown,
    )


@dataclass(frozen=True, slots=True)
class Ordeal:
    """A tree that runs while nodes are killed: what it has to do, how batches come, how it is protected."""

    seed: int
    load: Load
    arrival: Arrival
    protection: Protection
    kill: Fault


def lose(session: Session, ordeal: Ordeal, folder: Path, also: Sequence[Observer] = ()) -> Facts:
    """Run the tree until all batches are final, kill nodes on the way, and let the oracle judge what was published."""
    application = window_tree(ordeal.seed, ordeal.load, ordeal.arrival)
    watch, ending = Losses(TaskGraph(application.topology)), Ending(ordeal.arrival)
    recorder = Recorder(also=(watch, ending, *also))
    settings = run_settings(ordeal.protection)
    chaotic = with_results_in(application, folder / RESULTS)
    driver = Driver(chaotic, folder / STORE, settings, recorder, session)
    ending.driver = driver
    stop = Injector(session, NODES, (ordeal.kill,), recorder).run(driver)
    if stop.outcome is Outcome.FAILED:
        raise ClusterFailed(f"a measured run ends well, found {stop.reason}: correct that first")
    verdict = judge(application, folder / STORE, folder / RESULTS, session, NODES)
    return facts_of(recorder.moments, watch, exact=verdict.held)


def run_settings(protection: Protection) -> Settings:
    """How the driver runs it: a batch a pass, as when a run is not behind; the whole batch log stays for the oracle."""
    return Settings(protection=protection).but(
        nodes=NODES,
        standby_nodes=STANDBY,
        batch="0s",
        max_rows=MAX_ROWS,
        keep_batches=True,
        max_batches_per_pass=1,
        max_batches_ahead=17,
        max_unpublished=17,
        max_batches_per_round=PER_ROUND,
        pass_deadline=timedelta(seconds=PASS_DEADLINE_S),
    )


def one_node(after: int) -> Fault:
    """The loss of a single node after so many batches."""
    return Fault(Kind.KILL, VICTIM, When(after, Unit.BATCHES))


def all_primaries(load: Load, after: int) -> Fault:
    """The loss of every node with a primary after so many batches."""
    graph = TaskGraph(tree_topology(load))
    tasks = graph.tasks(range(len(graph)))
    return Fault(Kind.KILL, "+".join(map(str, tasks)), When(after, Unit.BATCHES))


class Losses(Observer):
    """Watches losses of nodes: which tasks were lost, what is replayed, when all were where they had been before."""

    def __init__(self, graph: TaskGraph) -> None:
        self._is_source = [graph.operators[number].is_source for number in graph.operator_of]
        self._homes: Mapping[int, str] = {}
        self._known_s = 0.0
        self._before = 0
        self.lost: set[int] = set()
        self.replayed = 0
        self.back_s: float | None = None

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        """Take down losses, and whether their tasks are back; the coordinator has learned of the event."""
        now_s, state = time.monotonic(), coordinator.state
        if isinstance(event, events.NodesLost):  # nodes that die together may be missed one after the other
            gone = set(event.nodes)
            self._before = self._before if self.lost else state.finished
            self.lost |= {one for one, home in self._homes.items() if home in gone and not self._is_source[one]}
            lowest = min((state.tasks[one].head.batch for one in self.lost), default=self._before)
            self.replayed = max(self.replayed, self._before - lowest)
            self._known_s, self.back_s = now_s, None
        if self.lost and self.back_s is None:
            back = (state.tasks[one] for one in self.lost)
            if all(one.primary is not None and one.head.batch >= self._before for one in back):
                self.back_s = now_s - self._known_s
        self._homes = {one: task.primary.node for one, task in enumerate(state.tasks) if task.primary is not None}


def facts_of(moments: Sequence[Moment], watch: Losses, *, exact: bool) -> Facts:
    """What the moments of a run say of its only loss."""
    (strike,) = impacts(moments)
    known = max(position for position, one in enumerate(moments) if one.what is What.LOST)
    finished = finished_through(moments[:known])
    shown = publications(moments[known:], strike.at_s, finished)
    final = next((one for one in shown if not one.tentative), None)
    if strike.detection_s is None or strike.recovered_s is None or watch.back_s is None or final is None:
        raise ClusterFailed(f"killed nodes are missed and their tasks come back, found {strike}: run it again")
    return Facts(
        killed=len(strike.nodes),
        lost=len(watch.lost),
        detection_s=strike.detection_s,
        back_s=watch.back_s,
        final_s=final.after_s,
        batches=watch.replayed + final.last - finished,
        replayed=watch.replayed,
        rounds=sum(one.what is What.PASS_ENDED and one.detail["kind"] == "round" for one in moments),
        whole_s=strike.recovered_s,
        batch_s=usual_batch_s(moments),
        exact=exact,
        publications=shown,
    )


def publications(after: Sequence[Moment], killed_s: float, finished: int) -> tuple[Publication, ...]:
    """What was published of batches that were not finished when nodes were lost."""
    found = []
    for one in after:
        match one.what, one.detail:
            case What.PUBLISHED, {
                "tentative": bool(tentative),
                "first": int(first),
                "last": int(last),
                "outputs": dict(outputs),
            } if last > finished:
                quality = min(_quality(output) for output in outputs.values())
                found.append(Publication(one.at_s - killed_s, tentative, max(first, finished + 1), last, quality))
            case _:
                pass
    return tuple(found)


def _quality(output: Data) -> float:
    """The worst quality of the parts of an output, as its publication tells."""
    match output:
        case {"quality": float(quality)}:
            return quality
    raise ClusterFailed(f"a publication tells the quality of its outputs, found {output!r}: correct the recorder")


def usual_batch_s(moments: Sequence[Moment]) -> float:
    """The median time of a batch in passes before the first fault; the first passes load what they need."""
    fault = next(position for position, one in enumerate(moments) if one.what is What.FAULT)
    spent = []
    for one in moments[:fault]:
        match one.what, one.detail:
            case What.PASS_ENDED, {"kind": "live", "seconds": float(seconds), "first": int(first), "last": int(last)}:
                if first > WARM:
                    spent.append(seconds / (last - first + 1))
            case _:
                pass
    if not spent:
        raise ClusterFailed(f"a fault comes after more than {WARM} batches, found none later: kill later")
    return statistics.median(spent)
