"""Tenax while nodes are killed and come back: when its results were there for readers, and whether they were right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application, Protection
from tenax.chaos.injector import Injector
from tenax.chaos.oracle import Verdict, judge, with_results_in
from tenax.chaos.record import Moment, Recorder, What, impacts, names
from tenax.chaos.runs import RESULTS, STORE, Trial
from tenax.chaos.schedule import Fault, Kind, Unit, When
from tenax.connectors.files import files
from tenax.connectors.parquet import parquet
from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.engine.driver import Driver
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.errors import ClusterFailed
from tenax.store.records import JsonObject, mapping, text
from tenax_lab.sides.failover_files import Ordeal, Seconds, newest_second
from tenax_lab.sides.sides import Series, Step, serve

OUTPUT = "results"
POLL_S = 0.05
REPLICAS, PASSIVE, BLOCKING = "replicas", "passive", "blocking"
SIDES = {REPLICAS: Protection(replicas="all"), PASSIVE: Protection(), BLOCKING: Protection(recovery="blocking")}


def measure(arguments: JsonObject, step: Step) -> Series:
    """Run the windowed mean as files appear, strike in between, ask the oracle, and tell what was shown when."""
    side, work = text(arguments, "side"), Path(text(arguments, "work"))
    ordeal = Ordeal.from_data(mapping(arguments["ordeal"]))
    session = Session(work / "cluster", ordeal.nodes)
    seconds = Seconds(ordeal, work / "appearing")
    app = application(seconds.folder, work / RESULTS / OUTPUT, ordeal.nodes)
    watched = _run(app, trial(SIDES[side], ordeal), work, session, seconds, ordeal.tail_s)
    verdict = judge(app, work / STORE, work / RESULTS, session, ordeal.nodes)
    step(f"Tenax, {side}")
    session.stop()
    return {"appeared s": seconds.appeared_s, **watched, **_judged(verdict)}


def application(inputs: Path, results: Path, partitions: int) -> Application:
    """The query as a user of Tenax writes it; files lie in folders, one for each second."""
    topology = Topology("means")
    source = files(inputs / "locations" / "*" / "*.parquet", time="ts", follow=True)
    locations = topology.source("locations", source, partitions=partitions)
    means = locations.key_by("segment").window("10s", every="1s").aggregate(pl.col("speed").mean(), name="means")
    means.output(OUTPUT, parquet(results))
    return topology.build()


def trial(protection: Protection, ordeal: Ordeal) -> Trial:
    """The run of a side: batches of one second of input, and one rack that dies and returns."""
    back_s = ordeal.kill_after_s + ordeal.away_s
    schedule = (
        Fault(Kind.KILL, "rack1", When(ordeal.kill_after_s, Unit.SECONDS)),
        Fault(Kind.RETURN, "all", When(back_s, Unit.SECONDS)),
    )
    return Trial(ordeal.nodes, ordeal.racks, protection, ordeal.interval_s, ordeal.shape.batch_rows, schedule)


@dataclass(frozen=True, slots=True)
class Publication:
    """Results that one task of the output published at a moment, on the clock of `time.time`."""

    at_s: float
    partition: int
    first: int
    last: int
    tentative: bool


@dataclass(slots=True)
class Publications(Observer):
    """Remembers who published what and when, as an observer of a run; `begin` is called when its nodes are there."""

    begin: Callable[[], None]
    found: list[Publication] = field(default_factory=list)
    _asked: dict[tuple[str, bool], instructions.Publish] = field(default_factory=dict)

    def handled(self, _: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """Note what an answer means: results are there from now on."""
        now_s = time.time()
        if isinstance(event, events.Started):
            self.begin()
        if isinstance(event, events.Published):
            asked = self._asked.pop((str(event.pass_id), event.tentative), None)
            self.found += [
                Publication(now_s, part.task.index, part.first, part.last, event.tentative)
                for part in (asked.parts if asked is not None else ())
                if part.task.operator == OUTPUT
            ]
        for one in then:
            if isinstance(one, instructions.Publish):
                self._asked[str(one.pass_id), one.tentative] = one


def shown(publications: Sequence[Publication], seconds: dict[int, int], partitions: int) -> Series:
    """What readers saw: after each publication, which share of a batch's partitions was final or only tentative.

    `seconds` has the second of input of each batch that has results; a batch without any shows nothing.
    """
    final: dict[int, set[int]] = {}
    tentative: dict[int, set[int]] = {}
    moments: dict[tuple[float, int], tuple[float, float]] = {}
    for one in publications:
        for batch in range(one.first, one.last + 1):
            (tentative if one.tentative else final).setdefault(batch, set()).add(one.partition)
            done, open_ones = final.get(batch, set()), tentative.get(batch, set())
            moments[one.at_s, batch] = (len(done) / partitions, len(open_ones - done) / partitions)
    rows = [(at_s, seconds[batch], *shares) for (at_s, batch), shares in moments.items() if batch in seconds]
    names_of = ("shown s", "shown second", "shown final", "shown tentative")
    return {name: [float(row[place]) for row in rows] for place, name in enumerate(names_of)}


def _run(app: Application, how: Trial, work: Path, session: Session, seconds: Seconds, tail_s: float) -> Series:
    """Run under faults until all input is final; it begins to appear when the nodes are there."""
    publications = Publications(seconds.start)
    recorder = Recorder(also=(publications,))
    origin_s = time.time() - recorder.now_s
    settings = how.settings(app.topology)
    driver = Driver(with_results_in(app, work / RESULTS), work / STORE, settings, recorder, session)
    injector = Injector(session, how.nodes, how.schedule, recorder)
    over = threading.Event()
    end = threading.Thread(target=_end, args=(driver, injector, seconds, tail_s, over), daemon=True)
    end.start()
    try:
        stop = injector.run(driver)
    finally:
        over.set()
        end.join()
    if stop.outcome is instructions.Outcome.FAILED:
        raise ClusterFailed(f"a run under faults ends well, found {stop.reason}: correct that first")
    told = shown(publications.found, _seconds(work / RESULTS / OUTPUT), how.nodes)
    return {**told, **_faults(recorder.moments, origin_s)}


def _end(driver: Driver, injector: Injector, seconds: Seconds, tail_s: float, over: threading.Event) -> None:
    """End the input some time after the last fault, and the run when all of it is final."""
    while injector.unreached:
        if over.wait(POLL_S):
            return
    over.wait(tail_s)
    seconds.stop()
    seconds.join()
    while driver.publisher.final < len(seconds.appeared_s):  # a batch is a second
        if over.wait(POLL_S):
            return
    driver.request_stop()


def _seconds(results: Path) -> dict[int, int]:
    """The second of input of each batch that has results."""
    by_batch: dict[int, list[Path]] = {}
    for path in results.glob("*.parquet"):
        by_batch.setdefault(int(path.name.split("-b")[1].split("-")[0]), []).append(path)
    found = {batch: newest_second(paths) for batch, paths in by_batch.items()}
    return {batch: second for batch, second in found.items() if second is not None}


def _faults(moments: Sequence[Moment], origin_s: float) -> Series:
    """When nodes were killed and could return, and when the run knew."""
    killed, returned = (one for one in moments if one.what is What.FAULT)
    (strike,) = impacts(moments)
    return {
        "killed s": [origin_s + killed.at_s],
        "returned s": [origin_s + returned.at_s],
        "killed": [float(len(names(killed.detail["nodes"])))],
        "detection s": [] if strike.detection_s is None else [strike.detection_s],
    }


def _judged(verdict: Verdict) -> Series:
    return {
        "exact": [float(verdict.held)],
        "tentative": [float(verdict.tentative)],
        "corrected": [float(verdict.corrected)],
    }


if __name__ == "__main__":
    serve(measure)
