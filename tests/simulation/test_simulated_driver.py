from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tenax.control import decisions, transitions
from tenax.control.checkpoints import rebuild_points
from tenax.control.coordinator import Coordinator
from tenax.control.copies import Copy, Role, TaskState
from tenax.control.events import PassFinished
from tenax.control.instructions import Step, Trim
from tenax.control.learned import Ignored, Learned
from tenax.control.placement.capacity import Capacity
from tenax.control.recovery import outages
from tenax.control.recovery.rounds import LaggingCopy, Round, next_round
from tenax.control.recovery.standing import Standing
from tenax.control.run import Run
from tenax.control.state import Running, RunState
from tenax.control.versions import Cut, PassId, RebuildPoint, Span, Version
from tenax.model.tasks import Task
from tenax.model.topology import Partitioning
from tenax.planning.recovery import packing
from tenax.simulation.runs import RANDOM_NODES, RANDOM_OPERATORS, Draws, Shape, SimulationFailed, _random_toy, simulate
from tenax.simulation.store import EpochRefused, Store, StoreMisused

SEEDS = 1000
RANDOM_SEEDS = 300  # of random graphs
SHORT_SEEDS = 300  # of those where capacity is short
CHUNK = 125
RANDOM_CHUNK = 50
LONG = pytest.mark.long  # runs in `make chaos`: there is no end of seeds
ALWAYS = 3  # chunks of seeds that `make test` tries
MOST_SEEDS = 200  # a mistake that none of these shows is one that the judges do not see
TASK = Task("a", 0)
ROWS = (0, 1)
Mistake = Callable[[pytest.MonkeyPatch], None]


def chunks(until: int, size: int) -> list[Any]:
    """The first seeds of chunks, of which the later ones are long."""
    firsts = range(0, until, size)
    return [pytest.param(first, marks=[LONG] * (number >= ALWAYS)) for number, first in enumerate(firsts)]


@pytest.mark.parametrize("first", chunks(SEEDS, CHUNK))
def test_results_are_exact_whenever_drivers_or_nodes_die_or_hang(first: int) -> None:
    runs = [simulate(seed) for seed in range(first, first + CHUNK)]
    assert sum(run.drivers for run in runs) > 2 * CHUNK  # the faults do happen
    assert sum(run.superseded for run in runs) > CHUNK // 4
    assert sum(run.lost for run in runs) > CHUNK
    assert sum(run.tentative for run in runs) > 0
    assert max(run.time_s for run in runs) < 400.0


@pytest.mark.parametrize("seed", [1874, 1984, 2321, 2442, 4809, 6627, 7076, 46458, 47410, 60533, 1007199])
def test_runs_that_once_failed_hold(seed: int) -> None:
    assert simulate(seed).batches > 0


@pytest.mark.parametrize("first", chunks(RANDOM_SEEDS, RANDOM_CHUNK))
def test_results_are_exact_on_random_graphs_whenever_drivers_or_nodes_die_or_hang(first: int) -> None:
    runs = [simulate(seed, shape=Shape.RANDOM) for seed in range(first, first + RANDOM_CHUNK)]
    assert sum(run.drivers for run in runs) > 2 * RANDOM_CHUNK
    assert sum(run.superseded for run in runs) > RANDOM_CHUNK // 5
    assert sum(run.lost for run in runs) > 2 * RANDOM_CHUNK
    assert sum(run.tentative for run in runs) > 0


@pytest.mark.parametrize("first", chunks(SHORT_SEEDS, RANDOM_CHUNK))
def test_results_are_exact_and_no_query_waits_that_would_fit_where_capacity_is_short(first: int) -> None:
    runs = [simulate(seed, shape=Shape.SHORT) for seed in range(first, first + RANDOM_CHUNK)]
    assert sum(run.waited for run in runs) > RANDOM_CHUNK // 4  # tasks do wait for room
    assert sum(run.lost for run in runs) > 2 * RANDOM_CHUNK


@pytest.mark.parametrize("seed", [2, 53, 95, 103])
def test_short_runs_that_once_failed_hold(seed: int) -> None:
    assert simulate(seed, shape=Shape.SHORT).batches > 0


def test_random_graphs_have_4_to_9_operators_in_all_partitionings() -> None:
    graphs = [_random_toy(Draws(seed).graphs).graph for seed in range(200)]
    few, many = RANDOM_OPERATORS
    assert {len(graph.operators) for graph in graphs} == set(range(few, many + 1))
    streams = [stream for graph in graphs for operator in graph.operators for stream in operator.inputs]
    assert {stream.partitioning for stream in streams} == set(Partitioning)
    assert {sum(operator.output is not None for operator in graph.operators) for graph in graphs} >= {1, 2, 3, 4}


def test_random_graphs_run_on_up_to_8_nodes() -> None:
    seen: set[str] = set()

    def look(line: str) -> None:
        seen.update(re.findall(r"node='e\d+n(\d+)'", line) if "-> [RunPass" in line else ())

    for seed in range(20):
        simulate(seed, look, Shape.RANDOM)
    assert len(seen) >= RANDOM_NODES


