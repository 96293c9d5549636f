"""The way back: rounds, replay copies, what was retained, the cutover, checkpoints, failures on the way."""

from __future__ import annotations

from dialogues import NODES, SETTINGS, A, B, C, D, Dialogue, E, finished, goes_on, tree_at

from tenax.control.events import CheckpointFailed, CheckpointStored, EpochLost, PassFailed, StopRequested
from tenax.control.recovery.failures import JobFailed
from tenax.model.cluster import Node
from tenax.model.tasks import Task

# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks


def copies(talk: Dialogue) -> dict[Task, tuple[str, int, int | None]]:
    """Node, batch of the head and batch of the fork of every task."""
    by_task = {}
    for task in talk.coordinator.state.tasks:
        assert task.primary is not None
        fork = task.primary.fork
        by_task[task.restore_point.task] = task.primary.node, task.head.batch, None if fork is None else fork.batch
    return by_task


def test_shadows_make_again_what_nobody_retained_and_go_on_where_they_were() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    assert talk.finishes_round() == [
        "round 1.6, batches 3-4, keep 0",
        "  c[0] n6 2/1.4, replay b[0] n2 2/1.4, replay a[0] n1 2/0.0",
        "  retain b[0], c[0]",
    ]


def test_what_the_plan_retains_is_read_and_needs_no_shadow() -> None:
    talk = tree_at(4, retain=[B])
    assert talk.loses("n3")[2:6] == [
        "round 1.4, batches 1-2, keep 0",
        "  c[0] n6 stored 0/0.0",
        "  read b[0] n2 1.1",
        "  retain b[0], c[0]",
    ]
    assert talk.finishes_round() == [
        "round 1.6, batches 3-4, keep 0",
        "  c[0] n6 2/1.4",
        "  read b[0] n2 1.2",
        "  retain b[0], c[0]",
    ]


def test_a_round_reads_what_several_passes_retained_up_to_the_first_gap() -> None:
    talk = tree_at(4, SETTINGS.but(max_batches_per_round=8, checkpoint_every=100))
    talk.loses("n3")
    goes_on(talk, 8)  # b[0] retained its outputs while c[0] was missing, up to batch 6
    assert talk.loses("n6")[3:6] == [
        "round 1.11, batches 1-6, keep 0",
        "  c[0] n1 stored 0/0.0",
        "  read b[0] n2 1.4, b[0] n2 1.5",
    ]
    assert talk.round is not None
    assert [(reading.first, reading.last) for reading in talk.round.readings] == [(1, 4), (5, 6)]


def test_readings_end_with_the_round() -> None:
    talk = tree_at(4, SETTINGS.but(max_batches_per_round=3), retain=[B])
    talk.loses("n3")
    assert talk.round is not None
    assert (talk.round.first, talk.round.last) == (1, 3)
    assert [(reading.first, reading.last) for reading in talk.round.readings] == [(1, 2), (3, 3)]


def test_what_a_replica_retained_is_read_when_its_primary_is_lost() -> None:
    # the replica of b[0] is on n6
    talk = tree_at(4, retain=[B], replicas=[B])
    assert talk.loses("n2", "n3") == [
        "promote b[0] n6",
        "request 2 nodes",
        "cancel 1.3",
        "recover c[0] n1; queries: d[0]",
        "round 1.4, batches 1-2, keep 0",
        "  c[0] n1 stored 0/0.0",
        "  read b[0] n6 1.1",
        "  retain b[0], c[0]",
        "live 1.5, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n6 4/1.2, d[0]~ n4 4/1.2",
        "  retain b[0], c[0]",
    ]


def test_affected_tasks_rise_with_the_lost_one_from_where_they_were_accurate() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    talk.finishes_live()
    assert copies(talk)[D] == ("n4", 4, 6)
    talk.finishes_round()
    assert talk.finishes_round() == [
        "round 1.8, batches 5-6, keep 0",
        "  c[0] n6 4/1.7, d[0] n4 4/1.2",
        "  read b[0] n2 1.5",
        "  retain b[0], c[0]",
    ]


