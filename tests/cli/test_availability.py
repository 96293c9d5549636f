"""What is said of the availability of queries, at the end of a run and of its store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from tenax.api.streams import Topology
from tenax.cli.availability import SHOWN_OUTPUTS, facts
from tenax.cli.live import LiveView
from tenax.cli.main import run
from tenax.connectors.delivery import console
from tenax.connectors.workloads import elements
from tenax.control.instructions import Outcome, Part, Stop
from tenax.engine.queries import QUERIES, Interval, Queries
from tenax.model.tasks import Task
from tenax.store.store import Store


def after_a_loss(*tasks: Task, waits: Task | None = None) -> list[Interval]:
    """Ten batches of each, a loss, and ten more, of which one query has only shown tentative results."""
    queries = Queries(dict.fromkeys(tasks, 0), 1.0)
    for batch in range(1, 21):
        if batch == 11:
            queries.lost(11.0, finished=10)
            queries.missing(11.0, is_missing=True)
        queries.logged(batch, float(batch))
        for task in tasks:
            late = task == waits and batch > 10
            queries.published([Part(task, batch, batch)], batch + 0.5, tentative=late)
    if waits is not None:
        queries.published([Part(waits, 11, 20)], 21.0, tentative=False)
    return queries.ended(22.0)


def data(interval: Interval) -> dict[str, dict[str, float | None]]:
    return json.loads(json.dumps(interval.to_data()[QUERIES]))  # type: ignore[no-any-return]


def test_the_worst_query_of_an_output_is_named_and_tentative_results_count_apart() -> None:
    first, second = Task("jams", 0), Task("jams", 1)
    ((name, text),) = facts(data(after_a_loss(first, second, waits=second)[-1]))
    assert name == "queries of jams"
    assert text == (
        "available 71.1 % of the time by final results (jams[1] 42.1 %), 100 % with tentative ones; first final one at "
        "most 10 s after a loss, first shown 0.5 s"
    )


def test_nothing_is_said_of_a_run_that_lost_nothing() -> None:
    (*_, last) = (interval for interval in after_a_loss(Task("jams", 0)) if interval.at_s < 11.0)
    assert facts(data(last)) == []


def test_of_many_outputs_the_least_available_are_told() -> None:
    tasks = [Task(f"out-{number}", 0) for number in range(SHOWN_OUTPUTS + 3)]
    said = facts(data(after_a_loss(*tasks, waits=tasks[-1])[-1]))
    assert len(said) == SHOWN_OUTPUTS + 1
    assert said[0][0] == f"queries of {tasks[-1].operator}"
    assert said[-1] == ("queries of others", "3 more, none less available than these")


def test_the_live_view_says_while_queries_are_late_and_the_summary_how_available_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = Topology("roads")
    topology.source("read", elements(rate=1.0)).output("rows", console())
    view, task = LiveView(topology.build(), tmp_path), Task("rows", 0)
    intervals = after_a_loss(task, waits=task)
    for interval in intervals[:-2]:
        view.queried(interval)
    with (out := Console(width=200)).capture() as drawn:
        out.print(view.drawn())
    assert "queries: 0 of 1 as early as before the loss; rows[0] takes 18 times as long" in drawn.get()
    view.queried(intervals[-1])
    view.summary(Stop(Outcome.FINISHED, "all sources have ended", False))
    assert "queries of rows" in capsys.readouterr().out


def test_inspect_tells_the_availability_that_was_recorded_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Task("rows", 0)
    store = Store.open(tmp_path / "s", {"topology": "roads", "operators": {"rows": 1}})
    for interval in after_a_loss(task, waits=task):
        if interval.is_recorded:
            store.record_event({QUERIES: interval.to_data(), "text": interval.text})
    store.close()
    assert run(["inspect", str(tmp_path / "s")]) == 0
    assert "queries of rows" in capsys.readouterr().out
    assert run(["inspect", str(tmp_path / "s"), "--json"]) == 0
    known = json.loads(capsys.readouterr().out)["queries"]
    assert known["queries"]["rows[0]"]["first_final_s"] == 10.0
