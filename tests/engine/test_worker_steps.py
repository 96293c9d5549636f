"""Workers without Spark: passes over several nodes in one process give what one batch computation gives."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from engine.worker_cluster import ROWS, Cluster, application, results

import tenax as tx
from tenax.connectors.source import Limits, Planned
from tenax.control.versions import PassId
from tenax.engine.worker import steps
from tenax.engine.worker.orders import Report, UploadOrder
from tenax.engine.worker.retained import drop_outputs, read_outputs, write_outputs
from tenax.engine.worker.steps import TRIM_EVERY, Worker
from tenax.engine.worker.versions import file_name, read_index
from tenax.errors import DamagedStore, InvalidTopology
from tenax.model.tasks import Task
from tenax.operators.chunks import decode, encode


def run_all(folder: Path, nodes: int, batches: int) -> dict[str, pl.DataFrame]:
    cluster = Cluster(application(folder), folder, nodes)
    reports: list[Report] = []
    for number in itertools.count(1):
        order = cluster.order(batches, number)
        reports += cluster.run(order)
        if order.ended_at is not None:
            return results(reports, folder)
    raise AssertionError


def expected() -> pl.DataFrame:
    source = tx.elements(rate=1_000.0, pace=tx.Pace(rows=ROWS))
    planned = source.plan(None, 1, Limits(ROWS), 0)
    assert isinstance(planned, Planned)
    rows = source.read(0, planned.ranges[0]).filter(pl.col("sequence") % 3 > 0)
    half = 500_000
    pane = rows["ts"].to_physical() // half
    frames = [
        rows.with_columns(((pane + 1 + ahead) * half).cast(pl.Datetime("us")).alias("window_end")) for ahead in range(4)
    ]
    keyed = pl.concat(frames).with_columns((pl.col("sequence") % 7).alias("key"))
    return keyed.group_by("key", "window_end").agg(pl.col("value").sum()).sort("window_end", "key")


@pytest.mark.parametrize(("nodes", "batches"), [(1, 1), (2, 1), (3, 4), (2, 10)])
def test_passes_give_what_one_batch_computation_gives(tmp_path: Path, nodes: int, batches: int) -> None:
    outputs = run_all(tmp_path, nodes, batches)
    wanted = expected()
    sums = outputs["sums"].sort("window_end", "key")
    assert sums.select("key", "window_end").equals(wanted.select("key", "window_end"))
    assert (sums["value"] - wanted["value"]).abs().max() < 1e-6  # type: ignore[operator]
    best = (
        wanted.sort("window_end", "value", descending=[False, True]).group_by("window_end", maintain_order=True).head(2)
    )
    assert outputs["best"]["value"].sort().to_list() == pytest.approx(best["value"].sort().to_list())


def test_a_pass_of_several_batches_writes_what_single_batches_write(tmp_path: Path) -> None:
    single, many = run_all(tmp_path / "one", 2, 1), run_all(tmp_path / "many", 2, 3)
    assert single.keys() == many.keys()
    assert all(single[name].equals(many[name]) for name in single)


def test_a_process_that_knows_nothing_catches_up_from_the_files_of_its_node(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 2)
    fresh = Cluster(application(tmp_path / "other"), tmp_path / "other", 2)
    for number in range(1, 6):
        order = cluster.order(1, number)
        cluster.workers = [Worker(cluster.application, cluster.places, name) for name in cluster.names]
        again = results(cluster.run(order), tmp_path)
        straight = results(fresh.run(fresh.order(1, number)), tmp_path / "other")
        assert again.keys() == straight.keys()
        assert all(again[name].equals(straight[name]) for name in again)


def test_a_checkpoint_restores_every_task_on_new_nodes(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 2)
    for number in range(1, 4):
        cluster.run(cluster.order(1, number))
    homes = tuple(cluster.names[cluster.layout.homes[task][0]] for task in range(len(cluster.heads)))
    uploads = [UploadOrder(tuple(cluster.heads), homes, {}, {})]
    for _ in range(2):
        uploaded = [
            worker.upload(uploads[-1], name) for worker, name in zip(cluster.workers, cluster.names, strict=True)
        ]
        stored = {task: files for of_node in uploaded for task, files in of_node.items()}
        known = {task: {part.segment: part for part in files} for task, files in stored.items()}
        assert uploads[-1].known in ({}, known)
        uploads.append(replace(uploads[-1], known=known))
    parts = {cluster.workers[0].graph.number(task): files for task, files in stored.items()}
    restored = Cluster(cluster.application, tmp_path, 3)
    restored.heads, restored.positions, restored.batch = cluster.heads, dict(cluster.positions), 3
    restored.restored, restored.highest_us = parts, dict(cluster.highest_us)
    straight = results(cluster.run(cluster.order(2, 9)), tmp_path)
    for node in (tmp_path / "nodes").iterdir():
        shutil.rmtree(node)
    again = results(restored.run(restored.order(2, 9)), tmp_path)
    assert again.keys() == straight.keys()
    assert all(again[name].equals(straight[name]) for name in again)


def test_versions_that_nobody_needs_are_deleted(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1)
    for number in range(1, 7):
        cluster.run(replace(cluster.order(1, number), keep=cluster.batch - 1))
    states = cluster.workers[0].states
    task = Task("window", 0)
    before = set(states.folder(task).glob("*.seg"))
    states.drop_before(task, cluster.batch)
    after = set(states.folder(task).glob("*.seg"))
    assert after < before
    head = cluster.heads[cluster.graph.number(task)]
    needed = {segment.file for [segment] in read_index(states.folder(task) / file_name(head)).values()}
    assert needed <= {path.name for path in after}


def test_what_a_task_left_behind_where_it_steps_no_more_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "TRIM_EVERY", 4)
    cluster = Cluster(application(tmp_path), tmp_path, 2)
    task = Task("window", 0)
    cluster.run(cluster.order(1, 1))
    home = cluster.layout.homes[cluster.graph.number(task)][0]
    here, there = (cluster.workers[place].states.folder(task) for place in (home, 1 - home))
    shutil.copytree(here, there)  # as if it had moved away from there
    write_outputs(there, 1, PassId(1, 1), {(0, 0, 0, 1): b"x"})
    for number in range(2, 6):
        cluster.run(replace(cluster.order(1, number), keep=cluster.batch - 1, retained_before=cluster.batch - 1))
    assert list(there.iterdir()) == []
    assert list(here.glob("*.seg"))


def test_a_damaged_version_is_named(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1)
    cluster.run(cluster.order(1, 1))
    path = next((tmp_path / "nodes").rglob("window.0/*.seg"))
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamagedStore, match=str(path)):
        read_index(path)


def test_an_operator_that_raises_names_itself_its_task_and_the_batch(tmp_path: Path) -> None:
    def broken(rows: pl.DataFrame) -> pl.DataFrame:
        if rows["sequence"].max() > 2_000:  # type: ignore[operator]
            raise ValueError("a bug of the user's")
        return rows

    topology = tx.Topology("broken")
    source = tx.elements(rate=1_000.0, pace=tx.Pace(rows=ROWS))
    schema = {"ts": pl.Datetime("us"), "sequence": pl.Int64(), "value": pl.Float64()}
    rows = topology.source("rows", source, partitions=2).map(broken, schema=schema, name="mine")
    rows.output("all", tx.parquet(tmp_path / "all"))
    cluster = Cluster(topology.build(), tmp_path, 2)
    order = cluster.order(5, 1)
    sent = [worker.run(order, 0, node, []) for node, worker in enumerate(cluster.workers)]
    (failure,) = sent[0][0].failures
    assert (failure.kind, failure.operator, failure.batch) == ("operator", "mine", 3)
    assert failure.task in {"mine[0]", "mine[1]"}
    assert failure.cause == "ValueError: a bug of the user's"
    assert "in broken" in failure.trace


@pytest.mark.parametrize("single", [False, True])
def test_rows_that_do_not_fit_their_consumer_name_it_and_not_their_producer(tmp_path: Path, single: bool) -> None:
    # rows (2 or 1) ─► totals (3 or 1): a mean of texts
    topology = tx.Topology("unfit")
    source = tx.elements(rate=1_000.0, pace=tx.Pace(rows=ROWS))
    rows = topology.source("rows", source, partitions=1 if single else 2)
    keyed = rows.with_columns((pl.col("sequence") % 7).cast(pl.String).alias("key"), name="keyed").key_by("key")
    windowed = keyed.window("2s").aggregate(pl.col("ts").mean(), parallelism=1 if single else 3, name="means")
    windowed.output("all", tx.parquet(tmp_path / "all"))
    with pytest.raises(InvalidTopology) as raised:
        topology.build()
    named, _, cause = str(raised.value).partition("): ")
    assert named.startswith(f"operator 'means' (made in {__file__}, line ")
    assert cause.startswith("a mean is taken of numbers:")
    assert cause.endswith("cast it to a number")


def test_rows_that_no_chunk_can_carry_name_their_producer(tmp_path: Path) -> None:
    topology = tx.Topology("unfit")
    source = tx.elements(rate=1_000.0, pace=tx.Pace(rows=ROWS))
    rows = topology.source("rows", source, partitions=2)
    keyed = rows.map(lambda frame: frame.with_columns(key=pl.lit("a", pl.Categorical)), name="mine").key_by("key")
    keyed.window("2s").aggregate(pl.len(), parallelism=3, name="counts").output("all", tx.parquet(tmp_path / "all"))
    with pytest.raises(InvalidTopology, match=r"operator 'mine' .*cast it to pl.String"):
        topology.build()


def test_producers_of_windows_send_and_retain_groups_and_not_rows(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1)
    operator = next(
        stream.producer for stream in cluster.graph.streams[cluster.graph.operator_of[window_task(cluster)]]
    )
    producers = range(cluster.graph.first[operator], cluster.graph.first[operator + 1])
    order = replace(cluster.order(2, 1), retain=frozenset(producers))
    reports = {report.task: report for report in cluster.run(order)}
    sent_rows = 0
    for task in cluster.graph.tasks(producers):
        for batch in (order.first, order.last):
            kept = read_outputs(cluster.workers[0].states.folder(task), batch, order.pass_id)
            sent_rows += sum(decode(chunk)[0].height for chunk in kept.values())
    windows = range(window_task(cluster), window_task(cluster) + 3)
    assert sent_rows == sum(reports[task].rows_in for task in windows) <= 7 * 2 * 2 * 3  # keys, tasks, batches, panes
    assert sum(reports[task].rows_out for task in producers) > 1_000


def window_task(cluster: Cluster) -> int:
    return cluster.graph.number(Task("window", 0))


def test_a_step_refuses_when_a_chunk_is_missing(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1)
    order = cluster.order(1, 1)
    (bundle,) = cluster.workers[0].run(order, 0, 0, [])
    bundle.chunks.popitem()
    (after,) = cluster.workers[0].run(order, 1, 0, [bundle])
    assert [failure.kind for failure in after.failures] == ["chunk"]


def test_retained_outputs_are_what_was_sent(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1)
    retaining = cluster.graph.number(Task("window", 1))
    order = replace(cluster.order(2, 1), retain=frozenset({retaining}))
    cluster.run(order)
    kept = read_outputs(tmp_path / "nodes" / "n0" / "window.1", order.last, order.pass_id)
    assert {address[2] for address in kept} == {1}
    assert all(decode(chunk)[0].columns == ["key", "value", "window_start", "window_end"] for chunk in kept.values())


def test_a_pass_lets_go_of_retained_outputs_that_nobody_needs(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1, Limits(300))
    task = Task("window", 1)
    for number in range(1, TRIM_EVERY + 1):
        retain = frozenset({cluster.graph.number(task)}) if number < 5 else frozenset[int]()
        cluster.run(replace(cluster.order(1, number), retain=retain, retained_before=3))
    kept = sorted(path.name for path in cluster.workers[0].states.folder(task).glob("*.out"))
    assert [int(name.split("-")[0]) for name in kept] == [3, 4]


def test_retained_outputs_are_dropped_by_batch_and_checked(tmp_path: Path) -> None:
    chunks = {(3, 0, 1, 5): encode(pl.DataFrame({"a": [1]}), 7)}
    for batch in (4, 5, 6):
        write_outputs(tmp_path, batch, PassId(1, 1), chunks)
    drop_outputs(tmp_path, 5)
    assert len(list(tmp_path.glob("*.out"))) == 2
    assert read_outputs(tmp_path, 5, PassId(1, 1)) == chunks
    path = next(tmp_path.glob("0000000006*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedStore, match="a chunk matches its checksum"):
        read_outputs(tmp_path, 6, PassId(1, 1))