def test_live_passes_wait_when_the_gap_is_small_and_after_the_join_no_fork_is_left() -> None:
    talk = tree_at(4, SETTINGS.but(cutover_lag=2))
    talk.loses("n3")
    talk.finishes_live()
    talk.publishes()
    talk.finishes_round()
    assert talk.finishes_live() == [  # four behind: live passes go on
        "live 1.8, batches 9-10, keep 0",
        "  a[0] n1 8/1.6, e[0] n5 8/1.6, b[0] n2 8/1.6, d[0]~ n4 8/1.6",
        "  retain b[0], c[0]",
    ]
    for _ in range(2):
        talk.finishes_round()
    assert copies(talk) == {
        A: ("n1", 8, None),
        B: ("n2", 8, None),
        C: ("n6", 6, None),
        D: ("n4", 6, 8),
        E: ("n5", 8, None),
    }
    assert not any("live" in said for said in talk.finishes_live())  # two behind when the last round ended: they wait
    assert talk.finishes_round() == [
        "round 1.11, batches 9-10, keep 0",
        "  c[0] n6 8/1.10, d[0] n4 8/1.10",
        "  read b[0] n2 1.8",
        "  retain b[0], c[0]",
    ]
    assert talk.finishes_round() == [
        "live 1.12, batches 11-12, keep 10",
        "  a[0] n1 10/1.8, e[0] n5 10/1.8, b[0] n2 10/1.8, c[0] n6 10/1.11, d[0] n4 10/1.11",
    ]
    assert {fork for _, _, fork in copies(talk).values()} == {None}


def test_rounds_that_catch_up_during_every_live_pass_end_the_outage() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    talk.comes_back()  # at batch 4, while the live pass leaves 5 and 6 behind again
    assert talk.coordinator.standing.healthy
    assert talk.coordinator.state.outage is not None
    assert talk.finishes_live() == [
        "publish 1.5: e[0] 5-6",
        "round 1.7, batches 5-6, keep 0",
        "  c[0] n6 4/1.6, d[0] n4 4/1.2",
        "  read b[0] n2 1.5",
        "  retain b[0], c[0]",
    ]
    assert talk.finishes_round() == [
        "live 1.8, batches 7-8, keep 6",
        "  a[0] n1 6/1.5, e[0] n5 6/1.5, b[0] n2 6/1.5, c[0] n6 6/1.7, d[0] n4 6/1.7",
    ]
    assert talk.coordinator.state.outage is None


def test_a_lost_output_that_is_back_during_a_live_pass_without_it_is_waited_for_after_that() -> None:
    talk = tree_at(4)
    talk.loses("n5")  # nothing depends on e[0], so nothing is tentative
    talk.finishes_round()
    talk.finishes_round()
    assert copies(talk)[E][1] == talk.coordinator.state.finished == 4
    assert talk.coordinator.state.outage is not None  # the live pass leaves it behind once more
    assert [said for said in talk.finishes_live() if not said.startswith("  ")] == [
        "publish 1.5: d[0] 5-6",
        "round 1.7, batches 5-6, keep 0",
    ]
    assert "live 1.8, batches 7-8, keep 6" in talk.finishes_round()
    assert talk.coordinator.state.outage is None


def test_a_tentative_pass_that_fails_after_all_are_back_is_tried_again_accurately() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    talk.comes_back()
    assert talk.fails_live() == [
        "live 1.7, batches 5-6, keep 4, attempt 2",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, c[0] n6 4/1.6, d[0] n4 4/1.2",
    ]
    assert talk.coordinator.state.outage is None


def test_a_run_may_stop_while_a_tentative_pass_is_the_last_of_an_outage() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    talk.comes_back()
    assert talk.tell(EpochLost(2)) == [
        "cancel 1.5",
        "stop superseded: a newer driver (epoch 2) owns the store",
    ]


def test_live_passes_wait_for_the_join_when_rounds_come_no_closer() -> None:
    talk = tree_at(4, SETTINGS.but(patience=1))
    talk.loses("n3")
    for _ in range(2):
        talk.finishes_live()
        talk.finishes_round()
    assert not any("live" in said for said in talk.finishes_live())
    for _ in range(20):
        if talk.coordinator.state.passes.round is None:
            break
        assert talk.coordinator.state.passes.live is None
        talk.finishes_round()
    assert talk.coordinator.state.outage is None
    assert talk.coordinator.state.passes.live is not None


def test_final_results_take_back_the_tentative_ones_in_order() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    talk.finishes_live()
    said = []
    for _ in range(20):
        if talk.coordinator.state.passes.round is not None:
            talk.finishes_round()
        elif talk.coordinator.state.passes.live is not None and talk.coordinator.state.outage is not None:
            talk.finishes_live()
        else:
            break
    while talk.coordinator.state.logs.publishing is not None:
        said += [text for text in talk.publishes() if "d[0]" in text and "publish" in text]
    assert said == [
        "publish tentative 1.5: d[0] 5-6 at 0.00",
        "publish 1.8: d[0] 5-6",
        "publish tentative 1.6: d[0] 7-8 at 0.00",
        "publish 1.9: d[0] 7-8",
    ]


