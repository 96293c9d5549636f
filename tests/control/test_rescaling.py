from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, A, B, C, D, Dialogue, E, tree_at
from rescales import PUBLISH, TARGET, asked, comes_to_store, live, order_of, stage, stored, storing, switching

from tenax.control.copies import Copy
from tenax.control.events import (
    CheckpointFailed,
    EpochLost,
    LoggingFailed,
    PassFinished,
    PublishFailed,
    RescaleAsked,
    RescaleFailed,
    Started,
    StopRequested,
    TaskReport,
)
from tenax.control.instructions import Rescale
from tenax.control.rescaling import NODES_PATIENCE_S
from tenax.control.state import LogRequest, Stage
from tenax.control.versions import NO_PASS, Cut, PassId, RebuildPoint, Version
from tenax.model.cluster import Node
from tenax.model.protection import Strategy
from tenax.model.settings import Settings
from tenax.model.topology_versions import Target, TopologyVersion


def test_a_rescale_pauses_publishes_stores_all_tasks_at_one_batch_and_switches() -> None:
    talk = tree_at(4)
    assert talk.tell(RescaleAsked(TARGET)) == ["planned: b to 3 tasks"]
    assert stage(talk) is Stage.PAUSED
    assert talk.finishes_live() == [PUBLISH]  # no pass follows
    assert talk.publishes() == [stored(6, "1.3")]
    assert talk.stores() == ["rescale from cut 6 at 6-6, passes up to 3: b to 3 tasks"]
    assert stage(talk) is Stage.SWITCHING


def test_what_the_newest_checkpoint_has_is_not_stored_again() -> None:
    talk = tree_at(4, SETTINGS.but(checkpoint_every=4))
    talk.finishes_live()
    assert talk.coordinator.state.newest.number == 4
    talk = Dialogue(TREE, HOMES, NODES, SETTINGS)
    assert talk.tell(RescaleAsked(TARGET)) == [
        "planned: b to 3 tasks",
        "rescale from cut 0 at 0-0, passes up to 0: b to 3 tasks",  # the initial state needs no checkpoint
    ]


@pytest.mark.parametrize("strategy", [Strategy.INDIVIDUAL, Strategy.SWEEPING, Strategy.SYNCHRONOUS])
def test_all_tasks_are_stored_at_one_batch_whatever_their_strategy(strategy: Strategy) -> None:
    talk = asked(settings=SETTINGS.but(checkpoint=strategy))
    talk.finishes_live()
    assert talk.publishes() == [stored(6, "1.3")]
    assert talk.stores() == ["rescale from cut 6 at 6-6, passes up to 3: b to 3 tasks"]


def test_tasks_that_are_never_stored_are_this_once() -> None:
    talk = asked(settings=SETTINGS.but(checkpoints={"b": Strategy.NONE, "d": Strategy.NONE}))
    talk.finishes_live()
    assert talk.publishes() == [stored(6, "1.3")]


def test_of_a_task_that_is_rebuilt_from_nothing_a_version_without_a_state_is_stored() -> None:
    # d remembers nothing: lost at batch 6, it is back at once, and has no version that a pass made
    talk = asked(settings=SETTINGS.but(checkpoints={"d": Strategy.NONE}))
    assert talk.live is not None
    reports = tuple(
        TaskReport(Version(step.task, 6, talk.live.pass_id), step.node, rebuild_from=7 * (step.task == D))
        for step in talk.live.steps
    )
    talk.tell(PassFinished(talk.live.pass_id, reports))
    talk.publishes()
    said = talk.loses("n4")
    assert "recover d[0] n6; queries: d[0]" in said
    assert talk.coordinator.state.tasks[4].head == RebuildPoint(D, 6, 7)
    talk.tell(CheckpointFailed(6, 1, "n4 is gone"))
    assert talk.store is not None
    assert talk.store.versions[-1] == Version(D, 6, NO_PASS)
    talk.stores()
    assert stage(talk) is Stage.SWITCHING


def test_nothing_else_is_decided_while_it_switches() -> None:
    talk = switching()
    assert talk.gains(Node("n7")) == []
    assert talk.tell(StopRequested()) == []
    assert talk.stores() == []
    assert talk.coordinator.state.checkpoints.trimmed is None


def test_nodes_are_asked_for_before_anything_pauses() -> None:
    talk = tree_at(4)
    assert talk.tell(RescaleAsked(Target({"b": 3}, nodes=8))) == [
        "planned: b to 3 tasks, 8 nodes",
        "request 2 nodes",
        "postponed: 8 nodes are wanted, and 6 are there",
    ]
    assert talk.finishes_live() == [PUBLISH, *live(4, 7, "6/1.3")]  # it goes on
    assert talk.gains(Node("n7")) == ["postponed: 8 nodes are wanted, and 7 are there"]
    assert talk.gains(Node("n8")) == []
    assert stage(talk) is Stage.PAUSED


