"""The narrator: events, instructions and notices as sentences, for screens, records and the story of a task.

- `sentence` is what happened to the run, in words; None if it is everyday.
- `news` is what is worth telling while a run goes on: of one event and what followed from it.
- `story` is what happened to one task, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenax.control.events import (
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    Event,
    LoggingFailed,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
    PlanningFailed,
    PublishFailed,
    RescaleFailed,
    Started,
    StopRequested,
)
from tenax.control.instructions import (
    CancelCheckpoint,
    CancelPass,
    Decided,
    Instruction,
    Publish,
    RequestNodes,
    Rescale,
    RunPass,
    Stop,
    StoreCheckpoint,
    Trim,
)
from tenax.control.notices import (
    BackupsMoved,
    LoadJudged,
    Notice,
    PromiseMeasured,
    RecoveryBegun,
    ReplicaPromoted,
    ReplicasMoved,
    RescaleGivenUp,
    RescalePlanned,
    RescalePostponed,
    RolledBack,
    TasksMoved,
)
from tenax.model.tasks import Task, in_groups
from tenax.model.topology_versions import Target
from tenax.planning.promises import Promise

Happening = Event | Instruction | Notice
"""All that sentences are made of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, counted from 1, and what followed; `ignored` says why nothing did, if the event meant nothing."""

    number: int
    event: Event
    decided: tuple[Decided, ...]
    ignored: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story, with the number of the event that it belongs to."""

    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.number}: {self.text}"


@dataclass(frozen=True, slots=True)
class NodeName:
    """How a node is called in sentences, and the rack that it is in."""

    label: str
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """What sentences call things by: nodes by their labels (their own names if unknown), and what the sources are."""

    nodes: Mapping[str, NodeName] = field(default_factory=dict)
    sources: frozenset[str] = frozenset()

    def of(self, node: str) -> str:
        """How a node is called."""
        return self.nodes[node].label if node in self.nodes else node

    def all_of(self, nodes: Iterable[str]) -> list[str]:
        """How nodes are called, each once, in order."""
        return sorted({self.of(node) for node in nodes})

    def racks_of(self, nodes: Iterable[str]) -> list[str]:
        """The racks of nodes, each once, in order."""
        racks = {self.nodes[node].rack for node in nodes if node in self.nodes}
        return sorted(rack for rack in racks if rack)


PLAIN = Names()


def sentence(happening: Happening, names: Names = PLAIN) -> str | None:
    """What happened to the run; None if it is everyday: batches logged, passes run, results published."""
    match happening:
        case ReplicaPromoted() | RecoveryBegun() | TasksMoved() | RolledBack():
            return _of_notice(happening, names)
        case ReplicasMoved() | BackupsMoved() | PromiseMeasured():
            return _of_notice(happening, names)
        case RescalePlanned() | RescalePostponed() | RescaleGivenUp() | LoadJudged():
            return _of_notice(happening, names)
        case Stop() | RequestNodes() | CancelCheckpoint() | Rescale():
            return _of_instruction(happening)
        case Started():
            if happening.passes:
                return f"the next version of the topology goes on from checkpoint {happening.checkpoint_number}"
            number = happening.checkpoint_number
            begins = f"checkpoint {number}" if number else "the beginning"
            return f"driver {happening.epoch} starts on {_count(len(happening.nodes), 'node')} from {begins}"
        case NodesJoined():
            return "; ".join(_joined(node.name, node.rack, names) for node in happening.nodes)
        case NodesLost():
            racks = names.racks_of(happening.nodes)
            where = f" of {' and '.join(racks)}" if racks else ""
            cause = ", overdue" if happening.overdue else ""
            return f"LOST {' and '.join(map(names.of, happening.nodes))}{where}{cause}"
        case CheckpointStored():
            return f"checkpoint {happening.number} stored"
        case CheckpointFailed():
            return f"checkpoint {happening.number} failed: {happening.cause}"
        case PassFailed():
            return f"pass {happening.pass_id} failed: {happening.failure}"
        case LoggingFailed():
            return f"batch {happening.first} could not be planned and logged: {happening.cause}"
        case PublishFailed():
            return f"results of pass {happening.pass_id} could not be published: {happening.cause}"
        case PlanningFailed():
            return f"no plan of {happening.what} by batch {happening.batch}: {happening.cause}"
        case StopRequested():
            return f"the run is to end: {happening.cause}"
        case EpochLost():
            return f"a newer driver, of epoch {happening.newer}, owns the store"
        case RescaleFailed():
            return f"the next version of the topology could not be recorded: {happening.cause}"
    return None


