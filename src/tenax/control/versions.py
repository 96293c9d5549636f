"""Names of what a run makes: passes, versions of task states, rebuild points, retained outputs, cuts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tenax.errors import InvalidRequest
from tenax.model.tasks import Task

_PASS = re.compile(r"(\d{1,18})\.(\d{1,18})")
_VERSION = re.compile(r"([^@]+)@(\d{1,18})/([\d.]+)")
_REBUILD_POINT = re.compile(r"([^@]+)@(\d{1,18})/from (\d{1,18})")


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
    """A task's state after a batch, made by one pass, written `speed[2]@40/3.17`."""

    task: Task
    batch: int
    pass_id: PassId

    @property
    def inputs_after(self) -> int:
        """The batch after which all inputs are needed to go on from here: its own."""
        return self.batch

    def __str__(self) -> str:
        return f"{self.task}@{self.batch}/{self.pass_id}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `speed[2]@40/3.17`."""
        match = _VERSION.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"a version is written task@batch/pass, found {text!r}: write it like a[0]@40/3.17")
        return cls(Task.parse(match[1]), int(match[2]), PassId.parse(match[3]))


@dataclass(frozen=True, slots=True, order=True)
class RebuildPoint:
    """A task's state after a batch that is never stored, but rebuilt, written `speed[2]@40/from 37`.

    Step the initial state from batch `first` on, without output, and after `batch` you have it; of `first` itself only
    the watermark counts, unless it is the first batch there is.
    """

    task: Task
    batch: int
    first: int

    @property
    def inputs_after(self) -> int:
        """The batch after which all inputs are needed to go on from here: the one before the first that is stepped."""
        return self.first - 1

    def __str__(self) -> str:
        return f"{self.task}@{self.batch}/from {self.first}"

    @classmethod
    def parse(cls, text: str) -> RebuildPoint:
        """Read `speed[2]@40/from 37`."""
        match = _REBUILD_POINT.fullmatch(text)
        if match is None:
            raise InvalidRequest(
                f"a rebuild point is written task@batch/from batch, found {text!r}: write it like a[0]@40/from 37"
            )
        return cls(Task.parse(match[1]), int(match[2]), int(match[3]))


RestorePoint = Version | RebuildPoint
"""Where a task that is lost begins again: a stored version, or how its state is rebuilt."""


def parse_restore_point(text: str) -> RestorePoint:
    """Read `speed[2]@40/3.17` or `speed[2]@40/from 37`."""
    return RebuildPoint.parse(text) if _REBUILD_POINT.fullmatch(text) else Version.parse(text)


@dataclass(frozen=True, slots=True)
class Span:
    """Outputs of a task for batches `first` to `last`, made by one pass, on these nodes or in the store."""

    first: int
    last: int
    pass_id: PassId
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut through a run: where every task would begin again, in task order. A stored cut is a checkpoint.

    - `number` names it; that of an aligned one, with all versions of one batch, is this batch.
    - `outputs` has for every task the retained outputs that lie beside its version: those of batches that not all of
      its consumers are through at their points. None at all if it is empty.
    - `acknowledged` has for every task the batch that all its consumers were through when its version was stored.

    All that follows can be made again from the cut and the batch log after its oldest batch, whatever else is lost.
    """

    number: int
    points: tuple[RestorePoint, ...]
    outputs: tuple[tuple[Span, ...], ...] = ()
    acknowledged: tuple[int, ...] = ()

    @property
    def oldest_batch(self) -> int:
        """The batch after which all inputs are needed to go on from here."""
        return min((point.inputs_after for point in self.points), default=self.number)

    @property
    def newest_batch(self) -> int:
        """The batch of its newest point."""
        return max((point.batch for point in self.points), default=self.number)

    @property
    def known_acknowledged(self) -> tuple[int, ...]:
        """The batches that consumers were through, noted or not: if all are stored at one batch it is that one."""
        batch = self.oldest_batch
        return self.acknowledged or (batch if batch == self.newest_batch else 0,) * len(self.points)

    def outputs_of(self, number: int) -> tuple[Span, ...]:
        """The retained outputs that lie beside the version of a task."""
        return self.outputs[number] if self.outputs else ()
