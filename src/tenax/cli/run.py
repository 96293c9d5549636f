"""`tenax run`: run an application until it ends or is stopped."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tenax.cli import render
from tenax.cli.arguments import check_standby, name_values, overridden
from tenax.cli.options import Given, HeartbeatEvery, MissedHeartbeats, StandbyNodes, protecting
from tenax.control.instructions import Outcome, Stop
from tenax.errors import TenaxError


@protecting
def run_command(
    given: Given,
    file: Annotated[Path, typer.Argument(metavar="APP.PY", help="A Python file with a [bold]topology[/bold].")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments for the file's build(...).")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes of the embedded cluster.", min=1)] = 2,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="A Spark master instead, like spark://host:7077.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Where the run is kept; start again to go on.")
    ] = None,
    batch: Annotated[str, typer.Option("--batch", metavar="TIME", help="Time between batches.")] = "1s",
    max_rows: Annotated[int, typer.Option("--max-rows", help="The most rows of a batch, per source.", min=1)] = 100_000,
    racks: Annotated[
        int | None, typer.Option("--racks", metavar="N", help="Deal the nodes out among N racks.", min=1)
    ] = None,
    standby_nodes: StandbyNodes = 0,
    heartbeat: HeartbeatEvery = "5s",
    missed: MissedHeartbeats = 3,
) -> None:
    """Run an application on Spark: an embedded cluster by default, any Spark master otherwise.

    Bounded sources end the run. Otherwise Ctrl-C ends it in good order: running batches finish, a last checkpoint is
    stored. Run the same command again to go on exactly where it ended, also after a crash.

    While it runs it shows rows/s, and [bold]latency[/bold]: from when a batch's ranges are known until its results are
    published. [bold]lag[/bold] of an output: event time between the newest row read and what its published results
    cover. [bold]state[/bold]: bytes of operator states on the nodes. [bold]store[/bold]: bytes kept to go on from.
    [bold]protection[/bold]: the part of the processor time that replicas, retained outputs and checkpoints took.

    The exit code is 0 if the run ended well, 2 if it failed or could not begin, 3 if a newer driver took its store
    over, 130 if it was interrupted at once. Run it again after 2, once the cause is mended, and after 130.

    Nodes may be lost and come back meanwhile. How that is met is said by [bold]topology.protect(...)[/bold] in the
    file, or by the options from --replicas on, which win over it.

    Example: tenax run examples/apps/traffic.py --nodes 4 --racks 2 --replicas 8 --store out/traffic

    Example: tenax run examples/apps/traffic.py --checkpoint sweeping --standby incidents=active
    """
    from tenax.cli.live import LiveView
    from tenax.engine.application import check_rebuilt
    from tenax.engine.driver import Driver
    from tenax.engine.loading import load_application
    from tenax.engine.protection import planned
    from tenax.engine.session import Heartbeat
    from tenax.engine.settings import RunSettings
    from tenax.engine.sources.source import Limits
    from tenax.operators.durations import microseconds

    if master is None:
        check_standby(standby_nodes, nodes)
    application = load_application(file, name_values(options or []))
    protected = planned(application.topology, overridden(application.protection, given))
    settings = protected.settings(
        RunSettings(
            nodes=nodes,
            master=master,
            batch_s=microseconds(batch) / 1e6,
            limits=Limits(max_rows),
            racks=racks,
            standby_nodes=standby_nodes,
            heartbeat=Heartbeat(microseconds(heartbeat) / 1e6, missed),
        )
    )
    check_rebuilt(application, settings.control.strategy, settings.strategies)
    folder = store or Path("out") / application.topology.name / "store"
    view = LiveView(application, folder)
    driver = Driver(application, folder, settings, view)
    with view:
        view.told(protected.line)
        stop_on_interrupt(driver.request_stop)
        stop = driver.run()
    view.summary(stop)
    failed(stop, folder, view.trace)


def failed(stop: Stop, folder: Path, trace: str = "") -> None:
    """Raise if a run ended because it could not go on, or because another driver does."""
    if stop.outcome is Outcome.FAILED:
        reason = stop.reason.removesuffix(" and start again")
        raise RunFailed(f"{reason}: start again with --store {folder} to go on" if stop.resumable else reason, trace)
    if stop.outcome is Outcome.SUPERSEDED:
        raise Superseded(f"{stop.reason} {folder}: this one has stopped, and the other goes on with the run")


class RunFailed(TenaxError):
    """A run ended because it could not go on; `details` is the traceback of the user's code, if that was the cause."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class Superseded(TenaxError):
    """A newer driver has taken the store over."""


def stop_on_interrupt(request_stop: object) -> None:
    """The first Ctrl-C asks for a good end, the second ends at once."""

    def interrupted(_: int, __: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert callable(request_stop)
        request_stop()
        render.console().print("[dim]finishing the running batches; Ctrl-C again ends at once[/dim]")

    signal.signal(signal.SIGINT, interrupted)