def news(event: Event, decided: Sequence[Decided], names: Names = PLAIN) -> list[str]:
    """What is worth telling of an event and what followed, while a run goes on: nodes, checkpoints, notices."""
    sentences: list[str] = []
    promoted = sum(isinstance(each, ReplicaPromoted) for each in decided)
    match event:
        case NodesJoined():
            sentences += [_joined(node.name, node.rack, names) for node in event.nodes]
        case NodesLost() if event.nodes:
            taking_over = f"; {_count(promoted, 'replica', 'take')} over" if promoted else ""
            sentences.append(f"{sentence(event, names)}{taking_over}")
        case CheckpointStored():
            sentences.append(f"checkpoint {event.number} stored")
    for each in decided:
        if isinstance(each, Notice) and not isinstance(each, ReplicaPromoted | LoadJudged):  # counted above; everyday
            sentences += [text] if (text := _of_notice(each, names)) else []
    return sentences


def story(log: Iterable[Entry], task: Task) -> list[Line]:
    """The part of the log that concerns a task. O(log × tasks)."""
    lines: list[Line] = []
    for entry in log:
        text = _event_of_task(entry.event, task)
        if text:
            lines.append(Line(entry.number, f"{text} (ignored: {entry.ignored})" if entry.ignored else text))
        lines += [Line(entry.number, text) for each in entry.decided if (text := _decided_of_task(each, task))]
    return lines


def _joined(node: str, rack: str | None, names: Names) -> str:
    return f"{names.of(node)} joins" + (f" in {rack}" if rack else "")


def _of_instruction(instruction: Stop | RequestNodes | CancelCheckpoint | Rescale) -> str:
    match instruction:
        case Stop():
            return f"stop, {instruction.outcome}: {instruction.reason}"
        case RequestNodes():
            return f"{_count(instruction.count, 'more node')} asked for"
        case CancelCheckpoint():
            return f"checkpoint {instruction.number} cancelled"
        case Rescale():
            return f"all tasks are stored at batch {instruction.cut.newest_batch}: {instruction.target.words}"


def _of_notice(notice: Notice, names: Names) -> str | None:
    match notice:
        case ReplicaPromoted():
            return f"the replica of {notice.task} on {names.of(notice.node)} takes over"
        case RecoveryBegun():
            # sources have nothing but a place in their log: they go on anywhere, and nothing is restored
            restarted = {task: node for task, node in notice.homes.items() if task.operator not in names.sources}
            where = ", ".join(names.all_of(notice.homes.values()))
            clauses = [f"{_count(len(restarted), 'lost task', 'restart')} on {where}"] if restarted else []
            why = f": {notice.reason}" if notice.reason else ""
            clauses += [f"{_count(len(notice.waiting), 'lost task', 'wait')} for a node{why}"] if notice.waiting else []
            return "; ".join(clauses) or None
        case TasksMoved():
            where = ", ".join(names.all_of(notice.homes.values()))
            return f"{_count(len(notice.homes), 'task')} moved to {where}, to spread the load"
        case RolledBack():
            return f"all tasks go back to checkpoint {notice.number}: {notice.reason}"
        case ReplicasMoved():
            new = ", ".join(str(task) for task in notice.after if task not in notice.before) or "none"
            old = ", ".join(str(task) for task in notice.before if task not in notice.after) or "none"
            return f"replicas follow the load: {new} in place of {old}; {notice.reason}"
        case BackupsMoved():
            before, after = (in_groups(tasks) or "none" for tasks in (notice.before, notice.after))
            return f"outputs are retained by {after} in place of {before}, {notice.reason}"
        case PromiseMeasured():
            return promise_words(notice.promise)
        case LoadJudged():
            return f"load: {notice.outcome}; {notice.reason}"
        case RescalePlanned():
            return f"rescale to come: {_why(notice.target)}"
        case RescalePostponed():
            return f"the rescale waits: {notice.reason}"
        case RescaleGivenUp():
            return f"no rescale ({notice.target.words}): {notice.reason}"


def _why(target: Target) -> str:
    return f"{target.words}; {target.cause}" if target.cause else target.words


