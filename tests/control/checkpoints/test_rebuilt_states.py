"""Tasks that are never stored: their state follows from a few batches, and is rebuilt by stepping these again.

a[0] n1 ──▶ e[0] n5 (output)
   ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks
"""

from __future__ import annotations

from dataclasses import replace

from dialogues import HOMES, NODES, SETTINGS, TREE, A, B, C, D, Dialogue, E, finished

from tenax.control.checkpoints.rebuild_points import with_rebuild_point
from tenax.control.checkpoints.strategies import stored_point
from tenax.control.coordinator import Coordinator
from tenax.control.copies import Role, TaskState
from tenax.control.events import PassFinished, Started
from tenax.control.instructions import RunPass, Step
from tenax.control.state import Checkpoints, RunState
from tenax.control.versions import NO_PASS, Cut, RebuildPoint, RestorePoint, Version
from tenax.model.protection import Strategy
from tenax.model.tasks import Task

NONE = SETTINGS.but(checkpoint_every=4, checkpoint=Strategy.NONE)
MEMORY = {B: 4, C: 2, D: 0, E: 1}  # so many batches decide a state
MAX_EVENTS = 60


def rebuildable(order: RunPass) -> PassFinished:
    """A pass is through, and its tasks say from which batch on they can be rebuilt; one without memory needs none."""
    reports = []
    for report in finished(order).reports:
        memory = MEMORY.get(report.version.task, 0)
        reports.append(replace(report, rebuild_from=max(1, order.last - memory) if memory else order.last + 1))
    return PassFinished(order.pass_id, tuple(reports))


class Rebuilding(Dialogue):
    """A dialogue in which tasks say how they can be rebuilt."""

    def finishes_live(self, written_bytes: int = 0) -> list[str]:  # noqa: ARG002
        assert self.live is not None
        return self.tell(rebuildable(self.live))

    def finishes_round(self) -> list[str]:
        assert self.round is not None
        return self.tell(rebuildable(self.round))


def run_to(batch: int) -> Rebuilding:
    talk = Rebuilding(TREE, HOMES, NODES, NONE)
    talk.logs(20)
    goes_to(talk, batch)
    return talk


def goes_to(talk: Dialogue, batch: int) -> None:
    while talk.coordinator.state.finished < batch:
        talk.finishes_live()
        talk.publishes()
        while talk.coordinator.state.checkpoints.storing is not None:
            talk.stores()


def cut_of(talk: Rebuilding) -> dict[Task, RestorePoint]:
    return {point.task: point for point in talk.coordinator.state.newest.points}


def rounds_until_healthy(talk: Rebuilding) -> list[RunPass]:
    """The rounds that bring everything back."""
    seen: list[RunPass] = []
    for _ in range(MAX_EVENTS):
        if talk.coordinator.state.logs.publishing is not None:
            talk.publishes()
        elif talk.coordinator.state.passes.round is not None:
            assert talk.round is not None
            seen.append(talk.round)
            talk.finishes_round()
        else:
            break
    assert talk.coordinator.standing.healthy
    return seen


def rebuilding(order: RunPass) -> list[Step]:
    return [step for step in order.steps if step.rebuilding is not None]


def test_only_the_place_of_the_sources_is_stored() -> None:
    talk = run_to(8)
    assert talk.store is not None
    assert [version.task for version in talk.store.versions] == [A]
    assert all(isinstance(point, RebuildPoint) for task, point in cut_of(talk).items() if task != A)


def test_a_rebuild_point_is_for_a_batch_from_which_its_consumers_are_fed() -> None:
    talk = run_to(12)
    source = cut_of(talk)[A]
    assert isinstance(source, Version)
    assert cut_of(talk) == {
        A: Version(A, 12, source.pass_id),
        E: RebuildPoint(E, 12, 11),
        D: RebuildPoint(D, 12, 13),  # it remembers nothing
        C: RebuildPoint(C, 12, 10),
        B: RebuildPoint(B, 8, 4),  # c needs what b sends from batch 10 on; b was at 8 and 10, and 10 is too late
    }
    assert talk.coordinator.state.newest.oldest_batch == 3


def test_the_source_log_is_kept_as_far_back_as_states_are_rebuilt_from() -> None:
    talk = run_to(12)
    trim = talk.coordinator.state.checkpoints.trimmed
    assert trim is not None
    older = talk.coordinator.state.checkpoints.kept[0]
    assert (older.oldest_batch, trim.source_log_before) == (0, 1)
    assert trim.retained_before == 4


def test_a_lost_task_is_rebuilt_without_output_to_where_it_was() -> None:
    talk = run_to(12)
    before = dict(talk.coordinator.state.logs.published)
    talk.loses("n3")  # c
    seen = rounds_until_healthy(talk)
    toward = [step for order in seen for step in rebuilding(order) if step.task == C]
    assert toward[0].start == Version(C, 9, NO_PASS)
    assert {step.rebuilding for step in toward} == {RebuildPoint(C, 12, 10)}  # its consumer d is at 12
    assert talk.coordinator.state.logs.published == before
    assert [order.last for order in seen if any(step.task == C for step in rebuilding(order))][-1] == 12


def test_the_producer_of_a_rebuilt_task_makes_its_outputs_again_from_its_own_rebuild_point() -> None:
    talk = run_to(12)
    talk.loses("n3")
    seen = rounds_until_healthy(talk)
    replays = [step for order in seen for step in order.steps if step.task == B]
    assert {step.role for step in replays} == {Role.REPLAY}
    assert replays[0].rebuilding == RebuildPoint(B, 8, 4)
    assert replays[0].start == Version(B, 3, NO_PASS)
    assert replays[-1].rebuilding is None


