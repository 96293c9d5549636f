"""Commands that look at a topology without planning anything."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer

from tenax.cli import render
from tenax.cli.applications import PYTHON, application_of, topology_of
from tenax.cli.options import AppOptions, AsJson, Failed, File, Picture
from tenax.examples import EXAMPLES, describe, example_path
from tenax.model.cluster_files import cluster_schema
from tenax.model.files import topology_schema
from tenax.model.graph import TaskGraph
from tenax.model.settings_files import settings_schema
from tenax.planning.backups import recovery_latencies
from tenax.planning.decomposition import classify
from tenax.planning.fidelity import completeness, fidelity
from tenax.planning.trees import count_trees


class Format(StrEnum):
    """The files that have a schema."""

    TOPOLOGY = "topology"
    CLUSTER = "cluster"
    SETTINGS = "settings"


def fidelity_command(file: File, failed: Failed, as_json: AsJson = False, picture: Picture = None) -> None:
    """How good outputs stay when tasks have failed: 1 is untouched, 0 is nothing left.

    Fidelity follows what is lost through the topology, joins included; completeness is the part of all tuples that
    live tasks still process.

    Example: tenax fidelity traffic.yaml --failed 'speed[0],jams[1]'
    """
    graph = TaskGraph(topology_of(file, None))
    tasks = graph.parse(failed)
    down = graph.failed(tasks)
    values = {"fidelity": float(fidelity(graph, down)), "completeness": float(completeness(graph, down))}
    if picture is not None:
        from tenax.pictures.topology import draw_topology

        draw_topology(graph, picture, marks={"failed": tasks}, title=f"Fidelity {values['fidelity']:.3g}")
    if as_json:
        render.print_json(values)
        return
    title = f"{int(down.sum())} of {len(graph)} tasks failed"
    render.console().print(render.facts(title, [(name, render.number(value)) for name, value in values.items()]))
    if picture is not None:
        render.drawn(picture)


def latency_command(
    file: File,
    failed: Failed,
    backups: Annotated[str, typer.Option("--backups", metavar="TASKS", help="Tasks that retain their outputs.")] = "",
    as_json: AsJson = False,
) -> None:
    """How long recovery takes when tasks are lost together, given the tasks that retain their outputs.

    A backup that is lost as well is no help: its consumers wait for its own recovery.

    Example: tenax latency traffic.yaml --backups 'speed[*]' --failed 'jams[0],speed[1]'
    """
    graph = TaskGraph(topology_of(file, None))
    down = graph.failed(graph.parse(failed))
    latencies = recovery_latencies(graph, graph.mask(graph.parse(backups)), down)
    each = {str(graph.task(int(number))): float(latencies[number]) for number in np.flatnonzero(down)}
    longest = max(each.values(), default=0.0)
    if as_json:
        render.print_json({"recovery_latency": longest, "tasks": each})
        return
    rows = [(task, render.seconds(latency)) for task, latency in each.items()]
    render.console().print(render.table(f"All back after {render.seconds(longest)}", ("task", "back after"), rows))


def describe_command(file: File, options: AppOptions = None, as_json: AsJson = False, picture: Picture = None) -> None:
    """What is in a topology: operators, rates, shape, and how many ways lead through it.

    Of an application: its operators, how rows are shared among their tasks, the columns that each gives, its sources,
    and where results go.

    Example: tenax describe traffic.yaml --picture traffic.png

    Example: tenax describe examples/apps/traffic.py parallelism=2 --picture traffic.svg
    """
    if file.suffix == PYTHON:
        from tenax.cli.description import describe_application

        describe_application(application_of(file, options), picture, as_json=as_json)
        return
    graph = TaskGraph(topology_of(file, options))
    shape, trees = classify(graph), count_trees(graph)
    if picture is not None:
        from tenax.pictures.topology import draw_topology

        draw_topology(graph, picture, title=graph.topology.name)
    if as_json:
        render.print_json(
            {
                "name": graph.topology.name,
                "operators": len(graph.operators),
                "tasks": len(graph),
                "substreams": graph.edge_count,
                "queries": int(graph.is_output.sum()),
                "shape": str(shape),
                "minimal_complete_trees": trees,
            }
        )
        return
    out = render.console()
    ways = f"{trees:,}" if trees < 10**9 else f"about 10^{len(str(trees)) - 1}"
    out.print(
        render.facts(
            graph.topology.name,
            [
                ("shape", str(shape)),
                ("tasks", f"{len(graph):,} of {len(graph.operators):,} operators, {graph.edge_count:,} substreams"),
                ("queries", f"{int(graph.is_output.sum()):,}, one per output task"),
                ("minimal complete trees", ways),
            ],
        )
    )
    out.print()
    out.print(render.table("Operators", ("operator", "tasks", "reads", "tuples/s in", "out", "is"), _rows(graph)))
    if picture is not None:
        render.drawn(picture)


def schema_command(
    of: Annotated[Format, typer.Argument(metavar="FORMAT", help="topology, cluster or settings")] = Format.TOPOLOGY,
) -> None:
    """The JSON Schema of topology, cluster or settings files, for editors and other programs.

    Example: tenax schema topology > topology.schema.json
    """
    schemas = {Format.TOPOLOGY: topology_schema, Format.CLUSTER: cluster_schema, Format.SETTINGS: settings_schema}
    print(json.dumps(schemas[of](), indent=2))


def examples_command() -> None:
    """The example topologies that come with Tenax, and where they are.

    Example: cp "$(tenax examples | grep traffic.yaml | cut -d' ' -f1)" .
    """
    for name in EXAMPLES:
        print(f"{example_path(name)}  {describe(name)}")


def _rows(graph: TaskGraph) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for number, operator in enumerate(graph.operators):
        span = graph.span(number)
        kinds = ["source"] * operator.is_source + ["join"] * operator.correlated + ["safe"] * operator.safe
        kinds += ["output"] * bool(graph.is_output[span].any())
        rows.append(
            (
                operator.name,
                str(operator.parallelism),
                ", ".join(f"{stream.operator} ({stream.partitioning})" for stream in operator.inputs) or "-",
                render.number(float(graph.input_rate[span].sum())),
                render.number(float(graph.output_rate[span].sum())),
                ", ".join(kinds) or "-",
            )
        )
    return rows
