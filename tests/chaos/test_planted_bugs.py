"""Bugs planted by hand in planning, reading, splitting, windows and commits: the reference sees every one of them.

A replay of the same batches has the same bugs, so it sees only what is not the same twice; each case says so.

rows (2, disordered) ─► filter (2) ─► window (3) ─┬► sums (3, output)          rows too late: rows-late (output)
                                                  └► top-local (3) ─► top (1) ─► best (1, output)
files (2) ─► hours (2) ─┬► hours-out (2, output)
                        └► join with window (3) ─► joined (3, output)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from chaos.reference_runs import judged

import tenax as tx
from tenax.application.application import Application
from tenax.batching import batches
from tenax.batching.batches import BatchPlanner
from tenax.connectors.files import FileSource
from tenax.connectors.formats import Cut, ParquetFormat
from tenax.connectors.generators import Generator
from tenax.connectors.parquet import ParquetCommitter, visible_name
from tenax.connectors.sink import Key, Staged
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.engine.worker import sources, steps
from tenax.operators import windows
from tenax.operators.computation import StepInput, StepOutput
from tenax.operators.join import Join
from tenax.operators.keys import split
from tenax.operators.lateness import Admission, admit
from tenax.operators.panes import closing, cover
from tenax.operators.top import Top
from tenax.operators.waiting import Passage, WaitingRoom
from tenax.operators.windows import Windows
from tenax.store.records import Json

ROWS = 1_500
BATCH_ROWS = 200
START = 1_704_067_200_000_000  # that of generated rows

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def application(tmp_path: Path) -> Application:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        times = START + np.arange(number * 100, (number + 1) * 100) * 37_000
        rows = pl.DataFrame({"at": times, "key": np.arange(100) % 5, "load": np.arange(100) * 0.1})
        rows.with_columns(pl.col("at").cast(pl.Datetime("us"))).write_parquet(folder / f"{number}.parquet")
    topology = tx.Topology("planted")
    source = tx.elements(rate=100.0, pace=tx.Pace(rows=ROWS, disorder="200ms", lateness="150ms"))
    elements = topology.source("rows", source, partitions=2, late=tx.parquet(tmp_path / "late"))
    keyed = (
        elements.filter(pl.col("sequence") % 3 > 0).with_columns((pl.col("sequence") % 7).alias("key")).key_by("key")
    )
    sums = keyed.window("2s", every="500ms").aggregate(pl.col("value").sum(), pl.len(), parallelism=3, name="window")
    sums.output("sums", tx.parquet(tmp_path / "sums"))
    sums.top(2, "value").output("best", tx.parquet(tmp_path / "best"))
    files = topology.source("files", tx.files(folder, time="at", follow=False), partitions=2)
    hours = files.key_by("key").window("2s").aggregate(pl.col("load").max(), name="hours")
    hours.output("hours-out", tx.parquet(tmp_path / "hours"))
    sums.join(hours, on=["key", "window"]).output("joined", tx.parquet(tmp_path / "joined"))
    return topology.build()


def test_without_a_bug_both_judges_hold(application: Application, tmp_path: Path) -> None:
    judgement, verdict = judged(application, tmp_path / "run", BATCH_ROWS)
    assert judgement.held, judgement
    assert verdict.held, verdict
    assert (judgement.outputs, judgement.not_judged) == (5, ())


# planning


def a_batch_skips_rows(monkeypatch: pytest.MonkeyPatch) -> None:
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


def batches_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Generator.plan

    def plan(source: Generator, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        planned = real(source, position, partitions, limits, now_us)
        if (
            isinstance(planned, Planned)
            and isinstance(planned.position, list)
            and planned.position[0] == 3 * BATCH_ROWS
        ):
            return replace(planned, position=[planned.position[0] - 2, *planned.position[1:]])
        return planned

    monkeypatch.setattr(Generator, "plan", plan)


def a_partition_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BatchPlanner._plan

    def plan(planner: BatchPlanner, number: int) -> batches.Batch | NothingNew:
        batch = real(planner, number)
        if isinstance(batch, batches.Batch) and number == 4:
            return replace(batch, ranges={**batch.ranges, "rows": (batch.ranges["rows"][0], None)})
        return batch

    monkeypatch.setattr(BatchPlanner, "_plan", plan)


def a_file_is_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    real = FileSource._present
    monkeypatch.setattr(FileSource, "_present", lambda source: real(source) - {"2.parquet"})


# reading


def the_last_row_of_a_range_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Generator.read

    def read(source: Generator, partition: int, planned: Json) -> pl.DataFrame:
        rows = real(source, partition, planned)
        return rows if rows.height in {0, ROWS} else rows[:-1]

    monkeypatch.setattr(Generator, "read", read)


def the_last_row_of_a_piece_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ParquetFormat.read

    def read(file: ParquetFormat, path: Path, begin: Cut, end: Cut, schema: pl.Schema) -> pl.DataFrame:
        return real(file, path, begin, end, schema)[:-1]

    monkeypatch.setattr(ParquetFormat, "read", read)


def lateness_counts_double(monkeypatch: pytest.MonkeyPatch) -> None:
    def stricter(rows: pl.DataFrame, time: str, maximum_us: int, allowed_us: int) -> Admission:
        return admit(rows, time, maximum_us, allowed_us // 2)

    monkeypatch.setattr(sources, "admit", stricter)


# splitting


Parts = list[pl.DataFrame]


def rows_of_some_keys_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rows: pl.DataFrame, keys: Sequence[str], owners: np.ndarray, count: int) -> Parts:
        return split(rows.filter(pl.col("key") != 4), keys, owners, count)

    monkeypatch.setattr(steps, "split", wrong)


def some_rows_go_to_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rows: pl.DataFrame, keys: Sequence[str], owners: np.ndarray, count: int) -> Parts:
        parts = split(rows, keys, owners, count)
        return [*parts[1:], parts[0]] if rows.height % 3 == 0 else parts

    monkeypatch.setattr(steps, "split", wrong)


def owners_get_a_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rows: pl.DataFrame, keys: Sequence[str], owners: np.ndarray, count: int) -> Parts:
        parts = split(rows, keys, owners, count)
        return [pl.concat([part, part[:1]]) for part in parts]

    monkeypatch.setattr(steps, "split", wrong)


# windows


def a_pane_of_a_window_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(start: int, end: int) -> Iterator[tuple[int, int]]:
        return iter([*cover(start, end)][:-1] if end % 5 == 0 else [*cover(start, end)])

    monkeypatch.setattr(windows, "cover", shorter)


def a_window_reaches_one_pane_too_far_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "cover", lambda start, end: cover(start - (end % 7 == 0), end))


def a_window_never_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(nodes: Collection[str], panes: int, before: int | None, now: int) -> Iterable[int]:
        return [end for end in closing(nodes, panes, before, now) if end % 11]

    monkeypatch.setattr(windows, "closing", some)


def windows_end_a_microsecond_late(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Windows.partials

    def partials(computation: Windows, rows: pl.DataFrame, types: pl.Schema) -> pl.DataFrame:
        earlier = pl.col(computation.time) - pl.duration(microseconds=1)
        return real(computation, rows.with_columns(earlier), types)

    monkeypatch.setattr(Windows, "partials", partials)


def what_is_due_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    real = WaitingRoom.bounds

    def bounds(room: WaitingRoom, frame: pl.DataFrame, passage: Passage) -> tuple[int, int]:
        start, end = real(room, frame, passage)
        return (start, end - 1) if end - start > 1 else (start, end)

    monkeypatch.setattr(WaitingRoom, "bounds", bounds)


def the_last_of_the_best_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Top.best
    monkeypatch.setattr(Top, "best", lambda top, rows: real(replace(top, k=top.k - 1), rows))


def a_join_forgets_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Join.step

    def step(join: Join, state: tx.State, given: StepInput) -> StepOutput:
        stepped = real(join, state, given)
        return replace(stepped, state={}) if given.batch == 3 else stepped

    monkeypatch.setattr(Join, "step", step)


# commits


def a_batch_is_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ParquetCommitter.commit

    def commit(committer: ParquetCommitter, batch: int, staged: Sequence[Staged]) -> None:
        if batch != 5:
            real(committer, batch, staged)

    monkeypatch.setattr(ParquetCommitter, "commit", commit)


def a_committed_file_is_not_made_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ParquetCommitter._make_visible

    def make_visible(committer: ParquetCommitter, keys: Sequence[Key], made_again: dict[Key, str]) -> None:
        real(committer, [key for key in keys if key[0] != 5], made_again)

    monkeypatch.setattr(ParquetCommitter, "_make_visible", make_visible)


def a_committed_file_is_visible_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ParquetCommitter.commit

    def commit(committer: ParquetCommitter, batch: int, staged: Sequence[Staged]) -> None:
        real(committer, batch, staged)
        for result in staged:
            path = committer._sink.folder / visible_name(committer.output, result.partition, batch)
            if batch == 5 and path.exists():
                path.with_name(f"again-{path.name}").write_bytes(path.read_bytes())

    monkeypatch.setattr(ParquetCommitter, "commit", commit)


PLANTED: tuple[tuple[Plant, bool], ...] = (  # and whether a replay of the same batches sees it as well
    (a_batch_skips_rows, False),
    (batches_overlap, False),
    (a_partition_is_not_planned, False),
    (a_file_is_never_opened, False),
    (the_last_row_of_a_range_is_dropped, False),
    (the_last_row_of_a_piece_is_dropped, False),
    (lateness_counts_double, False),
    (rows_of_some_keys_are_lost, False),
    (some_rows_go_to_another_owner, False),
    (owners_get_a_row_twice, False),
    (a_pane_of_a_window_is_missed, False),
    (a_window_reaches_one_pane_too_far_back, False),
    (a_window_never_closes, False),
    (windows_end_a_microsecond_late, False),
    (what_is_due_stays_behind, False),
    (the_last_of_the_best_is_left_out, False),
    (a_join_forgets_what_waits, False),
    (a_batch_is_never_committed, False),
    (a_committed_file_is_not_made_visible, True),
    (a_committed_file_is_visible_twice, True),
)


@pytest.mark.parametrize(("plant", "replayed"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_the_reference_sees_a_planted_bug(
    plant: Plant, replayed: bool, application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    judgement, verdict = judged(application, tmp_path / "run", BATCH_ROWS)
    print(judgement)
    assert not judgement.held
    assert judgement.examples
    assert (not verdict.held) == replayed, verdict