def test_results_that_were_final_before_a_loss_are_not_published_again() -> None:
    talk = tree_at(4)
    said = talk.loses("n4")  # d[0]
    for _ in range(2):
        said += talk.finishes_round()
    assert not any("publish" in text for text in said)
    assert talk.coordinator.state.logs.published == {E: 4, D: 4}


def test_no_checkpoint_begins_while_tasks_are_missing_and_the_one_that_is_owed_is_made_after_the_join() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=6))
    talk.loses("n3")
    talk.finishes_live()
    talk.publishes()
    talk.publishes()  # batch 6 is finished, and all is published that there is
    assert talk.coordinator.state.checkpoints.storing is None
    talk.comes_back()
    talk.finishes_live()
    assert talk.comes_back() == ["store 8: a[0]@8/1.6 n1, e[0]@8/1.6 n5, b[0]@8/1.6 n2, c[0]@8/1.9 n6, d[0]@8/1.9 n4"]
    assert talk.stores() == ["trim outputs before 9, checkpoints before 0, log before 1"]


def test_a_checkpoint_under_way_is_cancelled_and_its_failure_counts_as_no_attempt() -> None:
    talk = tree_at(2, SETTINGS.but(checkpoint_every=4))
    talk.finishes_live()
    assert talk.publishes() == ["store 4: a[0]@4/1.2 n1, e[0]@4/1.2 n5, b[0]@4/1.2 n2, c[0]@4/1.2 n3, d[0]@4/1.2 n4"]
    assert talk.loses("n3") == [  # no round beside a checkpoint
        "cancel 1.3",
        "cancel checkpoint 4",
        "recover c[0] n6; queries: d[0]",
        "live 1.4, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, b[0] n2 4/1.2, d[0]~ n4 4/1.2",
        "  retain b[0], c[0]",
    ]
    assert talk.tell(CheckpointFailed(4, 1, "n3 is gone")) == [
        "round 1.5, batches 1-2, keep 0",
        "  c[0] n6 stored 0/0.0, replay b[0] n2 stored 0/0.0, replay a[0] n1 0/0.0",
        "  retain b[0], c[0]",
    ]
    talk.comes_back()
    talk.finishes_live()
    assert talk.comes_back() == [  # without "attempt 2"
        "store 6: a[0]@6/1.4 n1, e[0]@6/1.4 n5, b[0]@6/1.4 n2, c[0]@6/1.7 n6, d[0]@6/1.7 n4"
    ]


def test_a_checkpoint_that_was_stored_in_spite_of_a_loss_counts() -> None:
    talk = tree_at(2, SETTINGS.but(checkpoint_every=4))
    talk.finishes_live()
    talk.publishes()
    talk.loses("n3")
    assert talk.tell(CheckpointStored(4, 1))[0] == "round 1.5, batches 1-2, keep 0"
    assert [cut.oldest_batch for cut in talk.coordinator.state.checkpoints.kept] == [0, 4]
    assert not any("trim" in said for said in talk.comes_back())  # what recovery reads stays until it is over


def test_a_second_failure_keeps_what_has_risen() -> None:
    talk = tree_at(6)
    talk.loses("n3")
    talk.finishes_round()
    assert talk.loses("n4") == [
        "request 1 nodes",
        "cancel 1.6",
        "cancel 1.7",
        "recover d[0] n1; queries: d[0]",
        "round 1.8, batches 1-2, keep 0",
        "  d[0] n1 stored 0/0.0",
        "  read c[0] n6 1.5",
        "  retain b[0], c[0]",
        "live 1.9, batches 7-8, keep 0",
        "  a[0] n1 6/1.3, e[0] n5 6/1.3, b[0] n2 6/1.3",
        "  retain b[0], c[0]",
    ]
    assert talk.finishes_round() == [
        "round 1.10, batches 3-4, keep 0",
        "  c[0] n6 2/1.5, d[0] n1 2/1.8, replay b[0] n2 2/1.5, replay a[0] n1 2/0.0",
        "  retain b[0], c[0]",
    ]


