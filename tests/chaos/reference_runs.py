"""Whole runs without Spark: workers of several nodes in this process, real files, a real batch log, real commits."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.worker_cluster import Cluster

from tenax.application.application import Application
from tenax.application.rehearsal import with_known_schemas
from tenax.batching.batches import Batch, BatchPlanner
from tenax.chaos.oracle import Verdict, compare, copy_batches, with_results_in
from tenax.chaos.reference import Judgement, judge_by_input
from tenax.connectors.sink import Committer, Staged
from tenax.connectors.source import Limits
from tenax.control.versions import PassId
from tenax.engine.worker.orders import Order, Report
from tenax.store.store import Store

MAX_BATCHES = 500
NODES = 2


def run(application: Application, folder: Path, batch_rows: int) -> None:
    """Plan what the batch log does not have, run it batch by batch, and commit every result."""
    here = with_known_schemas(with_results_in(application, folder / "results"), {})
    limits = Limits(batch_rows)
    cluster = Cluster(here, folder / "work", NODES, limits)
    store = Store.open(folder / "store", application.fingerprint())
    planner = BatchPlanner(here, store, limits, 0.0)
    committers = {name: sink.committer(name, folder / "store", "run", 1) for name, sink in here.sinks.items()}
    for number in range(1, MAX_BATCHES):
        logged = planner.log(number, 1, threading.Event())
        assert logged is not None
        if logged.last < number:
            break
        batch = planner.batch(number)
        reports = cluster.run(_order(cluster, batch))
        _commit(committers, number, reports)
        if batch.ended:
            break
    assert batch.ended
    store.close()
    for committer in committers.values():
        committer.close()


def judged(application: Application, folder: Path, batch_rows: int) -> tuple[Judgement, Verdict]:
    """Run an application; what the reference says, and what a replay of the same batches says."""
    run(application, folder / "run", batch_rows)
    copy_batches(folder / "run" / "store", folder / "replay" / "store")
    run(application, folder / "replay", batch_rows)
    ran, replayed = (with_results_in(application, folder / name / "results").sinks for name in ("run", "replay"))
    verdict = compare(ran, replayed)
    return judge_by_input(application, folder / "run" / "store", folder / "run" / "results"), verdict


def _order(cluster: Cluster, batch: Batch) -> Order:
    return Order(
        "run",
        PassId(1, batch.number),
        batch.number,
        batch.number,
        cluster.layout,
        tuple(cluster.step(task) for task in cluster.homes),
        ranges={name: (ranges,) for name, ranges in batch.ranges.items()},
        ended_at=batch.number if batch.ended else None,
    )


def _commit(committers: Mapping[str, Committer], batch: int, reports: Sequence[Report]) -> None:
    """All partitions of an output together, as the driver does it."""
    staged: dict[str, list[Staged]] = {}
    for report in reports:
        for result in report.staged:
            staged.setdefault(result.output, []).append(result)
    for output, results in staged.items():
        committers[output].commit(batch, sorted(results, key=lambda result: result.partition))