def test_the_pool_comes_on_top_of_the_nodes_that_are_wanted() -> None:
    talk = tree_at(4, settings=SETTINGS.but(pool=1))
    assert "request 3 nodes" in talk.tell(RescaleAsked(Target({"b": 3}, nodes=8)))


def test_nodes_that_do_not_come_are_not_waited_for_for_ever() -> None:
    talk = tree_at(4)
    talk.tell(RescaleAsked(Target({"b": 3}, nodes=8)))
    for at_s in (100.0, 100.0 + NODES_PATIENCE_S):  # the first pass after the wish says when that was
        assert stage(talk) is Stage.WAITING
        assert talk.live is not None
        talk.tell(replace(all_reports(talk), at_s=at_s))
        talk.publishes()
    assert stage(talk) is Stage.PAUSED


def all_reports(talk: Dialogue) -> PassFinished:
    assert talk.live is not None
    reports = (TaskReport(Version(step.task, talk.live.last, talk.live.pass_id), step.node) for step in talk.live.steps)
    return PassFinished(talk.live.pass_id, tuple(reports))


def test_a_rescale_waits_until_lost_tasks_are_back() -> None:
    talk = tree_at(4)
    talk.loses("n3")
    assert talk.tell(RescaleAsked(TARGET)) == ["planned: b to 3 tasks", "postponed: tasks are missing"]
    comes_to_store(talk)
    assert talk.coordinator.state.outage is None


def test_a_rescale_waits_until_tasks_have_moved() -> None:
    talk = tree_at(4)
    state = talk.coordinator.state
    talk.coordinator._state = replace(state, placement=replace(state.placement, moving={0: "n6"}))
    assert talk.tell(RescaleAsked(TARGET)) == [
        "planned: b to 3 tasks",
        "postponed: tasks are moving to other nodes",
    ]


def test_a_rescale_waits_for_what_is_run_again_behind_results_that_are_committed() -> None:
    # an earlier driver has committed batch 4 in this version: it cannot be in another one
    talk = Dialogue(TREE, HOMES, NODES, SETTINGS, started=Started(2, NODES, None, 20, {E: 4, D: 4}))
    assert talk.tell(RescaleAsked(TARGET)) == [
        "planned: b to 3 tasks",
        "postponed: batches are run again whose results are committed",
    ]
    talk.finishes_live()
    assert stage(talk) is Stage.WAITING
    talk.finishes_live()
    assert stage(talk) is Stage.PAUSED


def test_a_newer_wish_takes_the_place_of_one_that_waits() -> None:
    talk = tree_at(4)
    talk.tell(RescaleAsked(Target({"b": 3}, nodes=8)))
    assert talk.tell(RescaleAsked(Target({"c": 2}))) == [
        "given up: b to 3 tasks, 8 nodes; in its place is wanted: c to 2 tasks",
        "planned: c to 2 tasks",
    ]


def test_a_wish_beside_a_rescale_that_is_under_way_is_ignored() -> None:
    for talk in (asked(), storing(), switching()):
        assert talk.tell(RescaleAsked(Target({"c": 2}))) == []
        assert talk.coordinator.log[-1].ignored == "another rescale is under way"


def test_a_wish_at_the_end_of_a_run_is_ignored() -> None:
    talk = tree_at(4)
    talk.tell(StopRequested())
    assert talk.tell(RescaleAsked(TARGET)) == []
    assert talk.coordinator.log[-1].ignored == "the run is ending"


# Nodes that are lost in each stage


def test_nodes_lost_while_a_pass_ends_put_a_rescale_off() -> None:
    talk = asked()
    said = talk.loses("n3")
    assert said[:2] == ["cancel 1.3", "recover c[0] n6; queries: d[0]"]
    assert "postponed: tasks are missing" in said
    assert stage(talk) is Stage.WAITING


def test_nodes_lost_while_all_is_stored_put_a_rescale_off_until_all_is_back() -> None:
    talk = storing()
    said = talk.loses("n3")
    assert said[:2] == ["cancel checkpoint 6", "recover c[0] n6; queries: d[0]"]
    assert "postponed: tasks are missing" in said
    assert stage(talk) is Stage.WAITING
    talk.tell(CheckpointFailed(6, 1, "n3 is gone"))
    comes_to_store(talk)
    assert talk.store is not None
    assert talk.store.nodes == ("n1", "n5", "n2", "n6", "n4")
    assert talk.stores() == ["rescale from cut 8 at 8-8, passes up to 8: b to 3 tasks"]


