"""A run under failures, for people: what happened to nodes, tasks and outputs, and how that looks in a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenax.cli.stopping import ASKED
from tenax.control import events, instructions, notices
from tenax.control.coordinator import Coordinator
from tenax.engine.observer import Observer
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task

MAX_MARKS = 100_000  # results that are remembered for the report
MAX_BATCHES = 10_000  # batches whose time is remembered
SHOWN_HAPPENINGS = 8
MAX_HAPPENINGS = 2_000
SHOWN_TASKS = 64  # glyphs of one operator
GONE_SHOWN = 8  # lost nodes that stay in view
STATUS_EVERY_S = 5.0  # between two lines on outputs in a pipe


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


class Condition(StrEnum):
    """How a task does."""

    LIVE = "live"
    REPLICATED = "replicated"
    TENTATIVE = "tentative"
    RECOVERING = "recovering"
    LOST = "lost"


GLYPHS = {
    Condition.LIVE: ("●", "green", "runs"),
    Condition.REPLICATED: ("◉", "cyan", "runs, replica in step"),
    Condition.TENTATIVE: ("◐", "yellow", "does without what is missing"),
    Condition.RECOVERING: ("◔", "magenta", "catches up"),
    Condition.LOST: ("✗", "red", "lost, waits for a node"),
}
"""Sign, colour and meaning; the sign alone tells conditions apart."""


@dataclass(frozen=True, slots=True)
class Mark:
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

    It is told of every event and draws nothing; `clock` gives seconds since the run began.
    """

    def __init__(self, graph: TaskGraph, outputs: Iterable[str], clock: Callable[[], float]) -> None:
        self.graph = graph
        self.clock = clock
        self.parallelism = {
            operator.name: operator.parallelism for operator in graph.operators if operator.name in set(outputs)
        }
        self.nodes: dict[str, NodeLife] = {}
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.newest: dict[str, Mark] = {}
        self.happenings: deque[tuple[float, str]] = deque(maxlen=MAX_HAPPENINGS)
        self.coordinator: Coordinator | None = None
        self.outage_s: float | None = None
        self.outages: list[tuple[float, float | None]] = []
        self._known_s: dict[int, float] = {}
        self._open: dict[tuple[str, int], _Batch] = {}
        self._publishing: dict[tuple[str, bool], instructions.Publish] = {}
        self._shown: dict[str, Kind] = {}

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> list[str]:
        """Learn from an event; what is worth telling, in words."""
        self.coordinator = coordinator
        said: list[str] = []
        for instruction in then:
            if isinstance(instruction, instructions.Publish):
                self._publishing[str(instruction.pass_id), instruction.tentative] = instruction
        match event:
            case events.Started():
                self._join(event.nodes)
            case events.BatchesLogged():
                self._remember_batches(event)
            case events.NodesJoined():
                said += self._join(event.nodes)
            case events.NodesLost():
                said += self._lose(event.nodes, then)
            case events.Published():
                said += self._publish(event)
            case events.CheckpointStored():
                said.append(f"checkpoint {event.number} stored")
        said += self._follow_outage(coordinator, then)
        self.happenings += [(self.clock(), text) for text in said]
        return said

    def lag_s(self, output: str) -> float | None:
        """How long the newest result of an output took."""
        return self.newest[output].latency_s if output in self.newest else None

    def _remember_batches(self, event: events.BatchesLogged) -> None:
        now_s = self.clock()
        self._known_s |= dict.fromkeys(range(event.first, event.last + 1), now_s)
        for old in list(self._known_s)[: max(0, len(self._known_s) - MAX_BATCHES)]:
            del self._known_s[old]

    def _join(self, nodes: Sequence[Node]) -> list[str]:
        said = []
        now_s = self.clock()
        for node in nodes:
            life = NodeLife(f"node {len(self.nodes) + 1}", node.rack, now_s)
            self.nodes[node.name] = life
            said.append(f"{life.label} joins" + (f" in {node.rack}" if node.rack else ""))
        return said

    def _lose(self, names: Sequence[str], then: Sequence[instructions.Decided]) -> list[str]:
        lives = [self.nodes[name] for name in names if name in self.nodes and self.nodes[name].lost_s is None]
        for life in lives:
            life.lost_s = self.clock()
        if not lives:
            return []
        racks = sorted({life.rack for life in lives if life.rack})
        where = f" of {' and '.join(racks)}" if racks else ""
        took_over = sum(isinstance(instruction, notices.ReplicaPromoted) for instruction in then)
        after = f"; {took_over} replica{'s take' if took_over != 1 else ' takes'} over" if took_over else ""
        return [f"LOST {' and '.join(life.label for life in lives)}{where}{after}"]

    def _follow_outage(self, coordinator: Coordinator, then: Sequence[instructions.Decided]) -> list[str]:
        said = []
        for instruction in then:
            if isinstance(instruction, notices.RecoveryBegun):
                moved = [task for task in instruction.homes if self.graph.operators[self._operator(task)].inputs]
                on = sorted({self.nodes[name].label for name in instruction.homes.values() if name in self.nodes})
                parts = [f"{_count(len(moved), 'lost task')} restart on {', '.join(on)}"] if moved else []
                parts += (
                    [f"{_count(len(instruction.waiting), 'lost task')} wait for a node"] if instruction.waiting else []
                )
                said += ["; ".join(parts)] if parts else []
            elif isinstance(instruction, notices.RolledBack):
                said.append(f"all tasks go back to checkpoint {instruction.number}: {instruction.reason}")
            elif isinstance(instruction, notices.TasksMoved):
                on = sorted({self.nodes[name].label for name in instruction.homes.values() if name in self.nodes})
                said.append(f"{_count(len(instruction.homes), 'task')} moved to {', '.join(on)}, to spread the load")
            elif isinstance(instruction, notices.ReplicasMoved):
                new = ", ".join(str(task) for task in instruction.after if task not in instruction.before) or "none"
                old = ", ".join(str(task) for task in instruction.before if task not in instruction.after) or "none"
                said.append(f"replicas follow the load: {new} in place of {old}; {instruction.reason}")
        outage = coordinator.state.outage is not None
        if outage and self.outage_s is None:
            self.outage_s = self.clock()
            self.outages.append((self.outage_s, None))
        elif not outage and self.outage_s is not None:
            self.outages[-1] = (self.outage_s, self.clock())
            said.append(f"ALL BACK after {self.clock() - self.outage_s:.1f} s: results are final again")
            self.outage_s = None
        return said

    def _operator(self, task: Task) -> int:
        return int(self.graph.operator_of[self.graph.number(task)])

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
            mark = self._mark(output, batch, state, str(event.pass_id))
            if mark.kind in {Kind.CORRECTED, Kind.COMPLETED}:
                mend = batch, mark.kind
                mended[mend] = f"{mended[mend]} and {output}" if mend in mended else output
            said += self._changed(mark)
        for names, kind in dict.fromkeys((names, kind) for (_, kind), names in mended.items()):
            batches = [batch for (batch, how), outputs in mended.items() if (outputs, how) == (names, kind)]
            said.append(f"{_range(batches)} of {names} {kind}: final now")
        return said

    def _mark(self, output: str, batch: int, state: _Batch, pass_id: str) -> Mark:
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
        mark = Mark(output, batch, self.clock(), kind, quality, None if known_s is None else self.clock() - known_s)
        if state.pass_id == pass_id:
            for position in range(len(self.marks) - 1, -1, -1):
                if (self.marks[position].output, self.marks[position].batch) == (output, batch):
                    del self.marks[position]
                    break
        state.pass_id = pass_id
        state.was_partial |= not whole
        self.marks.append(mark)
        if output not in self.newest or batch >= self.newest[output].batch:
            self.newest[output] = mark
        if whole:
            del self._open[output, batch]
        return mark

    def _changed(self, mark: Mark) -> list[str]:
        """Tell when an output begins to be partial or tentative; its return is told by corrections."""
        before = self._shown.get(mark.output, Kind.FINAL)
        self._shown[mark.output] = mark.kind
        if mark.kind in {Kind.TENTATIVE, Kind.PARTIAL} and before is not mark.kind:
            return [f"{mark.output}: {mark.kind} from batch {mark.batch} on, quality {mark.quality:.2f}"]
        return []