def test_backups_and_promises_change_while_drivers_and_nodes_die() -> None:
    seen: set[str] = set()

    def look(line: str) -> None:
        seen.update(word for word in ("BackupsMoved(", "PromiseMeasured(") if word in line)

    for seed in range(20):
        simulate(seed, look)
    assert len(seen) == 2


def test_old_seeds_still_mean_the_same_runs() -> None:
    assert [simulate(seed).batches for seed in range(12)] == [
        27,
        37,
        6,
        38,
        20,
        17,
        6,
        10,
        24,
        40,
        3,
        36,
    ]  # drawn after the graph


def test_a_seed_gives_the_same_run_every_time() -> None:
    seen: list[list[str]] = [[], []]
    for lines in seen:
        simulate(7, lines.append)
    assert seen[0] == seen[1]
    assert seen[0]


def test_a_failing_seed_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(run: Run, state: RunState, event: PassFinished) -> Learned:
        return Ignored("forgotten")

    monkeypatch.setattr(transitions, "_pass_finished", forgetful)
    text = re.escape('see it again: python -c "from tenax.simulation.runs import simulate; simulate(3, print)"')
    with pytest.raises(SimulationFailed, match=rf"^seed 3 fails: .*{text}$"):
        simulate(3)
    text = re.escape("simulate(3, print, 'random')")
    with pytest.raises(SimulationFailed, match=rf'{text}"$'):
        simulate(3, shape="random")


# Mistakes in the coordinator, each put in by hand: some seed must fail.


def tentative_versions_become_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(copy: Copy, step: Step, made: Version) -> Copy:
        return replace(copy, head=made, stored=False)

    monkeypatch.setattr(transitions, "_moved", moved)


def affected_tasks_step_as_if_nothing_was_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = decisions._live_steps

    def accurate(run: Run, state: RunState, now: Standing) -> tuple[Step, ...]:
        return tuple(replace(step, tentative=False) for step in real(run, state, now))

    monkeypatch.setattr(decisions, "_live_steps", accurate)


def replay_copies_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    real = transitions._stepped

    def stepped(task: TaskState, step: Step, running: Running) -> TaskState:
        return replace(real(task, step, running), replay=None)

    monkeypatch.setattr(transitions, "_stepped", stepped)


def retained_outputs_seem_one_batch_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def longer(first: int, last: int, pass_id: PassId, nodes: tuple[str, ...]) -> Span:
        return Span(first, last + 1, pass_id, nodes)

    monkeypatch.setattr(transitions, "Span", longer)


def lost_nodes_still_have_their_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TaskState.without

    def without(task: TaskState, nodes: set[str]) -> TaskState:
        return replace(real(task, nodes), retained=task.retained)

    monkeypatch.setattr(TaskState, "without", without)


def promoted_replicas_seem_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    real = outages._bereft

    def bereft(run: Run, state: RunState, number: int, task: TaskState) -> TaskState:
        left = real(run, state, number, task)
        if left.primary is None:
            return left
        return replace(left, primary=replace(left.primary, head=replace(left.primary.head, batch=state.finished)))

    monkeypatch.setattr(outages, "_bereft", bereft)


def lost_tasks_go_on_from_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def bereft(run: Run, state: RunState, number: int, task: TaskState) -> TaskState:
        return TaskState(task.head, retained=task.retained)

    monkeypatch.setattr(outages, "_bereft", bereft)


def one_version_too_many_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    real = decisions._needed_from
    monkeypatch.setattr(decisions, "_needed_from", lambda state: real(state) + 1)


def retained_outputs_are_trimmed_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def trim(
        retained_before: int, checkpoints_before: int, source_log_before: int, retained_before_of: Mapping[Task, int]
    ) -> Trim:
        of_task = {task: before + 4 for task, before in retained_before_of.items()}
        return Trim(retained_before + 4, checkpoints_before, source_log_before, of_task)

    monkeypatch.setattr(decisions, "Trim", trim)


def forks_outlive_the_cutover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskState, "accurate", lambda task: task)


def checkpoints_are_made_while_tasks_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = decisions._store_checkpoint

    def store(run: Run, state: RunState) -> decisions.Decision:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Standing, "healthy", property(lambda _: True))
            return real(run, state)

    steps = tuple(store if step is real else step for step in decisions._STEPS)
    monkeypatch.setattr(decisions, "_STEPS", steps)


def rounds_read_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    def shortened(run: Run, state: RunState, now: Standing) -> Round | None:
        gathered = next_round(run, state, now)
        return None if gathered is None else replace(gathered, readings=gathered.readings[1:])

    monkeypatch.setattr(decisions, "next_round", shortened)


def passes_outlive_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "cancelled", lambda state: state)


