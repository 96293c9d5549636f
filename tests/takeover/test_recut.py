"""A stored cut goes on with more or fewer tasks, by reference; results are those of a run that never was rescaled."""

# ruff: noqa: ARG002

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from engine.worker_cluster import Cluster, results

import tenax as tx
from tenax.application.application import Application
from tenax.application.scaling import first_version, next_version, rescaled
from tenax.connectors.source import Limits
from tenax.control.versions import NO_PASS, Cut, PassId, RebuildPoint, Span, Version
from tenax.engine.worker.orders import Report, UploadOrder
from tenax.engine.worker.steps import Worker
from tenax.engine.worker.versions import Index, file_name, read_index
from tenax.errors import DamagedStore, InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology_versions import TopologyVersion
from tenax.operators.chunks import encode
from tenax.operators.computation import State
from tenax.operators.groups import ALL, Groups
from tenax.store.checkpoints import StoredSegment, upload_segments
from tenax.takeover.recut import Segments, recut

ROWS = 3_200
LIMIT = Limits(400)


class Means(tx.KeyedComputation):
    """The mean of all values of a key so far, once a batch."""

    keys = ("key",)
    state_schema = pl.Schema({"key": pl.Int64, "seen": pl.Int64, "total": pl.Float64})

    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, tx.Changes]:
        sums = rows.group_by("key", maintain_order=True).agg(
            pl.col("ts").last(), pl.len().cast(pl.Int64).alias("more"), pl.col("value").sum()
        )
        known = sums.join(state, on="key", how="left", maintain_order="left").with_columns(
            seen=pl.col("seen").fill_null(0) + pl.col("more"), total=pl.col("total").fill_null(0.0) + pl.col("value")
        )
        means = known.select("ts", "key", mean=pl.col("total") / pl.col("seen"))
        return means, tx.Changes(upserts=known.select("key", "seen", "total"))


class Highest(tx.Computation):
    """The highest value of a key so far, with a segment for every batch."""

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        rows = given.frames[0].select("key", "value", "ts")
        best = (
            pl.concat([rows, *state.values()])
            .group_by("key", maintain_order=True)
            .agg(pl.col("value").max(), pl.col("ts").max())
        )
        return tx.StepOutput({**state, f"seen/{given.batch}": rows}, best)

    def split(self, state: tx.State, groups: tx.Groups, keys: Sequence[str]) -> tx.State:
        return {name: groups.rows(frame, keys) for name, frame in state.items()}

    def merge(self, states: Sequence[tx.State]) -> tx.State:
        return {f"{number}/{name}": frame for number, state in enumerate(states) for name, frame in state.items()}


def application(folder: Path, tasks: int = 2) -> Application:
    # elements (2) ─► with-columns (2) ─► window ═► join ═► joined      counts ─► join      means ═► means-out
    #                                       ╚═► top-local ─► top (1) ═► best      highest ═► highest-out
    topology = tx.Topology("toy")
    stream = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=ROWS)), partitions=2)
    keyed = stream.with_columns(key=pl.col("sequence") % 37, half=pl.col("sequence") % 2).key_by("key")
    aggregates = [pl.col("value").sum(), pl.col("value").std().alias("std"), pl.col("value").last().alias("last")]
    window = keyed.window("1s", every="250ms").aggregate(*aggregates, parallelism=tasks, name="window")
    counts = keyed.key_by("key", "half").window("1s", every="250ms").aggregate(pl.len(), parallelism=3, name="counts")
    window.join(counts, on=["key", "window"], name="join").output("joined", tx.parquet(folder / "joined"))
    window.top(3, "value").output("best", tx.parquet(folder / "best"))
    keyed.apply(Means(), parallelism=tasks, name="means").output("means-out", tx.parquet(folder / "means"))
    keyed.apply(Highest(), parallelism=tasks, name="highest").output("highest-out", tx.parquet(folder / "highest"))
    return topology.build()


