"""The narrator: one sentence for what happened, wherever it is shown."""

from __future__ import annotations

from tenax.control.events import (
    BatchesLogged,
    CheckpointFailed,
    CheckpointStored,
    EpochLost,
    Event,
    LoggingFailed,
    NodesJoined,
    NodesLost,
    PassFailed,
    PassFinished,
    PlanKind,
    PlanningFailed,
    Published,
    PublishFailed,
    Started,
    StopRequested,
    Woken,
)
from tenax.control.instructions import CancelPass, Decided, LogBatches, Outcome, RequestNodes, Stop, Trim
from tenax.control.narrator import Happening, Names, NodeName, news, sentence
from tenax.control.notices import (
    BackupsMoved,
    PromiseMeasured,
    RecoveryBegun,
    ReplicaPromoted,
    ReplicasMoved,
    RolledBack,
    TasksMoved,
)
from tenax.control.recovery.failures import JobFailed
from tenax.control.versions import Cut, PassId
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.planning.node_losses import NodeLoss
from tenax.planning.promises import Promise

A, B, C = Task("a", 0), Task("b", 0), Task("c", 1)
PASS = PassId(1, 4)
NAMES = Names(
    {"x-1": NodeName("node 1", "r1"), "x-2": NodeName("node 2", "r2"), "x-3": NodeName("node 3")}, frozenset({"a"})
)

SENTENCES: dict[Happening, str | None] = {
    NodesJoined((Node("x-1", rack="r1"), Node("x-3"))): "node 1 joins in r1; node 3 joins",
    NodesLost(("x-1", "x-2")): "LOST node 1 and node 2 of r1 and r2",
    NodesLost(("x-3",), overdue=True): "LOST node 3, overdue",
    NodesLost(("unknown",)): "LOST unknown",
    CheckpointStored(8, 1): "checkpoint 8 stored",
    CheckpointFailed(8, 2, "full"): "checkpoint 8 failed: full",
    PassFailed(PASS, JobFailed("stage 2")): "pass 1.4 failed: the job failed: stage 2",
    LoggingFailed(3, 1, "no file"): "batch 3 could not be planned and logged: no file",
    PublishFailed(PASS, False, 1, "full"): "results of pass 1.4 could not be published: full",
    PlanningFailed(20, "no time"): "no plan of replicas by batch 20: no time",
    PlanningFailed(20, "no time", PlanKind.BACKUPS): "no plan of backups by batch 20: no time",
    BackupsMoved((B,), (), "by batch 4"): "outputs are retained by none in place of b[0], by batch 4",
    PromiseMeasured(Promise(5.0, 1.25, 0.5)): "a lost task is back within 1.75 s of 5 s allowed: 1.25 s of steps and "
    "0.5 s of scheduling, as measured",
    PromiseMeasured(
        Promise(1.0, 1.25, 0.5, (B, C))
    ): "a lost task is NOT back within 1 s but within 1.75 s, because of "
    "b[0], c[1]: 1.25 s of steps and 0.5 s of scheduling, as measured",
    PromiseMeasured(
        Promise(2.0, 1.25, 0.5, losses=(NodeLoss("x-1", 1.0, 0.5), NodeLoss("x-2", 2.0, 0.75)))
    ): "a lost task is back within 1.75 s of 2 s allowed: 1.25 s of steps and 0.5 s of scheduling, as measured; all "
    "tasks of a lost node within 2.75 s, which is too late for 1 of 2 nodes",
    StopRequested(): "the run is to end: asked to",
    EpochLost(7): "a newer driver, of epoch 7, owns the store",
    RequestNodes(total=6, count=2): "2 more nodes asked for",
    Stop(Outcome.FINISHED, "the sources have ended", resumable=False): "stop, finished: the sources have ended",
    ReplicaPromoted(B, "x-2"): "the replica of b[0] on node 2 takes over",
    RolledBack(4, "batches 5 to 6 did not pass"): "all tasks go back to checkpoint 4: batches 5 to 6 did not pass",
    ReplicasMoved((B,), (C,), 0.2, 0.5, "worth it"): "replicas follow the load: c[1] in place of b[0]; worth it",
    BatchesLogged(1, 2): None,
    PassFinished(PASS, ()): None,
    Published(PASS): None,
    Woken(1): None,
    CancelPass(PASS): None,
    LogBatches(1, 2, 1): None,
}


def test_what_happens_is_said_in_a_sentence_and_what_is_everyday_is_not() -> None:
    for happening, expected in SENTENCES.items():
        assert sentence(happening, NAMES) == expected
    assert sentence(Trim(1, 1, 1)) is None
    begun = RecoveryBegun({A: "x-1", B: "x-3", C: "x-2"}, (), (Task("d", 0),))
    assert sentence(begun, NAMES) == "2 lost tasks restart on node 1, node 2, node 3; 1 lost task waits for a node"
    assert sentence(RecoveryBegun({A: "x-1"}, (), ()), NAMES) is None  # a source just goes on
    assert sentence(TasksMoved({B: "x-3"}), NAMES) == "1 task moved to node 3, to spread the load"


def test_the_start_of_a_driver_says_from_where() -> None:
    nodes = (Node("n1"),)
    assert sentence(Started(3, nodes, None, 0, {})) == "driver 3 starts on 1 node from the beginning"
    assert sentence(Started(3, nodes, Cut(40, ()), 0, {})) == "driver 3 starts on 1 node from checkpoint 40"


def test_news_of_a_loss_count_the_replicas_that_take_over() -> None:
    lost: Event = NodesLost(("x-1",))
    decided: list[Decided] = [
        CancelPass(PASS),
        ReplicaPromoted(B, "x-2"),
        ReplicaPromoted(C, "x-3"),
        RecoveryBegun({}, (), (A,)),
    ]
    assert news(lost, decided, NAMES) == ["LOST node 1 of r1; 2 replicas take over", "1 lost task waits for a node"]
    assert news(lost, decided[:2], NAMES) == ["LOST node 1 of r1; 1 replica takes over"]


def test_news_leave_out_what_only_a_record_needs() -> None:
    assert news(PassFailed(PASS, JobFailed("stage 2")), [CancelPass(PASS)], NAMES) == []
    assert news(NodesJoined((Node("x-1", rack="r1"), Node("x-3"))), [], NAMES) == ["node 1 joins in r1", "node 3 joins"]
    assert news(CheckpointStored(8, 1), [Trim(1, 1, 1)], NAMES) == ["checkpoint 8 stored"]
