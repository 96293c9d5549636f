"""`tenax run`: run an application until it ends or is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenax.cli.arguments import name_values
from tenax.cli.options import Given, configured
from tenax.cli.stopping import stopping
from tenax.control.instructions import Outcome, Stop
from tenax.errors import RunFailed, Superseded
from tenax.model.settings import Settings


@configured(Settings())
def run_command(
    given: Given,
    file: Annotated[Path, typer.Argument(metavar="APP.PY", help="A Python file with a [bold]topology[/bold].")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments for the file's build(...).")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Where the run is kept; start again to go on.")
    ] = None,
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
    back or accept with --accept-changes that these operators start empty. --upgrade lets other code take the store
    over: operators may come and go, unchanged ones keep their states, and it says what becomes of each.

    Rows that come later than their source's [bold]lateness[/bold] allows are dropped and told of: their share, from
    which partitions, and which lateness would have kept 99.9 %. --strict-lateness stops instead. "w waits for s[1]"
    says that the windows of w wait for a partition that is behind the others.

    The exit code is 0 if the run ended well, 2 if it failed or could not begin, 3 if a newer driver took its store
    over, 130 if it was interrupted at once. Run it again after 2, once the cause is mended, and after 130.

    Nodes may be lost and come back meanwhile. How that is met is said by [bold]topology.protect(...)[/bold] in the
    file, by a settings file (--config), which wins over it, or by options, which win over both.

    Example: tenax run examples/apps/traffic.py --nodes 4 --racks 2 --replicas 8 --store out/traffic

    Example: tenax run examples/apps/traffic.py --checkpoint sweeping --standby incidents=active

    Example: tenax run examples/apps/traffic.py --plan plan.json

    Example: tenax run examples/apps/traffic.py length=20s --store out/traffic --accept-changes speed-window,incidents

    Example: tenax run examples/apps/traffic.py length=20s --store out/traffic --upgrade
    """
    from tenax.application.application import check_rebuilt
    from tenax.batching.batches import check_drained
    from tenax.cli.live import LiveView
    from tenax.engine.driver import Driver
    from tenax.engine.loading import load_application
    from tenax.engine.protection import planned
    from tenax.takeover.admission import admitted

    application = load_application(file, name_values(options or []))
    settings = given.over(
        Settings(protection=application.protection, elastic=application.elastic), application.topology
    )
    plan = planned(application.topology, settings.protection)
    check_rebuilt(application, settings.protection)
    if settings.start.drain:
        check_drained(application)
    folder = store or Path("out") / application.topology.name / "store"
    start, fingerprint = settings.start, application.fingerprint()
    admitted(application, folder.resolve(), fingerprint, start.accept_changes, upgrade=start.upgrade)
    view = LiveView(application, folder)
    with stopping() as stops:
        driver = Driver(application, folder, settings, view, plan=plan)
        view.follow(driver.latecomers)
        with view:
            view.said(plan.line)
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
