"""`tenax chaos`: run an application under real faults, and let two judges compare its results."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from tenax.chaos.settings import CHAOS
from tenax.cli import render
from tenax.cli.arguments import name_values
from tenax.cli.options import Given, configured, made
from tenax.cli.stopping import interrupted_by_all
from tenax.cli.trials import duration, save_outcome
from tenax.errors import InvalidFile

if TYPE_CHECKING:
    from tenax.chaos.record import Moment, Outcome
    from tenax.chaos.schedule import Schedule

Faults = list[str] | None
OWN = ("store", "results", "replay", "cluster", "timeline.jsonl", "outcome.json", "driver.log")


@configured(CHAOS, without=("master", "keep_batches", "accept_changes", "upgrade", "drain"))
def chaos_command(
    given: Given,
    file: Annotated[Path, typer.Argument(metavar="APP.PY", help="A Python file with a [bold]topology[/bold].")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments for the file's build(...).")
    ] = None,
    kill: Annotated[Faults, typer.Option("--kill", metavar="WHAT@WHEN", help="Nodes die; may be repeated.")] = None,
    hang: Annotated[Faults, typer.Option("--hang", metavar="WHAT@WHEN", help="Nodes stop answering.")] = None,
    hang_workers: Annotated[
        Faults, typer.Option("--hang-workers", metavar="WHAT@WHEN", help="Only the Python workers of nodes do.")
    ] = None,
    back: Annotated[Faults, typer.Option("--return", metavar="N@WHEN", help="So many nodes come back.")] = None,
    rescale: Annotated[
        Faults,
        typer.Option(
            "--rescale",
            metavar="OPERATOR=TASKS@WHEN",
            help="Operators are asked to have so many tasks, and the run so many nodes: speed=4,nodes=6@10s.",
        ),
    ] = None,
    random_rescales_: Annotated[
        int,
        typer.Option("--random-rescales", metavar="N", help="Draw so many rescales from the seed, too.", min=0),
    ] = 0,
    kill_driver: Annotated[
        Faults, typer.Option("--kill-driver", metavar="WHEN", help="The driver dies, and a new one goes on.")
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Draw faults from a seed.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The seed of --random.")] = 1,
    within: Annotated[
        int, typer.Option("--within", metavar="N", help="The batches over which --random spreads faults.", min=3)
    ] = 30,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything goes.")] = Path("out/chaos"),
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the outcome as JSON.", show_default=False)
    ] = None,
) -> None:
    """Kill nodes, racks or the driver of a running application, and check that no result is lost, repeated or wrong.

    Afterwards the same batches run again without failures, and every final result is compared, to the byte. Then every
    output is computed from the whole input at once, without batches or cluster, and compared by key and window; floats
    may differ by 1e-9. Outputs of which the whole input does not tell enough are named. The exit code is 0 if all are
    equal, 1 if not, and 130 if Ctrl-C ended it before.

    The faults are real signals, sent only to processes that this command has started. [bold]WHAT[/bold] is a number of
    nodes (those with the most tasks), all, a rack (rack1), or the nodes of tasks ('speed[0]+join[1]').

    [bold]WHEN[/bold] is 10s: after the first result; 12b: when batch 12 is finished; 1r: when the first round of
    recovery begins; 2c: when the second checkpoint begins. Nodes stay away until a --return, or until the run cannot
    go on without them. A new driver begins with all nodes.

    Results go to the application's own kinds of sinks, at places of their own below --out; where a sink cannot be read
    back (a function, the console), to Parquet files instead.

    Example: tenax chaos examples/apps/traffic.py rows=800000 paced=1 --kill rack1@10s --return 1@20s --kill-driver 30s

    Example: tenax chaos examples/apps/traffic.py rows=800000 --max-rows 20000 --random --seed 7 --replicas all
    """
    from tenax.application.application import check_rebuilt
    from tenax.application.scaling import scaling_groups
    from tenax.chaos.process import run_in_processes
    from tenax.chaos.runs import RESULTS, Trial
    from tenax.chaos.schedule import Kind, check, check_tasks, parse_fault, random_rescales, random_schedule
    from tenax.chaos.trial_sinks import replaced_outputs
    from tenax.engine.loading import load_application
    from tenax.engine.protection import planned
    from tenax.model.graph import TaskGraph

    texts = {
        Kind.KILL: kill,
        Kind.HANG: hang,
        Kind.HANG_WORKERS: hang_workers,
        Kind.RETURN: back,
        Kind.RESCALE: rescale,
        Kind.DRIVER: kill_driver,
    }
    schedule: Schedule = tuple(parse_fault(kind, text) for kind, each in texts.items() for text in each or [])
    arguments = name_values(options or [])
    application = load_application(file, arguments)  # mistakes are told now, not by a child
    settings = given.over(
        replace(CHAOS, protection=application.protection, elastic=application.elastic), application.topology
    ).but(master=None, keep_batches=True)
    nodes, racks = settings.cluster.executors, settings.cluster.racks
    schedule += random_schedule(seed, nodes, racks or 1, within) if random else ()
    able = [group.operators[0] for group in scaling_groups(application) if not group.reason]
    schedule += random_rescales(seed, able, random_rescales_, within, nodes)
    check(schedule, nodes, racks)
    check_tasks(schedule, TaskGraph(application.topology))
    check_rebuilt(application, settings.protection)
    trial = Trial(settings, schedule, seed if random else None)
    console = Console(stderr=True, highlight=False)
    console.print(Text(f"plan: {planned(application.topology, settings.protection).line}"), soft_wrap=True)
    console.print(Text(f"faults: {' '.join(map(str, schedule)) or 'none'}"), soft_wrap=True)
    replaced = replaced_outputs(application, out / RESULTS)
    if replaced:
        words = "results of these outputs cannot be read back, so they go to Parquet files"
        console.print(Text(f"{words}: {', '.join(replaced)}"), soft_wrap=True)
    emptied(out)
    with interrupted_by_all():
        outcome = run_in_processes(file, arguments, out, trial, lambda moment: tell(console, moment))
    save_outcome(outcome, json_file)
    summary(file.stem, outcome, out)
    if not outcome.held:
        raise typer.Exit(1)


def emptied(out: Path) -> None:
    """Remove what an earlier trial left; a folder of anything else is not touched."""
    strange = sorted(path.name for path in made(out).iterdir() if path.name not in OWN)
    if strange:
        raise InvalidFile(
            f"--out is an empty folder or one of an earlier chaos, found {strange[0]} in {out}: name another"
        )
    shutil.rmtree(out)
    made(out)


def tell(console: Console, moment: Moment) -> None:
    """Say what happened, if it is about faults."""
    text = words(moment)
    if text:
        console.print(Text(f"{moment.at_s:7.1f} s  {text}"), soft_wrap=True)


def words(moment: Moment) -> str:
    """A moment for people, in the narrator's words where it has some; empty if it is nothing out of the ordinary."""
    from tenax.chaos.record import What, names

    match moment.what, moment.detail:
        case What.FAULT, {"fault": fault}:
            nodes = ", ".join(names(moment.detail.get("nodes")))
            return f"{fault}{f': {nodes}' if nodes else ''}"
        case What.PUBLISHED, {"tentative": True, "first": first, "last": last}:
            return f"tentative results of batches {first} to {last}"
        case What.OUTAGE_BEGUN, {"missing": missing, "affected": affected}:
            return f"{missing} tasks are missing, {affected} affected"
        case What.OUTAGE_ENDED, _:
            return "all tasks are back"
        case What.STOPPED, {"text": text}:
            return f"{text}; now the same batches without failures, and the whole input at once"
        case _:
            return str(moment.detail.get("text", ""))


