"""A virtual store: what survives a driver, with checks that no driver can switch off."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenax.control.load import Load
from tenax.control.versions import Cut, PassId, Version
from tenax.model.tasks import Task

Digest = bytes


class EpochRefused(Exception):
    """A write of a driver that is no longer the newest."""

    def __init__(self, newer: int) -> None:
        super().__init__(f"epoch {newer} owns the store")
        self.newer = newer


class StoreMisused(AssertionError):
    """A driver broke a rule of the store: the rule is named in the text."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One result, of one output task and batch."""

    task: Task
    batch: int
    content: Digest
    epoch: int
    tentative: bool = False


Output = tuple[Task, int, PassId]
"""What names retained outputs: task, batch, and the pass that made them."""


@dataclass(slots=True)
class Contents:
    """What lies in the store for a checkpoint: states, and retained outputs beside them."""

    states: dict[Version, Digest] = field(default_factory=dict)
    outputs: dict[Output, Digest] = field(default_factory=dict)


@dataclass(slots=True)
class Store:
    """Batch log, committed results and checkpoints, on a store that outlives every driver.

    - Every write names its epoch; older epochs are refused.
    - Each method is one effect: it happens completely or not at all.
    - `history` and `commits` never shrink: the checkers read them. `ranges` and `checkpoints` are trimmed.
    """

    outputs: tuple[Task, ...]
    after: int = 0
    """The batch behind which these outputs begin."""
    epoch: int = 0
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    history: dict[int, tuple[int, int]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    committed: set[tuple[Task, int]] = field(default_factory=set)
    checkpoints: dict[int, tuple[Cut, Contents]] = field(default_factory=dict)
    loads: dict[int, Load | None] = field(default_factory=dict)
    uploads: dict[tuple[int, int], Contents] = field(default_factory=dict)

    def claim(self) -> int:
        """The next epoch."""
        self.epoch += 1
        return self.epoch

    def check(self, epoch: int) -> None:
        """Refuse a driver that is no longer the newest."""
        self._fence(epoch)

    @property
    def logged(self) -> int:
        """The last logged batch."""
        return len(self.history)

    @property
    def published(self) -> dict[Task, int]:
        """The last batch of every output whose final result is committed."""
        newest = dict.fromkeys(self.outputs, self.after)
        for task, batch in self.committed:
            if task in newest:
                newest[task] = max(newest[task], batch)
        return newest

    @property
    def final(self) -> int:
        """The last batch of which all final results are committed."""
        return min(self.published.values(), default=self.logged)

    def log(self, epoch: int, batch: int, rows: tuple[int, int]) -> None:
        """Write the range of the next batch."""
        self._fence(epoch)
        if batch != self.logged + 1:
            raise StoreMisused(f"batches are logged once and in order, found {batch} after {self.logged}")
        self.history[batch] = self.ranges[batch] = rows

    def read(self, epoch: int, batch: int) -> tuple[int, int]:
        """The range of a batch."""
        if batch not in self.ranges:
            self._fence(epoch)
            raise StoreMisused(f"a batch is read after it is logged and before it is trimmed, found {batch}")
        return self.ranges[batch]

    def commit(self, epoch: int, task: Task, batch: int, content: Digest) -> None:
        """Commit one final result, unless it is committed already."""
        self._fence(epoch)
        if (task, batch) not in self.committed:
            self.committed.add((task, batch))
            self.commits.append(Commit(task, batch, content, epoch))

    def show(self, epoch: int, task: Task, batch: int, content: Digest) -> None:
        """Commit one tentative result."""
        self._fence(epoch)
        if (task, batch) in self.committed:
            raise StoreMisused(f"tentative results come before final ones, found {task} of batch {batch} after it")
        self.commits.append(Commit(task, batch, content, epoch, tentative=True))

    def upload(self, epoch: int, number: int, version: Version, content: Digest) -> None:
        """Upload one version of a checkpoint."""
        self._fence(epoch)
        self.uploads.setdefault((epoch, number), Contents()).states[version] = content

    def upload_outputs(self, epoch: int, number: int, output: Output, content: Digest) -> None:
        """Upload outputs that lie beside a version of a checkpoint."""
        self._fence(epoch)
        self.uploads.setdefault((epoch, number), Contents()).outputs[output] = content

    def lying(self) -> list[Contents]:
        """What lies there for complete checkpoints."""
        return [contents for _, contents in self.checkpoints.values()]

    def has_outputs(self, output: Output) -> bool:
        """Whether a checkpoint has these outputs."""
        return any(output in contents.outputs for _, contents in self.checkpoints.values())

    def seal(self, epoch: int, cut: Cut) -> None:
        """Commit the manifest of a checkpoint; what was not uploaded now lies there since the one before."""
        self._fence(epoch)
        uploaded = self.uploads.pop((epoch, cut.number), Contents())
        states, outputs = dict(uploaded.states), dict(uploaded.outputs)
        for contents in self.lying():
            states |= contents.states
            outputs |= contents.outputs
        versions = [point for point in cut.points if isinstance(point, Version)]
        needed = [
            (point.task, batch, span.pass_id)
            for number, point in enumerate(cut.points)
            for span in cut.outputs_of(number)
            for batch in range(span.first, span.last + 1)
        ]
        missing = [version for version in versions if version not in states and version.batch]
        if missing or not set(needed) <= set(outputs):
            raise StoreMisused(f"a manifest is committed last, found parts of {cut.number} missing")
        if cut.newest_batch > self.final:
            raise StoreMisused(f"results before a checkpoint are committed, found {self.final} < {cut.newest_batch}")
        contents = Contents(
            {version: states[version] for version in versions if version in states},
            {output: outputs[output] for output in needed},
        )
        self.checkpoints[cut.number] = cut, contents

    def fetch(self, epoch: int, version: Version) -> Digest:
        """The content of a version of a complete checkpoint."""
        for contents in self.lying():
            if version in contents.states:
                return contents.states[version]
        self._fence(epoch)
        raise StoreMisused(f"a checkpoint is restored before it is trimmed, found {version} missing")

    def fetch_outputs(self, epoch: int, output: Output) -> Digest:
        """Outputs that lie beside a version of a complete checkpoint."""
        for _, contents in self.checkpoints.values():
            if output in contents.outputs:
                return contents.outputs[output]
        self._fence(epoch)
        raise StoreMisused(f"outputs are read before they are trimmed, found {output} missing")

    def leads_on(self, number: int) -> bool:
        """Whether all batches that follow a checkpoint are still in the log."""
        after = self.checkpoints[number][0].oldest_batch if number else 0
        return all(batch in self.ranges for batch in range(after + 1, self.logged + 1))

    def set_aside(self, epoch: int, number: int) -> None:
        """Checkpoints that a driver has passed over for an older one, because they are damaged, count no more."""
        self._fence(epoch)
        self.checkpoints = {known: held for known, held in self.checkpoints.items() if known <= number}

    @property
    def kept(self) -> list[int]:
        """The two newest points that a run can start from; 0 is the initial state."""
        return sorted([0, *self.checkpoints])[-2:]

    def trim(self, epoch: int, checkpoints_before: int, source_log_before: int) -> None:
        """Drop old checkpoints and ranges; what a restart from the two newest checkpoints needs must stay."""
        self._fence(epoch)
        kept = self.kept
        self.checkpoints = {number: held for number, held in self.checkpoints.items() if number >= checkpoints_before}
        self.ranges = {batch: rows for batch, rows in self.ranges.items() if batch >= source_log_before}
        if self.kept != kept:
            raise StoreMisused(f"the two newest checkpoints stay, found {self.kept} of {kept}")
        oldest = self.checkpoints[kept[0]][0].oldest_batch if kept[0] else 0
        missing = [batch for batch in range(oldest + 1, self.logged + 1) if batch not in self.ranges]
        if missing:
            raise StoreMisused(f"batches after the oldest kept checkpoint stay, found {missing[0]} trimmed")

    def _fence(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise EpochRefused(self.epoch)