class Run:
    """A run that is rescaled between passes, with a store, as a driver carries it on."""

    def __init__(self, folder: Path, nodes: int = 2, *, forgets: bool = False) -> None:
        self.folder = folder
        self.forgets = forgets  # every pass runs in processes that know nothing
        self.nodes = nodes
        self.declared = application(folder)
        self.version = first_version(self.declared)
        self.cluster = Cluster(self.declared, folder, nodes, LIMIT)
        self.numbers = itertools.count(1)
        self.reports: list[Report] = []
        self.segments: Segments = {}
        self.ended = False

    @property
    def application(self) -> Application:
        return self.cluster.application

    def batches(self, count: int, each: int = 1) -> None:
        for _ in range(count):
            cluster = self.cluster
            order = cluster.order(each, next(self.numbers))
            if self.forgets:
                cluster.workers = [Worker(cluster.application, cluster.places, name) for name in cluster.names]
            self.reports += self.cluster.run(order)
            self.ended = order.ended_at is not None

    def store(self) -> int:
        """Store all tasks; the bytes that were not there."""
        cluster, before = self.cluster, self.segments
        homes = tuple(cluster.names[cluster.homes[number][0]] for number in range(len(cluster.heads)))
        known = {task: {part.segment: part for part in parts if not part.origin} for task, parts in before.items()}
        order = UploadOrder(cluster.heads, homes, {}, known)
        answers = [worker.upload(order, name) for worker, name in zip(cluster.workers, cluster.names, strict=True)]
        self.segments = {task: parts for answer in answers for task, parts in answer.items()}
        old = {part.place for parts in before.values() for part in parts}
        new = {part.place: part.bytes for parts in self.segments.values() for part in parts}
        return sum(size for place, size in new.items() if place not in old)

    def rescale(self, wanted: dict[str, int]) -> None:
        """Go over to the next version; all tasks are stored."""
        cluster = self.cluster
        self.version = next_version(self.declared, self.version, wanted, cluster.batch, None, "")
        now = rescaled(self.declared, self.version)
        cut, self.segments = recut(
            Cut(cluster.batch, cluster.heads), self.segments, self.application, now, PassId(1, next(self.numbers))
        )
        times = {cluster.graph.task(number): time_us for number, time_us in cluster.highest_us.items()}
        self.cluster = fresh = Cluster(now, self.folder, self.nodes, LIMIT)
        fresh.heads = tuple(point for point in cut.points if isinstance(point, Version))
        fresh.positions, fresh.batch = cluster.positions, cluster.batch
        fresh.highest_us = {fresh.graph.number(task): time_us for task, time_us in times.items()}
        fresh.restored = {fresh.graph.number(task): parts for task, parts in self.segments.items()}

    def state(self, task: Task) -> State:
        """As a process finds it that knows nothing."""
        worker = Cluster(self.application, self.folder, self.nodes).workers[0]
        number = self.cluster.graph.number(task)
        operator = int(self.cluster.graph.operator_of[number])
        head, restored = self.cluster.heads[number], self.segments[task]
        return worker.states.load(head, restored, worker.computations[operator], worker._keys[operator]).state

    def index(self, task: Task) -> Index:
        """Of the head of a task, on its node."""
        number = self.cluster.graph.number(task)
        states = self.cluster.workers[self.cluster.homes[number][0]].states
        return read_index(states.folder(task) / file_name(self.cluster.heads[number]))

    def rows(self) -> dict[str, pl.DataFrame]:
        while not self.ended:
            self.batches(1)
        return results(self.reports, self.folder)


def unscaled(folder: Path) -> dict[str, pl.DataFrame]:
    return Run(folder).rows()


