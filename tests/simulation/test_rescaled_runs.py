from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from tenax.control import decisions
from tenax.control import rescaling as control
from tenax.control.coordinator import Coordinator
from tenax.control.events import Started
from tenax.control.instructions import Decided, Rescale
from tenax.control.recovery import outages
from tenax.control.run import Run
from tenax.control.state import Rescaling, RunState
from tenax.control.versions import Cut, PassId, Version
from tenax.model.cluster import Node
from tenax.model.tasks import Task
from tenax.model.topology import Partitioning
from tenax.model.topology_versions import Target, TopologyVersion, moved_groups
from tenax.simulation import keyed, rescaling
from tenax.simulation.keyed import KEY_GROUPS, MOST_TASKS, KeyedToy, packed, recut, unpacked
from tenax.simulation.rescaling import RescalingDriver
from tenax.simulation.runs import Outcomes, Shape, SimulationFailed, simulate
from tenax.simulation.store import EpochRefused, StoreMisused
from tenax.simulation.toy import INITIAL, Digest
from tenax.simulation.versions import VersionedStore

SEEDS = 1000
CHUNK = 125
MOST_SEEDS = 300  # a mistake that none of these shows is one that the judges do not see
Mistake = Callable[[pytest.MonkeyPatch], None]


def rescaled(seed: int) -> Outcomes:
    return simulate(seed, shape=Shape.RESCALED)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_results_by_key_are_those_of_a_run_that_never_rescaled(first: int) -> None:
    runs = [rescaled(seed) for seed in range(first, first + CHUNK)]
    assert sum(run.switches for run in runs) > CHUNK // 4
    assert max(run.switches for run in runs) > 1
    assert sum(run.drivers for run in runs) > 2 * CHUNK  # the faults do happen
    assert sum(run.superseded for run in runs) > CHUNK // 4
    assert sum(run.lost for run in runs) > CHUNK
    assert sum(run.tentative for run in runs) > 0


@pytest.mark.parametrize("seed", [1584, 1754, 1945, 4185, 30295])  # others are among those above
def test_runs_that_once_failed_hold(seed: int) -> None:
    assert rescaled(seed).batches > 0


def test_a_seed_gives_the_same_run_every_time() -> None:
    seen: list[list[str]] = [[], []]
    for lines in seen:
        simulate(7, lines.append, Shape.RESCALED)
    assert seen[0] == seen[1]
    assert seen[0]


def test_everything_that_can_befall_a_rescale_does() -> None:
    """Beside every step of one: nodes lost, drivers that die or hang, other wishes, an end; and the way back."""
    seen: set[str] = set()

    def look(line: str) -> None:
        seen.update(word for word in ("RescalePostponed(", "RescaleGivenUp(", "RescaleFailed(") if word in line)
        if "Started(" in line:
            seen.add("passed a boundary again" if "next_version=Target(" in line else "")
            seen.add("re-cut" if "passes=0" not in line else "")

    for seed in range(30):
        simulate(seed, look, Shape.RESCALED)
    assert len(seen - {""}) == 5


def test_drawn_topologies_have_full_streams_and_chains_that_scale_together() -> None:
    toys = [keyed.drawn(Random(seed)) for seed in range(100)]
    operators = [operator for toy in toys for operator in toy.graph.operators]
    streams = [stream for operator in operators for stream in operator.inputs]
    assert {stream.partitioning for stream in streams} == {Partitioning.FULL, Partitioning.ONE_TO_ONE}
    assert {operator.parallelism for operator in operators} == set(range(1, MOST_TASKS))
    assert sum(bool(toy.scalable) for toy in toys) > 90
    sources = {operator.name for toy in toys for operator in toy.graph.operators if operator.is_source}
    assert not sources & {name for toy in toys for chain in toy.scalable for name in chain if toy.fixed == 2}


# a[0..1] ══▶ b[0..2] ──▶ c[0..2]      b and c are a chain


def toy() -> KeyedToy:
    return next(
        drawn
        for drawn in (keyed.drawn(Random(seed)) for seed in range(1000))
        if any(len(chain) > 1 for chain in drawn.scalable)
    )


