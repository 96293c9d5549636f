"""`tenax gallery`: the shipped example topologies, planned and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import track

from tenax.cli import render
from tenax.cli.options import made
from tenax.cli.protection import print_protection
from tenax.examples import EXAMPLES, example_path
from tenax.model.cluster_files import read_cluster
from tenax.model.files import read_topology
from tenax.model.graph import TaskGraph
from tenax.model.plans import ProtectionPlan
from tenax.pictures.topology import draw_topology
from tenax.planning.backups import recovery_latencies
from tenax.planning.protection import plan_protection

SHOWN = "traffic"
CLUSTER = "traffic-cluster"


def gallery_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")] = Path("out/gallery"),
) -> None:
    """Plan the protection of every shipped example and draw it; a minute or less.

    Each example gets the latency bound halfway between the tightest and the loosest that means anything, and replicas
    for a third of its tasks.
    """
    made(out)
    console = render.console()
    rows = []
    for name in track(EXAMPLES, description="planning", console=console, transient=True):
        plan = _plan(name, out / f"{name}.png")
        rows.append(
            (
                name,
                str(len(plan.recovery_latency_s)),
                f"{len(plan.backups.backups)} for {render.seconds(plan.latency_s)}",
                f"{len(plan.replicas.replicas)} keep {render.number(plan.replicas.fidelity)}",
                "yes" if plan.backups.optimal and plan.replicas.optimal else "no",
            )
        )
    columns = ("example", "tasks", "backups", "replicas", "proven optimal")
    console.print(render.table("Every example, protected", columns, rows))
    console.print()
    graph = TaskGraph(read_topology(example_path(SHOWN)))
    print_protection(plan_protection(graph, 3.0, 6, read_cluster(example_path(CLUSTER))))
    console.print(f"\n[dim]pictures[/dim] {out}/*.png    [dim]next[/dim] tenax plan --help")


def _plan(name: str, picture: Path) -> ProtectionPlan:
    graph = TaskGraph(read_topology(example_path(name)))
    plan = plan_protection(graph, halfway_latency_s(graph), len(graph) // 3)
    title = f"{name}: {len(plan.backups.backups)} backups bring any task back within {plan.latency_s:g} s"
    marks = {"backups": plan.backups.backups, "replicas": plan.replicas.replicas}
    note = f"{len(plan.replicas.replicas)} replicas keep fidelity {plan.replicas.fidelity:.3g} when all others fail"
    draw_topology(graph, picture, marks=marks, title=title, notes=(note,))
    return plan


def halfway_latency_s(graph: TaskGraph) -> float:
    """Between the longest task, below which nothing helps, and the longest path, above which nothing is needed."""
    longest = float(recovery_latencies(graph, np.zeros(len(graph), dtype=np.bool_)).max())
    return round((float(graph.reprocess.max()) + longest) / 2, 1)
