"""The state of one task as the coordinator knows it: its copies on nodes, and its retained outputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from tenax.control.versions import NO_PASS, RebuildPoint, RestorePoint, Span, Version


class Role(StrEnum):
    """What a step of a pass is for."""

    PRIMARY = "primary"
    """It sends, and makes results."""
    REPLICA = "replica"
    """It keeps a second copy up to date; output off."""
    REPLAY = "replay"
    """It makes outputs again that no node retained, from an older version; its task has long gone on."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A task's state on one node.

    - `head` is its newest accurate version, or the rebuild point that it is to reach first.
    - `stored` says that the head lies in the store and not yet on the node.
    - `fork` is the newest tentative version that was made from the head, if there is one.
    - While the head is a rebuild point, `rebuilt` is how far the node has come with it.
    """

    node: str
    head: RestorePoint
    stored: bool = False
    fork: Version | None = None
    rebuilt: Version | None = None

    @property
    def rebuilding(self) -> RebuildPoint | None:
        """The rebuild point that its next steps lead to, without output; None if its next step has output."""
        rebuilds = isinstance(self.head, RebuildPoint) and self.head.inputs_after < self.head.batch
        return self.head if isinstance(self.head, RebuildPoint) and rebuilds else None

    @property
    def batch(self) -> int:
        """The batch that its next step follows."""
        return self.start.batch

    @property
    def start(self) -> Version:
        """The version that its next accurate step starts from."""
        if isinstance(self.head, Version):
            return self.head
        return self.rebuilt or Version(self.head.task, self.head.inputs_after, NO_PASS)

    def front(self, batch: int) -> Version | None:
        """The version after a batch, accurate or tentative, from which a live pass can go on."""
        if self.batch == batch and self.rebuilding is None:
            return self.start
        return self.fork if self.fork is not None and self.fork.batch == batch else None


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task.

    - `primary` is the copy that sends; none if the task is unplaced. Then it begins at its `restore_point`.
    - `replica` is the second copy; it is in step if it is at the batch of the primary.
    - `replay` is the copy that makes outputs again which no node retained.
    - `rebuild_points`, oldest first, are for batches that it has been at, if it is never stored.
    """

    restore_point: RestorePoint
    primary: Copy | None = None
    replica: Copy | None = None
    replay: Copy | None = None
    retained: tuple[Span, ...] = ()
    rebuild_points: tuple[RebuildPoint, ...] = ()

    @property
    def head(self) -> RestorePoint:
        """The newest accurate version, or the rebuild point that it is to reach first."""
        return self.restore_point if self.primary is None else self.primary.head

    @property
    def batch(self) -> int:
        """The batch that its next accurate step follows."""
        return self.restore_point.inputs_after if self.primary is None else self.primary.batch

    @property
    def in_step(self) -> Copy | None:
        """The replica, if it could take over now."""
        if self.primary is None or self.replica is None or self.replica.batch != self.primary.batch:
            return None
        return self.replica

    def rebuild_point(self, before: RestorePoint, bound: int) -> RestorePoint:
        """The newest rebuild point of a batch up to a bound, or else the restore point before.

        None reaches further back than that one: what it needs may be gone.
        """
        points = (point for point in reversed(self.rebuild_points) if before.batch <= point.batch <= bound)
        return next((point for point in points if point.inputs_after >= before.inputs_after), before)

    def covering(self, batch: int) -> Span | None:
        """The retained outputs that a batch is among."""
        return next((span for span in self.retained if span.first <= batch <= span.last), None)

    def without(self, nodes: Collection[str]) -> TaskState:
        """What is left of its other copies and its outputs when nodes are gone; the primary is not touched."""
        spans = (replace(span, nodes=tuple(node for node in span.nodes if node not in nodes)) for span in self.retained)
        return replace(
            self,
            replica=None if self.replica is None or self.replica.node in nodes else self.replica,
            replay=None if self.replay is None or self.replay.node in nodes else self.replay,
            retained=tuple(span for span in spans if span.nodes),
        )

    def accurate(self) -> TaskState:
        """The same without tentative versions."""
        if self.primary is None or (self.primary.fork is None and (self.replica is None or self.replica.fork is None)):
            return self
        return replace(
            self,
            primary=replace(self.primary, fork=None),
            replica=None if self.replica is None else replace(self.replica, fork=None),
        )
