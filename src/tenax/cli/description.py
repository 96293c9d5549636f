"""What an application is made of, for `tenax describe`: operators, keys, columns, and where rows come from and go."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tenax.application.application import Application, late_output
from tenax.application.kinds import box_label, kind_of
from tenax.cli import render
from tenax.model.durations import span
from tenax.model.topology import Operator

UNKNOWN = "known when its source has rows"


def describe_application(application: Application, picture: Path | None, *, as_json: bool) -> None:
    """Print it, as tables for people or as JSON for programs, and draw it if asked to."""
    if picture is not None:
        from tenax.model.graph import TaskGraph
        from tenax.pictures.topology import draw_topology

        draw_topology(
            TaskGraph(application.topology),
            picture,
            title=application.topology.name,
            kinds={
                operator.name: box_label(operator, application.sources, application.computations, application.keys)
                for operator in application.topology.operators
            },
        )
    if as_json:
        render.print_json(application_data(application))
        return
    _print(application)
    if picture is not None:
        render.drawn(picture)


def application_data(application: Application) -> dict[str, object]:
    """The application as plain data."""
    operators = application.topology.operators
    return {
        "name": application.topology.name,
        "tasks": sum(operator.parallelism for operator in operators),
        "operators": [
            {
                "name": operator.name,
                "kind": _kind(application, operator),
                "tasks": operator.parallelism,
                "inputs": [
                    {
                        "operator": stream.operator,
                        "partitioning": str(stream.partitioning),
                        "keys": list(application.keys.get((stream.operator, operator.name), ())),
                    }
                    for stream in operator.inputs
                ],
                "state": application.has_state(operator.name),
                "correlated": operator.correlated,
                "columns": _columns(application.schemas.get(operator.name)),
                "made_in": application.places.get(operator.name),
            }
            for operator in operators
        ],
        "sources": [
            {
                "name": name,
                "kind": type(source).__name__,
                "time": source.time,
                "lateness": span(source.lateness_us),
                "bounded": source.bounded,
                "late_rows_to": application.sinks[late_output(name)].place
                if late_output(name) in application.sinks
                else None,
            }
            for name, source in application.sources.items()
        ],
        "outputs": [
            {
                "name": name,
                "sink": type(application.sinks[name]).__name__,
                "place": application.sinks[name].place,
                "priority": priority,
            }
            for name, priority in _outputs(application).items()
        ],
    }


def _print(application: Application) -> None:
    out = render.console()
    operators = application.topology.operators
    tasks = sum(operator.parallelism for operator in operators)
    out.print(render.facts(application.topology.name, [("tasks", f"{tasks:,} of {len(operators):,} operators")]))
    out.print()
    rows = [
        (
            operator.name,
            str(operator.parallelism),
            _kind(application, operator) + (", state" if application.has_state(operator.name) else ""),
            "; ".join(_reads(application, operator)) or "-",
        )
        for operator in operators
    ]
    out.print(render.table("Operators", ("operator", "tasks", "is", "reads"), rows))
    out.print()
    columns = [(operator.name, _listed(application.schemas.get(operator.name))) for operator in operators]
    out.print(render.table("Columns", ("operator", "gives"), columns))
    out.print()
    sources = [
        (
            name,
            type(source).__name__,
            f"{source.time}, lateness {span(source.lateness_us)}",
            "ends" if source.bounded else "does not end",
            application.sinks[late_output(name)].place if late_output(name) in application.sinks else "dropped",
        )
        for name, source in application.sources.items()
    ]
    out.print(render.table("Sources", ("source", "is", "time", "end", "late rows"), sources))
    out.print()
    outputs = [
        (name, application.sinks[name].place, _numbers(priority)) for name, priority in _outputs(application).items()
    ]
    out.print(render.table("Outputs", ("output", "goes to", "priority"), outputs))


def _outputs(application: Application) -> dict[str, float | list[float]]:
    """The priority of every output: a number, or one per task."""
    return {
        operator.name: list(priority) if isinstance(priority, tuple) else float(priority)
        for operator in application.topology.operators
        if operator.output is not None
        for priority in [operator.output.priority]
    }


def _numbers(priority: float | list[float]) -> str:
    return ", ".join(map(render.number, priority)) if isinstance(priority, list) else render.number(priority)


def _kind(application: Application, operator: Operator) -> str:
    return kind_of(operator, application.sources, application.computations)


def _reads(application: Application, operator: Operator) -> list[str]:
    reads = []
    for stream in operator.inputs:
        keys = application.keys.get((stream.operator, operator.name), ())
        by = f" by {', '.join(keys)}" if keys else ""
        reads.append(f"{stream.operator} ({stream.partitioning}{by})")
    return reads


def _columns(schema: pl.Schema | None) -> dict[str, str] | None:
    return None if schema is None else {name: str(kind) for name, kind in schema.items()}


def _listed(schema: pl.Schema | None) -> str:
    return UNKNOWN if schema is None else ", ".join(f"{name} {_type(kind)}" for name, kind in schema.items())


def _type(kind: pl.DataType) -> str:
    return "Datetime" if kind == pl.Datetime("us") else str(kind)