def summary(name: str, outcome: Outcome, out: Path) -> None:
    """What came of a trial, for people."""
    console = render.console()
    pairs: list[tuple[str, str | Text]] = [
        ("verdict", Text(outcome.findings, style="green" if outcome.held else "bold red")),
        ("lost, duplicated, different", f"{outcome.lost}, {outcome.duplicated}, {outcome.different}"),
        ("by the whole input: lost, extra, different", _by_input(outcome)),
        *(("not judged by the whole input", output) for output in outcome.reference.not_judged),
        ("tentative results", f"{outcome.tentative_results:,}, corrected {outcome.corrected_results:,}"),
        ("batches, drivers", f"{outcome.batches:,}, {outcome.drivers}"),
        ("median time of a batch", duration(outcome.median_batch_s)),
        *((fault, "did not happen: the run was over before") for fault in outcome.unreached),
    ]
    console.print(render.facts(f"Chaos of {name}", pairs))
    rows = [
        [impact.fault, duration(impact.detection_s), duration(impact.first_output_s), duration(impact.recovered_s)]
        for impact in outcome.faults
    ]
    if rows:
        console.print(render.table("", ["fault", "noticed after", "next result", "all back"], rows))
    console.print(f"[dim]timeline[/dim] {out / 'timeline.jsonl'}")


def _by_input(outcome: Outcome) -> str:
    judged = outcome.reference
    counts = f"{judged.lost}, {judged.extra}, {judged.different} of {judged.rows:,} rows of {judged.outputs} outputs"
    return counts if judged.outputs else "no output was judged so"
