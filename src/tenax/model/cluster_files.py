"""Cluster files: the failure domains of a cluster, in YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from tenax.errors import InvalidCluster, InvalidFile, InvalidRequest
from tenax.model.cluster import Cluster, Node
from tenax.model.documents import Document, read_document, validated
from tenax.model.files import Number
from tenax.model.tasks import Task

DomainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class NodeDocument(Document):
    """A machine, and where it stands."""

    name: DomainName
    rack: DomainName | None = Field(default=None, description="nodes of a rack fail together")
    zone: DomainName | None = Field(default=None, description="racks of a zone fail together")
    slots: int | None = Field(
        default=None, ge=1, description="the most tasks and replicas it can hold; default no limit"
    )


class ClusterDocument(Document):
    """The nodes at hand, and what is known of their failures."""

    nodes: list[NodeDocument]
    checkpoint: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="seconds that a checkpoint takes"
    )
    failures_per_day: dict[str, Number] = Field(default_factory=dict, description="by node, rack or zone")
    placement: dict[str, str] = Field(default_factory=dict, description="node of each task; default spread evenly")


def read_cluster(path: Path) -> Cluster:
    """The cluster in a YAML or JSON file."""
    document = validated(ClusterDocument, read_document(path), path)
    try:
        return Cluster(
            nodes=tuple(Node(node.name, node.rack, node.zone, node.slots) for node in document.nodes),
            placement={Task.parse(task): node for task, node in document.placement.items()},
            failures_per_day=document.failures_per_day,
            checkpoint_s=document.checkpoint,
        )
    except (InvalidCluster, InvalidRequest) as error:
        raise InvalidFile(f"{path}: {error}") from None


def cluster_schema() -> dict[str, object]:
    """The JSON Schema of cluster files."""
    schema = ClusterDocument.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Tenax cluster"}