def test_what_a_state_sends_while_it_is_rebuilt_is_not_retained() -> None:
    talk = run_to(12)
    talk.loses("n2", "n3")  # b and c
    for _ in range(MAX_EVENTS):
        for number, task in enumerate(talk.coordinator.state.tasks):
            if task.primary is not None and task.primary.rebuilding is not None:
                spans = [span for span in task.retained if task.primary.node in span.nodes]
                assert not spans, f"{TREE.task(number)} retains outputs of a state that is not its own yet"
        if talk.coordinator.state.logs.publishing is not None:
            talk.publishes()
        elif talk.coordinator.state.passes.round is not None:
            talk.finishes_round()
    assert talk.coordinator.standing.healthy


def test_neighbours_that_are_lost_together_begin_where_the_last_of_them_needs_it() -> None:
    talk = run_to(12)
    talk.loses("n2", "n3")
    tasks = talk.coordinator.state.tasks
    assert tasks[TREE.number(C)].head == RebuildPoint(C, 12, 10)
    assert tasks[TREE.number(B)].head == RebuildPoint(B, 8, 4)
    rounds_until_healthy(talk)


def test_a_restarted_run_rebuilds_what_the_cut_says() -> None:
    cut = run_to(12).coordinator.state.newest
    again = Coordinator(TREE, NONE)
    instructions = again.handle(Started(2, NODES, cut, 20, {D: 12, E: 12}))
    rounds: list[RunPass] = []
    for _ in range(MAX_EVENTS):
        again.check_invariants()
        passes = [order for order in instructions if isinstance(order, RunPass)]
        if again.state.outage is None or not passes:
            break
        rounds += passes
        instructions = again.handle(rebuildable(passes[0]))
    assert again.state.outage is None
    assert min(order.first for order in rounds) == 4
    assert {task.head.batch for task in again.state.tasks} == {12}


def test_a_task_that_cannot_tell_how_it_is_rebuilt_stays_where_it_was_stored() -> None:
    talk = Dialogue(TREE, HOMES, NODES, NONE)  # no task says anything
    talk.logs(20)
    goes_to(talk, 8)
    cut = talk.coordinator.state.newest
    assert {point.batch for point in cut.points if point.task != A} == {0}
    assert cut.oldest_batch == 0


def test_a_store_of_another_strategy_is_taken_over() -> None:
    aligned = Rebuilding(TREE, HOMES, NODES, NONE.but(checkpoint=Strategy.ALIGNED))
    aligned.logs(20)
    goes_to(aligned, 8)
    cut = aligned.coordinator.state.newest
    talk = Rebuilding(TREE, HOMES, NODES, NONE)
    talk.coordinator = Coordinator(TREE, NONE)
    talk.tell(Started(2, NODES, cut, 8, {D: 8, E: 8}))
    talk.logs(20)
    seen = []
    while talk.coordinator.state.finished < 20:
        talk.finishes_live()
        talk.publishes()
        while talk.coordinator.state.checkpoints.storing is not None:
            talk.stores()
            seen.append({task.operator: point for task, point in cut_of(talk).items()})
    assert seen[0]["b"] == cut.points[TREE.number(B)]  # its rebuild point would reach back behind what is in the log
    assert seen[0]["d"] == RebuildPoint(D, 12, 13)
    assert seen[-1]["b"] == RebuildPoint(B, 16, 12)


def test_a_task_that_is_stored_no_more_has_no_outputs_beside_it() -> None:
    settings = NONE.but(checkpoint=Strategy.INDIVIDUAL)
    stored = Rebuilding(TREE, HOMES, NODES, settings)
    stored.logs(20)
    goes_to(stored, 8)
    cut = stored.coordinator.state.newest
    assert any(cut.outputs)
    talk = Rebuilding(TREE, HOMES, NODES, NONE)
    talk.coordinator = Coordinator(TREE, NONE)
    talk.tell(Started(2, NODES, cut, 8, {D: 8, E: 8}))
    rounds_until_healthy(talk)
    talk.logs(20)
    goes_to(talk, 24)
    newest = talk.coordinator.state.newest
    assert all(isinstance(point, RebuildPoint) for point in newest.points if point.task != A)
    assert not any(newest.outputs)


def test_of_two_stored_rebuild_points_for_one_batch_the_one_that_reaches_back_less_is_taken() -> None:
    older, newer = Cut(8, (RebuildPoint(B, 5, 1),)), Cut(9, (RebuildPoint(B, 5, 3),))
    state = RunState(checkpoints=Checkpoints(kept=(older, newer)))
    assert stored_point(state, 0, 7) == RebuildPoint(B, 5, 3)  # what batches 1 and 2 gave may be trimmed


def test_a_task_keeps_of_two_rebuild_points_for_one_batch_the_one_that_reaches_back_less() -> None:
    known = TaskState(RebuildPoint(B, 5, 4), rebuild_points=(RebuildPoint(B, 3, 2), RebuildPoint(B, 5, 4)))
    assert with_rebuild_point(known, RebuildPoint(B, 5, 2)) == known
    assert with_rebuild_point(known, RebuildPoint(B, 5, 5)).rebuild_points == (
        RebuildPoint(B, 3, 2),
        RebuildPoint(B, 5, 5),
    )