def in_version(before: KeyedToy, random: Random) -> KeyedToy:
    parallelism, tables = dict(before.version().parallelism), dict(before.tables)
    for chain in before.scalable:
        count = random.randint(1, MOST_TASKS)
        parallelism |= dict.fromkeys(chain, count)
        tables |= dict.fromkeys(chain, keyed.moved(random, tables[chain[0]], count))
    return before.of_version(TopologyVersion(2, 1, parallelism, tables))


@pytest.mark.parametrize("memory", [None, 0, 2])
def test_results_of_a_group_are_the_same_however_groups_lie_on_tasks(memory: int | None) -> None:
    random, here = Random(3), toy()
    if memory is not None:
        here = replace(here, memory={operator.name: memory for operator in here.graph.operators if operator.inputs})
    whole = here.whole()
    states, whole_states = [INITIAL] * len(here.tasks), [INITIAL] * len(whole.tasks)
    for batch in range(6):
        rows = batch, batch + 1
        states, results = here.batch(states, rows)
        whole_states, expected = whole.batch(whole_states, rows)
        for task, content in results.items():
            assert content == here.part(expected[Task(task.operator, 0)], task)
        there = in_version(here, random)
        states, here = recut(here, states, there), there


def test_a_task_without_groups_sends_nothing_and_keeps_nothing() -> None:
    here = toy()
    names = {operator.name for operator in here.graph.operators if operator.inputs}
    tables = {name: (0,) * KEY_GROUPS if name in names else table for name, table in here.tables.items()}
    crowded = here.of_version(replace(here.version(), tables=tables))
    _, results = crowded.batch([INITIAL] * len(crowded.tasks), (0, 1))
    assert all(unpacked(content) == {} for task, content in results.items() if task.index > 0)


def test_tables_move_groups_to_all_tasks_there_are() -> None:
    random = Random(1)
    for tasks in range(1, MOST_TASKS + 1):
        for _ in range(30):
            table = keyed.moved(random, keyed.spread(2), tasks)
            assert len(table) == KEY_GROUPS
            assert set(table) <= set(range(tasks))
    fewest = min(moved_groups(keyed.spread(2), keyed.moved(random, keyed.spread(2), 3)) for _ in range(50))
    assert fewest == KEY_GROUPS - 2 * -(-KEY_GROUPS // 3)


def test_groups_survive_as_bytes() -> None:
    groups = {3: b"abc", 0: b"", 7: b"x" * 72}
    assert unpacked(packed(groups)) == groups


# A store of versions: one output, a[0], of two batches in version 1.
A = Task("a", 0)


def store() -> VersionedStore:
    made = VersionedStore((A,), versions=[TopologyVersion(1, 0, {"a": 1})])
    made.claim()
    for batch in (1, 2):
        made.log(1, batch, (0, 1))
    made.commit(1, A, 1, b"")
    return made


def test_a_version_begins_behind_results_that_are_committed_and_states_that_are_stored() -> None:
    lying, second = store(), TopologyVersion(2, 1, {"a": 1})
    with pytest.raises(StoreMisused, match="behind the results of the one before"):
        lying.record(1, replace(second, after=2))
    with pytest.raises(StoreMisused, match="one after the other"):
        lying.record(1, replace(second, number=3))
    lying.upload(1, 1, Version(A, 1, PassId(1, 1)), b"")
    lying.seal(1, Cut(1, (Version(A, 1, PassId(1, 1)),)))
    lying.commit(1, A, 2, b"")
    with pytest.raises(StoreMisused, match="behind the results of the one before"):
        lying.record(1, second)
    with pytest.raises(StoreMisused, match="where all tasks are stored"):
        lying.record(1, replace(second, after=2))


def test_a_batch_belongs_to_one_version() -> None:
    lying = store()
    lying.record(1, TopologyVersion(2, 1, {"a": 1}))
    with pytest.raises(StoreMisused, match="a batch belongs to one version"):
        lying.commit(1, A, 2, b"")
    lying.begin(1, lying.versions[1], (A,))
    lying.commit(1, A, 2, b"")
    with pytest.raises(StoreMisused, match="a batch belongs to one version"):
        lying.show(1, A, 1, b"")


def test_a_driver_that_was_replaced_records_no_version() -> None:
    lying = store()
    lying.check(1)
    lying.claim()
    with pytest.raises(EpochRefused):
        lying.record(1, TopologyVersion(2, 1, {"a": 1}))
    assert len(lying.versions) == 1
    with pytest.raises(EpochRefused):
        lying.check(1)


# Mistakes in the coordinator and in the driver that switches, each put in by hand: some seed must fail.


def with_started(monkeypatch: pytest.MonkeyPatch, **forgotten: object) -> None:
    real = control.handed_over

    def handed_over(
        state: RunState,
        order: Rescale,
        cut: Cut,
        nodes: Sequence[Node],
        published: Mapping[Task, int],
        next_version: Target | None = None,
    ) -> Started:
        return replace(real(state, order, cut, nodes, published, next_version), **forgotten)  # type: ignore[arg-type]

    monkeypatch.setattr(rescaling, "handed_over", handed_over)


def passes_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with_started(monkeypatch, passes=0)


def outages_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with_started(monkeypatch, outages=0)


def nodes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with_started(monkeypatch, gone=frozenset())


def batches_that_are_being_logged_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with_started(monkeypatch, logging=None)


def a_version_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with_started(monkeypatch, next_version=None)


def the_boundary_is_forgotten_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RescalingDriver, "_recorded", lambda _: None)


