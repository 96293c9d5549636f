"""Virtual nodes: what they hold dies with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenax.control.versions import PassId, Version
from tenax.model.tasks import Task
from tenax.simulation.toy import Digest


@dataclass(slots=True, eq=False)
class VirtualNode:
    """A node: versions of task states, and retained outputs by (task, batch, pass)."""

    name: str
    alive: bool = True
    versions: dict[Version, Digest] = field(default_factory=dict)
    outputs: dict[tuple[Task, int, PassId], Digest] = field(default_factory=dict)

    def drop_versions(self, before: int) -> None:
        """Let go of old versions."""
        self.versions = {version: content for version, content in self.versions.items() if version.batch >= before}

    def drop_outputs(self, before: int, before_of: Mapping[Task, int]) -> None:
        """Let go of old outputs."""
        self.outputs = {
            (task, batch, made_by): content
            for (task, batch, made_by), content in self.outputs.items()
            if batch >= before_of.get(task, before)
        }
