"""Tasks that are never stored: their state follows from a few batches, and is rebuilt by stepping these again.

a[0] n1 ──▶ e[0] n5 (output)
   ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks
"""

from __future__ import annotations

from dataclasses import replace

from dialogues import HOMES, NODES, SETTINGS, TREE, A, B, C, D, Dialogue, E, finished

from tenax.control.checkpoints.rebuild_points import with_recipe
from tenax.control.checkpoints.strategies import stored_version
from tenax.control.coordinator import Coordinator
from tenax.control.copies import Role, TaskState
from tenax.control.events import PassFinished, Started
from tenax.control.instructions import RunPass, Step
from tenax.control.state import RunState, Strategy
from tenax.control.versions import NO_PASS, StoredCheckpoint, Version, recipe
from tenax.model.tasks import Task

NONE = replace(SETTINGS, checkpoint_every=4, strategy=Strategy.NONE)
MEMORY = {B: 4, C: 2, D: 0, E: 1}  # so many batches decide a state
MAX_EVENTS = 60


def rebuildable(order: RunPass) -> PassFinished:
    """A pass is through, and its tasks say from which batch on they can be rebuilt; one without memory needs none."""
    reports = []
    for report in finished(order).reports:
        memory = MEMORY.get(report.version.task, 0)
        reports.append(replace(report, since=max(1, order.last - memory) if memory else order.last + 1))
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
        while talk.coordinator.state.storing is not None:
            talk.stores()


def line_of(talk: Rebuilding) -> dict[Task, Version]:
    return {version.task: version for version in talk.coordinator.state.newest.versions}


def rounds_until_whole(talk: Rebuilding) -> list[RunPass]:
    """The rounds that bring everything back."""
    seen: list[RunPass] = []
    for _ in range(MAX_EVENTS):
        if talk.coordinator.state.publishing is not None:
            talk.publishes()
        elif talk.coordinator.state.round is not None:
            assert talk.round is not None
            seen.append(talk.round)
            talk.finishes_round()
        else:
            break
    assert talk.coordinator.standing.whole
    return seen


def silent(order: RunPass) -> list[Step]:
    return [step for step in order.steps if step.towards is not None]


def test_only_the_place_of_the_sources_is_stored() -> None:
    talk = run_to(8)
    assert talk.store is not None
    assert [version.task for version in talk.store.versions] == [A]
    assert all(version.is_recipe for task, version in line_of(talk).items() if task != A)


def test_a_recipe_is_for_a_batch_from_which_its_consumers_are_fed() -> None:
    talk = run_to(12)
    assert line_of(talk) == {
        A: Version(A, 12, line_of(talk)[A].pass_id),
        E: recipe(E, 12, 11),
        D: recipe(D, 12, 13),  # it remembers nothing
        C: recipe(C, 12, 10),
        B: recipe(B, 8, 4),  # c needs what b sends from batch 10 on; b was seen at 8 and 10, and 10 comes too late
    }
    assert talk.coordinator.state.newest.batch == 3


def test_the_source_log_is_kept_as_far_back_as_states_are_rebuilt_from() -> None:
    talk = run_to(12)
    trim = talk.coordinator.state.trimmed
    assert trim is not None
    older = talk.coordinator.state.kept[0]
    assert (older.batch, trim.source_log_before) == (0, 1)
    assert trim.retained_before == 4


def test_a_lost_task_is_rebuilt_without_output_to_where_it_was() -> None:
    talk = run_to(12)
    before = dict(talk.coordinator.state.published)
    talk.loses("n3")  # c
    seen = rounds_until_whole(talk)
    toward = [step for order in seen for step in silent(order) if step.task == C]
    assert toward[0].start == Version(C, 9, NO_PASS)
    assert {step.towards for step in toward} == {recipe(C, 12, 10)}  # its consumer d is at 12
    assert talk.coordinator.state.published == before
    assert [order.last for order in seen if any(step.task == C for step in silent(order))][-1] == 12


def test_the_producer_of_a_rebuilt_task_makes_its_outputs_again_from_its_own_recipe() -> None:
    talk = run_to(12)
    talk.loses("n3")
    seen = rounds_until_whole(talk)
    shadows = [step for order in seen for step in order.steps if step.task == B]
    assert {step.role for step in shadows} == {Role.SHADOW}
    assert shadows[0].towards == recipe(B, 8, 4)
    assert shadows[0].start == Version(B, 3, NO_PASS)
    assert shadows[-1].towards is None


