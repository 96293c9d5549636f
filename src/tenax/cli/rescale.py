"""`tenax rescale`: ask a running driver, through its store, for other numbers of tasks or nodes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from tenax.cli.stores import check_store
from tenax.errors import InvalidRequest, RescaleRefused
from tenax.model.durations import seconds
from tenax.model.topology import suggestion
from tenax.model.topology_versions import Target, TopologyVersion, parse_tasks

POLL_S = 0.2
EXAMPLE = "speed=4,jams=2"
BY_HAND = "asked for by hand"


def rescale_command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a run, as given to --store.")],
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPERATOR=TASKS]...",
            help="How many tasks operators shall have, like speed=4,jams=2. Operators that work task by task with each "
            "other go together.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", help="How many nodes there shall be.", min=1, show_default=False),
    ] = None,
    wait: Annotated[
        str,
        typer.Option(
            "--wait",
            metavar="TIME",
            help="So long the command waits for what becomes of it; 0s asks and ends. The request stays.",
        ),
    ] = "2m",
) -> None:
    """Let operators of a running application have more or fewer tasks, and the run more or fewer nodes.

    The run goes on: it stores all tasks, cuts their states anew by key groups, and continues with the next batch. It
    does so as soon as no task is missing; without a running driver the next start of the run does it. Final results
    are those of a run that never rescaled.

    Example: tenax rescale out/roads speed=4,jams=2 --nodes 6
    """
    from tenax.store import topology_versions

    check_store(store)
    patience_s = seconds(wait)
    wanted = parse_tasks(tasks or [])
    if not wanted and nodes is None:
        raise InvalidRequest(f"a rescale names operators or nodes, found neither: write {EXAMPLE} or --nodes 6")
    known = topology_versions.read_versions(store)
    if not known:
        raise InvalidRequest(
            f"{store}: a store knows its tasks once a driver has begun on it, found none yet: start the run first"
        )
    _check(wanted, known[-1])
    target = Target(wanted, nodes, BY_HAND)
    number = topology_versions.ask(store, target)
    sys.stdout.write(f"asked for {target.words}; a driver that runs takes it up within a second\n")
    sys.stdout.flush()
    if not patience_s:
        return
    answer = None
    deadline = time.monotonic() + patience_s
    while answer is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
        answer = topology_versions.answered(store, number)
    if answer is None:
        sys.stdout.write(
            f"no answer after {wait}: tasks may be missing, or no driver runs; the request stays, and "
            f"'tenax inspect {store} --events 20' tells why it waits\n"
        )
        return
    done, words = answer
    if not done:
        raise RescaleRefused(f"no rescale: {words}")
    sys.stdout.write(f"rescaled {words}\n")


def _check(wanted: dict[str, int], version: TopologyVersion) -> None:
    """What can be known before the driver looks at it."""
    for name in wanted:
        if name not in version.parallelism:
            raise InvalidRequest(
                f"an operator of the topology is rescaled, found {name!r}{suggestion(name, version.parallelism)}"
            )