def groups_are_lost_in_a_re_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(before: KeyedToy, states: Sequence[Digest], now: KeyedToy) -> list[Digest]:
        made = recut(before, states, now)
        lost = {
            number
            for number, task in enumerate(now.tasks)
            if now.inputs[number]
            and (task not in before.number or now.owned[number] != before.owned[before.number[task]])
        }
        return [
            packed(dict.fromkeys(now.owned[number], b"")) if number in lost else state
            for number, state in enumerate(made)
        ]

    monkeypatch.setattr(rescaling, "recut", forgetful)


def results_wait_for_the_next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    real = control._go_on

    def hasty(state: RunState) -> tuple[RunState, Decided | None]:
        ahead = {task: max(batch, state.finished) for task, batch in state.logs.published.items()}
        left, order = real(replace(state, logs=replace(state.logs, unpublished=(), published=ahead)))
        return replace(left, logs=state.logs), order

    monkeypatch.setattr(control, "_go_on", hasty)


def passes_begin_while_a_run_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "is_paused", lambda _: False)
    monkeypatch.setattr(decisions, "is_switching", lambda _: False)


def not_all_tasks_are_stored_before_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_version", lambda _, point: point)


def versions_begin_amid_results_that_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = control._hindrance

    def hindrance(run: Run, state: RunState, known: Rescaling) -> str | None:
        reason = real(run, state, known)
        return None if reason is not None and "results are there already" in reason else reason

    monkeypatch.setattr(control, "_hindrance", hindrance)


def losses_do_not_put_a_rescale_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "put_off", lambda state: state)


def what_waits_is_forgotten_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "ended", lambda _, __: [])


def versions_are_recorded_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(store: VersionedStore, _: int, version: TopologyVersion) -> None:
        if version.number != len(store.versions) + 1:
            raise EpochRefused(store.epoch)
        store.versions.append(version)

    monkeypatch.setattr(VersionedStore, "record", record)


MISTAKES: tuple[tuple[Mistake, tuple[int, ...]], ...] = (
    (passes_are_counted_anew, ()),
    (outages_are_counted_anew, (97,)),
    (nodes_that_are_gone_are_forgotten, (4185,)),
    (batches_that_are_being_logged_are_forgotten, ()),
    (a_version_is_passed_over, (550,)),
    (the_boundary_is_forgotten_on_the_way_back, ()),
    (groups_are_lost_in_a_re_cut, ()),
    (results_wait_for_the_next_version, (24,)),
    (passes_begin_while_a_run_pauses, (24,)),
    (not_all_tasks_are_stored_before_a_switch, ()),
    (versions_begin_amid_results_that_are_committed, (48,)),
    (losses_do_not_put_a_rescale_off, (10,)),
    (what_waits_is_forgotten_at_the_end, (16,)),
    (versions_are_recorded_without_a_fence, (323,)),
)


@pytest.mark.parametrize(("mistake", "likely"), MISTAKES, ids=lambda value: getattr(value, "__name__", ""))
def test_without_the_invariants_of_the_coordinator_the_judges_see_that(
    mistake: Mistake, likely: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    monkeypatch.setattr(Coordinator, "check_invariants", lambda _: None)
    with pytest.raises(SimulationFailed):
        all(rescaled(seed) for seed in (*likely, *range(MOST_SEEDS)))