def promise_words(promise: Promise) -> str:
    """How soon a lost task is back, as measured."""
    parts = f"{promise.steps_s:.3g} s of steps and {promise.scheduling_s:.3g} s of scheduling, as measured"
    slowest, late = promise.slowest, len(promise.late_nodes)
    if slowest is not None:
        within = f"all tasks of a lost node within {slowest.total_s:.3g} s"
        parts += f"; {within}" + f", which is too late for {late} of {len(promise.losses)} nodes" * bool(late)
    if not promise.broken_by:
        return f"a lost task is back within {promise.total_s:.3g} s of {promise.bound_s:g} s allowed: {parts}"
    return (
        f"a lost task is NOT back within {promise.bound_s:g} s but within {promise.total_s:.3g} s, because of "
        f"{in_groups(promise.broken_by)}: {parts}"
    )


def _count(number: int, what: str, does: str = "") -> str:
    """So many things, and what they do: `1 task waits`, `2 tasks wait`."""
    counted = f"{number} {what}{'' if number == 1 else 's'}"
    return f"{counted} {does}{'s' if number == 1 else ''}" if does else counted


def _event_of_task(event: Event, task: Task) -> str:
    match event:
        case PassFinished(pass_id, reports):
            made = [report for report in reports if report.version.task == task]
            if made:
                where = " and ".join(report.node for report in made)
                return f"pass {pass_id} finished: {made[0].version}, {made[0].rows} rows, on {where}"
        case PassFailed():
            return sentence(event) or ""
        case CheckpointStored():
            return sentence(event) or ""
        case CheckpointFailed(number, attempt, cause):
            return f"checkpoint {number} failed, attempt {attempt}: {cause}"
        case NodesLost(nodes):
            return f"nodes lost: {', '.join(nodes)}"
        case NodesJoined(nodes):
            return f"nodes joined: {', '.join(node.name for node in nodes)}"
    return ""


def _decided_of_task(decided: Decided, task: Task) -> str:
    match decided:
        case RunPass():
            return _pass_of_task(decided, task)
        case CancelPass(pass_id):
            return f"pass {pass_id} cancelled"
        case Publish():
            for part in decided.parts:
                if part.task == task:
                    kind = f"tentative, quality {part.quality:.2f}" if decided.tentative else "final"
                    return f"publish results of batches {part.first} to {part.last}, {kind}"
        case StoreCheckpoint():
            for version in decided.versions:
                if version.task == task:
                    return f"store {version}, attempt {decided.attempt}"
        case ReplicaPromoted():
            return f"its replica on {decided.node} takes over" if decided.task == task else ""
        case RecoveryBegun():
            if task in decided.homes:
                return f"lost, and comes back on {decided.homes[task]}"
            why = f": {decided.reason}" if decided.reason else ""
            return f"lost, and waits for room on a node{why}" if task in decided.waiting else ""
        case ReplicasMoved() if (task in decided.before) != (task in decided.after):
            what = "has no replica any more" if task in decided.before else "gets a replica"
            return f"{what}: {decided.reason}"
        case BackupsMoved() if (task in decided.before) != (task in decided.after):
            what = "retains its outputs no longer" if task in decided.before else "retains its outputs from now on"
            return f"{what}, {decided.reason}"
        case TasksMoved():
            return f"goes on at {decided.homes[task]}, to spread the load" if task in decided.homes else ""
        case RolledBack():
            return f"back to checkpoint {decided.number}: {decided.reason}"
        case Trim():
            before = decided.retained_before_of.get(task, decided.retained_before)
            return f"trim retained outputs before batch {before}, checkpoints before {decided.checkpoints_before}"
        case Stop():
            return sentence(decided) or ""
    return ""


def _pass_of_task(order: RunPass, task: Task) -> str:
    batches = f"batches {order.first} to {order.last}"
    for step in order.steps:
        if step.task == task:
            how = "tentatively " if step.tentative else ""
            return (
                f"{order.kind} pass {order.pass_id}: {how}as {step.role} through {batches} on {step.node} from "
                f"{step.start}, attempt {order.attempt}"
            )
    read = [
        f"outputs of batches {reading.first} to {reading.last}, retained by pass {reading.pass_id}, "
        f"are read {'from the store ' if reading.stored else ''}on {reading.node}"
        for reading in order.readings
        if reading.task == task
    ]
    return f"pass {order.pass_id}: {'; '.join(read)}" if read else ""