def test_the_loss_of_a_new_home_starts_over_but_reads_what_shadows_made() -> None:
    talk = tree_at(6)
    talk.loses("n3")
    talk.finishes_round()
    assert talk.loses("n6")[3:7] == [
        "recover c[0] n1; queries: d[0]",
        "round 1.8, batches 1-2, keep 0",
        "  c[0] n1 stored 0/0.0",
        "  read b[0] n2 1.5",
    ]


def test_a_task_and_its_upstream_rise_together() -> None:
    talk = tree_at(4)
    assert talk.loses("n2", "n3") == [
        "request 2 nodes",
        "cancel 1.3",
        "recover b[0] n6, c[0] n1; queries: d[0]",
        "round 1.4, batches 1-2, keep 0",
        "  b[0] n6 stored 0/0.0, c[0] n1 stored 0/0.0, replay a[0] n1 0/0.0",
        "  retain b[0], c[0]",
        "live 1.5, batches 5-6, keep 0",
        "  a[0] n1 4/1.2, e[0] n5 4/1.2, d[0]~ n4 4/1.2",
        "  retain b[0], c[0]",
    ]


def test_a_task_that_is_lost_with_its_replica_comes_back_from_the_checkpoint() -> None:
    # the replica of c[0] is on n6
    talk = tree_at(4, replicas=[C])
    assert talk.loses("n3", "n6")[2:5] == [
        "recover c[0] n1; queries: d[0]",
        "round 1.4, batches 1-2, keep 0",
        "  c[0] n1 stored 0/0.0, replay b[0] n2 stored 0/0.0, replay a[0] n1 0/0.0",
    ]


def test_a_replica_of_an_affected_task_takes_over_with_its_fork() -> None:
    # the replica of d[0] is on n6; c[0] is lost
    talk = tree_at(4, nodes=[Node(f"n{number}") for number in range(1, 8)], replicas=[D])
    talk.loses("n3")
    talk.finishes_live()
    assert talk.loses("n4") == [
        "promote d[0] n6",
        "request 1 nodes",
        "cancel 1.6",
        "cancel 1.4",
        "round 1.7, batches 1-2, keep 0",
        "  c[0] n7 stored 0/0.0, replay b[0] n2 stored 0/0.0, replay a[0] n1 0/0.0",
        "  retain b[0], c[0]",
        "live 1.8, batches 7-8, keep 0",
        "  a[0] n1 6/1.5, e[0] n5 6/1.5, b[0] n2 6/1.5, d[0]~ n6 6/1.5",
        "  retain b[0], c[0]",
    ]


def test_passes_that_keep_failing_go_back_to_the_checkpoint_then_to_the_one_before_then_stop() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=2))
    reason = "batches 5 to 6 did not pass in 2 attempts: the job failed: x"
    assert talk.fails_live()[0] == "live 1.4, batches 5-6, keep 4, attempt 2"
    assert talk.fails_live() == [
        f"roll back to 4: {reason}",
        "live 1.5, batches 5-6, keep 4",
        "  a[0] n1 4/1.2, e[0] n5 stored 4/1.2, b[0] n2 stored 4/1.2, c[0] n3 stored 4/1.2, d[0] n4 stored 4/1.2",
    ]
    assert talk.fails_live()[0] == "live 1.6, batches 5-6, keep 4, attempt 2"
    assert talk.fails_live()[:2] == [f"roll back to 2: {reason}", "round 1.7, batches 3-4, keep 2"]
    assert talk.fails_round()[0] == "round 1.8, batches 3-4, keep 2, attempt 2"
    assert talk.fails_round() == [
        "stop failed: batches 3 to 4 did not pass in 2 attempts: the job failed: x; "
        "starting from older checkpoints did not help"
    ]


def test_a_round_that_keeps_failing_ends_the_live_pass_beside_it() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    assert talk.fails_round()[0] == "round 1.6, batches 1-2, keep 0, attempt 2"
    assert talk.fails_round()[:3] == [
        "roll back to 0: batches 1 to 2 did not pass in 2 attempts: the job failed: x",
        "cancel 1.5",
        "round 1.7, batches 1-2, keep 0",
    ]


def test_a_new_checkpoint_ends_the_escalation() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=2))
    for _ in range(2):
        talk.fails_live()
    talk.finishes_live()
    talk.publishes()
    talk.stores()
    talk.fails_live()
    assert talk.fails_live()[0].startswith("roll back to 6: ")