def states_are_rebuilt_from_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rebuild_points.new_rebuild_points

    def later(run: Run, running: Running, event: PassFinished) -> list[RebuildPoint]:
        points = real(run, running, event)
        return [replace(point, first=max(point.first, min(point.batch, point.first + 2))) for point in points]

    monkeypatch.setattr(transitions, "new_rebuild_points", later)


def rebuilt_states_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LaggingCopy, "sends", property(lambda copy: copy.role is not Role.REPLICA))


def rebuild_points_do_not_count_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cut, "oldest_batch", Cut.newest_batch)


MISTAKES = (
    tentative_versions_become_heads,
    affected_tasks_step_as_if_nothing_was_missing,
    replay_copies_are_forgotten,
    retained_outputs_seem_one_batch_longer,
    lost_nodes_still_have_their_outputs,
    promoted_replicas_seem_up_to_date,
    lost_tasks_go_on_from_where_they_were,
    one_version_too_many_is_let_go_of,
    retained_outputs_are_trimmed_too_early,
    checkpoints_are_made_while_tasks_are_missing,
    rounds_read_too_little,
    passes_outlive_their_nodes,
    states_are_rebuilt_from_too_late,
    rebuilt_states_send,
    rebuild_points_do_not_count_for_the_log,
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_without_the_invariants_of_the_coordinator_the_judges_see_that(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    monkeypatch.setattr(Coordinator, "check_invariants", lambda _: None)
    with pytest.raises(SimulationFailed):
        all(simulate(seed) for seed in range(MOST_SEEDS))


def nodes_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Capacity, "rooms", lambda _, nodes, *__: {node.name: 100.0 for node in nodes})


def queries_that_fit_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "complete", lambda *_: None)  # operator-centric stops at the first that does not fit


def queries_of_low_priority_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real = packing._by_priority
    monkeypatch.setattr(packing, "exchange", lambda *_: None)
    monkeypatch.setattr(packing, "_by_priority", lambda outage, chosen: real(outage, chosen)[::-1])


@pytest.mark.parametrize(
    ("mistake", "seen", "likely"),
    [
        (nodes_take_everything, "nodes take what they have room for", ()),
        (queries_that_fit_are_not_looked_for, "no query waits that would fit", (179, 249)),
        (queries_of_low_priority_come_first, "higher priorities come first", (14, 34)),
    ],
)
def test_the_judges_see_nodes_that_are_too_full_and_priorities_that_are_passed_over(
    mistake: Mistake, seen: str, likely: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(SimulationFailed, match=seen):
        all(simulate(seed, shape=Shape.SHORT) for seed in (*likely, *range(MOST_SEEDS)))


def test_the_invariants_see_that_forks_outlive_the_cutover(monkeypatch: pytest.MonkeyPatch) -> None:
    forks_outlive_the_cutover(monkeypatch)
    with pytest.raises(SimulationFailed, match="only degraded tasks have forks"):
        all(simulate(seed) for seed in range(MOST_SEEDS))


def test_the_store_refuses_older_epochs() -> None:
    store = Store((TASK,))
    old, new = store.claim(), store.claim()
    writes: tuple[Callable[[], None], ...] = (
        lambda: store.log(old, 1, ROWS),
        lambda: store.commit(old, TASK, 1, b""),
        lambda: store.show(old, TASK, 1, b""),
        lambda: store.upload(old, 1, Version(TASK, 1, PassId(1, 1)), b""),
        lambda: store.trim(old, 0, 1),
        lambda: store.seal(old, Cut(1, ())),
    )
    for write in writes:
        with pytest.raises(EpochRefused):
            write()
    store.log(new, 1, ROWS)
    assert store.logged == 1


def test_the_store_notices_misuse() -> None:
    store = Store((TASK,))
    epoch = store.claim()
    version = Version(TASK, 1, PassId(1, 1))
    with pytest.raises(StoreMisused, match="in order"):
        store.log(epoch, 2, ROWS)
    with pytest.raises(StoreMisused, match="after it is logged"):
        store.read(epoch, 1)
    store.log(epoch, 1, ROWS)
    with pytest.raises(StoreMisused, match="manifest"):
        store.seal(epoch, Cut(1, (version,)))
    store.upload(epoch, 1, version, b"")
    with pytest.raises(StoreMisused, match="committed"):
        store.seal(epoch, Cut(1, (version,)))
    with pytest.raises(StoreMisused, match="restored before it is trimmed"):
        store.fetch(epoch, version)
    with pytest.raises(StoreMisused, match="stay"):
        store.trim(epoch, 0, 2)


def test_the_store_shows_nothing_tentative_after_a_final_result() -> None:
    store = Store((TASK,))
    epoch = store.claim()
    store.show(epoch, TASK, 1, b"guess")
    store.commit(epoch, TASK, 1, b"result")
    with pytest.raises(StoreMisused, match="tentative results come before final ones"):
        store.show(epoch, TASK, 1, b"guess")
    assert [commit.tentative for commit in store.commits] == [True, False]
    assert store.published == {TASK: 1}
