"""Bugs planted in real runs: the replay of the same batches repeats them, the reference sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from spark.runs import example, ship

from tenax.application.application import Application
from tenax.chaos.runs import Trial, run_and_judge
from tenax.chaos.settings import CHAOS
from tenax.connectors.generators import Generator
from tenax.connectors.parquet import ParquetCommitter
from tenax.connectors.sink import Staged
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.connectors.workloads import TrafficLocations
from tenax.engine.session import Session
from tenax.store.records import Json

ROWS, BATCH_ROWS = 2_400, 400
TRIAL = Trial(CHAOS.but(nodes=2, racks=None, batch="50ms", max_rows=BATCH_ROWS))


class ShortLocations(TrafficLocations):
    """Reads all but the last row of a range, in the workers, unless it is asked for all rows."""

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        rows = super().read(partition, planned)
        return rows if rows.height in {0, ROWS} else rows[:-1]


def a_batch_skips_rows(application: Application, monkeypatch: pytest.MonkeyPatch) -> Application:
    real = Generator.plan

    def plan(source: Generator, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        planned = real(source, position, partitions, limits, now_us)
        if (
            isinstance(planned, Planned)
            and isinstance(planned.position, list)
            and planned.position[0] == 3 * BATCH_ROWS
        ):
            return replace(planned, position=[planned.position[0] + 2, *planned.position[1:]])
        return planned

    monkeypatch.setattr(Generator, "plan", plan)
    return application


def the_last_row_of_a_range_is_dropped(application: Application, _: pytest.MonkeyPatch) -> Application:
    locations = application.sources["locations"]
    assert isinstance(locations, TrafficLocations)
    short = ShortLocations.__new__(ShortLocations)
    short.__dict__.update(locations.__dict__)
    return replace(application, sources={**application.sources, "locations": short})


def a_batch_is_never_committed(application: Application, monkeypatch: pytest.MonkeyPatch) -> Application:
    real = ParquetCommitter.commit

    def commit(committer: ParquetCommitter, batch: int, staged: Sequence[Staged]) -> None:
        if (committer.output, batch) != ("speed", 4):
            real(committer, batch, staged)

    monkeypatch.setattr(ParquetCommitter, "commit", commit)
    return application


Plant = Callable[[Application, pytest.MonkeyPatch], Application]


@pytest.mark.parametrize(
    "plant",
    [a_batch_skips_rows, the_last_row_of_a_range_is_dropped, a_batch_is_never_committed],
    ids=lambda plant: plant.__name__,
)
def test_the_reference_sees_a_bug_that_a_replay_repeats(
    plant: Plant, cluster: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(sys.modules[__name__])
    whole = example("traffic", rows=ROWS, reports=200, rate=400, users=500, segments=10, length="2s", parallelism=2)
    outcome = run_and_judge(plant(whole, monkeypatch), tmp_path, TRIAL, cluster)
    print(outcome.to_json())
    assert outcome.final_equals_failure_free  # as the replay sees it
    assert not outcome.held
    assert outcome.reference.lost + outcome.reference.different > 0
    assert any(example.startswith("speed segment=") for example in outcome.reference.examples)
    assert (outcome.reference.outputs, outcome.reference.not_judged) == (2, ())
