"""Running a topology from Python, in a script or a notebook: to its end, or until it is interrupted."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import polars as pl

from tenax.api.interrupts import interruptible
from tenax.api.results import in_order
from tenax.api.streams import Stream, Topology
from tenax.application.application import Application, check_rebuilt, late_output
from tenax.connectors.delivery import callback
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.errors import InvalidRequest, RunFailed, StartStopped, Superseded
from tenax.model.plan_files import read_plan
from tenax.model.settings import Settings

if TYPE_CHECKING:
    from tenax.api.progress import Progress

STORE = "store"  # in a temporary folder
COLLECTED = "collected"  # the output of a stream whose rows are asked for


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run has done.

    - `outcome` is "finished" if the sources have ended, "stopped" if it was interrupted; a run that fails raises.
    - `batches` are published, `rows` were read; `outputs` says by name where results are.
    - `store` is where the run can be gone on from; None if it was a temporary one.
    """

    outcome: str
    batches: int
    rows: int
    seconds: float
    outputs: Mapping[str, str] = field(default_factory=dict)
    store: Path | None = None

    def __str__(self) -> str:
        batches = f"{self.batches:,} batch{'es' * (self.batches != 1)}"
        return f"{self.outcome}: {batches}, {self.rows:,} rows in {self.seconds:.1f} s"


def run(
    topology: Topology | Application,
    *,
    store: str | Path | None = None,
    plan: str | Path | None = None,
    quiet: bool = False,
    **settings: Any,
) -> RunResult:
    """Run a topology on Spark until its sources end or Ctrl-C: on an embedded cluster, or on a master.

        result = tx.run(topology, nodes=2, store="out/run")

    - With a `store` the next run goes on where this one ended; without, it is temporary and goes with the run.
    - `settings` are those of `protect(...)`, which they win over, and all others that `docs/running.md` lists: `nodes`,
      `master`, `batch`, `max_rows`, `racks`, `accept_changes`, `upgrade`, `drain`.
    - A `plan` is a file that `tenax plan all app.py ... --json` has printed: its replicas and backups, which stay as
      they are, in place of those of `protect(...)`.
    - Ctrl-C lets the running batches finish, stores a checkpoint and returns; a second one interrupts at once.
    - It says on standard error how far it is, unless it shall be `quiet`.
    - An embedded cluster stays up for the next run of this process, if that asks for the same nodes, and ends with it.
    """
    application = topology.build() if isinstance(topology, Topology) else topology
    if not isinstance(application, Application):
        raise InvalidRequest(f"run takes a tx.Topology, found {type(topology).__name__}: pass one")
    from tenax.api.progress import Progress

    progress = Progress(application, quiet=quiet)
    if plan is not None:
        settings |= read_plan(Path(plan), application.topology, beside=settings)
    if store is not None:
        return _ran(application, Path(store), settings, progress, temporary=False)
    with tempfile.TemporaryDirectory(prefix="tenax-run-") as folder:
        progress.said("the store is temporary: pass store=... to be able to go on")
        result = _ran(application, Path(folder) / STORE, settings, progress, temporary=True)
    return replace(result, store=None)


@overload
def collect(what: Stream, *, quiet: bool = False, **settings: Any) -> pl.DataFrame: ...


@overload
def collect(what: Topology | Application, *, quiet: bool = False, **settings: Any) -> dict[str, pl.DataFrame]: ...


def collect(
    what: Stream | Topology | Application, *, quiet: bool = False, **settings: Any
) -> pl.DataFrame | dict[str, pl.DataFrame]:
    """The final results of bounded sources: of a stream one frame, of a topology a frame for each output by name.

    - Rows are sorted by `window_end` and `window_start`, if they have these, then by the other columns of times, then
      by all others, each from left to right; so the same input gives the same frame.
    - It runs on an embedded cluster, as `run` does with the same `settings`; sinks of the topology are not touched.
    - For a test that needs no cluster see `tx.testing.run`.
    """
    single = isinstance(what, Stream)
    if isinstance(what, Stream):
        application = until(what, COLLECTED).build()
    elif isinstance(what, Topology | Application):
        application = what.build() if isinstance(what, Topology) else what
    else:
        raise InvalidRequest(f"collect takes a stream or a topology, found {type(what).__name__}: pass one")
    endless = [name for name, source in application.sources.items() if not source.bounded]
    if endless and not settings.get("drain"):
        raise InvalidRequest(
            f"results are collected when all sources have ended, found {endless[0]!r}, which never does: bound it, or "
            "pass drain=True"
        )
    from tenax.api.progress import Progress

    with tempfile.TemporaryDirectory(prefix="tenax-collect-") as name:
        folder = Path(name)
        sinks = {output: ParquetSink(folder / "results" / output) for output in application.sinks}
        kept = replace(application, sinks=sinks)
        result = _ran(kept, folder / STORE, settings, Progress(kept, quiet=quiet), temporary=True)
        if result.outcome != "finished":
            raise KeyboardInterrupt  # what is there is not all, and must not be taken for it
        frames = {output: _frame(kept, output) for output in sinks}
    return frames[COLLECTED] if single else frames


