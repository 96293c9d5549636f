"""States that are never stored: workers rebuild them from a few batches and go on to the byte; others are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from engine.worker_cluster import Cluster, application, results

import tenax as tx
from tenax.application.application import check_rebuilt
from tenax.connectors.source import Limits
from tenax.control.copies import Role
from tenax.control.versions import NO_PASS, Cut, PassId, RebuildPoint, Version
from tenax.engine.worker.orders import Order, Report
from tenax.engine.worker.steps import Worker
from tenax.errors import InvalidRequest
from tenax.model.protection import Protection, Strategy
from tenax.model.tasks import Task
from tenax.operators.custom import Changes, KeyedComputation
from tenax.planning.levels import layout
from tenax.store import cuts

LOST_AFTER, LAST = 20, 28


def straight(cluster: Cluster) -> tuple[list[Order], list[list[Report]]]:
    """A run that loses nothing, a batch a pass: its orders and reports."""
    orders, reports = [], []
    for number in range(1, LAST + 1):
        orders.append(cluster.order(1, number))
        reports.append(cluster.run(orders[-1]))
    return orders, reports


def operators_of(cluster: Cluster, task: int) -> str:
    return cluster.graph.operators[int(cluster.graph.operator_of[task])].name


def without(cluster: Cluster, order: Order, *names: str) -> Order:
    """An order in which the tasks of some operators do not step."""
    homes = {task: home for task, home in cluster.homes.items() if operators_of(cluster, task) not in names}
    steps = tuple(step for step in order.steps if step.task in homes)
    return replace(order, layout=layout(cluster.graph, cluster.names, homes), steps=steps)


def test_a_task_that_is_rebuilt_goes_on_with_the_same_results(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 2, Limits(200))
    orders, reports = straight(cluster)
    windows = {report.task for report in reports[0] if operators_of(cluster, report.task) == "window"}
    since = {report.task: report.rebuild_from for report in reports[LOST_AFTER - 1] if report.task in windows}
    first = min(since.values())
    assert 1 < first < LOST_AFTER

    cluster.workers = [Worker(cluster.application, cluster.places, f"new {name}") for name in cluster.names]
    heads = {task: Version(cluster.graph.task(task), first - 1, NO_PASS) for task in windows}
    compared = 0
    for number in range(first, LAST + 1):
        silent = number <= LOST_AFTER
        behind = ("sums", "top-local-1", "top-1", "best")
        order = without(cluster, orders[number - 1], *behind[not silent :])
        steps = [
            replace(step, start=heads[step.task], rebuilding=silent)
            if step.task in windows
            else replace(step, role=Role.PRIMARY if operators_of(cluster, step.task) == "sums" else Role.REPLAY)
            for step in order.steps
        ]
        order = replace(order, pass_id=PassId(2, number), steps=tuple(steps), retain=frozenset(windows))
        made = cluster.run(order)
        heads = {task: Version(heads[task].task, number, order.pass_id) for task in windows}
        if silent:
            quiet = [report for report in made if report.task in windows]
            assert not any(report.staged or report.retained_bytes or report.bytes_out for report in quiet)
            continue
        made_again, wanted = results(made, tmp_path), results(reports[number - 1], tmp_path)
        assert ("sums" in made_again) is ("sums" in wanted)  # not every batch closes a window
        if "sums" in made_again:
            assert made_again["sums"].equals(wanted["sums"])
            compared += made_again["sums"].height
    assert compared > 0


def test_workers_say_from_which_batch_on_states_can_be_rebuilt(tmp_path: Path) -> None:
    cluster = Cluster(application(tmp_path), tmp_path, 1, Limits(200))
    _, reports = straight(cluster)
    by_operator: dict[str, int] = {}
    for report in reports[-1]:
        name = operators_of(cluster, report.task)
        by_operator[name] = min(report.rebuild_from, by_operator.get(name, LAST + 1))
    stateless = [name for name in by_operator if not cluster.application.has_state(name)]
    assert len(stateless) > 1
    assert {by_operator[name] for name in stateless} == {LAST + 1}
    assert LAST - 16 < by_operator["window"] < LAST  # windows of 2 s, batches of 0.2 s
    assert by_operator["window"] <= by_operator["top-1"] <= LAST


def test_a_cut_with_rebuild_points_is_read_as_it_was_written() -> None:
    task = Task("window", 1)
    cut = Cut(12, (Version(Task("rows", 0), 12, PassId(1, 3)), RebuildPoint(task, 12, 5)), (), (12, 0))
    again = cuts.from_record(12, cuts.to_record(cut))
    assert again == cut
    assert again.oldest_batch == 4


class Totals(KeyedComputation):
    """The total of each key, for ever."""

    keys = ("key",)
    state_schema = pl.Schema({"key": pl.Int64, "total": pl.Float64})

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:
        return inputs[0]

    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, Changes]:
        raise NotImplementedError


def test_an_operator_whose_state_is_unbounded_is_refused_by_name(tmp_path: Path) -> None:
    topology = tx.Topology("toy")
    rows = topology.source("rows", tx.elements(rate=1_000.0, pace=tx.Pace(rows=10)))
    rows.key_by("sequence").apply(Totals(), name="totals").output("all", tx.parquet(tmp_path))
    built = topology.build()
    check_rebuilt(built, Protection(checkpoint=Strategy.ALIGNED))
    check_rebuilt(built, Protection(checkpoint=Strategy.NONE, checkpoints={"totals": Strategy.ALIGNED}))
    with pytest.raises(InvalidRequest) as raised:
        check_rebuilt(built, Protection(checkpoint=Strategy.NONE))
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith("operator 'totals': checkpoint none is for states that a few batches decide")
    assert "found Totals" in text
    assert text.endswith("checkpoints={'totals': 'aligned'}")


def test_windows_joins_and_tops_are_not_refused(tmp_path: Path) -> None:
    built = application(tmp_path)
    check_rebuilt(built, Protection(checkpoint=Strategy.NONE))
    assert dataclasses.replace(built.protection, checkpoint="none").checkpoint == Strategy.NONE
