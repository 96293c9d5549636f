"""`tenax plan scaling`: how many tasks and nodes are enough for a rate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tenax.cli import render
from tenax.cli.applications import PYTHON, application_of, topology_of
from tenax.cli.measured import measured_load
from tenax.cli.options import AppOptions, AsJson, File
from tenax.errors import InvalidRequest, UnsuitableStore
from tenax.model.durations import seconds
from tenax.model.graph import TaskGraph
from tenax.model.options import checked
from tenax.model.settings import declared
from tenax.model.topology import Topology
from tenax.planning.scaling import ALGORITHMS, Demand, Group, Keep, Prediction, Rescale, declared_groups, plan_scaling

RATE = re.compile(r"(\d+(?:\.\d+)?)(x?)")
SPEED = "batch"  # the setting that says how far batches are apart
INTERVAL = "1s"  # between batches, where neither a run nor an option says it


@dataclass(frozen=True, slots=True)
class Measured:
    """What every task does in a batch, at so many rows a second from the sources; and what else a pass takes."""

    rows: tuple[float, ...]
    busy_s: tuple[float, ...]
    rows_per_s: float
    interval_s: float
    fixed_s: float = 0.0
    nodes: int | None = None


def scaling_command(
    file: File,
    rate: Annotated[
        str, typer.Option("--rate", metavar="RATE", help="Rows a second, or how many times as many as now: 6000, 3x.")
    ],
    nodes: Annotated[str, typer.Option("--nodes", metavar="N..N", help="The fewest and the most nodes.")] = "2..8",
    target: Annotated[
        float, typer.Option("--target", metavar="NUMBER", help="The part of a batch interval that a pass may take.")
    ] = 0.7,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="TIME",
            help=f"Time between batches. [dim]Default: that of the run, or {INTERVAL}.[/dim]",
            show_default=False,
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option("--algorithm", metavar="NAME", help=f"One of {', '.join(ALGORITHMS)}. [dim]Default: rates.[/dim]"),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--from", metavar="STORE", help="Plan with what a run of it has measured.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    options: AppOptions = None,
) -> None:
    """The fewest nodes and tasks that are enough for --rate: a pass is to take --target of a batch interval at most.

    A pass takes as long as the slowest node of each of its levels is busy, and scheduling. Operators whose rows are
    shared by key are split and merged, those that work task by task with each other together; all others stay.

    With --from, rows, busy seconds and scheduling are those of a run. Without, rates are the declared ones, the
    [bold]cost[/bold] of a task is how many seconds it is busy with a batch at that rate, and scheduling takes no time.

    Example: tenax plan scaling examples/apps/traffic.py --rate 3x --nodes 2..8 --from out/traffic

    Example: tenax plan scaling traffic.yaml --rate 6000 --target 0.5 --json
    """
    topology, groups = _parts(file, options, store)
    now = _declared(file, topology, batch) if store is None else _of_run(topology, store, batch)
    bounds = _nodes(nodes)
    factor = _factor(rate, now.rows_per_s)
    demand = Demand(
        TaskGraph(topology),
        now.rows,
        now.busy_s,
        now.interval_s,
        bounds[0] if now.nodes is None else now.nodes,
        bounds,
        groups,
        factor,
        float(str(checked("--target", declared("target"), target))),
        now.fixed_s,
    )
    plan = plan_scaling(demand, algorithm)
    if as_json:
        render.print_json({"rate": {"now": now.rows_per_s, "wanted": factor * now.rows_per_s}, **plan.to_data()})
    else:
        _print(plan, demand, factor * now.rows_per_s)


def _parts(file: Path, options: list[str] | None, store: Path | None) -> tuple[Topology, tuple[Group, ...]]:
    """The topology, and what can be split and merged in it."""
    if file.suffix == PYTHON:
        from tenax.engine.driver.switching import groups_of

        application = application_of(file, options, store)
        return application.topology, groups_of(application)
    topology = topology_of(file, options)
    return topology, declared_groups(topology)


def _declared(file: Path, topology: Topology, batch: str | None) -> Measured:
    """What a topology says of itself."""
    graph = TaskGraph(topology)
    if all(operator.cost == 1.0 for operator in topology.operators):
        raise InvalidRequest(
            f"{file}: without a run, what tasks take is their cost, the seconds that they are busy with a batch; found "
            "none declared: declare it, or use --from STORE"
        )
    interval_s = _interval_s(batch or INTERVAL)
    sources = [number for number, operator in enumerate(graph.operators) if operator.is_source]
    return Measured(
        tuple((graph.input_rate * interval_s).tolist()),
        tuple(graph.cost.tolist()),
        sum(float(graph.input_rate[graph.span(number)].sum()) for number in sources),
        interval_s,
    )


def _of_run(topology: Topology, store: Path, batch: str | None) -> Measured:
    """What a run has measured, at the rate at which rows come; of one that reads as fast as it can, at its speed."""
    load, settings = measured_load(topology, store)
    interval_s = settings.batches.batch_s if batch is None else _interval_s(batch)
    rate = load.arrival.rows_per_s or load.rows_per_s()
    if not rate or not load.rows:
        raise UnsuitableStore(f"{store}: a run has measured how fast rows come, found none so far: let it go on")
    times = rate * interval_s / load.rows
    return Measured(
        tuple(times * task.rows for task in load.tasks),
        tuple(times * task.busy_s for task in load.tasks),
        rate,
        interval_s,
        load.fixed_s,
        settings.cluster.nodes,
    )


def _factor(text: str, now: float) -> float:
    """How many times the present rate is asked for."""
    parts = RATE.fullmatch(text.strip())
    if parts is None:
        raise InvalidRequest(f"--rate is rows a second or how many times as many, found {text!r}: write 6000 or 3x")
    if parts.group(2):
        return float(parts.group(1))
    if not now:
        raise InvalidRequest("a rate in rows a second is compared with that of the sources, found 0 there: declare it")
    return float(parts.group(1)) / now


def _nodes(text: str) -> tuple[int, int]:
    known = declared("elastic_nodes")
    pair = checked("--nodes", known, known.kind.parsed(text))
    assert isinstance(pair, tuple)
    return pair


def _interval_s(text: str) -> float:
    return seconds(str(checked("--batch", declared(SPEED), text)))


def _print(plan: Keep | Rescale, demand: Demand, rate: float) -> None:
    after = plan.after if isinstance(plan, Rescale) else plan.now
    title = f"{after.shape.nodes} nodes" if plan.feasible else f"{after.shape.nodes} nodes are not enough"
    neck = plan.now.bottleneck
    out = render.console()
    out.print(
        render.facts(
            f"{title} for {render.number(rate)} rows/s",
            [
                ("decision", "keep" if isinstance(plan, Keep) else str(plan.direction)),
                ("because", plan.reason),
                ("pass now", _pass(plan.now)),
                ("pass then", f"{_pass(after)} of {render.seconds(demand.bound_s)} allowed"),
                ("bottleneck", f"{neck.task} on level {neck.level}, busy {render.percent(neck.busy_part)} of the time"),
                ("its speed", f"{render.number(neck.rows_per_s)} rows/s if it were busy all the time"),
                ("algorithm", plan.algorithm),
                ("quality", render.proof(plan.optimal, "not proven: fewer may be enough" if plan.feasible else "-")),
            ],
        )
    )
    out.print()
    columns = ("operator", "tasks now", "tasks then", "busiest now", "busiest then")
    out.print(render.table("By operator", columns, _rows(plan.now, after, demand)))


def _pass(prediction: Prediction) -> str:
    return f"{render.seconds(prediction.pass_s)} on {prediction.shape.nodes} nodes"


def _rows(now: Prediction, after: Prediction, demand: Demand) -> list[tuple[str, ...]]:
    """Every operator with its tasks, and the busy part of the busiest of them."""
    rows = []
    starts = [0, 0]
    for name, tasks in now.shape.parallelism.items():
        counts = tasks, after.shape.parallelism[name]
        parts = []
        for which, (prediction, count) in enumerate(zip((now, after), counts, strict=True)):
            busiest_s = max(prediction.busy_s[starts[which] : starts[which] + count])
            parts.append(render.percent(busiest_s / demand.interval_s))
            starts[which] += count
        rows.append((name, *map(str, counts), *parts))
    return rows
