"""A run of an application for a measurement: watched by the one recorder, under faults and judged if asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.chaos.injector import Injector
from tenax.chaos.oracle import judge, with_results_in
from tenax.chaos.record import What
from tenax.chaos.runs import RESULTS, STORE
from tenax.chaos.schedule import Fault
from tenax.control import events
from tenax.control.instructions import Outcome
from tenax.control.run import Place
from tenax.engine.driver import Driver
from tenax.engine.protection import Protected
from tenax.errors import ClusterFailed
from tenax.model.durations import Span
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax_lab.lab import Bench
from tenax_lab.loads.layered import Tap
from tenax_lab.recorder import Kind, RunRecorder

PATIENT = "60s"  # where nothing fails, a node on a busy machine must not pass for one that hangs
SELDOM = 1_000_000  # batches between checkpoints where there are to be none


def run(
    bench: Bench,
    application: Application,
    settings: Settings,
    *,
    plan: Protected | None = None,
    heartbeat: Span = PATIENT,
    faults: Sequence[Fault] = (),
    judged: bool = False,
    ends_after: int | None = None,
    stopped: bool = False,
    by_task: bool = False,
    place: Place | None = None,
    prepare: Callable[[RunRecorder, Driver, Path], None] = lambda _recorder, _driver, _folder: None,
) -> RunRecorder:
    """Run to the end on the bench's cluster; an end that is not good is an error: its measurements would mean nothing.

    - Results go to a folder of the trial's own, `folder / RESULTS / <output>`.
    - `ends_after` asks for the end when so many batches are final, of a source that has none; `stopped` says that what
      `prepare` has set up does so.
    - `place` says where tasks begin; without it they are spread as in any run.
    - `judged` lets the oracle say whether final results are those of a run without failures, to the byte (`exact`).
    """
    settings = settings.but(heartbeat=heartbeat, keep_batches=settings.batches.keep_batches or judged)
    session = bench.session(settings.cluster)
    settings = settings.but(nodes=bench.nodes - (settings.cluster.pool if bench.given is not None else 0))
    cluster = settings.cluster
    folder = bench.folder()
    recorder = RunRecorder(TaskGraph(application.topology), by_task=by_task)
    chaotic = with_results_in(application, folder / RESULTS)
    driver = Driver(chaotic, folder / STORE, settings, recorder, session, plan, place)
    recorder.driver, recorder.folder = driver, folder
    if ends_after is not None:
        last_wanted = ends_after
        recorder.after_publication.append(lambda last: driver.request_stop() if last >= last_wanted else None)
    prepare(recorder, driver, folder)
    injector = Injector(session, cluster.executors, tuple(faults), recorder, most=cluster.most_nodes)
    stop = injector.run(driver) if faults else driver.run()
    if stop.outcome is not (Outcome.STOPPED if stopped or ends_after is not None else Outcome.FINISHED):
        raise ClusterFailed(f"a measured run ends well, found {stop.outcome} ({stop.reason}): correct that first")
    if judged:
        recorder.verdict = judge(application, folder / STORE, folder / RESULTS, session, cluster.nodes)
        recorder.exact = recorder.verdict.held
    return recorder


def tapped(recorder: RunRecorder, tap: Tap, faults: int, after_s: float) -> None:
    """Open a tap of rows when the first results are final, and close it so long after the last of so many faults."""
    recorder.after_publication.append(lambda _: tap.open())

    def look(_: events.Event) -> None:
        made = [moment.at_s for moment in recorder.moments if moment.what is What.FAULT]
        if len(made) >= faults and recorder.now_s > made[-1] + after_s:
            tap.close()

    recorder.after_event.append(look)


def rows_per_s(recorder: RunRecorder, warmup: int) -> float:
    """Rows per second from when the warm-up batches were final to the last publication."""
    final, passes = recorder.of(Kind.FINAL), recorder.of(Kind.PASS)
    begun_s, begun = final.filter(pl.col("last") >= warmup).select("at_s", "last").row(0)
    ended_s, ended = final.select("at_s", "last").row(-1)
    rows = passes.filter(pl.col("first") > begun, pl.col("first") <= ended)["rows"].sum()
    return float(rows / (ended_s - begun_s))
