"""Backups follow what is measured: when a plan is asked for, who retains outputs from when on, what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, A, B, C, D, Dialogue, goes_on, tree_at

from tenax.control.coordinator import Coordinator
from tenax.control.copies import Role
from tenax.control.events import BackupsPlanned, PlanKind, PlanningFailed, Started
from tenax.control.instructions import PassKind, PlanBackups, RunPass
from tenax.control.load import Arrival, Load, TaskLoad
from tenax.control.placement.promises import measures
from tenax.control.versions import NO_PASS, Cut, RebuildPoint, Version
from tenax.model.plans import Placement
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.planning.promises import Promise

FOLLOWING = SETTINGS.but(checkpoint_every=4, measure_every=4, recovery_latency="3s")
HELD = Promise(3.0, 2.0, 0.5)
BROKEN = Promise(3.0, 4.0, 0.5, (C, D))


def planned(talk: Dialogue) -> list[PlanBackups]:
    """The plans that were asked for so far."""
    return [each for entry in talk.coordinator.log for each in entry.decided if isinstance(each, PlanBackups)]


def retaining(talk: Dialogue) -> frozenset[Task]:
    assert isinstance(talk.live, RunPass)
    return talk.live.retain


def asked_at(batch: int, settings: Settings = FOLLOWING, retain: tuple[Task, ...] = (B,)) -> Dialogue:
    """The tree when its first plan of backups is asked for."""
    talk = tree_at(batch, settings, retain=retain)
    assert [each.batch for each in planned(talk)] == [batch]
    return talk


def test_a_plan_is_asked_for_once_the_load_is_known_and_only_for_a_latency() -> None:
    talk = tree_at(8, FOLLOWING, retain=[B])
    assert not planned(talk)  # two passes are left out, and two measured batches are not enough
    assert "plan backups by batches up to 10" in goes_on(talk, 2)
    assert planned(talk)[0].backups == frozenset([B])
    assert not planned(tree_at(12, SETTINGS.but(measure_every=4), retain=[B]))


def started_with(load: Load | None, settings: Settings) -> list[PlanBackups]:
    """What a run is asked to plan when it begins on a store, with what an earlier driver has measured there."""
    placement = Placement(HOMES, {})
    coordinator = Coordinator(TREE, settings, [B], place=lambda *_: placement)
    cut = Cut(8, tuple(Version(task, 8, NO_PASS) for task in TREE.tasks(range(len(TREE)))))
    decided = coordinator.handle(Started(2, NODES, cut, 8, dict.fromkeys(TREE.tasks(range(len(TREE))), 8), load))
    return [each for each in decided if isinstance(each, PlanBackups)]


def test_what_an_earlier_driver_has_measured_counts_from_the_start() -> None:
    known = Load((TaskLoad(10.0, 10.0, 0.2),) * len(TREE), 20, rows=10.0, levels=3, fixed_s=0.1, interval=7)
    (plan,) = started_with(known, FOLLOWING)
    assert (plan.measures.busy_s, plan.backups) == ((0.2,) * len(TREE), frozenset([B]))
    assert dict(plan.homes) == HOMES
    assert set(plan.measures.batches) == {4}  # batches between checkpoints are as they are set now
    (timed,) = started_with(known, FOLLOWING.but(checkpoint_every="9s"))
    assert set(timed.measures.batches) == {7}  # how long a batch takes is not known yet
    assert not started_with(None, FOLLOWING)
    assert not started_with(replace(known, batches=1), FOLLOWING)
    assert not started_with(known, SETTINGS)


def test_one_plan_is_made_at_a_time_and_a_failed_one_is_asked_for_again_later() -> None:
    talk = asked_at(10)
    assert "plan backups by batches up to 12" not in goes_on(talk, 4)
    assert "plan backups by batches up to 14" in talk.tell(PlanningFailed(10, "no time", PlanKind.BACKUPS))
    assert retaining(talk) == {B}


def test_the_failure_of_another_plan_is_not_taken_for_this_one() -> None:
    talk = asked_at(10)
    talk.tell(PlanningFailed(10, "no time", PlanKind.REPLICAS))
    talk.tell(PlanningFailed(9, "no time", PlanKind.BACKUPS))
    assert talk.coordinator.state.promises.request == 10


def test_other_tasks_retain_their_outputs_from_the_next_pass_on() -> None:
    talk = asked_at(10)
    said = talk.tell(BackupsPlanned(10, (C, A), HELD))
    assert said[0] == "move backups from b[0] to c[0]: by what was measured up to batch 10"  # sources have their log
    assert retaining(talk) == {B}  # the pass that runs
    goes_on(talk, 2)
    assert retaining(talk) == {C}


def test_what_was_retained_before_is_still_read_and_what_was_not_is_made_again() -> None:
    # a[0] ─▶ b[0] ─▶ c[0] ─▶ d[0]: b retains up to batch 12, c is lost after 14
    talk = asked_at(10, FOLLOWING.but(checkpoint_every=100))
    talk.tell(BackupsPlanned(10, (), HELD))
    goes_on(talk, 2)  # what runs retains still
    talk.finishes_live()
    talk.loses("n3")
    talk.comes_back()
    decided = (each for entry in talk.coordinator.log for each in entry.decided)
    rounds = [each for each in decided if isinstance(each, RunPass) and each.kind is PassKind.ROUND]
    read = {batch for order in rounds for each in order.readings for batch in range(each.first, each.last + 1)}
    replaying = [order for order in rounds for step in order.steps if (step.task, step.role) == (B, Role.REPLAY)]
    feeding = [order.first for order in replaying if C in {step.task for step in order.steps}]
    assert (read, feeding) == (set(range(1, 13)), [13])


def test_backups_stay_where_it_is_said_and_the_promise_is_measured_all_the_same() -> None:
    talk = asked_at(10, FOLLOWING.but(follow_load=1.0))
    assert talk.tell(BackupsPlanned(10, (C,), HELD)) == ["promise 2.5 of 3 s: none"]
    goes_on(talk, 2)
    assert retaining(talk) == {B}
    assert talk.coordinator.state.promises.promise == HELD


def test_a_promise_is_told_when_it_is_first_known_and_when_others_break_it_and_when_it_is_kept_again() -> None:
    talk = asked_at(10)
    lines = []
    for promise in (HELD, HELD, BROKEN, replace(BROKEN, steps_s=5.0), replace(BROKEN, broken_by=(D,)), HELD, HELD):
        batch = talk.coordinator.state.promises.request
        assert batch is not None
        lines.append([line for line in talk.tell(BackupsPlanned(batch, (B,), promise)) if line.startswith("promise")])
        if talk.coordinator.state.logs.logging is not None:
            talk.logs(talk.coordinator.state.logs.logging.count)
        goes_on(talk, 4)
    held, broken = ["promise 2.5 of 3 s: none"], ["promise 4.5 of 3 s: c[0], d[0]"]
    assert lines == [held, [], broken, [], ["promise 4.5 of 3 s: d[0]"], held, []]


def test_a_plan_that_nobody_asked_for_or_that_comes_twice_changes_nothing() -> None:
    talk = asked_at(10)
    assert talk.tell(BackupsPlanned(9, (C,), HELD)) == []
    talk.tell(BackupsPlanned(10, (C,), HELD))
    assert talk.tell(BackupsPlanned(10, (), BROKEN)) == []
    assert talk.coordinator.state.promises.retained_by == {C}


def test_nothing_is_planned_while_tasks_are_missing() -> None:
    talk = tree_at(8, FOLLOWING, retain=[B])
    talk.loses("n4")
    assert not planned(talk)
    talk.tell(PlanningFailed(8, "not asked for", PlanKind.BACKUPS))
    talk.comes_back()
    goes_on(talk, 8)
    assert planned(talk)


def test_a_story_tells_who_retains_outputs_and_why() -> None:
    talk = asked_at(10)
    talk.tell(BackupsPlanned(10, (C,), HELD))
    of_b, of_c = ([line.text for line in talk.coordinator.story(task)] for task in (B, C))
    assert "retains its outputs no longer, by what was measured up to batch 10" in of_b
    assert "retains its outputs from now on, by what was measured up to batch 10" in of_c


TASKS = (TaskLoad(100.0, 100.0, 0.1, 0.0), TaskLoad(100.0, 10.0, 0.4, 2000.0))
LOAD = Load(TASKS, 10, rows=100.0, fixed_s=0.05, moving_s=0.5, levels=2, restore_s=1e-6, interval=10)
CUT = Cut(4, (Version(A, 4, NO_PASS), Version(B, 4, NO_PASS)))


def test_measures_are_those_of_the_rate_at_which_rows_come() -> None:
    settings = Settings.of(batch="2s", max_batches_per_round=4)
    there = measures(replace(LOAD, arrival=Arrival(300.0)), CUT, settings)
    assert there.rows.taken == pytest.approx((300.0, 300.0))
    assert there.rows.given == pytest.approx((300.0, 30.0))
    assert there.busy_s == pytest.approx((0.6, 2.4))  # 600 rows in a batch
    assert (there.batches, there.state_bytes, there.restore_s) == ((10, 10), (0.0, 2000.0), 1e-6)
    assert there.scheduling_s == pytest.approx(3 * 2 * 0.05)  # rounds of 4, 4 and 2 batches at two levels


def test_of_a_run_that_does_not_wait_for_rows_the_measured_batches_count() -> None:
    there = measures(LOAD, CUT, Settings())
    assert there.rows.taken == pytest.approx((200.0, 200.0))  # 100 rows in half a second of work
    assert there.busy_s == (0.1, 0.4)


def test_a_task_that_is_never_stored_is_stepped_from_its_rebuild_point() -> None:
    rebuilt = replace(CUT, points=(CUT.points[0], RebuildPoint(B, 4, 2)))
    there = measures(LOAD, rebuilt, Settings.of(max_batches_per_round=13))
    assert there.batches == (10, 13)
    assert there.scheduling_s == pytest.approx(2 * 0.05)


def test_a_checkpoint_notes_how_far_checkpoints_are_apart() -> None:
    talk = tree_at(8, FOLLOWING)
    assert talk.store is not None
    assert talk.store.load is not None
    assert talk.store.load.interval == 4
    data = talk.store.load.to_data()
    assert isinstance(data, dict)
    assert Load.from_data(data).interval == 4