def assert_close(mine: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> None:
    """The same rows; floats, whose sums may be of other parts, nearly."""
    assert mine.keys() == other.keys()
    for name, wanted in other.items():
        exact = [column for column, kind in wanted.schema.items() if not kind.is_float()]
        floats = [column for column in wanted.columns if column not in exact]
        left, right = mine[name].sort([*exact, *floats]), wanted.sort([*exact, *floats])
        assert left.select(exact).equals(right.select(exact)), name
        for column in floats:
            assert (left[column] - right[column]).abs().max() < 1e-9, (name, column)  # type: ignore[operator]
            assert left[column].is_null().equals(right[column].is_null())


GROUPS = ("window", "counts", "means", "highest")
Plan = list[tuple[int, dict[str, int]]]
PLANS: list[Plan] = [
    [(3, {"window": 3})],
    [(3, {"window": 1, "counts": 1}), (2, {"window": 4, "means": 3})],
    [(2, dict.fromkeys(GROUPS, 3)), (2, dict.fromkeys(GROUPS, 2)), (1, dict.fromkeys(GROUPS, 5)), (2, {"means": 1})],
    [(4, {"highest": 3, "means": 4}), (0, {"highest": 2, "window": 5}), (1, {"highest": 1, "means": 2})],
]


@pytest.mark.parametrize("plan", PLANS)
def test_results_are_those_of_a_run_that_never_was_rescaled(plan: Plan, tmp_path: Path) -> None:
    def run(folder: Path, nodes: int, *, forgets: bool) -> dict[str, pl.DataFrame]:
        running = Run(folder, nodes, forgets=forgets)
        for batches, wanted in plan:
            running.batches(batches)
            if batches:
                running.store()
            running.rescale(wanted)
        return running.rows()

    first, second = run(tmp_path / "one", 2, forgets=False), run(tmp_path / "two", 3, forgets=True)
    assert_close(first, unscaled(tmp_path / "plain"))
    assert first["joined"].height > 300
    assert all(first[name].equals(second[name]) for name in first)  # to the byte, wherever its tasks are


def test_nothing_is_written_by_a_rescale_and_what_stays_is_not_written_after_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(4)
    whole = run.store()
    files = {path: path.stat().st_size for path in (tmp_path / "segments").rglob("*") if path.is_file()}
    run.rescale({"window": 3})
    assert {path: path.stat().st_size for path in (tmp_path / "segments").rglob("*") if path.is_file()} == files
    referred = {part.place: part.bytes for parts in run.segments.values() for part in parts}
    assert sum(referred.values()) == whole
    nodes = {part.segment for part in run.segments[Task("window", 2)] if part.segment.startswith("node/")}
    assert nodes
    assert {part.origin for part in run.segments[Task("window", 2)]} == {"window[0]", "window[1]"}
    run.batches(1)
    index = run.index(Task("window", 2))
    kept = nodes & set(index)
    assert kept
    assert all(len(index[name]) == 2 and all(piece.is_stored for piece in index[name]) for name in kept)
    before = run.segments
    new = run.store()
    assert set(index) == {part.segment for part in run.segments[Task("window", 2)]}
    again = {part for part in run.segments[Task("window", 2)] if part.segment in kept}
    assert again == {part for part in before[Task("window", 2)] if part.segment in kept}
    assert new < whole


def test_tasks_that_are_not_rescaled_keep_what_they_have(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(3)
    run.store()
    before = dict(run.segments)
    retained = StoredSegment("retained/3/1.3", "segments/x", 0, 1, 1)
    run.segments = {task: (*parts, retained) for task, parts in before.items()}
    run.rescale({"window": 3})
    for task, parts in run.segments.items():
        if task.operator in {"counts", "means", "highest", "top-1"}:
            assert parts == before[task]
        assert retained not in parts
    made_by = {head.pass_id for head in run.cluster.heads}
    assert made_by == {PassId(1, 4)}


def test_a_task_refers_to_the_groups_that_are_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(3)
    run.store()
    run.rescale({"window": 3})
    table = run.version.tables["window"]
    for index in range(3):
        own = Groups.of(table, index)
        for part in run.segments[Task("window", index)]:
            groups = Groups.parse(part.groups) if part.groups else ALL
            assert own.covers(groups)
        for name, frame in run.state(Task("window", index)).items():
            assert name.startswith(("passed/", "origin/")) or own.rows(frame, ["key"]).equals(frame)


def test_tops_of_each_task_go_whole_to_one_and_say_to_all_how_far_they_are(tmp_path: Path) -> None:
    built = application(tmp_path)
    heads = heads_of(built)
    segments = {
        Task("top-local-1", index): tuple(
            StoredSegment(name, f"segments/{index}", 0, 1, 1) for name in ("pending/3-4", "passed/7")
        )
        for index in range(2)
    }
    version = first_version(built)
    now = built
    cut = Cut(4, heads)
    for number, tasks in enumerate((5, 3, 4), start=5):
        version, before = next_version(built, version, {"window": tasks}, 4, None, ""), now
        now = rescaled(built, version)
        cut, segments = recut(cut, segments, before, now, PassId(1, number))
        tops = [parts for task, parts in segments.items() if task.operator == "top-local-1"]
        assert len(tops) == tasks
        waiting = sorted(part.file for parts in tops for part in parts if part.segment == "pending/3-4")
        assert waiting == ["segments/0", "segments/1"]  # each row is with one task
        assert all(any(part.segment == "passed/7" for part in parts) for parts in tops)
        assert not any(part.groups for parts in tops for part in parts)


def test_rescaling_twice_before_a_step_is_rescaling_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(4)
    run.store()
    stored, heads, declared = run.segments, run.cluster.heads, run.declared
    versions = [run.version]
    for tasks in (3, 5, 2):
        versions.append(next_version(declared, versions[-1], dict.fromkeys(GROUPS, tasks), 4, None, ""))
    apps = [rescaled(declared, version) for version in versions]
    cut, segments = Cut(4, heads), stored
    for number, (before, now) in enumerate(itertools.pairwise(apps), start=50):
        cut, segments = recut(cut, segments, before, now, PassId(1, number))
    run.segments = segments
    straight_cut, straight = recut(Cut(4, heads), stored, apps[0], apps[-1], PassId(1, 52))
    assert straight_cut == cut
    for task, parts in segments.items():  # pieces that meet again are one
        assert len(parts) == len(straight[task]) or task.operator == "top-local-1"
    run.cluster = Cluster(apps[-1], tmp_path, 2)
    run.cluster.heads = tuple(point for point in cut.points if isinstance(point, Version))
    for task in [Task(name, index) for name in ("window", "join", "means", "highest") for index in range(2)]:
        mine = run.state(task)
        run.segments = straight
        other = run.state(task)
        run.segments = segments
        assert mine.keys() == other.keys()
        assert all(frame.sort(pl.all()).equals(other[name].sort(pl.all())) for name, frame in mine.items())


def test_a_damaged_piece_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(3)
    run.store()
    run.rescale({"window": 3})
    part = next(part for part in run.segments[Task("window", 2)] if part.segment.startswith("node/"))
    shutil.rmtree(tmp_path / "nodes")  # else what lies on the node is taken
    path = tmp_path / part.file
    content = bytearray(path.read_bytes())
    content[part.offset + part.bytes // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedStore, match="size and checksum of its manifest"):
        run.batches(1)


def test_states_at_different_watermarks_are_not_merged(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(1)
    passed = [pl.DataFrame({"passed": [number]}) for number in (7, 9)]
    stored = [
        upload_segments(tmp_path, Task("window", index), {f"passed/{7 + 2 * index}": encode(frame, 0)})
        for index, frame in enumerate(passed)
    ]
    run.segments = dict.fromkeys(run.cluster.graph.tasks(range(len(run.cluster.graph))), ())
    run.segments = {**run.segments, **{Task("window", index): parts for index, parts in enumerate(stored)}}
    run.rescale({"window": 1})
    bundles = run.cluster.attempt(run.cluster.order(1, 9))
    failure = next(failure for bundle in bundles for failure in bundle.failures)
    assert (failure.kind, failure.operator) == ("operator", "window")
    assert "stand at one watermark, found passed/7 and passed/9 of Windows" in failure.cause


def test_states_of_an_operator_that_raises_are_told_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge(self: Highest, states: Sequence[tx.State]) -> tx.State:
        raise ValueError("two of them")

    monkeypatch.setattr(Highest, "merge", merge)
    run = Run(tmp_path)
    run.batches(2)
    run.store()
    run.rescale({"highest": 1})
    bundles = run.cluster.attempt(run.cluster.order(1, 9))
    failure = next(failure for bundle in bundles for failure in bundle.failures)
    assert (failure.kind, failure.operator, failure.task) == ("operator", "highest", "highest[0]")
    assert "two of them" in failure.cause


def test_a_run_that_has_not_begun_begins_with_other_tasks(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.segments = {head.task: () for head in run.cluster.heads}
    run.rescale({"window": 3, "highest": 4})
    assert {head.pass_id for head in run.cluster.heads} == {NO_PASS}
    assert_close(run.rows(), unscaled(tmp_path / "plain"))


def test_a_task_that_has_nothing_yet_contributes_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.batches(2)
    run.store()
    heads = tuple(
        Version(head.task, head.batch, NO_PASS) if str(head.task) == "means[1]" else head for head in run.cluster.heads
    )
    segments = {**run.segments, Task("means", 1): ()}
    version = next_version(run.declared, run.version, {"means": 1}, 2, None, "")
    cut, listed = recut(Cut(2, heads), segments, run.declared, rescaled(run.declared, version), PassId(1, 9))
    [point] = [point for point in cut.points if point.task.operator == "means"]
    assert point == Version(Task("means", 0), 2, PassId(1, 9))
    assert {part.origin for part in listed[Task("means", 0)]} == {"means[0]"}


def heads_of(built: Application) -> tuple[Version, ...]:
    graph = TaskGraph(built.topology)
    return tuple(Version(task, 4, PassId(1, 1)) for task in graph.tasks(range(len(graph))))


def test_only_a_cut_of_one_batch_is_cut_anew(tmp_path: Path) -> None:
    built = application(tmp_path)
    version = next_version(built, first_version(built), {"means": 1}, 2, None, "")
    now = rescaled(built, version)
    heads = heads_of(built)
    for odd in (replace(heads[3], batch=3), RebuildPoint(heads[3].task, 4, 2)):
        with pytest.raises(
            InvalidRequest, match=r"a re-cut is of versions of batch 4 alone, found .*: store all tasks"
        ):
            recut(Cut(4, (*heads[:3], odd, *heads[4:])), {}, built, now, PassId(1, 9))
    cut, _ = recut(
        Cut(4, heads, ((Span(1, 2, PassId(1, 1)),),) * len(heads), (4,) * len(heads)), {}, built, now, PassId(1, 9)
    )
    assert (cut.outputs, cut.acknowledged) == ((), ())


def test_a_state_that_cannot_be_split_is_not_shared(tmp_path: Path) -> None:
    built = application(tmp_path)
    parallelism = {**first_version(built).parallelism, "rows": 2}
    tables = {**first_version(built).tables, "rows": (1, 0) * 64}
    now = rescaled(built, TopologyVersion(2, 4, parallelism, tables))
    heads = heads_of(built)
    with pytest.raises(InvalidRequest, match="operator 'rows' keeps its tasks"):
        recut(Cut(4, heads), {}, built, now, PassId(1, 9))
