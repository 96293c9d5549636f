"""What the recorder notes when the topology of a run changes while it runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tenax.application.scaling import first_version, next_version, rescaled
from tenax.engine.worker.orders import Report
from tenax.model.graph import TaskGraph
from tenax_lab.loads.layered import Tap
from tenax_lab.loads.varying import FOUND, LOOKUPS, PARTITIONS, ROWS, Load, Rhythm, varying
from tenax_lab.recorder import Kind, RunRecorder


def reports(graph: TaskGraph, sizes: int, read: int = 0) -> list[Report]:
    """One of every task: a source has read a row, a task with a state has so many bytes of it."""
    states = {LOOKUPS: sizes}
    return [
        Report(
            task=task,
            node=0,
            rows_in=1,
            state_bytes=states.get(graph.task(task).operator, 0),
            read_bytes=read * (graph.task(task).operator in states),
        )
        for task in range(len(graph))
    ]


def test_tasks_are_those_of_the_version_that_a_run_is_in(tmp_path: Path) -> None:
    """
    rows (2) --> lookups (2) --> found (2)   becomes   rows (2) --> lookups (4) --> found (4)
    """
    application = varying(1, Load(Rhythm.even(10, 1), wait_us=0), Tap(tmp_path / "tap"), tasks=2)
    before = first_version(application)
    later = next_version(application, before, {LOOKUPS: 4}, after=1, nodes=4, cause="")
    grown = rescaled(application, later)
    recorder = RunRecorder(TaskGraph(application.topology))
    recorder.begun(application, before)
    recorder.passed(1, 1, reports(recorder.graph, 1_000), 0.5)
    recorder.begun(grown, later)
    recorder.passed(2, 2, reports(recorder.graph, 500, read=600), 0.5)
    (switch,) = recorder.of(Kind.SWITCHED).iter_rows(named=True)
    assert (switch["number"], switch["after"], switch["tasks"]) == (2, 1, PARTITIONS + 4 + 4)
    assert switch["groups"] == 64  # of lookups, and of found with it, every other one
    passes = recorder.of(Kind.PASS).select("rows", "state_bytes", "read_bytes")
    assert passes.rows() == [(PARTITIONS, 2_000, 0), (PARTITIONS, 2_000, 2_400)]
    assert {task.operator for task in recorder.graph.tasks(range(len(recorder.graph)))} == {ROWS, LOOKUPS, FOUND}
    assert recorder.of(Kind.PASS).select(pl.col("last").max()).item() == 2
