"""Which lost tasks find room, where tasks cost something and rows come by the clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from dialogues import Dialogue, lines

from tenax.control.events import BatchesLogged, NodesJoined, NodesLost, PassFinished, Started, TaskReport
from tenax.control.instructions import RequestNodes, RunPass
from tenax.control.load import LEFT_OUT, TRUSTED
from tenax.control.notices import RecoveryBegun, TasksMoved
from tenax.control.placement.capacity import pool_of
from tenax.control.versions import Version
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology

ROWS = 100
ALL_ON_N0 = "recover x[0] n0, y[0] n0, z[0] n0; queries: x[0], y[0], z[0]"
WARM = LEFT_OUT + TRUSTED + 1

# s[0] n0 ──▶ x[0] n1 (output, priority 1)
#    ├──────▶ y[0] n2 (output, priority 5)
#    ╰──────▶ z[0] n3 (output, priority 3)
S, X, Y, Z = (Task(name, 0) for name in "sxyz")


def fan(priorities: dict[str, float]) -> TaskGraph:
    each = Partitioning.ONE_TO_ONE
    outputs = (Operator(name, inputs=(Input("s", each),), output=Output(p)) for name, p in priorities.items())
    return TaskGraph(Topology("fan", (Operator("s"), *outputs)))


FAN = fan({"x": 1, "y": 5, "z": 3})
HOMES = {S: "n0", X: "n1", Y: "n2", Z: "n3"}


@dataclass
class Loaded:
    """A conversation in which tasks cost something: seconds in each batch, which come every second with 100 rows."""

    busy_s: dict[Task, float]
    settings: Settings
    nodes: int = 4
    graph: TaskGraph = FAN
    homes: dict[Task, str] | None = field(default_factory=lambda: dict(HOMES))
    clock_s: float = 0.0

    def __post_init__(self) -> None:
        names = [Node(f"n{number}") for number in range(self.nodes)]
        self.talk = Dialogue(self.graph, self.homes, names, self.settings)

    def goes_on(self, batches: int = WARM, rows: int = ROWS, *, caught_up: bool = True) -> None:
        for _ in range(batches):
            self.logs(rows, caught_up=caught_up)
            self.passes(rows)

    def logs(self, rows: int = ROWS, *, caught_up: bool = True, ended: bool = False) -> list[str]:
        self.clock_s += 1.0
        assert self.talk.log is not None
        first = self.talk.log.first
        return self.talk.tell(BatchesLogged(first, first, ended, rows, self.clock_s, caught_up))

    def passes(self, rows: int = ROWS) -> list[str]:
        order = self.talk.live
        assert order is not None
        said = self.talk.tell(self.finished(order, rows))
        while self.talk.coordinator.state.logs.publishing is not None:
            said += self.talk.publishes()
        return said

    def finished(self, order: RunPass, rows: int = ROWS) -> PassFinished:
        batches = order.last - order.first + 1
        reports = tuple(
            TaskReport(
                Version(step.task, order.last, order.pass_id),
                step.node,
                rows=rows * batches,
                rows_out=rows * batches,
                busy_s=self.busy_s[step.task] * batches * rows / ROWS,
                level=int(step.task != S),
            )
            for step in order.steps
        )
        return PassFinished(order.pass_id, reports, seconds=0.2)

    def hears(self, event: object) -> list[str]:
        return [line for line in self.talk.tell(event) if line.startswith(("recover", "request", "move"))]  # type: ignore[arg-type]


def settings(**words: object) -> Settings:
    return Settings.of(
        **{"nodes": 4, "max_nodes": 8, "checkpoint_every": 1_000, "max_batches_per_pass": 1, "cutover_lag": 1, **words}
    )


def warm(**words: object) -> Loaded:
    """Each node is half full: s, x, y and z are each busy for 0.4 s of a second."""
    run = Loaded({S: 0.4, X: 0.4, Y: 0.4, Z: 0.4}, settings(**words))
    run.goes_on()
    return run


def test_lost_tasks_take_the_room_that_is_left_and_the_others_wait() -> None:
    run = warm()
    # n0 and n1 have 0.4 s left each, up to 80 % of a second; y and z need 0.4 s each
    assert run.hears(NodesLost(("n2", "n3")))[-1] == "recover y[0] n0, z[0] n1; queries: y[0], z[0]"
    run = warm(node_limit=0.5)
    assert run.hears(NodesLost(("n2", "n3")))[-1] == (
        "recover nothing; queries: none; waiting: y[0], z[0], they are busy for 0.8 s in a batch of 1s, "
        "and 2 nodes have 0.2 s left up to 50%"
    )


def test_the_highest_priority_comes_back_first_and_each_node_that_arrives_continues_the_plan() -> None:
    run = warm()
    said = run.hears(NodesLost(("n1", "n2", "n3")))
    assert said == [
        "request 3 nodes",
        "recover y[0] n0; queries: y[0]; waiting: x[0], z[0], they are busy for 0.8 s in a batch of 1s, "
        "and 1 node has 0 s left up to 80%",
    ]
    # a node takes two of them: the next one brings both back, and what is back stays where it is
    assert run.hears(NodesJoined((Node("n4"),))) == ["recover x[0] n4, z[0] n4; queries: x[0], z[0]"]
    homes = {task: run.talk.coordinator.state.tasks[number].primary for number, task in enumerate((S, X, Y, Z))}
    assert {str(task): copy.node for task, copy in homes.items() if copy} == {
        "s[0]": "n0",
        "x[0]": "n4",
        "y[0]": "n0",
        "z[0]": "n4",
    }


@pytest.mark.parametrize("order", ["best-density", "exact", "dp", "operator-centric"])
def test_a_query_that_fits_into_what_is_left_never_waits_whatever_the_order(order: str) -> None:
    run = Loaded({S: 0.1, X: 0.9, Y: 0.3, Z: 0.3}, settings(order=order))
    run.goes_on()
    # n0 has 0.7 s left: not enough for x, whose operator comes first, but for y and z together
    assert run.hears(NodesLost(("n1", "n2", "n3")))[-1].startswith("recover y[0] n0, z[0] n0; queries: y[0], z[0]; ")


def test_as_many_nodes_are_asked_for_as_the_tasks_that_wait_need_within_what_there_may_be() -> None:
    run = Loaded({S: 0.7, X: 0.7, Y: 0.7, Z: 0.7}, settings(correlated_losses=9))
    run.goes_on()
    assert run.hears(NodesLost(("n2", "n3")))[1] == "request 2 nodes"  # 1.4 s, of which a node takes 0.8
    assert run.hears(NodesLost(("n9",))) == []  # not asked for twice
    few = Loaded({S: 0.7, X: 0.7, Y: 0.7, Z: 0.7}, settings(correlated_losses=9, max_nodes=4))
    few.goes_on()
    few.hears(NodesLost(("n1", "n2")))
    assert few.talk.coordinator.state.placement.requested == 4


def test_a_task_that_alone_needs_more_than_a_node_may_give_has_a_node_for_itself() -> None:
    run = Loaded({S: 0.1, X: 0.1, Y: 2.5, Z: 0.1}, settings())
    run.goes_on()
    assert "waiting: y[0]" in run.hears(NodesLost(("n2",)))[-2]
    assert run.hears(NodesJoined((Node("n4"),)))[0] == "recover y[0] n4; queries: y[0]"


def test_before_anything_is_measured_all_find_room() -> None:
    run = Loaded({S: 9.0, X: 9.0, Y: 9.0, Z: 9.0}, settings())
    run.goes_on(LEFT_OUT)
    assert run.hears(NodesLost(("n1", "n2", "n3")))[-1] == ALL_ON_N0


def test_a_run_that_replays_a_backlog_places_everything_and_is_slower() -> None:
    run = Loaded({S: 9.0, X: 9.0, Y: 9.0, Z: 9.0}, settings())
    run.goes_on(caught_up=False)
    assert run.hears(NodesLost(("n1", "n2", "n3")))[-1] == ALL_ON_N0


def test_slots_are_an_override_that_counts_tasks() -> None:
    run = Loaded({S: 9.0, X: 9.0, Y: 9.0, Z: 9.0}, settings())
    run.talk = Dialogue(FAN, HOMES, [Node(f"n{number}", slots=2) for number in range(4)], settings())
    run.goes_on()
    assert run.hears(NodesLost(("n2", "n3")))[-1] == "recover y[0] n0, z[0] n1; queries: y[0], z[0]"


def test_when_rows_come_slower_tasks_that_wait_find_room() -> None:
    run = warm(node_limit=0.5)
    run.hears(NodesLost(("n2", "n3")))
    said = [line for _ in range(12) for line in (*run.logs(rows=10), *run.passes(rows=10))]
    assert any(line.startswith("recover y[0] n0, z[0] n1; queries: y[0], z[0]") for line in said)


def test_when_the_sources_have_ended_all_find_room() -> None:
    run = warm(node_limit=0.5)
    run.hears(NodesLost(("n2", "n3")))
    assert "recover y[0] n0, z[0] n1; queries: y[0], z[0]" in run.logs(ended=True)


def test_where_recovery_blocks_all_find_room() -> None:
    run = warm(node_limit=0.5, recovery="blocking")
    assert run.hears(NodesLost(("n2", "n3")))[-1] == "recover y[0] n0, z[0] n1; queries: y[0], z[0]"


def test_where_nothing_else_would_run_all_find_room() -> None:
    run = Loaded({S: 0.9, X: 0.9, Y: 0.9, Z: 0.9}, settings())
    run.goes_on()
    assert run.hears(NodesLost(("n1", "n2", "n3")))[-1] == ALL_ON_N0


def test_past_the_bound_of_what_an_outage_may_retain_all_find_room() -> None:
    run = warm(node_limit=0.5, max_outage_bytes=10)
    run.hears(NodesLost(("n2", "n3")))
    run.logs()
    assert run.talk.live is not None
    event = run.finished(run.talk.live)
    said = run.talk.tell(replace(event, reports=tuple(replace(r, written_bytes=100) for r in event.reports)))
    assert "recover y[0] n0, z[0] n1; queries: y[0], z[0]" in said


def test_a_run_that_starts_again_on_too_few_nodes_brings_the_best_queries_back_first() -> None:
    run = warm()
    load = run.talk.coordinator.state.load
    coordinator = type(run.talk.coordinator)(FAN, settings(nodes=1))
    decided = coordinator.handle(Started(2, (Node("n0"),), None, 0, {}, load))
    coordinator.check_invariants()
    assert next(line for each in decided for line in lines(each)).startswith(
        "recover s[0] n0, y[0] n0; queries: y[0]; waiting: x[0], z[0], they are busy for 0.8 s"
    )


def test_nodes_of_the_pool_hold_nothing_and_take_over_lost_tasks() -> None:
    run = Loaded({S: 0.1, X: 0.1, Y: 0.1, Z: 0.1}, settings(nodes=4, pool=1), nodes=5, homes=None)
    state = run.talk.coordinator.state
    assert {copy.node for task in state.tasks if (copy := task.primary)} == {"n0", "n1", "n2", "n3"}
    assert pool_of(run.talk.coordinator._run, state) == {"n4"}
    lost = next(str(task) for task, each in zip((S, X, Y, Z), state.tasks, strict=True) if each.primary.node == "n3")  # type: ignore[union-attr]
    assert run.hears(NodesLost(("n3",)))[-1].startswith(f"recover {lost} n4")
    run.hears(NodesJoined((Node("n5"),)))
    assert pool_of(run.talk.coordinator._run, run.talk.coordinator.state) == {"n5"}


def test_replicas_and_moves_leave_the_pool_alone() -> None:
    nodes = [Node(f"n{number}") for number in range(3)]
    talk = Dialogue(FAN, None, nodes, settings(nodes=2, pool=1, checkpoint_every=2, replicas="all"), replicas=[X, Y, Z])
    state = talk.coordinator.state
    assert {copy.node for task in state.tasks for copy in (task.primary, task.replica) if copy} == {"n0", "n1"}


def test_replicas_are_placed_only_where_there_is_room() -> None:
    run = warm()
    load = run.talk.coordinator.state.load
    coordinator = type(run.talk.coordinator)(FAN, settings(), replicas=[X, Y, Z])
    nodes = tuple(Node(f"n{number}") for number in range(4))
    coordinator.handle(Started(2, nodes, None, 0, {}, load))
    full = {"n0": 0.4, "n1": 0.4, "n2": 0.4, "n3": 0.4}
    for task in coordinator.state.tasks:
        if task.replica is not None:
            full[task.replica.node] += 0.4
    assert sum(task.replica is not None for task in coordinator.state.tasks) == 3
    assert max(full.values()) <= 0.8 + 1e-9


@pytest.mark.parametrize(("state_bytes", "blocks"), [(0, True), (10**9, False)])
def test_auto_blocks_for_a_loss_that_is_predicted_to_be_over_within_a_batch(state_bytes: int, blocks: bool) -> None:
    run = warm(recovery="auto", node_limit=2.0, checkpoint_every=1_000)
    state = run.talk.coordinator.state
    slow = replace(
        state.load,
        moving_s=0.001,
        restore_s=1e-8,
        tasks=tuple(replace(task, state_bytes=float(state_bytes)) for task in state.load.tasks),
    )
    run.talk.coordinator._state = replace(state, load=slow)
    run.logs()
    run.hears(NodesLost(("n3",)))
    outage = run.talk.coordinator.state.outage
    assert outage is not None
    assert outage.blocks is blocks
    live = run.talk.coordinator.state.passes.live
    assert (live is None) is blocks


def test_auto_goes_on_when_many_nodes_are_lost_or_tasks_wait_or_nothing_is_measured() -> None:
    many = warm(recovery="auto", node_limit=2.0)
    many.hears(NodesLost(("n2", "n3")))
    waits = warm(recovery="auto", node_limit=0.5)
    waits.hears(NodesLost(("n3",)))
    early = Loaded({S: 0.1, X: 0.1, Y: 0.1, Z: 0.1}, settings(recovery="auto"))
    early.goes_on(1)
    early.hears(NodesLost(("n3",)))
    for run in (many, waits, early):
        outage = run.talk.coordinator.state.outage
        assert outage is not None
        assert not outage.blocks


def test_the_notice_says_why_tasks_wait_and_the_request_for_how_many_nodes() -> None:
    run = warm(node_limit=0.5)
    decided = run.talk.coordinator.handle(NodesLost(("n2", "n3")))
    notice = next(each for each in decided if isinstance(each, RecoveryBegun))
    request = next(each for each in decided if isinstance(each, RequestNodes))
    assert notice.waiting == (Y, Z)
    assert (request.count, request.total) == (2, 4)
    assert not any(isinstance(each, TasksMoved) for each in decided)
    assert "waits for room on a node" in str(run.talk.coordinator.story(Y)[-1])
