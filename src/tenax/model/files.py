"""Topology files in YAML or JSON: their schema, and topologies read from them and written to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tenax.errors import InvalidFile, InvalidTopology
from tenax.model.documents import Document, read_document, validated, write_document
from tenax.model.topology import MAX_TASKS, NAME, Input, Operator, Output, Partitioning, PerTask, Topology

Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$", max_length=100)]
Number = Annotated[float, Field(ge=0)]
Numbers = Number | list[Number]


class InputDocument(Document):
    """A subscription to another operator."""

    from_: Name = Field(alias="from", description="the operator whose output is read")
    partitioning: Literal["one-to-one", "split", "merge", "full"] = Field(
        default="full", description="which tasks of the other operator reach which tasks of this one"
    )


class OutputDocument(Document):
    """Results that leave the topology."""

    priority: Numbers = Field(default=1, description="how much the results matter; a number, or one per task")


class OperatorDocument(Document):
    """A step of the topology; without inputs, a source."""

    name: Name
    parallelism: int = Field(default=1, ge=1, le=MAX_TASKS, description="number of tasks")
    rate: Numbers = Field(default=1, description="sources: tuples per second of all tasks, or a list, one per task")
    weights: list[Number] | None = Field(default=None, description="share of the keys that each task gets")
    selectivity: Number = Field(default=1, description="output rate / total input rate")
    correlated: bool = Field(default=False, description="joins its inputs")
    inputs: list[InputDocument] = Field(default_factory=list)
    output: OutputDocument | None = Field(default=None, description="present on output operators")
    reprocess: Numbers = Field(default=1, description="seconds to reprocess a task since its last checkpoint")
    cost: Numbers = Field(default=1, description="units needed to recover a task")
    safe: bool = Field(default=False, description="its tasks never fail and need no budget")


class TopologyDocument(Document):
    """A topology of operators for Tenax."""

    name: Name
    operators: list[OperatorDocument]


def read_topology(path: Path) -> Topology:
    """The topology in a YAML or JSON file."""
    document = validated(TopologyDocument, read_document(path), path)
    try:
        return Topology(document.name, tuple(_operator(operator) for operator in document.operators))
    except InvalidTopology as error:
        raise InvalidFile(f"{path}: {error}") from None


def write_topology(topology: Topology, path: Path) -> None:
    """A file that reads back equal; what has its default value is left out."""
    write_document(path, topology_data(topology))


def topology_data(topology: Topology) -> dict[str, object]:
    """A topology as plain data in the format of its files."""
    return {"name": topology.name, "operators": [_operator_data(operator) for operator in topology.operators]}


def topology_schema() -> dict[str, object]:
    """The JSON Schema of topology files."""
    schema = TopologyDocument.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Tenax topology"}


def _operator(document: OperatorDocument) -> Operator:
    return Operator(
        name=document.name,
        parallelism=document.parallelism,
        inputs=tuple(Input(stream.from_, Partitioning(stream.partitioning)) for stream in document.inputs),
        weights=None if document.weights is None else tuple(document.weights),
        rate=_per_task(document.rate),
        selectivity=document.selectivity,
        correlated=document.correlated,
        output=None if document.output is None else Output(_per_task(document.output.priority)),
        reprocess=_per_task(document.reprocess),
        cost=_per_task(document.cost),
        safe=document.safe,
    )


def _operator_data(operator: Operator) -> dict[str, object]:
    default = Operator(operator.name)
    data: dict[str, object] = {"name": operator.name}
    if operator.parallelism != default.parallelism:
        data["parallelism"] = operator.parallelism
    if operator.weights is not None:
        data["weights"] = _plain(operator.weights)
    for name in ("rate", "selectivity", "reprocess", "cost"):
        value: PerTask = getattr(operator, name)
        if value != getattr(default, name):
            data[name] = _plain(value)
    for name in ("correlated", "safe"):
        if getattr(operator, name):
            data[name] = True
    if operator.inputs:
        data["inputs"] = [
            {"from": stream.operator, "partitioning": str(stream.partitioning)} for stream in operator.inputs
        ]
    if operator.output is not None:
        data["output"] = {"priority": _plain(operator.output.priority)}
    return data


def _per_task(value: float | list[float]) -> PerTask:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: PerTask) -> object:
    """Numbers as people write them: 3, not 3.0."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(value)
