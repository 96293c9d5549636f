"""A virtual store that knows versions of a topology, and what every one of its batches and checkpoints belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenax.control.versions import Cut, Version
from tenax.model.tasks import Task
from tenax.model.topology_versions import TopologyVersion
from tenax.simulation.store import Contents, Digest, Store, StoreMisused


@dataclass(slots=True)
class VersionedStore(Store):
    """A store of a run that is rescaled.

    - `versions` are recorded, the first one from the start; a batch belongs to one of them for ever.
    - A record is fenced as all writes are: what a driver that was replaced still records counts for nothing, whether
      the newer driver has looked before or not. So a version is never recorded behind the back of a newer driver.
    - `re_cuts` are states that a driver made of those of a checkpoint, for another version; they end with that driver,
      unless a checkpoint of its own refers to them.
    """

    versions: list[TopologyVersion] = field(default_factory=list)
    number: int = 1
    """Of the version that the newest driver is at."""
    version_of: dict[int, int] = field(default_factory=dict)
    re_cuts: dict[int, dict[Version, Digest]] = field(default_factory=dict)

    def claim(self) -> int:
        """The next epoch; what was re-cut in the one before is of no use any more."""
        self.re_cuts.clear()
        return Store.claim(self)

    def of_checkpoint(self, number: int) -> TopologyVersion:
        """The version that the tasks of a checkpoint are of; number 0 is the initial state."""
        return self.versions[self.version_of.get(number, 1) - 1]

    def following(self, number: int) -> TopologyVersion | None:
        """The version after that one, if it is recorded."""
        return self.versions[number] if number < len(self.versions) else None

    def record(self, epoch: int, version: TopologyVersion) -> None:
        """Let a version begin: from now on every driver goes on with it."""
        self._fence(epoch)
        if version.number != len(self.versions) + 1 or self.number != len(self.versions):
            raise StoreMisused(f"versions are recorded one after the other, found {version} after {self.number}")
        if self.final != version.after or any(batch > version.after for _, batch in self.committed):
            raise StoreMisused(f"a version begins behind the results of the one before, found {version.after}")
        newest = self.kept[-1]
        if newest and {point.batch for point in self.checkpoints[newest][0].points} != {version.after}:
            raise StoreMisused(f"a version begins where all tasks are stored, found {version.after} and {newest}")
        self.versions.append(version)

    def begin(self, epoch: int, version: TopologyVersion, outputs: tuple[Task, ...]) -> None:
        """Go on in a version."""
        self._fence(epoch)
        self.number, self.after, self.outputs = version.number, version.after, outputs

    def re_cut(self, epoch: int, number: int, states: Mapping[Version, Digest]) -> None:
        """Refer to the states of a checkpoint by other tasks."""
        self._fence(epoch)
        self.re_cuts.setdefault(number, {}).update(states)

    def lying(self) -> list[Contents]:
        """What lies there for complete checkpoints, re-cut or not."""
        return [*Store.lying(self), *(Contents(states) for states in self.re_cuts.values())]

    def commit(self, epoch: int, task: Task, batch: int, content: Digest) -> None:
        """Commit one final result of a batch of this version."""
        self._fence(epoch)
        self._check_batch(batch)
        Store.commit(self, epoch, task, batch, content)

    def show(self, epoch: int, task: Task, batch: int, content: Digest) -> None:
        """Commit one tentative result of a batch of this version."""
        self._fence(epoch)
        self._check_batch(batch)
        Store.show(self, epoch, task, batch, content)

    def seal(self, epoch: int, cut: Cut) -> None:
        """Commit the manifest of a checkpoint of this version."""
        Store.seal(self, epoch, cut)
        self.version_of[cut.number] = self.number

    def trim(self, epoch: int, checkpoints_before: int, source_log_before: int) -> None:
        """Drop old checkpoints, what was re-cut of them, and ranges."""
        Store.trim(self, epoch, checkpoints_before, source_log_before)
        self.re_cuts = {number: states for number, states in self.re_cuts.items() if number >= checkpoints_before}

    def _check_batch(self, batch: int) -> None:
        following = self.following(self.number)
        if batch <= self.after or (following is not None and batch > following.after):
            raise StoreMisused(f"a batch belongs to one version, found {batch} in version {self.number}")
