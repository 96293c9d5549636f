"""Stores as runs leave them, without running anything: what takes them over is tried on these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from tenax.application.application import Application
from tenax.application.schemas import to_record
from tenax.connectors.sink import stage
from tenax.control.versions import Cut, PassId, RebuildPoint, RestorePoint, Span, Version
from tenax.errors import UnsuitableStore
from tenax.model.graph import TaskGraph
from tenax.model.topology_versions import TopologyVersion
from tenax.operators.custom import Changes as StateChanges
from tenax.operators.custom import KeyedComputation
from tenax.store import cuts, records
from tenax.store.checkpoints import Checkpoint, Manifests, ValidCheckpoint, upload_segments
from tenax.store.records import Json
from tenax.store.store import Store
from tenax.store.topology_versions import VERSION, record_version
from tenax.takeover.admission import admitted
from tenax.takeover.changes import Changes
from tenax.takeover.upgrades import complete


class Totals(KeyedComputation):
    keys = ("key",)
    state_schema = pl.Schema({"key": pl.Int64(), "total": pl.Float64()})

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def step_keys(
        self,
        rows: pl.DataFrame,
        state: pl.DataFrame,  # noqa: ARG002
        watermark_us: int,  # noqa: ARG002
    ) -> tuple[pl.DataFrame, StateChanges]:
        return rows, StateChanges()


BATCH = 4


def left(
    folder: Path,
    built: Application,
    *,
    published: int = BATCH,
    older: Sequence[str] = (),
    rebuilt: Sequence[str] = (),
    retained: Sequence[str] = (),
    checkpoint: bool = True,
    declared: Application | None = None,
    versions: Sequence[TopologyVersion] = (),
    logged: int | None = None,
    last: Mapping[str, Json] | None = None,
) -> Path:
    """A store as a run has left it: a checkpoint of a batch, and results published up to another one.

    It knows `versions` of its topology; `built` is what ran in that of the checkpoint, if not as `declared`. So many
    batches are `logged`, one more than are published if not said; the `last` of them says this as well.
    """
    store = folder / "store"
    wanted = built if declared is None else declared
    changes = admitted(wanted, store, wanted.fingerprint(), ())
    opened = Store.open(store, changes.fingerprint, admitted=True)
    for version in versions:
        record_version(store, version, opened.check_epoch)
    newest_logged = published + 1 if logged is None else logged
    for batch in range(1, newest_logged + 1):
        opened.log_batch(batch, {"ranges": {}, **((last or {}) if batch == newest_logged else {})})
    for name, sink in built.sinks.items():
        committer = sink.committer(name, store, opened.identity, opened.epoch)
        tasks = range(built.topology.operator(name).parallelism)
        for batch in range(1, published + 1):
            committer.commit(
                batch, [stage(sink, name, part, batch, "1.1", pl.DataFrame({"batch": [batch]})) for part in tasks]
            )
        committer.close()
    if checkpoint:
        at = next((version.number for version in reversed(versions) if version.after < BATCH), 1)
        store_checkpoint(opened, built, BATCH, BATCH, older, rebuilt, retained, version=at)
    opened.close()
    return store


def store_checkpoint(
    store: Store,
    built: Application,
    number: int,
    batch: int,
    older: Sequence[str] = (),
    rebuilt: Sequence[str] = (),
    retained: Sequence[str] = (),
    *,
    version: int = 1,
) -> Cut:
    tasks = TaskGraph(built.topology).tasks(range(len(TaskGraph(built.topology))))
    points: list[RestorePoint] = [
        RebuildPoint(task, batch, 2)
        if task.operator in rebuilt
        else Version(task, batch - (task.operator in older), PassId(1, 3))
        for task in tasks
    ]
    spans = (Span(1, batch, PassId(1, 3)),)
    outputs = tuple(spans if task.operator in retained else () for task in tasks) if retained else ()
    cut = Cut(number, tuple(points), outputs)
    parts = {task: upload_segments(store.folder, task, {"base": b"state of %d" % batch}) for task in tasks}
    notes = {
        **cuts.to_record(cut),
        "highest_us": {},
        "schemas": to_record(built.schemas),
        VERSION: version,
    }
    store.commit_checkpoint(Checkpoint(number, store.epoch, parts, {}, notes, cut.oldest_batch))
    return cut


def recorded(store: Path, built: Application, *accept: str, upgrade: bool = False) -> Changes:
    """What a driver does when it starts."""
    changes = admitted(built, store, built.fingerprint(), accept, upgrade=upgrade)
    opened = Store.open(store, changes.fingerprint, admitted=True)
    changes.record(opened, standing(store), changes.batch)
    complete(opened)
    opened.close()
    return changes


def standing(store: Path) -> Cut | None:
    newest_checkpoint = Manifests(store).newest_valid()
    if not isinstance(newest_checkpoint, ValidCheckpoint):
        return None
    return cuts.from_record(newest_checkpoint.checkpoint.number, records.mapping(newest_checkpoint.checkpoint.notes))


def newest(store: Store) -> Checkpoint:
    newest_checkpoint = store.newest_valid()
    assert isinstance(newest_checkpoint, ValidCheckpoint)
    return newest_checkpoint.checkpoint


def refusal(store: Path, built: Application, *accept: str) -> str:
    before = sorted(path.name for path in (store / "epochs").iterdir())
    with pytest.raises(UnsuitableStore) as refused:
        admitted(built, store, built.fingerprint(), accept)
    assert "\n" not in str(refused.value)
    assert sorted(path.name for path in (store / "epochs").iterdir()) == before, "nobody else was disturbed"
    return str(refused.value)
