"""Replicas follow the load of a real run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from spark.runs import Watcher, finish

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event
from tenax.control.instructions import Decided
from tenax.control.notices import ReplicasMoved
from tenax.engine.protection import planned
from tenax.engine.session import Session
from tenax.model.protection import Protection
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.operators.keys import owners, split
from tenax.store.events import read_events

BATCHES, EVEN_BATCHES, BATCH_ROWS, TASKS = 40, 12, 400, 4


def skewed(out: Path, alone: int) -> Application:
    """Sums per key: rows are even among 64 keys at first, then they are all of one."""
    topology = Topology("skewed")
    rows = topology.source("rows", elements(3, BATCH_ROWS, pace=Pace(rows=BATCHES * BATCH_ROWS)), partitions=2)
    key = pl.when(pl.col("sequence") < EVEN_BATCHES * BATCH_ROWS).then(pl.col("sequence") % 64).otherwise(alone)
    keyed = rows.with_columns(key.alias("key")).key_by("key")
    sums = keyed.window("1s").aggregate(pl.col("value").sum(), name="sums", parallelism=TASKS)
    sums.output("out", parquet(out))
    return topology.build()


@dataclass(slots=True)
class Follower(Watcher):
    """Remembers where replicas went, and which were in step at last."""

    moves: list[ReplicasMoved] = field(default_factory=list)
    in_step: set[Task] = field(default_factory=set)

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:  # noqa: ARG002
        self.moves += [instruction for instruction in then if isinstance(instruction, ReplicasMoved)]
        self.in_step = {task.head.task for task in coordinator.state.tasks if task.in_step is not None}


def key_of(index: int) -> int:
    """A key whose rows go to a task."""
    keys = pl.DataFrame({"key": range(64)})
    return int(split(keys, ["key"], owners([1.0] * TASKS), TASKS)[index]["key"][0])


def test_replicas_move_to_where_the_rows_are_and_change_no_result(cluster: Session, tmp_path: Path) -> None:
    asked = Protection(replicas=4, checkpoint_every=2)  # both tasks that make keys, one of each that follow
    first = planned(skewed(tmp_path / "out", 0).topology, asked).replicas
    busy = next(index for index in range(TASKS) if Task("sums", index) not in first)
    application = skewed(tmp_path / "out", key_of(busy))
    how = Settings(protection=asked).but(max_rows=BATCH_ROWS, batch="0s", measure_every=4)
    follower = Follower()
    sums = finish(application, tmp_path / "store", how, cluster, follower)["out"]
    last = follower.moves[-1]
    assert {Task("sums", busy), Task("out", busy)} <= set(last.after) - set(first)
    assert follower.in_step == set(last.after)
    assert last.fidelity_after > 0.9
    moves = [entry for entry in read_events(tmp_path / "store") if "fidelity_after" in str(entry)]
    assert len(moves) == len(follower.moves)
    source = application.sources["rows"].read(0, [0, BATCHES * BATCH_ROWS, 1])
    assert sums["value"].sum() == pytest.approx(source["value"].sum())
