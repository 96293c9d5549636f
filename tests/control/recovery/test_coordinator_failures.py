"""What lost and new nodes mean for live passes, replicas, sources and capacity; the way back is tested elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dialogues import HOMES, NODES, SETTINGS, A, B, C, D, Dialogue, E, after, tree_at

from tenax.control.events import PassFailed, StopRequested, Woken
from tenax.control.recovery.failures import NodeGone
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.protection import Backups, Outputs, Recovery
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology

# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks

LOST_C = [
    "cancel 1.3",
    "recover c[0] n6; queries: d[0]",
    "round 1.4, batches 1-2, keep 0",
    "  c[0] n6 stored 0/0.0, replay b[0] n2 stored 0/0.0, replay a[0] n1 0/0.0",
    "  retain b[0], c[0]",
    "live 1.5, batches 5-6, keep 0",
    "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, d[0]~ n4 4/1.2",
    "  retain b[0], c[0]",
]


def test_a_lost_task_comes_back_from_its_checkpoint_while_the_others_go_on() -> None:
    talk = tree_at(4)
    assert talk.loses("n3") == LOST_C
    assert talk.finishes_live() == [
        "publish 1.5: e[0] 5-6",
        "live 1.6, batches 7-8, keep 0",
        "  a[0] n1 6/1.5, e[0] n5 6/1.5, b[0] n2 6/1.5, d[0]~ n4 6/1.5",
        "  retain b[0], c[0]",
    ]
    assert talk.publishes() == ["publish tentative 1.5: d[0] 5-6 at 0.00"]


def test_the_quality_of_tentative_results_is_what_the_survivors_still_tell() -> None:
    # a[0] n1 ──▶ b[0] n2 ──╲
    # a[1] n1 ──▶ b[1] n3 ──── c[0] n4 (output)
    merged = Operator("c", inputs=(Input("b", Partitioning.MERGE),))
    graph = TaskGraph(Topology("merge", (Operator("a", 2), replace(after("b", "a"), parallelism=2), merged)))
    a, b, c = ([task for task in graph.tasks(range(len(graph))) if task.operator == name] for name in "abc")
    homes = {a[0]: "n1", a[1]: "n1", b[0]: "n2", b[1]: "n3", c[0]: "n4"}
    talk = Dialogue(graph, homes, NODES, SETTINGS)
    talk.logs(20)
    talk.finishes_live()
    talk.publishes()
    talk.finishes_live()
    talk.publishes()
    assert talk.loses("n3")[-3:-1] == [
        "live 1.5, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, a[1] n1 4/1.2, b[0] n2 4/1.2, c[0]~ n4 4/1.2",
    ]
    assert talk.finishes_live()[0] == "publish tentative 1.5: c[0] 5-6 at 0.50"


def test_held_outputs_show_nothing_tentative() -> None:
    talk = tree_at(4, SETTINGS.but(outputs=Outputs.HOLD))
    assert talk.loses("n3")[-3:] == [
        "live 1.5, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2",
        "  retain b[0], c[0]",
    ]
    assert talk.finishes_live()[0] == "publish 1.5: e[0] 5-6"
    assert talk.publishes() == []


def test_held_outputs_leave_nothing_to_run_where_all_depends_on_what_is_lost() -> None:
    # a[0] n1 ──▶ b[0] n2 ──▶ c[0] n3 (output)
    graph = TaskGraph(Topology("line", (Operator("a"), after("b", "a"), after("c", "b"))))
    talk = Dialogue(graph, {A: "n1", B: "n2", C: "n3"}, NODES, SETTINGS.but(outputs=Outputs.HOLD))
    talk.logs(20)
    talk.finishes_live()
    assert talk.loses("n2") == [
        "cancel 1.2",
        "recover b[0] n4; queries: c[0]",
        "round 1.3, batches 1-2, keep 0",
        "  b[0] n4 stored 0/0.0, replay a[0] n1 0/0.0",
        "  retain b[0]",
    ]


def test_blocking_recovery_runs_no_live_pass_until_all_are_back() -> None:
    talk = tree_at(4, SETTINGS.but(recovery=Recovery.BLOCKING))
    assert talk.loses("n3") == LOST_C[:5]
    assert talk.finishes_round() == [
        "round 1.5, batches 3-4, keep 0",
        "  c[0] n6 2/1.4, replay b[0] n2 2/1.4, replay a[0] n1 2/0.0",
        "  retain b[0], c[0]",
    ]
    assert talk.finishes_round() == [
        "live 1.6, batches 5-6, keep 4",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n6 4/1.5, d[0] n4 4/1.2",
    ]


def test_a_delay_shows_nothing_tentative_until_it_is_over() -> None:
    talk = tree_at(4, SETTINGS.but(tentative_delay="3s"))
    assert talk.loses("n3") == ["cancel 1.3", "wake after 3 s, outage 1", *LOST_C[1:]]
    assert talk.finishes_live()[0] == "publish 1.5: e[0] 5-6"
    assert talk.publishes() == []
    assert talk.tell(Woken(2)) == []
    assert talk.coordinator.log[-1].ignored == "this outage does not wait"
    assert talk.tell(Woken(1)) == []
    assert talk.finishes_live()[:3] == [
        "publish 1.6: e[0] 7-8",
        "live 1.7, batches 9-10, keep 0",
        "  a[0] n1 8/1.6, e[0] n5 8/1.6, b[0] n2 8/1.6, d[0]~ n4 8/1.6",
    ]
    assert talk.publishes() == ["publish tentative 1.6: d[0] 7-8 at 0.00"]


def test_outputs_of_an_outage_that_fill_the_nodes_make_live_passes_wait() -> None:
    talk = tree_at(4, SETTINGS.but(max_outage_bytes=100))
    talk.loses("n3")
    assert talk.finishes_live(written_bytes=30) == ["publish 1.5: e[0] 5-6"]


def test_a_replica_takes_over_and_nothing_is_replayed() -> None:
    # the replica of c[0] is on n6, and in step
    talk = tree_at(4, replicas=[C])
    assert talk.loses("n3") == [
        "promote c[0] n6",
        "cancel 1.3",
        "live 1.4, batches 5-6, keep 4",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n6 4/1.2, d[0] n4 4/1.2",
        "  retain b[0]",
    ]
    assert talk.finishes_live()[0] == "publish 1.4: e[0] 5-6, d[0] 5-6"


def test_a_replica_goes_to_another_rack_and_to_a_standby_node_first() -> None:
    nodes = (*(Node(f"n{number}", rack="r1") for number in range(1, 6)), Node("n6", "r2"), Node("n7", standby=True))
    talk = tree_at(4, nodes=nodes, replicas=[C])
    assert talk.loses("n3")[0] == "promote c[0] n7"


def test_replicas_of_a_chain_stay_together() -> None:
    talk = tree_at(4, replicas=[B, C])
    assert talk.loses("n2", "n3")[:2] == ["promote b[0] n6", "promote c[0] n6"]


def test_a_lost_replica_does_not_delay_its_primary_and_starts_again_at_the_next_checkpoint() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=6, cutover_lag=2), replicas=[C])
    assert talk.loses("n6") == [
        "cancel 1.3",
        "live 1.4, batches 5-6, keep 4",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n3 4/1.2, d[0] n4 4/1.2",
        "  retain b[0]",
    ]
    assert talk.gains(Node("n7")) == []
    talk.finishes_live()
    assert talk.publishes() == ["store 6: a[0]@6/1.4 n1, e[0]@6/1.4 n5, b[0]@6/1.4 n2, c[0]@6/1.4 n3, d[0]@6/1.4 n4"]
    talk.finishes_live()
    assert talk.stores() == [
        "round 1.7, batches 7-8, keep 0",
        "  replica c[0] n7 stored 6/1.4",
        "  read b[0] n2 1.5",
        "  retain b[0]",
        "trim outputs before 7, checkpoints before 0, log before 1",
    ]
    talk.publishes()
    assert talk.finishes_round() == []  # in step, but for the live pass that runs without it
    assert talk.finishes_live() == [  # and that is near: the next live pass waits for it
        "publish 1.6: e[0] 9-10, d[0] 9-10",
        "round 1.8, batches 9-10, keep 0",
        "  replica c[0] n7 8/1.7",
        "  read b[0] n2 1.6",
        "  retain b[0]",
    ]
    assert talk.finishes_round() == [
        "live 1.9, batches 11-12, keep 10",
        "  a[0] n1 10/1.6, e[0] n5 10/1.6, b[0] n2 10/1.6, c[0] n3 10/1.6, replica c[0] n7 10/1.8, d[0] n4 10/1.6",
    ]


def test_a_replica_that_cannot_keep_up_does_not_put_off_checkpoints_for_ever() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=6, max_batches_per_round=1), replicas=[C])
    talk.loses("n6")
    for _ in range(8):  # live passes of two batches, rounds of one
        talk.finishes_live()
        talk.publishes()
        if talk.coordinator.state.checkpoints.storing is not None:
            talk.stores()
        if talk.coordinator.state.passes.live is None:
            break
        if talk.coordinator.state.passes.round is not None:
            talk.finishes_round()
    talk.comes_back()
    assert talk.coordinator.state.checkpoints.storing is not None
    assert talk.coordinator.standing.healthy


def test_a_source_moves_at_once_and_nothing_else_happens() -> None:
    talk = tree_at(4)
    assert talk.loses("n1") == [
        "cancel 1.3",
        "recover a[0] n6; queries: none",
        "live 1.4, batches 5-6, keep 4",
        "  a[0] n6 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n3 4/1.2, d[0] n4 4/1.2",
    ]


def test_a_lost_node_without_tasks_costs_no_more_than_the_pass_that_runs() -> None:
    talk = tree_at(4)
    assert talk.loses("n6") == [
        "cancel 1.3",
        "live 1.4, batches 5-6, keep 4",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n3 4/1.2, d[0] n4 4/1.2",
    ]


def test_a_pass_may_tell_the_loss_of_a_node_before_anyone_else() -> None:
    talk = tree_at(4)
    assert talk.live is not None
    assert talk.tell(PassFailed(talk.live.pass_id, NodeGone("n3"))) == LOST_C[1:]
    assert talk.loses("n3") == []


def test_a_pass_that_keeps_losing_a_node_that_nobody_knows_is_not_tried_for_ever() -> None:
    talk = tree_at(4)
    assert talk.live is not None
    assert talk.tell(PassFailed(talk.live.pass_id, NodeGone("n9")))[0] == "live 1.4, batches 5-6, keep 4, attempt 2"
    assert talk.tell(PassFailed(talk.live.pass_id, NodeGone("n9")))[0] == (
        "roll back to 0: batches 5 to 6 did not pass in 2 attempts: node n9 was lost"
    )


def test_a_node_that_is_lost_before_it_has_joined_never_counts() -> None:
    talk = tree_at(4)
    assert talk.loses("n9") == []
    assert talk.gains(Node("n9")) == []
    assert talk.coordinator.log[-1].ignored == "these nodes are known"
    assert [node.name for node in talk.coordinator.state.nodes] == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert talk.gains(Node("n9"), Node("n10")) == []
    assert talk.coordinator.state.nodes[-1] == Node("n10")


def test_every_node_may_be_lost_and_new_ones_take_all_tasks() -> None:
    talk = tree_at(4)
    assert talk.loses(*(node.name for node in NODES)) == ["request 6 nodes", "cancel 1.3"]
    lost = "e[0] m2 stored 0/0.0, b[0] m1 stored 0/0.0, c[0] m2 stored 0/0.0, d[0] m1 stored 0/0.0"
    assert talk.gains(Node("m1"), Node("m2")) == [
        "recover a[0] m1, e[0] m2, b[0] m1, c[0] m2, d[0] m1; queries: e[0], d[0]",
        "round 1.4, batches 1-2, keep 0",
        f"  {lost}, replay a[0] m1 0/0.0",
        "  retain b[0], c[0]",
    ]
    talk.finishes_round()
    assert talk.finishes_round() == [
        "live 1.6, batches 5-6, keep 4",
        "  a[0] m1 4/1.2, e[0] m2 4/1.5, b[0] m1 4/1.5, c[0] m2 4/1.5, d[0] m1 4/1.5",
    ]


def test_a_stop_without_any_node_needs_no_last_checkpoint() -> None:
    talk = tree_at(4)
    talk.loses(*(node.name for node in NODES))
    assert talk.tell(StopRequested("maintenance")) == ["stop stopped: maintenance"]


def test_correlated_failures_ask_for_nodes() -> None:
    talk = tree_at(4, SETTINGS.but(correlated_losses=3))
    assert not any("request" in said for said in talk.loses("n6"))
    assert talk.loses("n3", "n4")[0] == "request 2 nodes"


def test_losses_count_as_correlated_only_since_the_last_checkpoint() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=6))
    talk.loses("n6")
    talk.finishes_live()
    talk.publishes()
    talk.stores()
    assert talk.loses("n5")[0] != "request 1 nodes"
    assert talk.loses("n4")[0] == "request 1 nodes"


def test_adaptive_backups_retain_from_a_correlated_failure_to_the_next_checkpoint() -> None:
    nodes = (*NODES, Node("n7"))
    talk = tree_at(4, SETTINGS.but(backups=Backups.ADAPTIVE, checkpoint_every=8), nodes)
    steps = "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n3 4/1.2, d[0] n4 4/1.2"
    assert talk.loses("n6") == ["cancel 1.3", "live 1.4, batches 5-6, keep 4", steps]
    assert talk.loses("n7") == [
        "request 1 nodes",
        "cancel 1.4",
        "live 1.5, batches 5-6, keep 4",
        steps,
        "  retain b[0], c[0]",
    ]
    talk.finishes_live()
    talk.publishes()
    assert talk.finishes_live()[-1] == "  retain b[0], c[0]"
    talk.publishes()
    talk.stores()
    assert talk.finishes_live() == [
        "publish 1.7: e[0] 9-10, d[0] 9-10",
        "live 1.8, batches 11-12, keep 10",
        "  a[0] n1 10/1.7, e[0] n5 10/1.7, b[0] n2 10/1.7, c[0] n3 10/1.7, d[0] n4 10/1.7",
    ]


@pytest.mark.parametrize(("backups", "retained"), [(Backups.ALL, ["  retain b[0], c[0]"]), (Backups.SOURCE, [])])
def test_backups_of_all_or_of_none_do_not_wait_for_a_failure(backups: Backups, retained: list[str]) -> None:
    talk = tree_at(2, SETTINGS.but(backups=backups))
    assert talk.finishes_live()[3:] == retained


def test_with_little_capacity_the_best_query_comes_first_and_the_next_node_brings_the_other() -> None:
    # a[0] n1 ──▶ b[0] n2 ──▶ c[0] n2 (output, priority 1)
    #    ╰──────▶ d[0] n3 ──▶ e[0] n3 (output, priority 5)           n4 has room for two
    operators = (
        Operator("a"),
        after("b", "a"),
        replace(after("c", "b"), output=Output(1.0)),
        after("d", "a"),
        replace(after("e", "d"), output=Output(5.0)),
    )
    homes = {A: "n1", B: "n2", C: "n2", D: "n3", E: "n3"}
    nodes = [Node(f"n{number}", slots=1 if number == 1 else 2) for number in range(1, 5)]
    talk = Dialogue(TaskGraph(Topology("two", operators)), homes, nodes, SETTINGS)
    talk.logs(20)
    talk.finishes_live()
    talk.publishes()
    talk.finishes_live()
    talk.publishes()
    assert talk.loses("n2", "n3") == [
        "request 2 nodes",
        "cancel 1.3",
        "recover d[0] n4, e[0] n4; queries: e[0]; waiting: b[0], c[0], they need 2 slots, and 2 nodes have 0 left",
        "round 1.4, batches 1-2, keep 0",
        "  d[0] n4 stored 0/0.0, e[0] n4 stored 0/0.0, replay a[0] n1 0/0.0",
        "  retain b[0], d[0]",
    ]
    talk.finishes_round()
    assert talk.finishes_round() == [
        "live 1.6, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, d[0] n4 4/1.5, e[0] n4 4/1.5",
        "  retain b[0], d[0]",
    ]
    assert talk.gains(Node("n5", slots=2)) == [
        "recover b[0] n5, c[0] n5; queries: c[0]",
        "round 1.7, batches 1-2, keep 0",
        "  b[0] n5 stored 0/0.0, c[0] n5 stored 0/0.0, replay a[0] n1 0/0.0",
        "  retain b[0], d[0]",
    ]


def test_where_no_node_has_room_lost_tasks_wait_and_the_rest_goes_on() -> None:
    nodes = [Node(f"n{number}", slots=1) for number in range(1, 6)]
    talk = tree_at(4, nodes=nodes)
    assert HOMES[C] == "n3"
    assert talk.loses("n3") == [
        "cancel 1.3",
        "recover nothing; queries: none; waiting: c[0], they need 1 slots, and 4 nodes have 0 left",
        "request 1 nodes",
        "live 1.4, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, d[0]~ n4 4/1.2",
        "  retain b[0], c[0]",
    ]
    assert talk.gains(Node("n6", slots=1))[0] == "recover c[0] n6; queries: d[0]"
