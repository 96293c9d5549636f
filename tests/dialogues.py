"""Conversations with a coordinator, for tests: it learns what happened, and what follows becomes lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenax.control.coordinator import Coordinator
from tenax.control.copies import Role
from tenax.control.events import (
    BatchesLogged,
    CheckpointStored,
    Event,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
    Published,
    Started,
    TaskReport,
)
from tenax.control.instructions import (
    CancelCheckpoint,
    CancelPass,
    Decided,
    LogBatches,
    PassKind,
    PlanBackups,
    PlanReplicas,
    Publish,
    RequestNodes,
    Rescale,
    RunPass,
    Step,
    Stop,
    StoreCheckpoint,
    Trim,
    Wake,
)
from tenax.control.narrator import sentence
from tenax.control.notices import (
    BackupsMoved,
    LoadJudged,
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
from tenax.control.recovery.failures import JobFailed
from tenax.control.versions import Version
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology

MAX_ROUNDS = 100

# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks
A, B, C, D, E = (Task(name, 0) for name in "abcde")


def after(name: str, producer: str) -> Operator:
    """An operator with one task and one input."""
    return Operator(name, inputs=(Input(producer, Partitioning.ONE_TO_ONE),))


TREE = TaskGraph(Topology("tree", (Operator("a"), after("e", "a"), after("b", "a"), after("c", "b"), after("d", "c"))))
HOMES = {A: "n1", B: "n2", C: "n3", D: "n4", E: "n5"}
NODES = tuple(Node(f"n{number}") for number in range(1, 7))
SETTINGS = Settings.of(
    checkpoint_every=100,
    max_batches_per_pass=2,
    max_batches_ahead=20,
    max_unpublished=20,
    max_attempts=2,
    max_batches_per_round=2,
    cutover_lag=1,
    nodes=6,
    max_nodes=20,
    max_rows=1_000,
)


def tree_at(
    batch: int,
    settings: Settings = SETTINGS,
    nodes: Iterable[Node] = NODES,
    retain: Iterable[Task] = (),
    replicas: Iterable[Task] = (),
) -> Dialogue:
    """The tree with 20 batches logged and this many finished and published, checkpoints stored; the next pass runs."""
    talk = Dialogue(TREE, HOMES, nodes, settings, retain, replicas)
    talk.logs(20)
    while talk.coordinator.state.finished < batch:
        talk.finishes_live()
        talk.publishes()
        if talk.coordinator.state.checkpoints.storing is not None:
            talk.stores()
    return talk


def goes_on(talk: Dialogue, batches: int) -> list[str]:
    """The run for so many batches more, with everything that is asked for done at once."""
    said: list[str] = []
    until = talk.coordinator.state.finished + batches
    while talk.coordinator.state.finished < until:
        if talk.coordinator.state.passes.round is not None:
            said += talk.finishes_round()
        if talk.coordinator.state.passes.live is not None:
            said += talk.finishes_live()
        if talk.coordinator.state.logs.publishing is not None:
            said += talk.publishes()
        if talk.coordinator.state.checkpoints.storing is not None:
            said += talk.stores()
    return said


def finished(order: RunPass, written_bytes: int = 0) -> PassFinished:
    """Every step of a pass has done its work."""
    reports = (
        TaskReport(Version(step.task, order.last, order.pass_id), step.node, written_bytes=written_bytes, rows_out=1)
        for step in order.steps
    )
    return PassFinished(order.pass_id, tuple(reports))


class Dialogue:
    """A coordinator and what it has under way: the newest live pass, round, publication and checkpoint.

    `homes` says where tasks run, if the coordinator is not to decide; `started` how it begins, if not at the beginning.
    Invariants are checked after every event.
    """

    def __init__(
        self,
        graph: TaskGraph,
        homes: Mapping[Task, str] | None,
        nodes: Iterable[Node],
        settings: Settings,
        retain: Iterable[Task] = (),
        replicas: Iterable[Task] = (),
        started: Started | None = None,
    ) -> None:
        placement = Placement(homes or {}, {})
        place = None if homes is None else lambda *_: placement
        self.coordinator = Coordinator(graph, settings, retain, replicas, place=place)
        self.live: RunPass | None = None
        self.round: RunPass | None = None
        self.publish: Publish | None = None
        self.store: StoreCheckpoint | None = None
        self.log: LogBatches | None = None
        self.tell(started or Started(1, tuple(nodes), None, 0, {}))

    def tell(self, event: Event) -> list[str]:
        """Hand an event over; what follows, as lines."""
        decided = self.coordinator.handle(event)
        self.coordinator.check_invariants()
        for each in decided:
            match each:
                case RunPass(kind=PassKind.LIVE):
                    self.live = each
                case RunPass():
                    self.round = each
                case Publish():
                    self.publish = each
                case StoreCheckpoint():
                    self.store = each
                case LogBatches():
                    self.log = each
        return [said for each in decided for said in lines(each)]

    def logs(self, count: int, ended: bool = False) -> list[str]:
        """The next batches are in the log."""
        assert self.log is not None
        return self.tell(BatchesLogged(self.log.first, self.log.first + count - 1, ended))

    def finishes_live(self, written_bytes: int = 0) -> list[str]:
        """The live pass is through."""
        assert self.live is not None
        return self.tell(finished(self.live, written_bytes))

    def finishes_round(self) -> list[str]:
        """The round is through."""
        assert self.round is not None
        return self.tell(finished(self.round))

    def fails_live(self) -> list[str]:
        """The live pass fails for a passing cause."""
        assert self.live is not None
        return self.tell(PassFailed(self.live.pass_id, JobFailed("x")))

    def fails_round(self) -> list[str]:
        """The round fails for a passing cause."""
        assert self.round is not None
        return self.tell(PassFailed(self.round.pass_id, JobFailed("x")))

    def publishes(self) -> list[str]:
        """The results that were to be published are committed."""
        assert self.publish is not None
        return self.tell(Published(self.publish.pass_id, self.publish.tentative))

    def stores(self) -> list[str]:
        """The checkpoint is stored."""
        assert self.store is not None
        return self.tell(CheckpointStored(self.store.cut.number, self.store.attempt))

    def loses(self, *nodes: str) -> list[str]:
        """Nodes are gone."""
        return self.tell(NodesLost(nodes))

    def gains(self, *nodes: Node) -> list[str]:
        """Nodes have come."""
        return self.tell(NodesJoined(nodes))

    def comes_back(self) -> list[str]:
        """Rounds and publications are carried out until no round is left; what the last of these events led to."""
        said: list[str] = []
        for _ in range(MAX_ROUNDS):
            if self.coordinator.state.logs.publishing is not None:
                said = self.publishes()
            elif self.coordinator.state.passes.round is not None:
                said = self.finishes_round()
            else:
                return said
        raise AssertionError(f"tasks are back after at most {MAX_ROUNDS} events")


def lines(each: Decided) -> list[str]:
    """An instruction with all that it says; a pass takes several lines."""
    match each:
        case LogBatches():
            return [f"log {each.count} from {each.first}{_again(each.attempt)}"]
        case RunPass():
            return _pass(each)
        case CancelPass():
            return [f"cancel {each.pass_id}"]
        case Publish():
            parts = ", ".join(
                f"{part.task} {part.first}-{part.last}" + (f" at {part.quality:.2f}" if each.tentative else "")
                for part in each.parts
            )
            return [f"publish {'tentative ' if each.tentative else ''}{each.pass_id}: {parts}{_again(each.attempt)}"]
        case StoreCheckpoint():
            versions = (f"{version} {node}" for version, node in zip(each.versions, each.nodes, strict=True))
            return [f"store {each.cut.number}: {', '.join(versions)}{_again(each.attempt)}"]
        case CancelCheckpoint():
            return [f"cancel checkpoint {each.number}"]
        case Trim():
            log, checkpoints = each.source_log_before, each.checkpoints_before
            return [f"trim outputs before {each.retained_before}, checkpoints before {checkpoints}, log before {log}"]
        case ReplicaPromoted():
            return [f"promote {each.task} {each.node}"]
        case RecoveryBegun():
            homes = ", ".join(f"{task} {node}" for task, node in each.homes.items())
            waiting = f"; waiting: {_names(each.waiting)}, {each.reason}" if each.waiting else ""
            return [f"recover {homes or 'nothing'}; queries: {_names(each.queries)}{waiting}"]
        case RolledBack():
            return [f"roll back to {each.number}: {each.reason}"]
        case PlanReplicas():
            return [f"plan replicas by batches up to {each.batch}"]
        case PlanBackups():
            return [f"plan backups by batches up to {each.batch}"]
        case BackupsMoved():
            return [f"move backups from {_names(each.before)} to {_names(each.after)}: {each.reason}"]
        case PromiseMeasured():
            return [f"promise {each.promise.total_s:g} of {each.promise.bound_s:g} s: {_names(each.promise.broken_by)}"]
        case TasksMoved():
            return [f"move {', '.join(f'{task} {node}' for task, node in each.homes.items())}"]
        case ReplicasMoved():
            return [f"move replicas from {_names(each.before)} to {_names(each.after)}: {each.reason}"]
        case RequestNodes():
            return [f"request {each.count} nodes"]
        case Rescale():
            pause = f", after {each.pause_s:g} s" if each.pause_s else ""
            cut = f"{each.cut.number} at {each.cut.oldest_batch}-{each.cut.newest_batch}"
            return [
                f"rescale from cut {cut}, passes up to {each.passes}{_again(each.attempt)}{pause}: {each.target.words}"
            ]
        case RescalePlanned():
            return [f"planned: {each.target.words}"]
        case RescalePostponed():
            return [f"postponed: {each.reason}"]
        case RescaleGivenUp():
            return [f"given up: {each.target.words}; {each.reason}"]
        case LoadJudged():
            return [sentence(each) or ""]
        case Wake():
            return [f"wake after {each.after_s:g} s, outage {each.outage}"]
        case Stop():
            return [f"stop {each.outcome}: {each.reason}"]


def _pass(order: RunPass) -> list[str]:
    said = [
        f"{order.kind} {order.pass_id}, batches {order.first}-{order.last}, keep {order.keep}{_again(order.attempt)}"
    ]
    said.append("  " + ", ".join(map(_step, order.steps)))
    if order.readings:
        readings = (f"{reading.task} {reading.node} {reading.pass_id}" for reading in order.readings)
        said.append(f"  read {', '.join(readings)}")
    if order.retain:
        said.append(f"  retain {_names(sorted(order.retain))}")
    return said


def _step(step: Step) -> str:
    role = "" if step.role is Role.PRIMARY else f"{step.role} "
    tentative = "~" if step.tentative else ""
    stored = "stored " if step.stored else ""
    return f"{role}{step.task}{tentative} {step.node} {stored}{step.start.batch}/{step.start.pass_id}"


def _names(tasks: Iterable[Task]) -> str:
    return ", ".join(map(str, tasks)) or "none"


def _again(attempt: int) -> str:
    return "" if attempt == 1 else f", attempt {attempt}"
