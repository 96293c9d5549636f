"""`tenax run`: run an application until it ends or is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenax.cli.arguments import check_standby, name_values, names, overridden
from tenax.cli.options import AcceptChanges, Given, HeartbeatEvery, MissedHeartbeats, StandbyNodes, protecting
from tenax.cli.stopping import stopping
from tenax.control.instructions import Outcome, Stop
from tenax.errors import RunFailed, Superseded


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
    accept_changes: AcceptChanges = None,
    strict_lateness: Annotated[
        bool, typer.Option("--strict-lateness", help="Stop at the first batch with late rows, before it is published.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Read what the sources have now, close every window and end.")
    ] = False,
) -> None:
    """Run an application on Spark: an embedded cluster by default, any Spark master otherwise.

    Bounded sources end the run. Otherwise Ctrl-C (or SIGTERM, or SIGHUP) ends it in good order: running batches finish,
    a last checkpoint is stored, exit code 0. Ctrl-C again ends it at once, exit code 130. Run the same command again to
    go on exactly where it ended, also after a crash.

    While it runs it shows rows/s, and [bold]latency[/bold]: from when a batch's ranges are known until its results are
    published. [bold]lag[/bold] of an output: event time between the newest row read and what its published results
    cover. [bold]state[/bold]: bytes of operator states on the nodes. [bold]store[/bold]: bytes kept to go on from.
    [bold]protection[/bold]: the part of the processor time that replicas, retained outputs and checkpoints took.

    The store remembers your code. Changed operators without state go on with the next batch, and the run says so;
    where a state is of the old code, the run is refused with what has changed, operator by operator, until you put it
    back or accept with --accept-changes that these operators start empty.

    Rows that come later than their source's [bold]lateness[/bold] allows are dropped and told of: their share, from
    which partitions, and which lateness would have kept 99.9 %. --strict-lateness stops instead. "w waits for s[1]"
    says that the windows of w wait for a partition that is behind the others.

    The exit code is 0 if the run ended well, 2 if it failed or could not begin, 3 if a newer driver took its store
    over, 130 if it was interrupted at once. Run it again after 2, once the cause is mended, and after 130.

    Nodes may be lost and come back meanwhile. How that is met is said by [bold]topology.protect(...)[/bold] in the
    file, or by the options from --replicas on, which win over it.

    Example: tenax run examples/apps/traffic.py --nodes 4 --racks 2 --replicas 8 --store out/traffic

    Example: tenax run examples/apps/traffic.py --checkpoint sweeping --standby incidents=active

    Example: tenax run examples/apps/traffic.py length=20s --store out/traffic --accept-changes speed-window,incidents
    """
    from tenax.application.application import check_rebuilt
    from tenax.batching.batches import check_drained
    from tenax.cli.live import LiveView
    from tenax.connectors.source import Limits
    from tenax.engine.driver import Driver
    from tenax.engine.loading import load_application
    from tenax.engine.protection import planned
    from tenax.engine.session import Heartbeat
    from tenax.engine.settings import RunSettings
    from tenax.model.durations import microseconds
    from tenax.takeover.admission import admitted

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
            accept_changes=names(accept_changes),
            strict_lateness=strict_lateness,
            drain=drain,
        )
    )
    check_rebuilt(application, settings.control.strategy, settings.strategies)
    if drain:
        check_drained(application)
    folder = store or Path("out") / application.topology.name / "store"
    admitted(application, folder.resolve(), application.fingerprint(), settings.accept_changes)
    view = LiveView(application, folder)
    with stopping() as stops:
        driver = Driver(application, folder, settings, view)
        view.follow(driver.latecomers)
        with view:
            view.said(protected.line)
            stops.call(driver.request_stop)
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
