"""Late rows are counted once and told of loudly, with what would have kept them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tenax as tx
from tenax.control.copies import Role
from tenax.control.instructions import PassKind, RunPass, Step
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.engine.driver.latecomers import Latecomers
from tenax.engine.worker.orders import LateRows, Report
from tenax.model.graph import TaskGraph
from tenax.operators.lateness import Overdue

SECOND = 1_000_000


def latecomers(folder: Path, *, kept: bool = False) -> Latecomers:
    """s (2) --> w (1) --> out (1)"""
    topology = tx.Topology("one")
    late = tx.parquet(folder / "late") if kept else None
    rows = topology.source("s", tx.elements(rate=1.0), partitions=2, late=late)
    rows.window("10s").aggregate(pl.len().alias("n"), parallelism=1, name="w").output("out", tx.parquet(folder / "out"))
    application = topology.build()
    return Latecomers(application, TaskGraph(application.topology))


TASKS = ("s[0]", "s[1]", "w[0]", "out[0]")


def a_pass(first: int, last: int, kind: PassKind = PassKind.LIVE, *, tentative: bool = False) -> RunPass:
    steps = []
    for task in TASKS:
        start = Version.parse(f"{task}@{first - 1}/{NO_PASS}")
        steps.append(Step(start.task, "n", start, Role.PRIMARY, tentative=tentative))
    return RunPass(PassId(1, first), kind, first, last, tuple(steps), (), frozenset(), 0, 60.0, 1)


def report(task: int, rows: int, *late: LateRows) -> Report:
    return Report(
        task=task, node=0, rows_in=rows, rows_out=rows, late=sum(batch.rows for batch in late), late_rows=late
    )


def overdue(*seconds: float) -> Overdue:
    return Overdue.of(np.array([second * SECOND for second in seconds], np.int64))


def test_the_share_the_partitions_and_the_lateness_that_would_have_kept_them_are_told(tmp_path: Path) -> None:
    counted = latecomers(tmp_path)
    assert counted.add(a_pass(1, 2), [report(0, 100), report(1, 100)]) == []
    late = [LateRows(3, 8, overdue(*[0.4] * 8)), LateRows(4, 1, overdue(1.8))]
    said = counted.add(a_pass(3, 4), [report(0, 50, LateRows(4, 1, overdue(0.1))), report(1, 50, *late)])
    assert said == [
        "LATE s: 3.33 % of its rows came late (10 of 300; s[1] 6 %, s[0] 0.667 %), up to 1.8 s, and were dropped; "
        "lateness='2s' would have kept all"
    ]
    assert counted.add(a_pass(5, 5), [report(1, 50, LateRows(5, 50, overdue(*[0.1] * 50)))]) == []  # not ten times more
    (notice,) = counted.said()
    assert notice.lost
    assert notice.short == "s 17.1 %"


def test_rows_that_have_a_sink_of_their_own_are_told_calmly(tmp_path: Path) -> None:
    counted = latecomers(tmp_path, kept=True)
    counted.add(a_pass(1, 1), [report(0, 10, LateRows(1, 5, overdue(*[3.0] * 5)))])
    (notice,) = counted.said()
    assert not notice.lost
    assert notice.text.startswith("s: 50 % of its rows came late (5 of 10; s[0] 50 %), up to 3 s; they are kept apart")


def test_rows_count_once_and_only_where_steps_are_accurate(tmp_path: Path) -> None:
    counted = latecomers(tmp_path)
    dropped = report(2, 10, LateRows(2, 3))
    late = report(0, 10, LateRows(1, 5, overdue(1, 1, 1, 1, 1)))
    counted.add(a_pass(1, 2, tentative=True), [late, dropped])
    assert counted.said() == []
    counted.add(a_pass(1, 2), [late, dropped])
    counted.add(a_pass(1, 2), [late, dropped])  # after a rollback
    counted.add(a_pass(1, 2, PassKind.ROUND), [late, dropped])
    counted.add(a_pass(3, 3), [replace(late, role=Role.REPLICA)])
    source, operator = counted.said()
    assert "(5 of 10; s[0] 50 %)" in source.text
    assert operator.text.startswith("LATE w: 3 rows dropped, because windows were complete")


@pytest.mark.parametrize(
    ("reports", "published", "text"),
    [
        ([report(0, 10), report(2, 10)], 0, None),
        ([report(1, 10, LateRows(3, 2, overdue(1.2, 0.1)))], 3, None),
        (
            [report(2, 9, LateRows(3, 1)), report(1, 10, LateRows(2, 1, overdue(1.2)), LateRows(3, 1, overdue(9)))],
            0,
            "source 's': with strict lateness no row comes late, found 1 row of partition s[1] in batch 2, up to 1.2 s "
            "behind: write lateness='2s', or leave strict lateness out",
        ),
        (
            [report(2, 9, LateRows(3, 4))],
            0,
            "operator 'w': with strict lateness no row comes late, found 4 rows in batch 3 at task w[0], of windows "
            "that were complete: write a longer idle_after for the source whose partition was idle, or leave strict "
            "lateness out",
        ),
    ],
    ids=["none", "published", "source", "operator"],
)
def test_a_strict_run_refuses_the_first_late_rows(
    tmp_path: Path, reports: Sequence[Report], published: int, text: str | None
) -> None:
    refused = latecomers(tmp_path).refused(a_pass(2, 3), reports, published)
    assert (None if refused is None else str(refused)) == text
