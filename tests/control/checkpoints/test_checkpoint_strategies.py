"""When tasks are stored, and what lies beside their states: aligned, synchronous, individual, sweeping.

a[0] n1 ──▶ e[0] n5 (output)
   ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, B, C, D, Dialogue, finished, tree_at

from tenax.control.checkpoints.strategies import interval
from tenax.control.coordinator import Coordinator
from tenax.control.events import CheckpointStored, PassFinished, Started
from tenax.control.instructions import Reading, RunPass, StoreCheckpoint
from tenax.control.run import Run
from tenax.control.versions import PassId
from tenax.model.plans import Placement
from tenax.model.protection import Strategy
from tenax.model.tasks import Task

EVERY_4 = SETTINGS.but(checkpoint_every=4)


def stored_with(
    strategy: Strategy, batches: int, homes: Mapping[Task, str] = HOMES, every: int = 4
) -> tuple[Dialogue, list[tuple[int, list[str]]]]:
    """A run to so many batches, and what was stored when, sources left out."""
    talk = Dialogue(TREE, homes, NODES, SETTINGS.but(checkpoint_every=every, checkpoint=strategy))
    talk.logs(20)
    stored = []
    while talk.coordinator.state.finished < batches:
        talk.finishes_live()
        talk.publishes()
        while talk.coordinator.state.checkpoints.storing is not None:
            assert talk.store is not None
            stored.append((talk.coordinator.state.finished, names(talk.store)))
            talk.stores()
    return talk, stored


def names(store: StoreCheckpoint) -> list[str]:
    return [str(version).partition("/")[0] for version in store.versions if version.task.operator != "a"]


def test_aligned_tasks_are_stored_together() -> None:
    _, stored = stored_with(Strategy.ALIGNED, 8)
    assert stored == [
        (4, ["e[0]@4", "b[0]@4", "c[0]@4", "d[0]@4"]),
        (8, ["e[0]@8", "b[0]@8", "c[0]@8", "d[0]@8"]),
    ]


def test_individual_tasks_are_stored_by_timers_of_their_own() -> None:
    _, stored = stored_with(Strategy.INDIVIDUAL, 8)
    assert stored == [
        (2, ["c[0]@2", "d[0]@2"]),
        (4, ["e[0]@4", "b[0]@4"]),
        (6, ["c[0]@6", "d[0]@6"]),
        (8, ["e[0]@8", "b[0]@8"]),
    ]


def test_a_sweep_goes_upstream_from_the_last_tasks_and_leaves_no_outputs() -> None:
    talk, stored = stored_with(Strategy.SWEEPING, 14, every=8)
    assert stored == [
        (8, ["e[0]@8", "d[0]@8"]),
        (10, ["c[0]@8"]),  # its outputs until 8 are acknowledged
        (12, ["b[0]@8"]),
    ]
    assert talk.coordinator.state.newest.outputs == ()
    assert talk.coordinator.state.checkpoints.sweeps == ()


def test_versions_that_a_sweep_has_yet_to_store_are_kept() -> None:
    talk, _ = stored_with(Strategy.SWEEPING, 10, every=8)
    assert talk.live is not None
    assert (talk.live.first, talk.live.keep) == (11, 8)
    talk.finishes_live()
    talk.publishes()
    talk.stores()
    talk.finishes_live()
    assert (talk.live.first, talk.live.keep) == (15, 14)


def test_a_sweep_goes_on_while_the_next_one_follows() -> None:
    talk, stored = stored_with(Strategy.SWEEPING, 12)
    assert [stored for _, stored in stored] == [
        ["e[0]@4", "d[0]@4"],
        ["c[0]@4"],
        ["e[0]@8", "b[0]@4", "d[0]@8"],  # the next sweep begins
        ["c[0]@8"],
        ["e[0]@12", "b[0]@8", "d[0]@12"],
    ]
    assert talk.coordinator.state.newest.outputs == ()


def test_after_a_loss_a_sweep_stores_what_there_is() -> None:
    talk, _ = stored_with(Strategy.SWEEPING, 8, every=8)
    talk.loses(HOMES[C])
    stored = recovered(talk)
    assert stored[0] == "c[0]@10"
    assert talk.coordinator.state.outage is None


def test_a_sweep_takes_tasks_of_a_node_that_feed_only_each_other_in_one_step() -> None:
    _, stored = stored_with(Strategy.SWEEPING, 6, {**HOMES, C: HOMES[D]})
    assert [stored for _, stored in stored] == [["e[0]@4", "c[0]@4", "d[0]@4"], ["b[0]@4"]]


def test_swept_tasks_keep_no_outputs_and_make_them_again_for_a_lost_consumer() -> None:
    talk, _ = stored_with(Strategy.SWEEPING, 6)  # c and d are stored at 4, b at the beginning
    assert talk.live is not None
    assert talk.live.retain == frozenset()
    talk.loses(HOMES[D])
    seen = rounds_until_whole(talk)
    assert [(order.first, order.last, steps(order)) for order in seen] == [
        (1, 2, ["a[0] replay", "b[0] replay"]),
        (3, 4, ["a[0] replay", "b[0] replay"]),
        (5, 6, ["a[0] replay", "b[0] replay", "c[0] replay", "d[0] primary"]),
    ]


def test_swept_tasks_keep_outputs_for_consumers_that_are_stored_otherwise() -> None:
    swept, otherwise = Strategy.SWEEPING, {"c": Strategy.INDIVIDUAL}
    run = Run(TREE, SETTINGS.but(checkpoint=swept, checkpoints=otherwise), nowhere)
    assert run.ahead == (B, C)  # c may be stored before d


def nowhere(*_: object) -> Placement:
    return Placement({}, {})


def steps(order: RunPass) -> list[str]:
    return sorted(f"{step.task} {step.role.value}" for step in order.steps)


def rounds_until_whole(talk: Dialogue) -> list[RunPass]:
    """The rounds in which lost tasks come back."""
    seen: list[RunPass] = []
    for _ in range(20):
        if talk.coordinator.state.passes.round is None:
            break
        assert talk.round is not None
        seen.append(talk.round)
        talk.finishes_round()
    assert talk.coordinator.standing.healthy
    return seen


def recovered(talk: Dialogue) -> list[str]:
    """Let a run go on for a while; what was stored meanwhile."""
    stored: list[str] = []
    for _ in range(20):
        state = talk.coordinator.state
        if state.passes.round is not None:
            talk.comes_back()
        elif state.checkpoints.storing is not None:
            assert talk.store is not None
            stored += names(talk.store)
            talk.stores()
        elif state.passes.live is not None:
            talk.finishes_live()
        if talk.coordinator.state.logs.unpublished:
            talk.publishes()
    return stored


def test_a_queue_is_trimmed_behind_what_its_consumers_have_stored() -> None:
    talk, _ = stored_with(Strategy.SWEEPING, 8)
    trim = talk.coordinator.state.checkpoints.trimmed
    assert trim is not None
    assert trim.retained_before_of == {B: 5, C: 9}
    assert trim.source_log_before == 1  # the older of the two kept lines still has b at the beginning


def test_nothing_runs_while_a_node_is_stored_synchronously() -> None:
    talk = Dialogue(TREE, HOMES, NODES, EVERY_4.but(checkpoint=Strategy.SYNCHRONOUS))
    talk.logs(20)
    assert not any(said.startswith("live") for said in talk.finishes_live())
    assert not any(said.startswith("live") for said in talk.publishes())
    assert talk.coordinator.state.checkpoints.storing is not None
    assert any(said.startswith("live") for said in talk.stores())


def test_neighbours_that_are_lost_together_come_back_from_states_of_different_batches() -> None:
    talk, _ = stored_with(Strategy.SWEEPING, 8)
    talk.loses("n3", "n4")  # c, stored at 4, and d, stored at 8
    first = rounds_until_whole(talk)[0]
    assert (first.first, first.last) == (5, 6)
    assert "c[0] primary" in steps(first)
    assert "d[0] primary" not in steps(first)


def test_a_restarted_run_reads_queues_from_the_store() -> None:
    talk, _ = stored_with(Strategy.INDIVIDUAL, 4)
    cut = talk.coordinator.state.newest
    assert [version.batch for version in cut.points] == [4, 4, 4, 2, 2]  # a, e, b, c, d
    again = Coordinator(TREE, EVERY_4.but(checkpoint=Strategy.INDIVIDUAL))
    decided = again.handle(Started(2, NODES, cut, 20, {D: 4, Task("e", 0): 4}))
    readings: list[Reading] = []
    for _ in range(20):
        rounds = [order for order in decided if isinstance(order, RunPass)]
        again.check_invariants()
        if not rounds or again.state.outage is None:
            break
        readings += rounds[0].readings
        decided = again.handle(finished(rounds[0]))
    assert again.state.outage is None
    assert Reading(B, again_home(again, B), PassId(1, 2), 3, 4, stored=True) in readings


def again_home(coordinator: Coordinator, task: Task) -> str:
    primary = coordinator.state.tasks[TREE.number(task)].primary
    assert primary is not None
    return primary.node


@pytest.mark.parametrize(
    ("every", "failure_every", "expected"),
    [(4, None, 4), ("3s", None, 6), (4, "100s", round(math.sqrt(2 * 0.5 * 100.0) / 0.5))],
)
def test_the_interval_is_in_batches_in_seconds_or_the_best_for_a_failure_rate(
    every: int | str, failure_every: str | None, expected: int
) -> None:
    settings = EVERY_4.but(checkpoint_every=every, failure_every=failure_every)
    talk = tree_at(2, settings)
    for at_s in (1.0, 2.0, 3.0, 4.0):  # two batches a second
        assert talk.live is not None
        talk.tell(PassFinished(talk.live.pass_id, finished(talk.live).reports, at_s))
        talk.publishes()
        if talk.coordinator.state.checkpoints.storing is not None:
            assert talk.store is not None
            talk.tell(CheckpointStored(talk.store.cut.number, talk.store.attempt, 1_000, 0.5))
    run = Run(TREE, settings, nowhere)
    assert interval(run, talk.coordinator.state) == expected