def test_late_reports_of_cancelled_passes_are_ignored() -> None:
    talk = tree_at(4)
    cancelled = talk.live
    assert cancelled is not None
    talk.loses("n3")
    before = talk.coordinator.state
    assert talk.tell(finished(cancelled)) == []
    assert talk.coordinator.log[-1].ignored == "this pass does not run"
    assert talk.tell(PassFailed(cancelled.pass_id, JobFailed("late"))) == []
    assert talk.coordinator.state == before


def test_a_stop_does_not_wait_for_tasks_that_are_missing() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    assert talk.tell(StopRequested()) == []
    assert talk.finishes_round() == []
    assert talk.finishes_live() == ["publish 1.5: e[0] 5-6"]
    assert talk.publishes() == ["publish tentative 1.5: d[0] 5-6 at 0.00"]
    assert talk.publishes() == ["stop stopped: asked to"]


def test_ended_sources_wait_for_missing_tasks_and_the_last_checkpoint() -> None:
    talk = tree_at(20)
    talk.loses("n3")
    assert talk.logs(0, ended=True) == []
    assert talk.comes_back()[0].startswith("store 20: ")
    assert talk.stores() == [
        "trim outputs before 21, checkpoints before 0, log before 1",
        "stop finished: the sources have ended",
    ]


def test_a_story_tells_loss_recovery_promotion_and_results_in_order() -> None:
    # the replica of d[0] is on n6; first c[0] is lost, then d[0]
    talk = tree_at(2, nodes=[Node(f"n{number}") for number in range(1, 8)], replicas=[D])
    talk.loses("n3")
    talk.finishes_live()
    talk.publishes()
    talk.loses("n4")
    assert [line.text for line in talk.coordinator.story(C)][2:] == [
        "live pass 1.2: as primary through batches 3 to 4 on n3 from c[0]@2/1.1, attempt 1",
        "nodes lost: n3",
        "pass 1.2 cancelled",
        "lost, and comes back on n7",
        "round pass 1.3: as primary through batches 1 to 2 on n7 from c[0]@0/0.0, attempt 1",
        "nodes lost: n4",
        "pass 1.5 cancelled",
        "pass 1.3 cancelled",
        "round pass 1.6: as primary through batches 1 to 2 on n7 from c[0]@0/0.0, attempt 1",
    ]
    assert [line.text for line in talk.coordinator.story(D)][1:] == [
        "pass 1.1 finished: d[0]@2/1.1, 0 rows, on n4 and n6",
        "publish results of batches 1 to 2, final",
        "live pass 1.2: as primary through batches 3 to 4 on n4 from d[0]@2/1.1, attempt 1",
        "nodes lost: n3",
        "pass 1.2 cancelled",
        "live pass 1.4: tentatively as primary through batches 3 to 4 on n4 from d[0]@2/1.1, attempt 1",
        "pass 1.4 finished: d[0]@4/1.4, 0 rows, on n4 and n6",
        "live pass 1.5: tentatively as primary through batches 5 to 6 on n4 from d[0]@4/1.4, attempt 1",
        "publish results of batches 3 to 4, tentative, quality 0.00",
        "nodes lost: n4",
        "its replica on n6 takes over",
        "pass 1.5 cancelled",
        "pass 1.3 cancelled",
        "live pass 1.7: tentatively as primary through batches 5 to 6 on n6 from d[0]@4/1.4, attempt 1",
    ]


def test_a_story_tells_what_was_read_for_a_task_and_that_it_waits_for_room() -> None:
    talk = tree_at(4, nodes=[Node(f"n{number}", slots=1) for number in range(1, 6)], retain=[B])
    talk.loses("n1", "n3")  # the source runs anywhere, c[0] has no room
    assert [line.text for line in talk.coordinator.story(C)][
        -1
    ] == "lost, and waits for room on a node: they need 1 slots, and 3 nodes have 0 left"
    talk.gains(Node("n6", slots=1))
    assert [line.text for line in talk.coordinator.story(B)][-1] == (
        "pass 1.5: outputs of batches 1 to 2, retained by pass 1.1, are read on n2"
    )


def test_a_replica_gives_way_to_a_lost_task_that_finds_no_room_else() -> None:
    talk = tree_at(4, nodes=[Node(node.name, slots=1) for node in NODES], replicas=[C])
    assert [task.replica is not None for task in talk.coordinator.state.tasks] == [
        task == C for task in (A, E, B, C, D)
    ]
    assert "recover d[0] n6; queries: d[0]" in talk.loses("n4")
    assert all(task.replica is None for task in talk.coordinator.state.tasks)
    talk.comes_back()
    assert talk.coordinator.standing.healthy
