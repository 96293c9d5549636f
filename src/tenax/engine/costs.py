"""What protection costs a run: checkpoints, replicas and retained outputs, counted from its reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tenax.control.copies import Role
from tenax.control.events import CheckpointStored, Event
from tenax.engine.worker.orders import Report


@dataclass(slots=True)
class Costs:
    """Totals since the driver began.

    - A checkpoint holds `held_bytes`; only `written_bytes` of them were new to the store.
    - `queue_bytes` were retained on the nodes, so that lost consumers can be fed again.
    - `messages` and `bytes` went from node to node; `replica_messages` and `replica_bytes` of
      these were for or from replicas.
    - Checkpoints took `checkpoint_s` by the clock, mostly waiting, and `checkpoint_cpu_s` of processor time.
    - `step_cpu_s` of processor time was spent in steps of live passes, of it `replica_cpu_s` in those of replicas and
      `retaining_cpu_s` in those of others to retain outputs.
    """

    checkpoints: int = 0
    held_bytes: int = 0
    written_bytes: int = 0
    checkpoint_s: float = 0.0
    checkpoint_cpu_s: float = 0.0
    queue_bytes: int = 0
    messages: int = 0
    bytes: int = 0
    replica_messages: int = 0
    replica_bytes: int = 0
    step_cpu_s: float = 0.0
    replica_cpu_s: float = 0.0
    retaining_cpu_s: float = 0.0

    def passed(self, reports: Iterable[Report]) -> None:
        """A live pass has finished."""
        for report in reports:
            self.queue_bytes += report.retained_bytes
            self.messages += report.sent.messages
            self.bytes += report.sent.bytes
            self.replica_messages += report.sent.replica_messages
            self.replica_bytes += report.sent.replica_bytes
            self.step_cpu_s += report.cpu_s
            if report.role is Role.REPLICA:
                self.replica_cpu_s += report.cpu_s
            else:
                self.retaining_cpu_s += report.retaining_cpu_s

    def handled(self, event: Event) -> None:
        """Something has happened; checkpoints count."""
        if isinstance(event, CheckpointStored):
            self.checkpoints += 1
            self.held_bytes += event.held_bytes
            self.written_bytes += event.written_bytes
            self.checkpoint_s += event.seconds
            self.checkpoint_cpu_s += event.cpu_s

    @property
    def share(self) -> float:
        """The part of the processor time of steps and checkpoints that went into protection."""
        total = self.step_cpu_s + self.checkpoint_cpu_s
        spent = self.replica_cpu_s + self.retaining_cpu_s + self.checkpoint_cpu_s
        return spent / total if total else 0.0