def test_nodes_lost_while_it_switches_are_known_to_the_version_that_goes_on() -> None:
    talk = switching()
    assert talk.loses("n3") == []
    assert stage(talk) is Stage.SWITCHING
    said = talk.tell(RescaleFailed(1, "no space", storage=True))
    assert said == [
        "recover c[0] n6; queries: d[0]",
        "rescale from cut 6 at 6-6, passes up to 3, attempt 2, after 0.25 s: b to 3 tasks",
    ]


def test_all_tasks_that_go_back_to_a_checkpoint_put_a_rescale_off() -> None:
    talk = asked(6, settings=SETTINGS.but(checkpoint_every=4, max_attempts=1))
    assert stage(talk) is Stage.PAUSED
    said = talk.fails_live()
    assert said[0].startswith("roll back to 4: batches 7 to 8 did not pass")
    assert "postponed: tasks are missing" in said
    assert stage(talk) is Stage.WAITING
    comes_to_store(talk)
    assert talk.store is not None
    assert {version.batch for version in talk.store.cut.points} == {talk.coordinator.state.finished}


def test_replicas_that_lag_begin_again_from_the_checkpoint_of_all() -> None:
    # what they would ask for is trimmed behind it
    talk = asked()
    tasks = list(talk.coordinator.state.tasks)
    behind = Copy("n6", Version(C, 0, NO_PASS), stored=True)
    tasks[3] = replace(tasks[3], replica=behind)
    placement = replace(talk.coordinator.state.placement, replicated=frozenset({C}))
    talk.coordinator._state = replace(talk.coordinator.state, tasks=tuple(tasks), placement=placement)
    talk.finishes_live()
    talk.publishes()
    assert [task.replica for task in talk.coordinator.state.tasks] == [None] * 5
    talk.stores()
    replicas = [task.replica for task in talk.coordinator.state.tasks if task.replica is not None]
    assert [replica.head for replica in replicas] == [talk.coordinator.state.newest.points[3]]


# Failures


def test_a_switch_that_failed_is_tried_again_at_once_and_then_given_up() -> None:
    talk = switching()
    assert talk.tell(RescaleFailed(1, "no room")) == [
        "rescale from cut 6 at 6-6, passes up to 3, attempt 2: b to 3 tasks"
    ]
    assert talk.tell(RescaleFailed(2, "no room")) == [
        "given up: b to 3 tasks; no room",
        *live(4, 7, "6/1.3"),
        "trim outputs before 7, checkpoints before 0, log before 1",
    ]
    assert talk.coordinator.state.rescaling is None


def test_a_switch_that_the_store_refused_is_tried_again_after_a_pause() -> None:
    talk = switching(SETTINGS.but(storage_patience="1s"))
    for attempt, pause in ((1, "0.25"), (2, "0.5")):
        said = talk.tell(RescaleFailed(attempt, "full", storage=True))
        assert said == [
            f"rescale from cut 6 at 6-6, passes up to 3, attempt {attempt + 1}, after {pause} s: b to 3 tasks"
        ]
    assert talk.tell(RescaleFailed(3, "full", storage=True))[0] == "given up: b to 3 tasks; full"


def test_an_answer_to_no_switch_is_ignored() -> None:
    for talk in (asked(), tree_at(4)):
        assert talk.tell(RescaleFailed(1, "late")) == []
        assert talk.coordinator.log[-1].ignored == "this rescale is not under way"
    talk = switching()
    talk.tell(RescaleFailed(1, "x"))
    assert talk.tell(RescaleFailed(1, "x")) == []


def test_the_checkpoint_of_all_is_tried_again_with_the_patience_that_is_left() -> None:
    talk = storing(SETTINGS.but(storage_patience="1s"))
    for attempt, pause_s in ((1, 0.25), (2, 0.5)):
        assert talk.tell(CheckpointFailed(6, attempt, "full")) == [f"{stored(6, '1.3')}, attempt {attempt + 1}"]
        assert talk.store is not None
        assert talk.store.pause_s == pause_s
    said = talk.tell(CheckpointFailed(6, 3, "full"))
    assert said == [
        "given up: b to 3 tasks; the run is ending",
        "stop failed: checkpoint 6 was not stored after 1 s of waiting: full",
    ]


def test_results_that_are_refused_hold_a_switch_up() -> None:
    talk = asked()
    talk.finishes_live()
    assert talk.publish is not None
    assert talk.tell(PublishFailed(talk.publish.pass_id, False, 1, "full", storage=True)) == [f"{PUBLISH}, attempt 2"]
    assert talk.publishes() == [stored(6, "1.3")]


def test_a_pass_that_fails_while_a_run_pauses_is_the_next_versions() -> None:
    talk = asked()
    talk.fails_live()
    assert talk.store is not None
    assert talk.store.cut.number == 4
    assert talk.stores() == ["rescale from cut 4 at 4-4, passes up to 3: b to 3 tasks"]


