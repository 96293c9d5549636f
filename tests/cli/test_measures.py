"""How far outputs are behind and how much is kept, from what a run reports and leaves on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.cli.measures import Lags, SizeMeter, Sizes, folder_bytes, sources_above
from tenax.connectors.delivery import console
from tenax.connectors.generators import Pace
from tenax.connectors.workloads import elements
from tenax.engine.worker.orders import Report
from tenax.model.graph import TaskGraph
from tenax.operators.computation import END_WATERMARK_US, NO_WATERMARK_US

SECOND_US = 1_000_000


# fast --+--> window --> sums
#        |
#        +--> union ---> both
# slow --+
def application() -> Application:
    topology = Topology("two")
    fast = topology.source("fast", elements(rate=1.0, pace=Pace(lateness="2s")))
    slow = topology.source("slow", elements(rate=1.0, pace=Pace()))
    fast.key_by("sequence").window("1s").aggregate(pl.col("value").sum()).output("sums", console())
    fast.union(slow).output("both", console())
    return topology.build()


def reports(of: Application, watermarks_s: dict[str, int]) -> list[Report]:
    """What the tasks report whose operators are named; the others have ended."""
    graph = TaskGraph(of.topology)
    named = {name: seconds * SECOND_US for name, seconds in watermarks_s.items()}
    watermarks = [named.get(task.operator, END_WATERMARK_US) for task in graph.tasks(range(len(graph)))]
    return [Report(task=number, node=0, watermark_us=watermark_us) for number, watermark_us in enumerate(watermarks)]


def test_an_operator_is_reached_by_the_sources_above_it() -> None:
    above = sources_above(application().topology)
    assert above["sums"] == {"fast"}
    assert above["both"] == {"fast", "slow"}


def test_an_output_lags_behind_the_newest_row_of_its_own_sources_until_that_is_published() -> None:
    roads = application()
    lags = Lags(roads)
    assert lags.seconds() == {"sums": None, "both": None}
    lags.passed(4, reports(roads, {"fast": 10, "slow": 30, "sums": 10, "both": 10}))
    assert lags.seconds() == {"sums": None, "both": None}
    lags.published(4)
    assert lags.seconds() == {"sums": 2.0, "both": 20.0}  # rows of `fast` may be 2 s late, so 12 s was read
    lags.passed(8, reports(roads, {"fast": 20, "slow": 30, "sums": 20, "both": 20}))
    assert lags.seconds() == {"sums": 12.0, "both": 20.0}
    lags.passed(12, reports(roads, {}))
    lags.published(12)
    assert lags.seconds() == {"sums": 0.0, "both": 0.0}


def test_an_output_that_no_row_has_reached_has_no_lag() -> None:
    roads = application()
    lags = Lags(roads)
    first_reports = reports(roads, {"fast": 10, "both": 5})
    lags.passed(
        1, [replace(report, watermark_us=NO_WATERMARK_US) if report.task == 4 else report for report in first_reports]
    )
    lags.published(1)
    assert lags.seconds() == {"sums": None, "both": 7.0}


def test_states_are_counted_apart_from_what_the_store_keeps(tmp_path: Path) -> None:
    for name, size in (("run/00000001/nodes/n1/a.0/x.seg", 100), ("run/00000001/spark.log", 7), ("segments/a/run", 30)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    (tmp_path / "store.json").write_bytes(bytes(5))
    meter = SizeMeter(tmp_path)
    assert meter.sizes() == Sizes(100, 35)
    (tmp_path / "store.json").write_bytes(bytes(6))
    assert meter.sizes(now=True) == Sizes(100, 36)
    assert folder_bytes(tmp_path) == 143


def test_states_on_other_machines_are_not_known(tmp_path: Path) -> None:
    assert SizeMeter(tmp_path / "none").sizes() == Sizes(None, 0)
