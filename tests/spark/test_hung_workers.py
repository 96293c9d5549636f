"""Python workers that hang while their executors live: the node is lost like any other, and nothing else changes.

elements (2) --> hold (2) --full--> window (2) --> counts (2)
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import polars as pl
import psutil
import pytest
from spark.oracles import SECOND_US, assert_equal, windowed
from spark.runs import Watcher, finish, settings

from tenax.application.application import Application
from tenax.chaos.injector import await_nodes, hang_workers, pid_of
from tenax.connectors.generators import Pace
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event, NodesLost
from tenax.control.instructions import Decided
from tenax.engine.loading import load_application
from tenax.engine.processes import workers_of
from tenax.engine.session import Session
from tenax.model.settings import ClusterSettings

ROWS, RATE, BATCH_ROWS = 8_000, 1_000, 200
DEADLINE_S = 120.0
POLL_S = 0.05
QUICK = ClusterSettings(
    heartbeat="1s", missed=4
)  # a slow machine may lose others meanwhile: results are exact all the same

APPLICATION = """
import time
from pathlib import Path

import polars as pl
import psutil
import tenax as tx

def build(rows, rate, folder):
    marker = Path(folder) / "hold"

    def held(frame):
        while marker.exists() and frame["sequence"][0] % 2:  # in one of the two tasks
            time.sleep(0.05)
        return frame.with_columns((pl.col("sequence") % 5).alias("key"))

    topology = tx.Topology("held")
    given = topology.source("elements", tx.elements(rate=rate, pace=tx.Pace(rows=rows)), partitions=2)
    schema = {**given.schema, "key": pl.Int64}
    keyed = given.map(held, schema=schema, name="hold").key_by("key")
    counts = keyed.window("1s").aggregate(pl.len().alias("count"), parallelism=2)
    counts.output("counts", tx.parquet(Path(folder) / "counts"))
    return topology
"""


@dataclass(slots=True)
class Losses(Watcher):
    """Remembers which nodes were lost, and does something once after some batches, and whenever nodes are lost."""

    acts: dict[int, Callable[[Sequence[str]], None]] = field(default_factory=dict)
    on_lost: Callable[[], None] = lambda: None
    lost: list[NodesLost] = field(default_factory=list)
    names: tuple[str, ...] = ()

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:
        del then
        homes = [task.primary.node for task in coordinator.state.tasks if task.primary is not None]
        self.names = tuple(sorted({node.name for node in coordinator.state.nodes}, key=lambda name: -homes.count(name)))
        if isinstance(event, NodesLost):
            self.lost.append(event)
            self.on_lost()
        for batch in [batch for batch in self.acts if coordinator.state.finished >= batch and self.names]:
            self.acts.pop(batch)(self.names)


def built(folder: Path) -> Application:
    file = folder / "app.py"
    file.write_text(APPLICATION)
    return load_application(file, {"rows": ROWS, "rate": RATE, "folder": str(folder)})


@pytest.fixture
def quick(cluster: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The cluster, which soon gives up nodes without proof; afterwards it is whole again."""
    monkeypatch.setattr(cluster, "cluster", QUICK)
    yield cluster
    await_nodes(cluster, 2)


def assert_exact(application: Application, folder: Path, watcher: Losses, cluster: Session, deadline_s: float) -> None:
    how = settings(BATCH_ROWS).but(pass_deadline=timedelta(seconds=deadline_s), max_attempts=20)
    results = finish(application, folder / "store", how, cluster, watcher)
    given = elements(rate=RATE, pace=Pace(rows=ROWS)).read(0, [0, ROWS, 1])
    rows = given.with_columns((pl.col("sequence") % 5).alias("key"))
    expected = {"counts": windowed(rows, ["key"], SECOND_US, SECOND_US, pl.len().alias("count"))}
    assert_equal(results, expected, {"counts": ["key"]})


def stop_one_worker(node: str) -> list[int]:
    """Stop one of the two Python workers of a node."""
    (workers,) = workers_of(pid_of(node)).values()
    os.kill(workers[0], signal.SIGSTOP)
    return workers[:1]


def await_end(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(POLL_S)


def test_nodes_whose_workers_are_stopped_are_lost_and_the_result_is_exact(quick: Session, tmp_path: Path) -> None:
    hit: dict[str, list[int]] = {}

    def a_single_worker(names: Sequence[str]) -> None:
        hit[names[0]] = [*stop_one_worker(names[0]), pid_of(names[0])]

    def all_of_them(names: Sequence[str]) -> None:
        name = next((name for name in names if name not in hit), names[0])  # the first may not be given up yet
        hit[name] = [*hang_workers(pid_of(name)), pid_of(name)]

    watcher = Losses(acts={5: a_single_worker, 15: all_of_them})
    assert_exact(built(tmp_path), tmp_path, watcher, quick, deadline_s=DEADLINE_S)
    assert len(hit) == 2
    assert hit.keys() <= {name for event in watcher.lost if not event.overdue for name in event.nodes}
    for name, pids in hit.items():
        assert f"node {name} is given up: its Python workers do not answer" in watcher.messages
        await_end(pids)  # the executor was ended, and what hung below it


def test_a_node_that_does_not_end_its_part_of_a_pass_is_lost_when_the_deadline_has_passed(
    quick: Session, tmp_path: Path
) -> None:
    marker = tmp_path / "hold"
    watcher = Losses(acts={5: lambda _: marker.touch()}, on_lost=lambda: marker.unlink(missing_ok=True))
    # longer than a node may go without proof: code that runs is not a worker that hangs
    assert_exact(built(tmp_path), tmp_path, watcher, quick, deadline_s=6.0)
    assert any(event.overdue for event in watcher.lost)
    assert any("did not end within 6 s" in text for text in watcher.messages)
