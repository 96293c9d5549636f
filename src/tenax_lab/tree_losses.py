"""One loss of nodes while the tree of windows runs: who is killed, how long outputs wait, whether they are exact."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tenax.chaos.record import Moment, What, finished_through, impacts
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.control.records import Data
from tenax.engine.driver import Driver
from tenax.errors import ClusterFailed
from tenax.model.graph import TaskGraph
from tenax.model.protection import Protection
from tenax.model.settings import Settings
from tenax_lab.lab import Bench, Row
from tenax_lab.loads.tree import MAX_ROWS, Arrival, Load, tree_topology, window_tree
from tenax_lab.recorder import RunRecorder
from tenax_lab.runs import run

NODES = 4
STANDBY = 2  # hold the replicas; the others hold all primaries
CLUSTER = f"local-cluster[{NODES},2,1024]: {STANDBY} standby, {NODES - STANDBY} with all primaries"
VICTIM = "o2[0]"  # the node of this task is the one that is killed where only one is; it has tasks of every operator
PER_ROUND = 8  # batches that a round of recovery takes at most
PASS_DEADLINE_S = 300.0  # on a machine with other things to do
PATIENT = "20s"  # nor is a node lost that waits for a processor; one that is killed is missed at once
WARM = 2  # batches that say nothing of how long one takes
LOSS, PUBLICATION = "loss", "publication"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A tree that runs while nodes are killed: what it has to do, how batches come, how it is protected."""

    load: Load
    arrival: Arrival
    protection: Protection
    kill: Fault


def lose(
    bench: Bench,
    scenario: Scenario,
    prepare: Callable[[RunRecorder, Driver, Path], None] = lambda _recorder, _driver, _folder: None,
) -> list[Row]:
    """Run the tree until all batches are final, kill nodes on the way, and let the oracle judge what was published."""
    application = window_tree(bench.seed, scenario.load, scenario.arrival)
    recorder = run(
        bench,
        application,
        run_settings(scenario.protection),
        heartbeat=PATIENT,
        faults=(scenario.kill,),
        judged=True,
        ends_after=scenario.arrival.batches,
        prepare=prepare,
    )
    return loss_rows(recorder.moments, recorder.lost, recorder.replayed, recorder.back_s, exact=recorder.exact is True)


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


def kill_after(load: Load, interval: int) -> int:
    """The batch after which nodes are killed: windows are full, and the next one would bring a checkpoint."""
    full = load.batches(load.window_s) + 1
    return -(-(full + 1) // interval) * interval - 1


def one_node(after: int) -> Fault:
    """The loss of a single node after so many batches."""
    return Fault(Kind.KILL, VICTIM, When(after, Unit.BATCHES))


def all_primaries(load: Load, after: int) -> Fault:
    """The loss of every node with a primary after so many batches."""
    graph = TaskGraph(tree_topology(load.rate))
    tasks = graph.tasks(range(len(graph)))
    return Fault(Kind.KILL, "+".join(map(str, tasks)), When(after, Unit.BATCHES))


def loss_rows(
    moments: Sequence[Moment], lost: Sequence[int], replayed: int, back_s: float | None, *, exact: bool
) -> list[Row]:
    """How the only loss of a run was met, and what was published of batches that were not finished then.

    Times of the row of the `loss` are in seconds from the kill, unless said otherwise:

    - `killed` nodes with `lost` tasks that are no sources; `detection_s` until the run knew.
    - `back_s` from that moment until every lost task was where it had been before: what the paper calls recovery.
    - `tentative_s` and `final_s` until the first tentative and the first final output of a new batch; `output_s` until
      the first of both. `batches` were run for the final one, of them `replayed` again, in so many `rounds`.
    - `whole_s` until no task was missing any more; `recovered_s` until then and until the first final output.
    - `batch_s` is what a batch took before the kill.
    """
    (impact,) = impacts(moments)
    known = max(position for position, moment in enumerate(moments) if moment.what is What.LOST)
    finished = finished_through(moments[:known])
    shown = list(publications(moments[known:], impact.at_s, finished))
    final = next((row for row in shown if not row["tentative"]), None)
    if impact.detection_s is None or impact.recovered_s is None or back_s is None or final is None:
        raise ClusterFailed(f"killed nodes are missed and their tasks come back, found {impact}: run it again")
    final_s, last = final["after_s"], final["last"]
    assert isinstance(final_s, float)
    assert isinstance(last, int)
    tentative_s = next((row["after_s"] for row in shown if row["tentative"]), None)
    rounds = sum(moment.what is What.PASS_ENDED and moment.detail["kind"] == "round" for moment in moments)
    loss: Row = {
        "what": LOSS,
        "killed": len(impact.nodes),
        "lost_tasks": len(lost),
        "detection_s": impact.detection_s,
        "back_s": back_s,
        "final_s": final_s,
        "tentative_s": tentative_s,
        "output_s": min(final_s, tentative_s) if isinstance(tentative_s, float) else final_s,
        "batches": replayed + last - finished,
        "replayed": replayed,
        "rounds": rounds,
        "whole_s": impact.recovered_s,
        "recovered_s": max(impact.recovered_s, final_s),
        "batch_time_s": usual_batch_s(moments),
        "exact": exact,
    }
    return [loss, *shown]


def publications(after: Sequence[Moment], killed_s: float, finished: int) -> Iterator[Row]:
    """What was published of batches that were not finished when nodes were lost; `quality` is what the run says."""
    for moment in after:
        match moment.what, moment.detail:
            case What.PUBLISHED, {
                "tentative": bool(tentative),
                "first": int(first),
                "last": int(last),
                "outputs": dict(outputs),
            } if last > finished:
                yield {
                    "what": PUBLICATION,
                    "after_s": moment.at_s - killed_s,
                    "tentative": tentative,
                    "first": max(first, finished + 1),
                    "last": last,
                    "quality": min(_quality(output) for output in outputs.values()),
                }
            case _:
                pass


def _quality(output: Data) -> float:
    """The worst quality of the parts of an output, as its publication tells."""
    match output:
        case {"quality": float(quality)}:
            return quality
    raise ClusterFailed(f"a publication tells the quality of its outputs, found {output!r}: correct the recorder")


def usual_batch_s(moments: Sequence[Moment]) -> float:
    """The median time of a batch in passes before the first fault; the first passes load what they need."""
    fault = next(position for position, moment in enumerate(moments) if moment.what is What.FAULT)
    spent = []
    for moment in moments[:fault]:
        match moment.what, moment.detail:
            case What.PASS_ENDED, {"kind": "live", "seconds": float(seconds), "first": int(first), "last": int(last)}:
                if first > WARM:
                    spent.append(seconds / (last - first + 1))
            case _:
                pass
    if not spent:
        raise ClusterFailed(f"a fault comes after more than {WARM} batches, found none later: kill later")
    return statistics.median(spent)
