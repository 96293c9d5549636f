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
        self.versions = {version: one for version, one in self.versions.items() if version.batch >= before}

    def drop_outputs(self, before: int, queues_before: Mapping[Task, int]) -> None:
        """Let go of old outputs."""
        self.outputs = {key: one for key, one in self.outputs.items() if key[1] >= queues_before.get(key[0], before)}
