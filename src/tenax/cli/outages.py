"""A run under failures, followed: nodes that come and go, results as they come, outages, and what happened in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tenax.control import events, instructions
from tenax.control.coordinator import Coordinator
from tenax.control.narrator import Names, NodeName, news
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph

MAX_PUBLICATIONS = 100_000  # that are remembered for the report
MAX_BATCHES = 10_000  # batches whose time is remembered
MAX_HAPPENINGS = 2_000


class Kind(StrEnum):
    """What a result was when it came."""

    FINAL = "final"
    PARTIAL = "partial"
    """Final as far as it goes; some partitions are missing."""
    TENTATIVE = "tentative"
    COMPLETED = "completed"
    """Final, with the partitions that were missing."""
    CORRECTED = "corrected"
    """Final, in place of a tentative one."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The results of an output for one batch, as they stood at a moment.

    - `quality` is the mean over the output's tasks: 1 for final results, an estimate for tentative ones, 0 for none.
    - `latency_s` is the time since the batch's rows were known; none if an earlier driver logged them.
    """

    output: str
    batch: int
    at_s: float
    kind: Kind
    quality: float
    latency_s: float | None


@dataclass(slots=True)
class NodeLife:
    """A node: what it is called here, its rack, and from when to when it lived."""

    label: str
    rack: str | None
    joined_s: float
    lost_s: float | None = None


@dataclass(slots=True)
class _Batch:
    """What is published of one batch of one output: the quality of each task's results."""

    pass_id: str = ""
    was_tentative: bool = False
    was_partial: bool = False
    qualities: dict[int, float] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)


