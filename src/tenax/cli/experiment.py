"""`tenax experiment`: the figures of the papers, run here."""

from __future__ import annotations

import importlib
import importlib.util
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tenax.cli import render
from tenax.cli.options import made
from tenax.errors import InvalidRequest

app = typer.Typer(
    help="""Run the papers' evaluations on this machine, the paper's claim beside our figure.

    Try:  tenax experiment run backups --quick
    """,
    rich_markup_mode="rich",
)


LAB = "tenax_lab"
SAY_EVERY_S = 30.0


def registry() -> ModuleType:
    """Where the lab lists its experiments: it is a package beside this one, which users need not have."""
    if importlib.util.find_spec(LAB) is None:
        raise InvalidRequest(
            f"experiments are in the package {LAB}, found none: pip install tenax-lab, or use a checkout of Tenax"
        )
    return importlib.import_module(f"{LAB}.registry")


class Bar:
    """A progress bar on standard error, so that results can be piped; a line now and then where that is no terminal."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._said_s = time.monotonic()

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def total(self, steps: int) -> None:
        """How many steps there are."""
        self._bar.update(self._task, total=steps)

    def advance(self, label: str) -> None:
        """One step is done."""
        self._bar.update(self._task, description=label, advance=1)
        if self._bar.console.is_terminal or time.monotonic() < self._said_s + SAY_EVERY_S:
            return
        self._said_s = time.monotonic()
        (task,) = self._bar.tasks
        self._bar.console.print(f"{task.completed:g} of {task.total or 0:g} steps: {label}", soft_wrap=True)


@app.command("list")
def list_command() -> None:
    """The experiments, and the figures that they repeat."""
    rows = [(entry.name, entry.figure, entry.summary) for entry in registry().EXPERIMENTS]
    out = render.console()
    out.print(render.table("Experiments", ("name", "repeats", "shows"), rows))
    out.print("\n[dim]Run one with[/dim] tenax experiment run NAME")


@app.command("run")
def run_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that 'tenax experiment list' shows.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where table, JSON and picture go.")] = Path(
        "out/experiments"
    ),
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same inputs.", min=0)] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke run of seconds: small inputs, no conclusions.")
    ] = False,
) -> None:
    """Run an experiment: prints its table and writes table.txt, result.json and figure.png.

    Example: tenax experiment run replicas-random --seed 7
    """
    registry().experiment(name)  # a wrong name is refused before anything is made
    made(out)
    with Bar() as bar:
        result = registry().run_experiment(name, out=out, seed=seed, quick=quick, progress=bar)
    print(result.text())
    print(f"written to {out / name}/: table.txt, result.json, figure.png")
