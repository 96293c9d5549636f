"""Many trials in a row, on real processes and simulated: what `make chaos` runs."""

from __future__ import annotations

import functools
import multiprocessing
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tenax.chaos.process import run_in_processes
from tenax.chaos.runs import Trial, varied
from tenax.chaos.schedule import random_schedule
from tenax.chaos.settings import CHAOS
from tenax.cli.chaos import emptied
from tenax.cli.damage import damaged
from tenax.cli.options import command_line
from tenax.errors import TenaxError
from tenax.examples import app_path
from tenax.simulation.runs import Shape, SimulationFailed, simulate

NODES, RACKS = 4, 2
BATCH_MS, BATCH_ROWS, BATCHES = 250, 100, 40
CHECKPOINT_EVERY = 5
CHUNK = 50  # simulated seeds that a process takes at a time
TOLD_EVERY = 1_000
OPTIONS: dict[str, object] = {
    "rows": BATCH_ROWS * BATCHES,
    "reports": 300,
    "rate": BATCH_ROWS * 1000 // BATCH_MS,
    "users": 2_000,
    "segments": 20,
    "length": "3s",
    "parallelism": 4,
    "paced": 1,
}


def soak_command(
    schedules: Annotated[int, typer.Option(help="Real trials, each on a cluster of its own.", min=0)] = 25,
    simulated: Annotated[int, typer.Option(help="Simulated runs of small graphs.", min=0)] = 10_000,
    random_graphs: Annotated[int, typer.Option(help="Simulated runs of random graphs.", min=0)] = 5_000,
    short: Annotated[int, typer.Option(help="Simulated runs in which capacity is short.", min=0)] = 3_000,
    rescaled: Annotated[int, typer.Option(help="Simulated runs that are rescaled.", min=0)] = 5_000,
    damages: Annotated[int, typer.Option(help="Damaged files of a killed run, one at a time.", min=0)] = 100,
    seed: Annotated[int, typer.Option(help="The first seed of each.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the trials go; that of a trial that fails stays.")] = Path(
        "out/chaos"
    ),
) -> None:
    """Run random faults through simulated and real clusters; the exit code is 1 if any seed fails."""
    console = Console(highlight=False)
    failed = [
        *simulations(console, range(seed, seed + simulated), Shape.TOY),
        *simulations(console, range(seed, seed + random_graphs), Shape.RANDOM),
        *simulations(console, range(seed, seed + short), Shape.SHORT),
        *simulations(console, range(seed, seed + rescaled), Shape.RESCALED),
        *damaged(console, range(seed, seed + damages), out),
        *trials(console, range(seed, seed + schedules), out),
    ]
    for again in failed:
        console.print(Text(f"again: {again}", style="bold red"), soft_wrap=True)
    total = simulated + random_graphs + short + rescaled + damages + schedules
    console.print(Text(f"{total - len(failed)} of {total} runs held"))
    if failed:
        raise typer.Exit(1)


def simulations(console: Console, seeds: Sequence[int], shape: Shape) -> Iterator[str]:
    """Simulate all seeds on graphs of a shape; how to see those again that failed."""
    with multiprocessing.Pool() as pool:
        runs = pool.imap(functools.partial(_simulated, shape=shape), seeds, chunksize=CHUNK)
        for done, again in enumerate(runs, start=1):
            if done % TOLD_EVERY == 0 or done == len(seeds):
                console.print(f"simulated {done} of {len(seeds)} on {shape} graphs")
            if again:
                console.print(Text(f"FAILED: {again}", style="bold red"), soft_wrap=True)
                yield again


def _simulated(seed: int, shape: Shape) -> str:
    try:
        simulate(seed, shape=shape)
    except SimulationFailed as error:
        return " ".join(str(error).split())
    return ""


def trials(console: Console, seeds: Sequence[int], out: Path) -> Iterator[str]:
    """Run a real trial for every seed, spread over the settings; how to run those again that failed."""
    for done, seed in enumerate(seeds, start=1):
        trial = drawn(seed)
        folder = out / f"seed-{seed}"
        again = f"tenax chaos {shlex.join(arguments(trial))}"
        console.print(Text(f"trial {done} of {len(seeds)}, seed {seed}: {again}"), soft_wrap=True)
        emptied(folder)
        try:
            trial_outcome = run_in_processes(app_path("traffic"), OPTIONS, folder, trial)
            said, held = trial_outcome.findings, trial_outcome.held
        except TenaxError as error:
            said, held = str(error), False
        console.print(
            Text(f"  {'held' if held else 'FAILED'}: {said}", style="" if held else "bold red"), soft_wrap=True
        )
        if held:
            emptied(folder)
            folder.rmdir()
        else:
            yield again


def drawn(seed: int) -> Trial:
    """The trial of a seed."""
    how = replace(CHAOS, protection=varied(seed, checkpoint_every=CHECKPOINT_EVERY))
    how = how.but(nodes=NODES, racks=RACKS, batch=f"{BATCH_MS}ms", max_rows=BATCH_ROWS)
    return Trial(how, random_schedule(seed, NODES, RACKS, BATCHES - 8), seed)


def arguments(trial: Trial) -> list[str]:
    """The command line of `tenax chaos` that runs a trial again."""
    given = command_line(trial.settings, CHAOS)
    faults = [word for fault in trial.schedule for word in str(fault).split()]
    of_application = [f"{name}={value}" for name, value in OPTIONS.items()]
    return ["examples/apps/traffic.py", *of_application, *faults, *given]


if __name__ == "__main__":
    typer.run(soak_command)