class Outages:
    """Follows a run: nodes that come and go, results as they come, and what happened in words.

    It hears of every event and draws nothing; `clock` gives seconds since the run began.
    """

    def __init__(self, graph: TaskGraph, outputs: Iterable[str], clock: Callable[[], float]) -> None:
        self.clock = clock
        self._outputs = frozenset(outputs)
        self.begun(graph)
        self.nodes: dict[str, NodeLife] = {}
        self.publications: deque[Publication] = deque(maxlen=MAX_PUBLICATIONS)
        self.newest: dict[str, Publication] = {}
        self.happenings: deque[tuple[float, str]] = deque(maxlen=MAX_HAPPENINGS)
        self.coordinator: Coordinator | None = None
        self.outage_s: float | None = None
        self.outages: list[tuple[float, float | None]] = []
        self._sources = frozenset(operator.name for operator in graph.operators if operator.is_source)
        self._known_s: dict[int, float] = {}
        self._open: dict[tuple[str, int], _Batch] = {}
        self._publishing: dict[tuple[str, bool], instructions.Publish] = {}
        self._shown: dict[str, Kind] = {}

    def begun(self, graph: TaskGraph) -> None:
        """The tasks are those of another version of the topology from now on."""
        self.graph = graph
        self.parallelism = {
            operator.name: operator.parallelism for operator in graph.operators if operator.name in self._outputs
        }

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> list[str]:
        """Learn from an event; what is worth telling, in words."""
        self.coordinator = coordinator
        said: list[str] = []
        for instruction in then:
            if isinstance(instruction, instructions.Publish):
                self._publishing[str(instruction.pass_id), instruction.tentative] = instruction
        match event:
            case events.Started():
                self._keep(event.nodes)
            case events.NodesJoined():
                self._join(event.nodes)
            case events.BatchesLogged():
                self._remember_batches(event)
            case events.NodesLost():
                event = replace(event, nodes=self._lose(event.nodes))
            case events.Published():
                said += self._publish(event)
        said += news(event, then, self._names)
        said += self._follow_outage(coordinator)
        self.happenings += [(self.clock(), text) for text in said]
        return said

    def _remember_batches(self, event: events.BatchesLogged) -> None:
        now_s = self.clock()
        self._known_s |= dict.fromkeys(range(event.first, event.last + 1), now_s)
        for old in list(self._known_s)[: max(0, len(self._known_s) - MAX_BATCHES)]:
            del self._known_s[old]

    def _keep(self, nodes: Sequence[Node]) -> None:
        """A version of the topology begins on these nodes: others were given back."""
        names = {node.name for node in nodes}
        self._join([node for node in nodes if node.name not in self.nodes])
        for name, life in self.nodes.items():
            if name not in names and life.lost_s is None:
                life.lost_s = self.clock()

    def _join(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.nodes[node.name] = NodeLife(f"node {len(self.nodes) + 1}", node.rack, self.clock())

    def _lose(self, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these nodes were there until now."""
        lost = tuple(name for name in names if name in self.nodes and self.nodes[name].lost_s is None)
        for name in lost:
            self.nodes[name].lost_s = self.clock()
        return lost

    @property
    def _names(self) -> Names:
        return Names({name: NodeName(life.label, life.rack) for name, life in self.nodes.items()}, self._sources)

    def _follow_outage(self, coordinator: Coordinator) -> list[str]:
        said = []
        outage = coordinator.state.outage is not None
        if outage and self.outage_s is None:
            self.outage_s = self.clock()
            self.outages.append((self.outage_s, None))
        elif not outage and self.outage_s is not None:
            self.outages[-1] = (self.outage_s, self.clock())
            said.append(f"ALL BACK after {self.clock() - self.outage_s:.1f} s: results are final again")
            self.outage_s = None
        return said

    def _publish(self, event: events.Published) -> list[str]:
        publish = self._publishing.pop((str(event.pass_id), event.tentative), None)
        if publish is None:
            return []
        touched: dict[tuple[str, int], _Batch] = {}
        for part in publish.parts:
            if part.task.operator not in self.parallelism:
                continue
            for batch in range(part.first, part.last + 1):
                key = part.task.operator, batch
                state = touched[key] = self._open.setdefault(key, _Batch())
                state.qualities[part.task.index] = part.quality
                state.was_tentative |= publish.tentative
                if not publish.tentative:
                    state.final.add(part.task.index)
        said: list[str] = []
        mended: dict[tuple[int, Kind], str] = {}
        for (output, batch), state in sorted(touched.items(), key=lambda shown: shown[0][1]):
            publication = self._publication(output, batch, state, str(event.pass_id))
            if publication.kind in {Kind.CORRECTED, Kind.COMPLETED}:
                mend = batch, publication.kind
                mended[mend] = f"{mended[mend]} and {output}" if mend in mended else output
            said += self._changed(publication)
        for names, kind in dict.fromkeys((names, kind) for (_, kind), names in mended.items()):
            batches = [batch for (batch, how), outputs in mended.items() if (outputs, how) == (names, kind)]
            said.append(f"{_range(batches)} of {names} {kind}: final now")
        return said

    def _publication(self, output: str, batch: int, state: _Batch, pass_id: str) -> Publication:
        """How a batch stands now; what the same pass published a moment before is one result with this."""
        count = self.parallelism[output]
        quality = sum(state.qualities.values()) / count
        whole = len(state.final) == count
        if state.was_tentative:
            kind = Kind.CORRECTED if whole else Kind.TENTATIVE
        elif whole:
            kind = Kind.COMPLETED if state.was_partial else Kind.FINAL
        else:
            kind = Kind.PARTIAL
        known_s = self._known_s.get(batch)
        publication = Publication(
            output, batch, self.clock(), kind, quality, None if known_s is None else self.clock() - known_s
        )
        if state.pass_id == pass_id:
            for position in range(len(self.publications) - 1, -1, -1):
                if (self.publications[position].output, self.publications[position].batch) == (output, batch):
                    del self.publications[position]
                    break
        state.pass_id = pass_id
        state.was_partial |= not whole
        self.publications.append(publication)
        if output not in self.newest or batch >= self.newest[output].batch:
            self.newest[output] = publication
        if whole:
            del self._open[output, batch]
        return publication

    def _changed(self, publication: Publication) -> list[str]:
        """Say when an output begins to be partial or tentative; its return is said by corrections."""
        before = self._shown.get(publication.output, Kind.FINAL)
        self._shown[publication.output] = publication.kind
        if publication.kind in {Kind.TENTATIVE, Kind.PARTIAL} and before is not publication.kind:
            since = f"from batch {publication.batch} on, quality {publication.quality:.2f}"
            return [f"{publication.output}: {publication.kind} {since}"]
        return []


def _range(batches: Sequence[int]) -> str:
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
