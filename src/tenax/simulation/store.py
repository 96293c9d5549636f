"""A virtual store: what survives a driver, with checks that no driver can switch off."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenax.control.versions import PassId, StoredCheckpoint, Version
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
    """What lies in the store for a checkpoint: states and queues."""

    states: dict[Version, Digest] = field(default_factory=dict)
    queues: dict[Output, Digest] = field(default_factory=dict)


@dataclass(slots=True)
class Store:
    """Batch log, committed results and checkpoints, on a store that outlives every driver.

    - Every write names its epoch; older epochs are refused.
    - Each method is one effect: it happens whole or not at all.
    - `history` and `commits` never shrink: the checkers read them. `ranges` and `checkpoints` are trimmed.
    """

    outputs: tuple[Task, ...]
    epoch: int = 0
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    history: dict[int, tuple[int, int]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    committed: set[tuple[Task, int]] = field(default_factory=set)
    checkpoints: dict[int, tuple[StoredCheckpoint, Contents]] = field(default_factory=dict)
    uploads: dict[tuple[int, int], Contents] = field(default_factory=dict)

    def claim(self) -> int:
        """The next epoch."""
        self.epoch += 1
        return self.epoch

    @property
    def logged(self) -> int:
        """The last logged batch."""
        return len(self.history)

    @property
    def published(self) -> dict[Task, int]:
        """The last batch of every output whose final result is committed."""
        found = dict.fromkeys(self.outputs, 0)
        for task, batch in self.committed:
            found[task] = max(found[task], batch)
        return found

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

    def upload_queue(self, epoch: int, number: int, output: Output, content: Digest) -> None:
        """Upload outputs that lie beside a version of a checkpoint."""
        self._fence(epoch)
        self.uploads.setdefault((epoch, number), Contents()).queues[output] = content

    def has_queue(self, output: Output) -> bool:
        """Whether a checkpoint has these outputs."""
        return any(output in contents.queues for _, contents in self.checkpoints.values())

    def seal(self, epoch: int, line: StoredCheckpoint) -> None:
        """Commit the manifest of a checkpoint; what was not uploaded now lies there since the one before."""
        self._fence(epoch)
        uploaded = self.uploads.pop((epoch, line.number), Contents())
        states, queues = dict(uploaded.states), dict(uploaded.queues)
        for _, contents in self.checkpoints.values():
            states |= contents.states
            queues |= contents.queues
        outputs = [
            (version.task, batch, span.pass_id)
            for number, version in enumerate(line.versions)
            for span in line.queue(number)
            for batch in range(span.first, span.last + 1)
        ]
        missing = [one for one in line.versions if one not in states and one.batch and not one.is_recipe]
        if missing or not set(outputs) <= set(queues):
            raise StoreMisused(f"a manifest is committed last, found parts of {line.number} missing")
        if line.top > self.final:
            raise StoreMisused(f"results before a checkpoint are committed, found {self.final} < {line.top}")
        contents = Contents(
            {one: states[one] for one in line.versions if one in states}, {one: queues[one] for one in outputs}
        )
        self.checkpoints[line.number] = line, contents

    def fetch(self, epoch: int, version: Version) -> Digest:
        """The content of a version of a complete checkpoint."""
        for _, contents in self.checkpoints.values():
            if version in contents.states:
                return contents.states[version]
        self._fence(epoch)
        raise StoreMisused(f"a checkpoint is restored before it is trimmed, found {version} missing")

    def fetch_queue(self, epoch: int, output: Output) -> Digest:
        """Outputs that lie beside a version of a complete checkpoint."""
        for _, contents in self.checkpoints.values():
            if output in contents.queues:
                return contents.queues[output]
        self._fence(epoch)
        raise StoreMisused(f"a queue is read before it is trimmed, found {output} missing")

    def leads_on(self, number: int) -> bool:
        """Whether all batches that follow a checkpoint are still in the log."""
        after = self.checkpoints[number][0].batch if number else 0
        return all(batch in self.ranges for batch in range(after + 1, self.logged + 1))

    def set_aside(self, epoch: int, number: int) -> None:
        """Checkpoints that a driver has passed over for an older one, because they are damaged, count no more."""
        self._fence(epoch)
        self.checkpoints = {one: held for one, held in self.checkpoints.items() if one <= number}

    @property
    def kept(self) -> list[int]:
        """The two newest points that a run can start from; 0 is the initial state."""
        return sorted([0, *self.checkpoints])[-2:]

    def trim(self, epoch: int, checkpoints_before: int, source_log_before: int) -> None:
        """Drop old checkpoints and ranges; what a restart from the two newest checkpoints needs must stay."""
        self._fence(epoch)
        kept = self.kept
        self.checkpoints = {number: one for number, one in self.checkpoints.items() if number >= checkpoints_before}
        self.ranges = {batch: one for batch, one in self.ranges.items() if batch >= source_log_before}
        if self.kept != kept:
            raise StoreMisused(f"the two newest checkpoints stay, found {self.kept} of {kept}")
        oldest = self.checkpoints[kept[0]][0].batch if kept[0] else 0
        missing = [batch for batch in range(oldest + 1, self.logged + 1) if batch not in self.ranges]
        if missing:
            raise StoreMisused(f"batches after the oldest kept checkpoint stay, found {missing[0]} trimmed")

    def _fence(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise EpochRefused(self.epoch)
