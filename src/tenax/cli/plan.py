"""`tenax plan`: backups, replicas, recovery, schedules, and all protection together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tenax.cli import render
from tenax.cli.applications import topology_of
from tenax.cli.measured import measured
from tenax.cli.options import AppOptions, AsJson, Failed, File, Picture, TimeLimit
from tenax.cli.plan_scaling import scaling_command
from tenax.cli.protection import print_protection, scheduling_facts
from tenax.errors import InvalidRequest
from tenax.model.cluster_files import read_cluster
from tenax.model.graph import TaskGraph
from tenax.model.plans import BackupPlan, Metric, RecoveryPlan, RecoverySchedule, ReplicaPlan
from tenax.model.tasks import Task
from tenax.planning import backups as backup_planning
from tenax.planning import recovery as recovery_planning
from tenax.planning import replicas as replica_planning
from tenax.planning.protection import plan_protection

app = typer.Typer(
    help="""Plan how a topology is protected and recovered.

    Each plan is proven optimal where the time limit allows, and says so. Try:

      tenax plan backups traffic.yaml --latency 3

      tenax plan replicas traffic.yaml --budget 6 --picture replicas.svg

      tenax plan recovery traffic.yaml --failed 'speed[*],jams[0]' --capacity 3

      tenax plan scaling traffic.py --rate 3x --from out/traffic
    """,
    rich_markup_mode="rich",
)


def _algorithms(names: tuple[str, ...]) -> str:
    return f"One of {', '.join(names)}. [dim]Default: exact, or the best heuristic when its time is up.[/dim]"


BackupAlgorithm = Annotated[
    str | None, typer.Option("--algorithm", metavar="NAME", help=_algorithms(backup_planning.ALGORITHMS))
]
ReplicaAlgorithm = Annotated[
    str | None, typer.Option("--algorithm", metavar="NAME", help=_algorithms(replica_planning.ALGORITHMS))
]
RecoveryAlgorithm = Annotated[
    str | None, typer.Option("--algorithm", metavar="NAME", help=_algorithms(recovery_planning.ALGORITHMS))
]
Latency = Annotated[
    float, typer.Option("--latency", metavar="SECONDS", help="The longest that the recovery of a task may take.")
]
Budget = Annotated[int, typer.Option("--budget", metavar="TASKS", help="How many tasks may run a second time.")]
MetricName = Annotated[
    Metric, typer.Option("--metric", help="What a plan is worth: fidelity tells joins apart, completeness does not.")
]

Store = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="STORE",
        help="Plan with what a run of it has measured: rates, costs in busy seconds of a batch, reprocess times.",
        show_default=False,
    ),
]


@app.command("backups")
def backups_command(
    file: File,
    latency: Latency,
    algorithm: BackupAlgorithm = None,
    time_limit: TimeLimit = 10.0,
    as_json: AsJson = False,
    picture: Picture = None,
    store: Store = None,
    options: AppOptions = None,
) -> None:
    """The fewest tasks that retain their outputs, so that recovery never takes longer than --latency.

    A lost task starts again from its nearest upstream backups; without them, further up, which takes longer.
    The bound holds for the loss of one task; 'tenax plan all' and 'tenax latency' tell what the loss of many means.

    Example: tenax plan backups traffic.yaml --latency 3 --picture backups.svg
    """
    graph, scheduling_s = _graph(file, options, store)
    plan = backup_planning.plan_backups(graph, latency, algorithm, time_limit)
    _draw(graph, picture, {"backups": plan.backups}, f"{len(plan.backups)} backups for recovery within {latency:g} s")
    if as_json:
        render.print_json(_with_scheduling(plan.to_data(), scheduling_s))
    else:
        _print_backups(graph, plan, latency, scheduling_s)
    _tell_picture(picture, as_json)


@app.command("replicas")
def replicas_command(
    file: File,
    budget: Budget,
    algorithm: ReplicaAlgorithm = None,
    metric: MetricName = Metric.FIDELITY,
    time_limit: TimeLimit = 10.0,
    as_json: AsJson = False,
    picture: Picture = None,
    store: Store = None,
    options: AppOptions = None,
) -> None:
    """The tasks that run a second time elsewhere, so that outputs stay as good as --budget allows.

    A plan is worth what outputs keep when every task without a replica has failed: 1 is everything, 0 nothing.

    Example: tenax plan replicas traffic.yaml --budget 6
    """
    graph, _ = _graph(file, options, store)
    plan = replica_planning.plan_replicas(graph, budget, algorithm, metric, time_limit)
    title = f"{len(plan.replicas)} replicas keep fidelity {plan.fidelity:.3g} when all others fail"
    _draw(graph, picture, {"replicas": plan.replicas}, title)
    if as_json:
        render.print_json(plan.to_data())
    else:
        _print_replicas(graph, plan, budget)
    _tell_picture(picture, as_json)


@app.command("recovery")
def recovery_command(
    file: File,
    failed: Failed,
    capacity: Annotated[float, typer.Option("--capacity", metavar="UNITS", help="What recovery may cost in total.")],
    algorithm: RecoveryAlgorithm = None,
    time_limit: TimeLimit = 10.0,
    as_json: AsJson = False,
    picture: Picture = None,
    store: Store = None,
    options: AppOptions = None,
) -> None:
    """The failed tasks to bring back first, so that the most important outputs return with --capacity at hand.

    A query, an output task with all its ancestors, is back when all its failed tasks are. What is left of the
    capacity goes towards the next query.

    Example: tenax plan recovery traffic.yaml --failed 'speed[*],jams[*]' --capacity 3
    """
    graph, _ = _graph(file, options, store)
    down = graph.failed(graph.parse(failed))
    plan = recovery_planning.plan_recovery(graph, down, capacity, algorithm, time_limit)
    still = graph.tasks(np.flatnonzero(down & ~graph.mask(plan.recover)))
    title = f"{len(plan.queries)} queries come back with capacity {capacity:g}"
    _draw(graph, picture, {"failed": still, "recovered": plan.recover}, title)
    if as_json:
        render.print_json(plan.to_data())
    else:
        _print_recovery(plan, capacity)
    _tell_picture(picture, as_json)


@app.command("schedule")
def schedule_command(
    file: File,
    failed: Failed,
    nodes: Annotated[
        str, typer.Option("--nodes", metavar="UNITS", help="Capacity of each node in order of arrival, like 4,4,2.")
    ],
    limit: Annotated[float, typer.Option("--limit", help="The part of a node that recovery may use.")] = 0.8,
    algorithm: RecoveryAlgorithm = None,
    time_limit: TimeLimit = 10.0,
    as_json: AsJson = False,
    store: Store = None,
    options: AppOptions = None,
) -> None:
    """Which failed tasks start on which node, when nodes arrive one by one.

    Without --algorithm, the best query-centric schedule stands beside the operator-centric one.

    Example: tenax plan schedule four-queries.yaml --failed 'a[*],b[*],c[*],d[*]' --nodes 2,2,2,2,2 --limit 1
    """
    graph, _ = _graph(file, options, store)
    down = graph.failed(graph.parse(failed))
    arriving = [(f"N{position}", _capacity(text)) for position, text in enumerate(nodes.split(","), 1)]
    chosen = ("exact", "operator-centric") if algorithm is None else (algorithm,)
    schedules = [recovery_planning.schedule_recovery(graph, down, arriving, limit, name, time_limit) for name in chosen]
    if as_json:
        render.print_json({"schedules": [schedule.to_data() for schedule in schedules]})
        return
    for schedule in schedules:
        _print_schedule(schedule)


@app.command("all")
def all_command(
    file: File,
    latency: Latency,
    budget: Budget,
    domains: Annotated[
        Path | None,
        typer.Option("--domains", metavar="FILE", help="Cluster file: nodes in racks in zones, failure rates."),
    ] = None,
    metric: MetricName = Metric.FIDELITY,
    time_limit: TimeLimit = 10.0,
    as_json: AsJson = False,
    picture: Picture = None,
    store: Store = None,
    options: AppOptions = None,
) -> None:
    """One protection plan: backups, replicas, where they run, how often to checkpoint, and what that promises.

    With --domains, replicas are placed in another failure domain than their primaries, and the plan tells what the
    loss of each node, rack and zone means for recovery and for outputs.

    Example: tenax plan all traffic.yaml --latency 3 --budget 6 --domains traffic-cluster.yaml

    Example: tenax plan all examples/apps/traffic.py --latency 3 --budget 6
    """
    graph, scheduling_s = _graph(file, options, store)
    cluster = None if domains is None else read_cluster(domains)
    plan = plan_protection(graph, latency, budget, cluster, metric=metric, time_limit_s=time_limit)
    marks = {"backups": plan.backups.backups, "replicas": plan.replicas.replicas}
    _draw(graph, picture, marks, f"Protection of {plan.topology}: recovery within {latency:g} s, {budget} replicas")
    if as_json:
        render.print_json(_with_scheduling(plan.to_data(), scheduling_s))
    else:
        print_protection(plan, scheduling_s)
    _tell_picture(picture, as_json)


app.command("scaling")(scaling_command)


def _graph(file: Path, options: list[str] | None, store: Path | None) -> tuple[TaskGraph, float | None]:
    """The graph to plan for; with a store as it was measured, and what recovery takes beside steps then."""
    topology = topology_of(file, options, store)
    if store is None:
        return TaskGraph(topology), None
    topology, measures = measured(topology, store)
    return TaskGraph(topology), measures.scheduling_s


def _with_scheduling(data: dict[str, object], scheduling_s: float | None) -> dict[str, object]:
    """A plan of backups for programs; where it was measured, with the time that comes on top of every latency."""
    return data if scheduling_s is None else {**data, "scheduling": scheduling_s}


def _capacity(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"--nodes are numbers like 4,4,2, found {text.strip()!r}: correct it") from None


def _draw(graph: TaskGraph, picture: Path | None, marks: Mapping[str, tuple[Task, ...]], title: str) -> None:
    if picture is not None:
        from tenax.pictures.topology import draw_topology

        draw_topology(graph, picture, marks=marks, title=title)


def _tell_picture(picture: Path | None, as_json: bool) -> None:
    if picture is not None and not as_json:
        render.drawn(picture)


def _print_backups(graph: TaskGraph, plan: BackupPlan, latency: float, scheduling_s: float | None) -> None:
    latencies = backup_planning.recovery_latencies(graph, graph.mask(plan.backups))
    rows = []
    for number, operator in enumerate(graph.operators):
        span = graph.span(number)
        count = sum(task.operator == operator.name for task in plan.backups)
        rows.append(
            (operator.name, str(operator.parallelism), str(count), render.seconds(float(latencies[span].max())))
        )
    known = f"not proven: at least {plan.bound} are needed, gap {render.percent(plan.gap)}"
    out = render.console()
    out.print(
        render.facts(
            f"{len(plan.backups)} backups",
            [
                ("retain outputs", render.short(plan.backups)),
                ("longest recovery", f"{render.seconds(plan.recovery_latency_s)} of {render.seconds(latency)} allowed"),
                *scheduling_facts(scheduling_s),
                ("algorithm", plan.algorithm),
                ("quality", render.proof(plan.optimal, known)),
            ],
        )
    )
    out.print()
    out.print(render.table("By operator", ("operator", "tasks", "backups", "longest recovery"), rows))


def _print_replicas(graph: TaskGraph, plan: ReplicaPlan, budget: int) -> None:
    rows = [
        (
            operator.name,
            str(operator.parallelism),
            "safe" if operator.safe else str(sum(task.operator == operator.name for task in plan.replicas)),
            render.number(float(graph.output_rate[graph.span(number)].sum())),
        )
        for number, operator in enumerate(graph.operators)
    ]
    known = f"not proven: at most {render.number(plan.bound)} is possible, gap {render.percent(plan.gap)}"
    out = render.console()
    out.print(
        render.facts(
            f"{len(plan.replicas)} replicas of {budget} allowed",
            [
                ("run twice", render.short(plan.replicas)),
                ("fidelity", f"{render.number(plan.fidelity)} when every task without a replica has failed"),
                ("completeness", render.number(plan.completeness)),
                ("algorithm", f"{plan.algorithm}, by {plan.metric}"),
                ("quality", render.proof(plan.optimal, known)),
            ],
        )
    )
    out.print()
    out.print(render.table("By operator", ("operator", "tasks", "replicas", "tuples/s out"), rows))


def _print_recovery(plan: RecoveryPlan, capacity: float) -> None:
    known = f"not proven: at most {render.number(plan.bound)} is possible, gap {render.percent(plan.gap)}"
    render.console().print(
        render.facts(
            f"{len(plan.recover)} tasks to recover now",
            [
                ("recover", render.short(plan.recover)),
                ("queries back", render.short(plan.queries)),
                ("priority back", render.number(plan.priority)),
                ("cost", f"{render.number(plan.cost)} of {render.number(capacity)}"),
                ("algorithm", plan.algorithm),
                ("quality", render.proof(plan.optimal, known)),
            ],
        )
    )


def _print_schedule(schedule: RecoverySchedule) -> None:
    rows = []
    for arrival in schedule.arrivals:
        elsewhere = {task: node for task, node in arrival.placed.items() if node != arrival.node}
        placed = [f"{task} on {node}" if task in elsewhere else str(task) for task, node in arrival.placed.items()]
        rows.append((arrival.node, ", ".join(placed) or "-", render.short(arrival.completed)))
    out = render.console()
    out.print(render.table(schedule.algorithm, ("arrives", "starts", "queries back"), rows))
    out.print(f"[dim]waiting[/dim] {render.short(schedule.waiting)}\n")
