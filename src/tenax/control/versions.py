"""Names of what a run makes: passes, versions of task states, retained outputs, checkpoints."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenax.errors import InvalidRequest
from tenax.model.tasks import Task

_PASS = re.compile(r"(\d{1,18})\.(\d{1,18})")
_VERSION = re.compile(r"([^@]+)@(\d{1,18})/([\d.]+)")


@dataclass(frozen=True, slots=True, order=True)
class PassId:
    """A pass, named by its driver's epoch and a count within it, written `3.17`.

    An epoch is claimed on the store by exclusive create, so no two drivers can ever name a pass alike, and a new driver
    need not look for the highest number in use, which a paused predecessor might still raise.
    """

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> PassId:
        """Read `3.17`."""
        match = _PASS.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"a pass is written epoch.number, found {text!r}: write it like 3.17")
        return cls(int(match[1]), int(match[2]))


NO_PASS = PassId(0, 0)  # made the versions before the first batch; epochs and numbers of real passes begin with 1


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A task's state after a batch, made by one pass, written `speed[2]@40/3.17`.

    One of pass 0.r, r ≥ 1, was not made yet: it is a *recipe*. Step the initial state from batch r on, without output,
    and after its batch you have it; of r itself only the watermark counts, unless it is the first batch there is.
    """

    task: Task
    batch: int
    pass_id: PassId

    @property
    def is_recipe(self) -> bool:
        """Whether it is yet to be made."""
        return self.pass_id.epoch == 0 and self.pass_id.number > 0

    @property
    def after(self) -> int:
        """The batch after which all inputs are needed to go on from here."""
        return self.pass_id.number - 1 if self.is_recipe else self.batch

    def __str__(self) -> str:
        return f"{self.task}@{self.batch}/{self.pass_id}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `speed[2]@40/3.17`."""
        match = _VERSION.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"a version is written task@batch/pass, found {text!r}: write it like a[0]@40/3.17")
        return cls(Task.parse(match[1]), int(match[2]), PassId.parse(match[3]))


def recipe(task: Task, batch: int, since: int) -> Version:
    """The state of a task after a batch, as it follows from the batches since another one."""
    return Version(task, batch, PassId(NO_PASS.epoch, since))


@dataclass(frozen=True, slots=True)
class Span:
    """Outputs of a task for batches `first` to `last`, made by one pass, on these nodes or in the store."""

    first: int
    last: int
    pass_id: PassId
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A line through a run that is on the store: one version of every task, in task order.

    - `number` names it; that of an aligned one, with all versions of one batch, is this batch.
    - `queues` has for every task the outputs that lie beside its version: those of batches that not all of its
      consumers are through at their versions. None at all if it is empty.
    - `acknowledged` has for every task the batch that all its consumers were through when its version was stored.

    All that follows can be made again from the line and the batch log after `batch`, whatever else is lost.
    """

    number: int
    versions: tuple[Version, ...]
    queues: tuple[tuple[Span, ...], ...] = ()
    acknowledged: tuple[int, ...] = ()

    @property
    def batch(self) -> int:
        """The batch of its oldest version; of one that is a recipe, the batch before the first that it needs."""
        return min((version.after for version in self.versions), default=self.number)

    @property
    def top(self) -> int:
        """The batch of its newest version."""
        return max((version.batch for version in self.versions), default=self.number)

    def queue(self, number: int) -> tuple[Span, ...]:
        """The outputs that lie beside the version of a task."""
        return self.queues[number] if self.queues else ()