def test_what_a_state_sends_while_it_is_rebuilt_is_not_retained() -> None:
    talk = run_to(12)
    talk.loses("n2", "n3")  # b and c
    for _ in range(MAX_EVENTS):
        for number, task in enumerate(talk.coordinator.state.tasks):
            if task.primary is not None and task.primary.warming:
                spans = [span for span in task.retained if task.primary.node in span.nodes]
                assert not spans, f"{TREE.task(number)} retains outputs of a state that is not its own yet"
        if talk.coordinator.state.publishing is not None:
            talk.publishes()
        elif talk.coordinator.state.round is not None:
            talk.finishes_round()
    assert talk.coordinator.standing.whole


def test_neighbours_that_are_lost_together_begin_where_the_last_of_them_needs_it() -> None:
    talk = run_to(12)
    talk.loses("n2", "n3")
    tasks = talk.coordinator.state.tasks
    assert tasks[TREE.number(C)].head == recipe(C, 12, 10)
    assert tasks[TREE.number(B)].head == recipe(B, 8, 4)
    rounds_until_whole(talk)


def test_a_restarted_run_rebuilds_what_the_line_tells() -> None:
    line = run_to(12).coordinator.state.newest
    again = Coordinator(TREE, NONE)
    told = again.handle(Started(2, NODES, line, 20, {D: 12, E: 12}))
    rounds: list[RunPass] = []
    for _ in range(MAX_EVENTS):
        again.check_invariants()
        passes = [one for one in told if isinstance(one, RunPass)]
        if again.state.outage is None or not passes:
            break
        rounds += passes
        told = again.handle(rebuildable(passes[0]))
    assert again.state.outage is None
    assert min(order.first for order in rounds) == 4
    assert {task.head.batch for task in again.state.tasks} == {12}


def test_a_task_that_cannot_tell_how_it_is_rebuilt_stays_where_it_was_stored() -> None:
    talk = Dialogue(TREE, HOMES, NODES, NONE)  # nobody says anything
    talk.logs(20)
    goes_to(talk, 8)
    line = talk.coordinator.state.newest
    assert {version.batch for version in line.versions if version.task != A} == {0}
    assert line.batch == 0


def test_a_store_of_another_strategy_is_taken_over() -> None:
    aligned = Rebuilding(TREE, HOMES, NODES, replace(NONE, strategy=Strategy.ALIGNED))
    aligned.logs(20)
    goes_to(aligned, 8)
    line = aligned.coordinator.state.newest
    talk = Rebuilding(TREE, HOMES, NODES, NONE)
    talk.coordinator = Coordinator(TREE, NONE)
    talk.tell(Started(2, NODES, line, 8, {D: 8, E: 8}))
    talk.logs(20)
    seen = []
    while talk.coordinator.state.finished < 20:
        talk.finishes_live()
        talk.publishes()
        while talk.coordinator.state.storing is not None:
            talk.stores()
            seen.append({task.operator: version for task, version in line_of(talk).items()})
    assert seen[0]["b"] == line.versions[TREE.number(B)]  # its recipe would reach back behind what is in the log
    assert seen[0]["d"] == recipe(D, 12, 13)
    assert seen[-1]["b"] == recipe(B, 16, 12)


def test_a_task_that_is_stored_no_more_has_no_queue() -> None:
    settings = replace(NONE, strategy=Strategy.INDIVIDUAL)
    stored = Rebuilding(TREE, HOMES, NODES, settings)
    stored.logs(20)
    goes_to(stored, 8)
    line = stored.coordinator.state.newest
    assert any(line.queues)
    talk = Rebuilding(TREE, HOMES, NODES, NONE)
    talk.coordinator = Coordinator(TREE, NONE)
    talk.tell(Started(2, NODES, line, 8, {D: 8, E: 8}))
    rounds_until_whole(talk)
    talk.logs(20)
    goes_to(talk, 24)
    newest = talk.coordinator.state.newest
    assert all(version.is_recipe for version in newest.versions if version.task != A)
    assert not any(newest.queues)


def test_of_two_stored_recipes_for_one_batch_the_one_that_reaches_back_less_is_taken() -> None:
    older, newer = StoredCheckpoint(8, (recipe(B, 5, 1),)), StoredCheckpoint(9, (recipe(B, 5, 3),))
    state = RunState(kept=(older, newer))
    assert stored_version(state, 0, 7) == recipe(B, 5, 3)  # what batches 1 and 2 gave may be trimmed


def test_a_task_keeps_of_two_recipes_for_one_batch_the_one_that_reaches_back_less() -> None:
    known = TaskState(recipe(B, 5, 4), recipes=(recipe(B, 3, 2), recipe(B, 5, 4)))
    assert with_recipe(known, recipe(B, 5, 2)) == known
    assert with_recipe(known, recipe(B, 5, 5)).recipes == (recipe(B, 3, 2), recipe(B, 5, 5))