def conditions(coordinator: Coordinator) -> list[Condition]:
    """How every task does, in task order."""
    tasks = coordinator.state.tasks
    if not tasks:
        return []
    standing = coordinator.standing
    states = []
    for task, behind, degraded in zip(tasks, standing.behind, standing.degraded, strict=False):
        if task.primary is None:
            states.append(Condition.LOST)
        elif behind and task.primary.fork is None:
            states.append(Condition.RECOVERING)
        elif degraded:
            states.append(Condition.TENTATIVE)
        else:
            states.append(Condition.REPLICATED if task.in_step is not None else Condition.LIVE)
    return states


def output_text(outages: Outages, output: str) -> Text:
    """What an output shows now: final, partial or tentative with its quality, or held, and how fresh that is."""
    mark = outages.newest.get(output)
    if mark is None:
        return Text("no result yet", style="dim")
    fresh = f"batch {mark.batch:,}" + ("" if mark.latency_s is None else f" after {mark.latency_s:.1f} s")
    silent_s = outages.clock() - mark.at_s
    if outages.outage_s is not None and mark.at_s < outages.outage_s and _tainted(outages, output):
        return Text.assemble(("held", "red"), f"  for {silent_s:.0f} s, {fresh}")
    if mark.kind in {Kind.TENTATIVE, Kind.PARTIAL}:
        return Text.assemble((mark.kind, "yellow"), f"  quality {mark.quality:.2f}, {fresh}")
    return Text.assemble(("final", "green"), f"  {fresh}")


