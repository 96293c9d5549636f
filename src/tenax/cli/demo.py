"""`tenax demo`: the traffic example on an embedded cluster, for about a minute."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tenax.cli import render
from tenax.cli.options import made
from tenax.examples import app_path

RATE = 20_000.0  # locations a second, as in the papers' incident query
REPORTS = 98.0  # and what their drivers report
SHOWN_ROWS = 8


def demo_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where store and results go.")] = Path("out/demo"),
    seconds: Annotated[int, typer.Option("--seconds", help="How long rows keep coming.", min=5)] = 40,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes of the embedded cluster.", min=1)] = 2,
) -> None:
    """Run the traffic example: 20,000 car locations a second and what drivers report, joined into jams.

    It starts an embedded Spark cluster, shows the run while it goes on, and what it found in the end.
    """
    from tenax.cli.live import LiveView
    from tenax.cli.run import failed, stop_on_interrupt
    from tenax.engine.driver import Driver, RunSettings
    from tenax.engine.loading import load_application
    from tenax.engine.sinks.parquet import read_committed

    shutil.rmtree(made(out), ignore_errors=True)
    options: dict[str, object] = {
        "rows": int(RATE * seconds),
        "reports": int(REPORTS * seconds),
        "rate": RATE,
        "paced": True,
        "folder": str(out),
    }
    application = load_application(app_path("traffic"), options)
    with LiveView(application, out / "store") as view:
        driver = Driver(application, out / "store", RunSettings(nodes=nodes), view)
        stop_on_interrupt(driver.request_stop)
        stop = driver.run()
    view.summary(stop)
    failed(stop, out / "store")
    jams = read_committed(out / "jams")
    console = render.console()
    console.print(f"\n[bold]The last of {jams.height:,} jams[/bold] in {out / 'jams'}")
    rows = [[_shown(value) for value in row] for row in jams.tail(SHOWN_ROWS).rows()]
    console.print(render.table("", jams.columns, rows))
    console.print(f"\n[dim]next[/dim] tenax inspect {out / 'store'}    [dim]or[/dim] tenax run --help")


def _shown(value: object) -> str:
    """A value as it fits into a table."""
    if isinstance(value, float):
        return render.number(value)
    return value.strftime("%H:%M:%S") if isinstance(value, datetime) else str(value)
