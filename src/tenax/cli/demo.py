"""`tenax demo`: the traffic example on an embedded cluster that loses half of its nodes, and what came of it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tenax.cli import render
from tenax.cli.options import Given, configured, made
from tenax.cli.stopping import Stopping, interrupt, stopping
from tenax.cli.trials import duration, save_outcome
from tenax.errors import InvalidFile, InvalidRequest
from tenax.examples import app_path
from tenax.model.settings import Settings

if TYPE_CHECKING:
    from tenax.application.application import Application
    from tenax.chaos.record import Moment, Outcome
    from tenax.chaos.schedule import Schedule
    from tenax.cli.report import Account
    from tenax.engine.driver import Driver
    from tenax.engine.protection import Protected

RATE = 20_000.0  # locations a second, as in the papers' incident query
REPORTS = 98.0  # and what their drivers report
RACKS = 2
DEMO = Settings.of(
    nodes=4,
    racks=RACKS,
    replicas=4,  # none of `incidents`, which all of `jams` depends on: so tentative results are seen
    checkpoint_every=5,
    follow_load=1.0,  # replicas stay: what measured rates say differs from run to run, and a demo should not
    keep_batches=True,
)
EXTRA_SLOTS = 1  # so that a cluster that lost half of its nodes has no room for everything
FAULT_AT = 0.3  # of the run's time, and how much of it until nodes come back
BACK_AFTER = 0.2
BETWEEN = 0.12
ABOUT = (
    "Car locations (20,000 a second) and reports of incidents are joined into traffic jams, in batches of a second. "
    "Half of the nodes are killed at once, by SIGKILL, and their files deleted. Outputs go on with what is left: "
    "results that lack some of their inputs are tentative, with an estimate of their quality. Nodes return one by one, "
    "lost tasks catch up, and final results replace the tentative ones."
)


@configured(DEMO, without=("master", "racks", "keep_batches", "accept_changes", "upgrade", "drain"))
def demo_command(
    given: Given,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where store, results and report go.")] = Path(
        "out/demo"
    ),
    seconds: Annotated[int, typer.Option("--seconds", help="How long rows keep coming.", min=10)] = 45,
    seed: Annotated[int, typer.Option("--seed", help="Chooses which rack fails, and when.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as JSON.", show_default=False)
    ] = None,
) -> None:
    """Kill half of a cluster while it works, and watch outputs go on.

    20,000 car locations a second and what drivers report are joined into jams, on an embedded Spark cluster in two
    racks. All nodes of one rack are killed at once and return one after the other. In the end the same batches run
    again without failures, and every final result is compared, to the byte: the exit code is 1 if one differs.

    The report is in [bold]out/demo/report.html[/bold]. It takes about two minutes; Ctrl-C ends it in good order.
    """
    from tenax.chaos.record import Timeline
    from tenax.chaos.runs import TIMELINE, Around, Trial, TrialStopped, run_and_judge
    from tenax.engine.loading import load_application
    from tenax.engine.protection import planned
    from tenax.errors import StartStopped

    options: dict[str, object] = {
        "rows": int(RATE * seconds),
        "reports": int(REPORTS * seconds),
        "rate": RATE,
        "paced": True,
        "folder": str(out),
    }
    application = load_application(app_path("traffic"), options)
    settings = given.over(DEMO, application.topology).but(master=None, racks=RACKS, keep_batches=True)
    if settings.cluster.nodes < RACKS:
        raise InvalidRequest(
            f"a demo has a node in each of {RACKS} racks, found nodes {settings.cluster.nodes}: raise it"
        )
    _emptied(out)
    protected = planned(application.topology, settings.protection)
    if settings.cluster.slots is None:
        copies = application.topology.task_count + len(protected.replicas)
        settings = settings.but(slots=-(-copies // settings.cluster.nodes) + EXTRA_SLOTS)
    console = render.console()
    console.print(f"[dim]plan[/dim] {protected.line}", markup=True, soft_wrap=True)
    trial = Trial(settings, demo_schedule(seconds, settings.cluster.nodes, seed), seed)
    with stopping() as stops:
        shown = _Shown(application, stops)
        around = Around(
            origin_s=shown.begin,
            observers=(shown.view,),
            running=shown.running,
            status=console.status,
            stop_asked=lambda: stops.asked,
            in_place=True,
            protected=protected,
        )
        try:
            outcome = run_and_judge(application, out, trial, around=around)
        except (TrialStopped, StartStopped) as stopped:
            why = "the demo was stopped" if isinstance(stopped, TrialStopped) else str(stopped)
            console.print(Text(f"{why}: nothing was compared"), soft_wrap=True)
            return
    account = _account(shown, Timeline(out / TIMELINE).read(), outcome, protected)
    _tell(account, outcome, out, json_file)
    if not outcome.held:
        raise typer.Exit(1)


def demo_schedule(seconds: int, nodes: int, seed: int) -> Schedule:
    """A rack is killed when a third of the time is over; its nodes return one after the other."""
    from tenax.chaos.schedule import Fault, Kind, Unit, When

    dice = random.Random(seed)
    rack = dice.randint(1, RACKS)
    fault_s = seconds * (FAULT_AT + 0.1 * dice.random())
    count = len([place for place in range(nodes) if place % RACKS + 1 == rack])
    kill = Fault(Kind.KILL, f"rack{rack}", When(round(fault_s, 1), Unit.SECONDS))
    back = (
        Fault(
            Kind.RETURN,
            "1",
            When(round(fault_s + seconds * (BACK_AFTER + BETWEEN * min(number, 2)), 1), Unit.SECONDS),
        )
        for number in range(count)
    )
    return (kill, *back)


def _emptied(out: Path) -> None:
    """Remove what an earlier demo left; a folder of anything else is not touched."""
    made(out)
    if any(out.iterdir()) and not (out / "cluster").exists():
        raise InvalidFile(f"--out is an empty folder or one of an earlier demo, found {out}: name another")
    shutil.rmtree(out)
    made(out)


class _Shown:
    """The view of a demo while it runs; a signal asks the driver to stop, and afterwards interrupts the comparing."""

    def __init__(self, application: Application, stops: Stopping) -> None:
        from tenax.cli.outage_view import OutageView
        from tenax.cli.outages import Outages
        from tenax.model.graph import TaskGraph

        self.began_s, self.ended_s = time.monotonic(), 0.0
        graph = TaskGraph(application.topology)
        self.outages = Outages(graph, application.sinks, lambda: time.monotonic() - self.began_s)
        self.view = OutageView(self.outages, "traffic, 20,000 locations a second")
        self._stops = stops

    def begin(self) -> float:
        """Times count from now on."""
        self.began_s = time.monotonic()
        return self.began_s

    @contextmanager
    def running(self, driver: Driver) -> Iterator[None]:
        """While the driver runs, it is shown, and signals ask it to stop."""
        with self.view:
            self._stops.call(driver.request_stop)
            yield
            self.ended_s = self.outages.clock()
        self._stops.call(interrupt)  # comparing leaves nothing to finish


def _account(shown: _Shown, moments: Sequence[Moment], outcome: Outcome, protected: Protected) -> Account:
    from tenax.cli.report import Account, history

    title = "Half of the cluster is killed, outputs go on"
    timeline = history(shown.outages, moments, title, shown.ended_s)
    verdict = f"Held: {outcome.findings}." if outcome.held else f"FAILED: {outcome.findings}."
    figures = (*_figures(outcome), ("protection", protected.line))
    happenings = tuple(shown.outages.happenings)
    return Account("Tenax demo", ABOUT, verdict, outcome.held, figures, happenings, timeline)


def _figures(outcome: Outcome) -> Sequence[tuple[str, str]]:
    return (
        ("final results", f"{outcome.final_results:,} in {outcome.batches:,} batches"),
        ("lost, duplicated, different", f"{outcome.lost}, {outcome.duplicated}, {outcome.different}"),
        ("by the whole input", str(outcome.reference)),
        ("tentative results", f"{outcome.tentative_results:,}, corrected {outcome.corrected_results:,}"),
        ("failure noticed after", duration(outcome.detection_s)),
        ("next result after the failure", duration(outcome.first_output_after_failure_s)),
        ("all tasks back after", duration(outcome.all_recovered_s)),
        ("median time of a batch", duration(outcome.median_batch_s)),
    )


def _tell(account: Account, outcome: Outcome, out: Path, json_file: Path | None) -> None:
    """The summary for people, the report, the picture, and the figures for programs."""
    from tenax.cli.report import write_report
    from tenax.pictures.timeline import save_timeline

    write_report(account, out / "report.html")
    save_timeline(account.history, out / "timeline.png")
    save_outcome(outcome, json_file)
    console = render.console()
    console.print()
    console.print(render.facts("What came of it", account.figures))
    console.print()
    console.print(Text(account.verdict, style="bold green" if account.held else "bold red"))
    console.print(f"[dim]report[/dim]  {out / 'report.html'}    [dim]picture[/dim]  {out / 'timeline.png'}")
    console.print(f"[dim]next[/dim]    tenax inspect {out / 'store'}    tenax run --help")