# The end of a run


@pytest.mark.parametrize("begin", [asked, storing])
def test_a_stop_is_not_held_up_by_what_is_not_recorded(begin: Callable[[], Dialogue]) -> None:
    talk = begin()
    assert talk.tell(StopRequested())[0] == "given up: b to 3 tasks; the run is ending"
    if talk.coordinator.state.passes.live is not None:
        talk.finishes_live()
        talk.publishes()
    assert talk.stores()[-1] == "stop stopped: asked to"


def test_a_stop_while_it_switches_waits_for_the_answer() -> None:
    talk = switching()
    assert talk.tell(StopRequested()) == []
    said = talk.tell(RescaleFailed(1, "x"))
    assert said[0] == "given up: b to 3 tasks; the run is ending"
    assert said[-1] == "stop stopped: asked to"


def test_sources_that_have_ended_are_the_end_of_a_wish() -> None:
    talk = Dialogue(TREE, HOMES, NODES, SETTINGS)
    talk.logs(2, ended=True)
    talk.tell(RescaleAsked(Target({}, nodes=9)))
    assert talk.finishes_live() == ["publish 1.1: e[0] 1-2, d[0] 1-2", "given up: 9 nodes; the run is ending"]
    talk.publishes()
    assert talk.stores()[-1] == "stop finished: the sources have ended"


def test_a_driver_that_was_replaced_gives_nothing_up() -> None:
    talk = tree_at(4)
    talk.tell(RescaleAsked(Target({}, nodes=9)))
    assert talk.tell(EpochLost(2))[-1].startswith("stop superseded")
    assert len(talk.coordinator.log[-1].decided) == 2  # the pass is cancelled


def test_a_run_that_fails_says_that_what_waits_will_not_be_done() -> None:
    talk = tree_at(4, SETTINGS)
    talk.tell(RescaleAsked(Target({}, nodes=9)))
    talk.coordinator._state = replace(
        talk.coordinator.state, logs=replace(talk.coordinator.state.logs, logging=LogRequest(21, 1, 1))
    )
    said = talk.tell(LoggingFailed(21, 1, "a file is damaged", again=False))
    assert said[-2:] == [
        "given up: 9 nodes; the run is ending",
        "stop failed: batch 21 cannot be planned: a file is damaged",
    ]


# A version that is recorded already


RECORDED = Target({"b": 3}, version=TopologyVersion(2, 5, {"a": 1, "e": 1, "b": 3, "c": 1, "d": 1}))


def went_back(settings: Settings = SETTINGS) -> Dialogue:
    """A run that begins at the beginning, and whose next version begins behind batch 5."""
    started = Started(2, NODES, None, 20, {E: 9, D: 9}, next_version=RECORDED)
    return Dialogue(TREE, HOMES, NODES, settings, started=started)


def test_a_run_that_went_back_comes_to_the_boundary_again_and_switches_once_more() -> None:
    talk = went_back()
    for last in (2, 4, 5):  # the pass that would go to 6 ends at 5
        assert talk.live is not None
        assert talk.live.last == last
        said = talk.finishes_live()
    assert said[0].startswith("store 5: ")
    assert talk.stores() == ["rescale from cut 5 at 5-5, passes up to 3: b to 3 tasks"]


def test_a_run_that_stands_at_the_boundary_of_a_recorded_version_switches_at_once() -> None:
    cut = Cut(5, tuple(Version(task, 5, PassId(1, 9)) for task in (A, E, B, C, D)))
    started = Started(2, NODES, cut, 20, {E: 9, D: 9}, next_version=RECORDED)
    talk = Dialogue(TREE, HOMES, NODES, SETTINGS, started=started)
    assert order_of(talk) == Rescale(RECORDED, cut, 0)


def test_other_wishes_wait_until_a_recorded_version_has_begun() -> None:
    talk = went_back()
    assert talk.tell(RescaleAsked(TARGET)) == []
    assert talk.coordinator.log[-1].ignored == "another rescale is under way"


def test_a_recorded_version_that_cannot_be_begun_ends_the_run() -> None:
    talk = went_back()
    for _ in range(3):
        talk.finishes_live()
    talk.stores()
    talk.tell(RescaleFailed(1, "damaged"))
    assert talk.tell(RescaleFailed(2, "damaged")) == [
        "stop failed: the next version of the topology was not begun in 2 attempts: damaged"
    ]


def test_a_stop_before_a_recorded_version_needs_no_switch() -> None:
    talk = went_back()
    for _ in range(3):
        talk.finishes_live()
    assert talk.tell(StopRequested()) == []
    assert talk.stores()[-1] == "stop stopped: asked to"