def _tainted(outages: Outages, output: str) -> bool:
    coordinator = outages.coordinator
    if coordinator is None or not coordinator.state.tasks:
        return False
    numbers = outages.graph.numbers(Task(output, index) for index in range(outages.parallelism[output]))
    return bool(coordinator.standing.degraded[numbers].any())


def drawn(outages: Outages, title: str) -> RenderableType:
    """The whole view: tasks by operator, outputs, nodes by rack, what happened last."""
    if outages.coordinator is None or not outages.coordinator.state.tasks:
        return Text.assemble((title, "bold"), ("  starting the cluster", "dim"))
    last = list(outages.happenings)[-SHOWN_HAPPENINGS:]
    head = Text.assemble((title, "bold"), ("   ", ""), f"{outages.clock():.0f} s")
    if outages.outage_s is not None:
        head.append(f"   tasks are missing for {outages.clock() - outages.outage_s:.0f} s", style="bold red")
    return Group(
        head,
        Text(),
        _tasks_table(outages, outages.coordinator),
        legend(),
        Text(),
        _outputs_table(outages),
        Text(),
        _nodes_table(outages, outages.coordinator),
        Text(),
        *(Text.assemble((f"{at_s:6.1f} s  ", "dim"), _styled(text)) for at_s, text in last),
    )


def legend() -> Text:
    """What the signs of tasks mean."""
    said = Text()
    for sign, style, meaning in GLYPHS.values():
        said.append(f"{sign} ", style=style)
        said.append(f"{meaning}   ", style="dim")
    return said


def _tasks_table(outages: Outages, coordinator: Coordinator) -> Table:
    grid = Table.grid(padding=(0, 2))
    states = conditions(coordinator)
    for number, operator in enumerate(outages.graph.operators):
        signs = Text()
        for condition in states[outages.graph.span(number)][:SHOWN_TASKS]:
            signs.append(f"{GLYPHS[condition][0]} ", style=GLYPHS[condition][1])
        role = "source" if operator.is_source else "output" if operator.name in outages.parallelism else ""
        more = max(0, operator.parallelism - SHOWN_TASKS)
        grid.add_row(Text(operator.name), signs, Text(f"and {more} more" if more else role, style="dim"))
    return grid


def _outputs_table(outages: Outages) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name in outages.parallelism:
        grid.add_row(Text.assemble(("output ", "dim"), (name, "bold")), output_text(outages, name))
    return grid


def _nodes_table(outages: Outages, coordinator: Coordinator) -> Table:
    held: dict[str, list[int]] = {}
    for task in coordinator.state.tasks:
        for position, copy in enumerate((task.primary, task.replica)):
            if copy is not None:
                held.setdefault(copy.node, [0, 0])[position] += 1
    grid = Table.grid(padding=(0, 2))
    gone = [name for name, life in outages.nodes.items() if life.lost_s is not None]
    hidden = set(gone[:-GONE_SHOWN])
    for name, life in sorted(outages.nodes.items(), key=lambda node: node[1].rack or ""):
        if name in hidden:
            continue
        tasks, replicas = held.get(name, [0, 0])
        state = Text.assemble(("● up", "green"), f"  {tasks} tasks, {replicas} replicas")
        if life.lost_s is not None:
            state = Text.assemble(("✗ lost", "red"), (f"  {outages.clock() - life.lost_s:.0f} s ago", "dim"))
        grid.add_row(Text(life.rack or "", style="dim"), Text(life.label), state)
    return grid


def _styled(text: str) -> Text:
    style = "red" if text.startswith("LOST") else "green" if text.startswith("ALL BACK") else ""
    return Text(text, style=style)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _range(batches: Sequence[int]) -> str:
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"


class OutageView(Observer):
    """Shows a run under failures while it goes on; in a pipe, a line for what happens and for outputs now and then."""

    def __init__(self, outages: Outages, title: str, console: Console | None = None) -> None:
        self.outages = outages
        self.console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self.console,
            refresh_per_second=8,
            get_renderable=lambda: drawn(outages, title),
            vertical_overflow="crop",
        )
        self._due_s = time.monotonic() + STATUS_EVERY_S

    def __enter__(self) -> OutageView:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def said(self, message: str) -> None:
        """Something happened that a user should know."""
        self.outages.happenings.append((self.outages.clock(), message))
        self._line(message)

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """Learn from an event, and tell what is worth telling."""
        if isinstance(event, events.StopRequested):
            self.said(ASKED)
        for text in self.outages.handled(coordinator, event, then):
            self._line(text)
        if time.monotonic() >= self._due_s and self.outages.newest:
            self._due_s = time.monotonic() + STATUS_EVERY_S
            self._line("; ".join(f"{name} {output_text(self.outages, name).plain}" for name in self.outages.newest))

    def _line(self, text: str) -> None:
        if not self.console.is_terminal:
            self.console.print(f"{self.outages.clock():6.1f} s  {text}", soft_wrap=True, markup=False)
