"""Publication: staged results of passes are committed to their sinks, final or tentative, each batch once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tenax.application.application import Application, late_output
from tenax.application.traces import cause_of
from tenax.connectors.sink import Committer, Staged
from tenax.control.instructions import Part, Publish
from tenax.control.versions import PassId
from tenax.engine.worker.orders import Report
from tenax.errors import EpochLost, SinkFailed, SinkRaised, StoreFailed, TenaxError
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task


class Publisher:
    """Keeps what passes have staged until it is committed, final or tentative.

    - `published` is the newest final batch of every task with results, and stays so over restarts. The tasks are those
      of the version of the topology that was begun last; results before it are all committed.
    - Results up to `elsewhere`, of every partition of an output, are in a folder that it had before.
    """

    def __init__(
        self,
        application: Application,
        folder: Path,
        identity: str,
        epoch: int,
        elsewhere: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._places = {name: sink.place for name, sink in application.sinks.items()}
        self._elsewhere = elsewhere or {}
        self._committers: dict[str, Committer] = {
            name: sink.committer(name, folder, identity, epoch) for name, sink in application.sinks.items()
        }
        self._staged: dict[PassId, dict[tuple[Task, int], list[Staged]]] = {}
        self._lock = threading.Lock()
        self.published: dict[Task, int] = {}

    def begin(self, graph: TaskGraph, after: int) -> None:
        """Publish results of these tasks from now on; all results up to batch `after` were committed by others."""
        self._graph = graph
        self.published = {}
        for operator in graph.operators:
            names = [name for name in (operator.name, late_output(operator.name)) if name in self._committers]
            for index in range(operator.parallelism) if names else ():
                last = min(self._last_batch(name, index, after) for name in names)
                self.published[Task(operator.name, index)] = last

    @property
    def notices(self) -> list[str]:
        """What lies among the results that no commit explains, or is not as it was."""
        return [notice for committer in self._committers.values() for notice in committer.notices]

    @property
    def owed(self) -> list[str]:
        """Committed results that are lost and must be made again, in words."""
        return [
            f"output {name!r}, batch {batch}, partition {partition}"
            for name, committer in self._committers.items()
            for batch, partition in committer.owed
        ]

    @property
    def highest(self) -> int:
        """The newest batch of which any result is committed."""
        before = (batch for batches in self._elsewhere.values() for batch in batches)
        return max((*(committer.highest for committer in self._committers.values()), *before), default=0)

    @property
    def final(self) -> int:
        """The newest batch of which all final results are committed, also those of earlier versions."""
        owed = (batch - 1 for committer in self._committers.values() for batch, _ in committer.owed)
        return min((*self.published.values(), *owed), default=0)

    def _last_batch(self, output: str, partition: int, after: int) -> int:
        """The newest batch up to which the results of a partition are there; what is lost among them is owed."""
        committer = self._committers[output]
        last = committer.last_batch(partition)
        if any(number == partition and batch <= after for batch, number in committer.owed):
            return last
        return max(last, self._before(output, partition), after)

    def _before(self, output: str, partition: int) -> int:
        """The newest batch of which a result is where the output went before."""
        batches = self._elsewhere.get(output, ())
        return batches[partition] if partition < len(batches) else 0  # tasks may have come since

    def keep(self, pass_id: PassId, reports: Iterable[Report]) -> None:
        """Remember what a pass has staged."""
        staged: dict[tuple[Task, int], list[Staged]] = {}
        for report in reports:
            task = self._graph.task(report.task)
            for result in report.staged:
                staged.setdefault((task, result.batch), []).append(result)
        if staged:
            with self._lock:
                self._staged[pass_id] = staged

    def publish(self, instruction: Publish) -> None:
        """Commit results batch by batch, all partitions of an output together."""
        with self._lock:
            staged = self._staged.get(instruction.pass_id, {})
        for batch in range(
            min(part.first for part in instruction.parts), max(part.last for part in instruction.parts) + 1
        ):
            for (output, quality), results in _of_batch(instruction.parts, staged, batch).items():
                with self._naming(output):
                    if instruction.tentative:
                        self._committers[output].show(batch, results, quality)
                    else:
                        self._committers[output].commit(batch, results)
        if not instruction.tentative:
            self.published |= {part.task: max(part.last, self.published[part.task]) for part in instruction.parts}
        with self._lock:
            for part in instruction.parts:
                for batch in range(part.first, part.last + 1):
                    staged.pop((part.task, batch), None)
            if not staged:
                self._staged.pop(instruction.pass_id, None)

    @contextmanager
    def _naming(self, output: str) -> Iterator[None]:
        """Name the output and its place in whatever goes wrong with it; what its place refuses may pass."""
        try:
            yield
        except EpochLost:
            raise
        except (StoreFailed, OSError) as error:
            raise SinkFailed(f"output {output!r} in {self._places[output]}: {cause_of(error)}") from error
        except TenaxError:
            raise
        except Exception as error:
            raise SinkRaised(f"output {output!r}: {self._places[output]} raised {cause_of(error)}") from error

    def close(self) -> None:
        """Let go of all places: every one is closed, also where another raises."""
        with ExitStack() as stack:
            for committer in self._committers.values():
                stack.callback(committer.close)


def _of_batch(
    parts: Iterable[Part], staged: Mapping[tuple[Task, int], list[Staged]], batch: int
) -> dict[tuple[str, float], list[Staged]]:
    """The results of a batch, by output and quality."""
    results: dict[tuple[str, float], list[Staged]] = {}
    for part in parts:
        if part.first <= batch <= part.last:
            for result in staged[part.task, batch]:
                results.setdefault((result.output, part.quality), []).append(result)
    return results
