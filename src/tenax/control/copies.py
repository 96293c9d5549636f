"""What is known of one task: its copies on nodes, and the outputs of it that are retained."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from tenax.control.versions import NO_PASS, Span, Version


class Role(StrEnum):
    """What a step of a pass is for."""

    PRIMARY = "primary"
    """It sends, and makes results."""
    REPLICA = "replica"
    """It keeps a second copy up to date; output off."""
    SHADOW = "shadow"
    """It makes outputs again that nobody retained, from an older version; its task has long gone on."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A task's state on one node.

    - `head` is its newest accurate version; `stored` says that it lies in the store and not yet on the node.
    - `fork` is the newest tentative version that was made from it, if there is one.
    - While the head is a recipe, `warmed` is how far the node has come with it.
    """

    node: str
    head: Version
    stored: bool = False
    fork: Version | None = None
    warmed: Version | None = None

    @property
    def warming(self) -> bool:
        """Whether its head is yet to be made, by steps without output."""
        return self.head.after < self.head.batch

    @property
    def level(self) -> int:
        """The batch that its next step follows."""
        return self.start.batch

    @property
    def start(self) -> Version:
        """The version that its next accurate step starts from."""
        if not self.head.is_recipe:
            return self.head
        return self.warmed or Version(self.head.task, self.head.after, NO_PASS)

    def front(self, batch: int) -> Version | None:
        """The version after a batch, accurate or tentative, from which a live pass can go on."""
        if self.level == batch and not self.warming:
            return self.start
        return self.fork if self.fork is not None and self.fork.batch == batch else None


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task.

    - `primary` is the copy that sends; none if the task is lost and has no node yet. Then `base` is where it starts.
    - `replica` is the second copy; it is in step if its head is at the batch of the primary's.
    - `shadow` is how far the outputs that nobody retained have been made again.
    - `recipes`, oldest first, are for batches that it has been at, if it is never stored.
    """

    base: Version
    primary: Copy | None = None
    replica: Copy | None = None
    shadow: Copy | None = None
    retained: tuple[Span, ...] = ()
    recipes: tuple[Version, ...] = ()

    @property
    def head(self) -> Version:
        """The newest accurate version."""
        return self.base if self.primary is None else self.primary.head

    @property
    def level(self) -> int:
        """The batch that its next accurate step follows."""
        return self.base.after if self.primary is None else self.primary.level

    @property
    def in_step(self) -> Copy | None:
        """The replica, if it could take over now."""
        if self.primary is None or self.replica is None or self.replica.level != self.primary.level:
            return None
        return self.replica

    def recipe(self, before: Version, bound: int) -> Version:
        """The newest recipe for a batch up to a bound, or else the version before.

        None reaches further back than that version: what it needs may be gone.
        """
        found = (one for one in reversed(self.recipes) if before.batch <= one.batch <= bound)
        return next((one for one in found if one.after >= before.after), before)

    def covering(self, batch: int) -> Span | None:
        """The retained outputs that a batch is among."""
        return next((span for span in self.retained if span.first <= batch <= span.last), None)

    def without(self, nodes: Collection[str]) -> TaskState:
        """What is left of its replica, its shadow and its outputs when nodes are gone; the primary is not touched."""
        spans = (replace(span, nodes=tuple(node for node in span.nodes if node not in nodes)) for span in self.retained)
        return replace(
            self,
            replica=None if self.replica is None or self.replica.node in nodes else self.replica,
            shadow=None if self.shadow is None or self.shadow.node in nodes else self.shadow,
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