def until(stream: Stream, output: str) -> Topology:
    """A topology of its own that has what a stream is made of, and one output: that stream."""
    whole = stream.topology
    wanted = {stream.operator}
    for operator in reversed(whole._operators.values()):  # consumers come after their producers
        if operator.name in wanted:
            wanted |= {producer.operator for producer in operator.inputs}
    part = Topology(whole.name)
    part._operators = {name: operator for name, operator in whole._operators.items() if name in wanted}
    part._sources = {name: source for name, source in whole._sources.items() if name in wanted}
    part._computations = {name: known for name, known in whole._computations.items() if name in wanted}
    part._keys = {ends: keys for ends, keys in whole._keys.items() if ends[1] in wanted}
    part._places = dict(whole._places)
    replace(stream, topology=part).output(output, callback(_ignore))
    return part


def _ignore(batch: int, partition: int, rows: pl.DataFrame) -> None:
    """Do nothing with a result: it is read where it is kept."""


def stop_cluster() -> None:
    """End the embedded cluster that runs of this process have left up for the next one; without one, do nothing."""
    from tenax.engine.kept import end

    end()


def _frame(application: Application, output: str) -> pl.DataFrame:
    sink = application.sinks[output]
    assert isinstance(sink, ParquetSink)
    rows = read_committed(sink.folder)
    if rows.width:
        return in_order(rows)
    of = next((name for name in application.sources if late_output(name) == output), output)
    return pl.DataFrame(schema=application.schemas.get(of))


def _ran(
    application: Application,
    folder: Path,
    given: Mapping[str, Any],
    progress: Progress,
    *,
    temporary: bool,
) -> RunResult:
    """Run it with its store in a folder; raise if it could not go on."""
    from tenax.batching.batches import check_drained
    from tenax.control.instructions import Outcome
    from tenax.engine import kept
    from tenax.engine.driver import Driver
    from tenax.engine.loading import ship_modules_in
    from tenax.engine.protection import planned
    from tenax.takeover.admission import admitted

    began_s = time.monotonic()
    settings = Settings(protection=application.protection, elastic=application.elastic).but(**given)
    plan = planned(application.topology, settings.protection)
    check_rebuilt(application, settings.protection)
    if settings.start.drain:
        check_drained(application)
    ship_modules_in(_folder_of_main())
    start, fingerprint = settings.start, application.fingerprint()
    admitted(application, folder.resolve(), fingerprint, start.accept_changes, upgrade=start.upgrade)
    if plan.replicas or plan.retain:
        progress.said(plan.line)
    with interruptible() as interrupts, contextlib.ExitStack() as stack:
        session = None
        if settings.cluster.master is None:
            try:
                session = stack.enter_context(kept.session(settings.cluster, lambda: interrupts.asked))
            except StartStopped:
                raise KeyboardInterrupt from None
        driver = Driver(application, folder, settings, progress, session, plan)
        interrupts.call(driver.request_stop)
        stop = driver.run()
    took_s = time.monotonic() - began_s
    if stop.outcome is Outcome.FAILED:
        remedy = "" if temporary or not stop.resumable else f": run it again with store={str(folder)!r} to go on"
        error = RunFailed(f"{stop.reason.removesuffix(' and start again')}{remedy}", progress.trace)
        if progress.trace:
            error.add_note(progress.trace)
        raise error
    if stop.outcome is Outcome.SUPERSEDED:
        raise Superseded(f"{stop.reason} {folder}: this one has stopped, and the other goes on with the run")
    outcome = "finished" if stop.outcome is Outcome.FINISHED else "stopped"
    places = {name: sink.place for name, sink in application.sinks.items()}
    result = RunResult(outcome, progress.batches, progress.rows, took_s, places, folder)
    progress.said(str(result))
    return result


def _folder_of_main() -> Path:
    """Where the program lies, or works if it is typed in: what it imports from there travels with it."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).resolve().parent if isinstance(file, str) else Path.cwd()
