"""Sinks that keep no commit log: taken over by what they can tell, verified as far as they can be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import tenax as tx
from tenax.application.application import Application
from tenax.connectors.sink import stage
from tenax.connectors.workloads import elements
from tenax.control.versions import Cut, PassId, Version
from tenax.errors import DamagedStore, UnsuitableStore
from tenax.model.tasks import Task
from tenax.store import cuts
from tenax.store.checkpoints import Checkpoint, upload_segments
from tenax.store.store import Store
from tenax.takeover.admission import admitted, fence
from tenax.takeover.consistency import check_takeover, outputs_of
from tenax.takeover.verification import note_outputs, verify

BATCHES, STORED = 6, 4


class Counting(tx.Sink):
    """Keeps in a file which results are final, and no rows."""

    def __init__(self, path: Path, *, tells: bool = True) -> None:
        self.path = path
        self.tells = tells
        self.place = str(path)

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:  # noqa: ARG002
        return None

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> tx.Committer:  # noqa: ARG002
        return CountingCommitter(self)

    def survey(self, output: str, store: Path, *, read: bool = False) -> tx.Survey | None:  # noqa: ARG002
        return tx.Survey(frozenset(self.final)) if self.tells else None

    @property
    def final(self) -> set[tuple[int, int]]:
        keys = json.loads(self.path.read_text()) if self.path.exists() else []
        return {(batch, partition) for batch, partition in keys}


class CountingCommitter(tx.Committer):
    def __init__(self, sink: Counting) -> None:
        self.sink = sink

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:  # noqa: ARG002
        self.sink.path.write_text(json.dumps(sorted(self.sink.final | {result.key for result in staged})))

    def is_committed(self, batch: int, partition: int) -> bool:
        return (batch, partition) in self.sink.final

    def last_batch(self, partition: int) -> int:
        return max((batch for batch, number in self.sink.final if number == partition), default=0)

    @property
    def highest(self) -> int:
        return max((batch for batch, _ in self.sink.final), default=0)


def application(sink: tx.Sink) -> Application:
    topology = tx.Topology("t")
    topology.source("rows", elements(pace=tx.Pace(rows=100))).output("out", sink)
    return topology.build()


def left(folder: Path, sink: Counting, published: int = BATCHES) -> Path:
    """A store with a checkpoint after batch 4, and results of so many batches."""
    store, built = folder / "store", application(sink)
    opened = Store.open(store, admitted(built, store, built.fingerprint(), ()).fingerprint, admitted=True)
    note_outputs(store, outputs_of(built))
    committer = sink.committer("out", store, opened.identity, opened.epoch)
    for batch in range(1, BATCHES + 1):
        opened.log_batch(batch, {"ranges": {}})
        if batch <= published:
            committer.commit(batch, [stage(sink, "out", 0, batch, "1.1", pl.DataFrame())])
        if batch == STORED:
            task = Task("out", 0)
            parts = upload_segments(store, task, {"state/4": b"state"})
            notes = cuts.to_record(Cut(batch, (Version(task, batch, PassId(1, batch)),)))
            opened.commit_checkpoint(Checkpoint(batch, opened.epoch, {task: parts}, {}, notes))
    opened.close()
    return store


def test_results_that_fit_are_taken_over(tmp_path: Path) -> None:
    sink = Counting(tmp_path / "results.json")
    check_takeover(left(tmp_path, sink), application(sink), {}, changed=False)


def test_results_that_are_missing_below_a_checkpoint_are_noticed_if_the_sink_can_tell(tmp_path: Path) -> None:
    sink = Counting(tmp_path / "results.json")
    store = left(tmp_path, sink, published=3)
    with pytest.raises(DamagedStore, match="found one of batch 4 and the commit log of output 'out' ends at batch 3"):
        check_takeover(store, application(sink), {}, changed=False)
    check_takeover(store, application(Counting(sink.path, tells=False)), {}, changed=False)


def test_verify_names_what_only_the_application_can_read(tmp_path: Path) -> None:
    sink = Counting(tmp_path / "results.json")
    findings = verify(left(tmp_path, sink))
    assert findings.problems == []
    assert findings.not_read == (f"output 'out' in {sink.path}",)
    assert (findings.batches, findings.results) == (BATCHES, 0)


def test_another_place_is_refused_by_name_until_it_is_accepted(tmp_path: Path) -> None:
    sink = Counting(tmp_path / "results.json")
    store = left(tmp_path, sink)
    same = admitted(application(sink), store, application(sink).fingerprint(), ())
    assert not same.words
    other = application(Counting(tmp_path / "other.json"))
    with pytest.raises(UnsuitableStore) as refusal:
        admitted(other, store, other.fingerprint(), ())
    assert f"output 'out' went to the place {sink.path}, goes to the place {tmp_path / 'other.json'}" in str(
        refusal.value
    )
    accepted = admitted(other, store, other.fingerprint(), ("out",))
    assert accepted.elsewhere == {"out": [STORED]}
    fence(accepted, store, 9)
    assert sink.final == {(batch, 0) for batch in range(1, BATCHES + 1)}  # nothing of the old place is touched
