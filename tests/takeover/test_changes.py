"""Other code on the same store: what is refused, what starts empty, from which batch on, and what a store remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from takeover.stores import BATCH, Totals, left, newest, recorded, refusal, standing, store_checkpoint

from tenax.api.streams import Topology
from tenax.application.application import Application
from tenax.application.schemas import to_record
from tenax.connectors.files import files
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import ParquetSink, parquet
from tenax.connectors.workloads import elements
from tenax.control.versions import NO_PASS, Cut, PassId, RebuildPoint, Version
from tenax.errors import DamagedStore, EpochLost, InvalidRequest, UnsuitableStore
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.operators.custom import KeyedComputation
from tenax.store import cuts, records
from tenax.store.checkpoints import Checkpoint
from tenax.store.journal import Journal
from tenax.store.store import Store
from tenax.takeover.admission import admitted, fence
from tenax.takeover.changes import NOTED, Changes


class WiderTotals(Totals):
    state_schema = pl.Schema({"key": pl.Int64(), "total": pl.Float64(), "seen": pl.Int64()})


def application(
    folder: Path,
    *,
    seed: int = 0,
    rows: int | None = None,
    keys: int = 5,
    length: str = "1s",
    value: pl.Expr | None = None,
    totals: KeyedComputation | None = None,
    shown: float = 9.0,
    parallelism: int = 2,
    out: str = "means",
    lateness: str = "0s",
) -> Application:
    """rows (2) --> keyed (2) --full--> window (2) --> shown (2) --> means (2)
    |
    +--full--> totals (2) --> sums (2)
    """
    topology = Topology("t")
    source = elements(seed=seed, rate=100, pace=Pace(rows=rows, lateness=lateness))
    keyed = topology.source("rows", source, partitions=2).with_columns(
        (pl.col("sequence") % keys).alias("key"), name="keyed"
    )
    by_key = keyed.key_by("key")
    window = by_key.window(length).aggregate(
        pl.col("value").mean() if value is None else value, parallelism=parallelism, name="window"
    )
    window.filter(pl.col("window_end").is_not_null() & (pl.lit(shown) > 0), name="shown").output(
        "means", parquet(folder / out)
    )
    by_key.apply(totals or Totals(), name="totals").output("sums", parquet(folder / "sums"))
    return topology.build()


def examined(store: Path, built: Application, *accept: str) -> Changes:
    return admitted(built, store, built.fingerprint(), accept)


def test_the_same_code_changes_nothing(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    assert examined(store, application(tmp_path)).words == ()


@pytest.mark.parametrize(
    ("changed", "operator", "expected"),
    [
        ({"length": "2s"}, "window", "length was 1s, is 2s, every was 1s, is 2s"),
        ({"value": pl.col("value").sum()}, "window", 'aggregates was col("value").mean(), is col("value").sum()'),
        ({"totals": Totals(1)}, "totals", "start was 0, is 1"),
        ({"totals": WiderTotals()}, "totals", "state_schema.seen was nothing, is Int64"),
        ({"seed": 1}, "rows", "seed was 0, is 1"),
    ],
)
def test_what_concerns_a_state_or_logged_ranges_is_refused_by_name_until_it_is_accepted(
    tmp_path: Path, changed: Mapping[str, object], operator: str, expected: str
) -> None:
    store = left(tmp_path, application(tmp_path))
    other = application(tmp_path, **changed)  # type: ignore[arg-type]
    line = refusal(store, other)
    assert f"operator {operator!r}: " in line
    assert expected in line
    assert f"--accept-changes {operator}" in line
    changes = examined(store, other, operator)
    assert changes.changed == (operator,)
    assert changes.batch == BATCH
    assert changes.emptied == (() if operator == "rows" else (operator,))
    assert any(expected in words for words in changes.words)


def test_an_operator_that_starts_empty_says_what_is_lost_and_who_gets_less(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    (words,) = examined(store, application(tmp_path, length="2s"), "window").words[:1]
    assert words == (
        "operator 'window' (length was 1s, is 2s, every was 1s, is 2s) starts empty with batch 5: windows that are "
        "open now will have the rows of later batches only; fewer or partial results reach 'means'"
    )


def test_an_operator_without_state_changes_with_the_next_batch_and_it_is_said(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    changes = examined(store, application(tmp_path, keys=6))
    assert changes.emptied == ()
    assert changes.words[0].endswith(": from batch 5 on")
    assert "(dyn int: 5)" in changes.words[0]
    assert "(dyn int: 6)" in changes.words[0]


@pytest.mark.parametrize(
    ("how", "states"),
    [
        ({"published": BATCH + 2}, ["window", "totals"]),
        ({"checkpoint": False}, ["window", "totals"]),
        ({"older": ["totals"]}, ["totals"]),
    ],
    ids=["published-after-the-checkpoint", "no-checkpoint-yet", "states-of-two-batches"],
)
def test_code_before_a_state_does_not_change_while_published_batches_would_be_stepped_again(
    tmp_path: Path, how: Mapping[str, object], states: list[str]
) -> None:
    store = left(tmp_path, application(tmp_path), **how)  # type: ignore[arg-type]
    line = refusal(store, application(tmp_path, keys=6))
    assert f"stepped again by the new one for the states of {', '.join(map(repr, states))}:" in line
    assert "let the old code run once more until it ends in good order" in line
    if "window" in states:
        assert "stepped again" in refusal(store, application(tmp_path, length="2s"), "window")
    else:  # nothing of the window is stepped again: it starts behind all
        assert examined(store, application(tmp_path, length="2s"), "window").emptied == ("window",)
    # no state lies behind these, so nothing that is stepped again can show
    assert examined(store, application(tmp_path, shown=8.0)).words[0].startswith("operator 'shown': filter was")


def test_before_anything_is_stored_or_published_everything_may_change(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), published=0, checkpoint=False)
    changes = examined(store, application(tmp_path, length="2s", keys=6))
    assert changes.emptied == ()
    assert all(words.endswith(": from batch 1 on") for words in changes.words if words.startswith("operator"))


def test_a_state_that_is_never_stored_is_not_rebuilt_by_other_code(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), rebuilt=["window"])
    line = refusal(store, application(tmp_path, keys=6))
    assert "the state of 'window' is never stored and would be rebuilt by the new code" in line
    assert "--checkpoint window=aligned" in line
    assert examined(store, application(tmp_path, keys=6), "window").emptied == ("window",)
    assert examined(store, application(tmp_path, shown=8.0)).words


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("windows", "found 'windows': did you mean 'window'?"),
        ("totals", "found 'totals', but window changed: leave it out"),
        ("window=hold", "--accept-changes is NAME or NAME=keep, found 'window=hold'"),
        ("window=keep", "only the state of a computation of your own"),
    ],
)
def test_a_wrong_name_is_an_error_that_helps(tmp_path: Path, accept: str, expected: str) -> None:
    store = left(tmp_path, application(tmp_path))
    with pytest.raises(InvalidRequest) as refused:
        examined(store, application(tmp_path, length="2s"), accept)
    assert expected in str(refused.value)


def test_a_state_of_ones_own_may_be_kept_if_the_new_code_can_read_it(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    changes = examined(store, application(tmp_path, totals=Totals(1)), "totals=keep")
    assert (changes.emptied, changes.changed) == ((), ("totals",))
    assert changes.words[0] == (
        "operator 'totals': start was 0, is 1: from batch 5 on, with the state that the old code left"
    )
    with pytest.raises(InvalidRequest, match="found other keys or another state_schema in 'totals'"):
        examined(store, application(tmp_path, totals=WiderTotals()), "totals=keep")


def test_what_was_admitted_is_remembered_and_the_old_code_is_refused(tmp_path: Path) -> None:
    store, old, new = left(tmp_path, application(tmp_path)), application(tmp_path), application(tmp_path, length="2s")
    recorded(store, new, "window")
    assert examined(store, new).words == ()
    assert examined(store, new, "window").words == (), "the same command again"
    assert "length was 2s, is 1s" in refusal(store, old)
    with pytest.raises(InvalidRequest, match="but nothing has"):
        examined(store, new, "totals")


def test_a_driver_that_was_overtaken_changes_no_code(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, length="2s")
    changes = examined(store, new, "window")
    slow = Store.open(store, changes.fingerprint, admitted=True)
    Store.open(store, examined(store, application(tmp_path)).fingerprint).close()
    with pytest.raises(EpochLost):
        changes.record(slow, standing(store), BATCH)
    assert examined(store, application(tmp_path)).words == ()


def test_code_does_not_change_under_a_driver_that_is_still_at_work(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, length="2s")
    changes = examined(store, new, "window")
    opened = Store.open(store, changes.fingerprint, admitted=True)
    with pytest.raises(UnsuitableStore, match=r"still at work \(batch 5\): start again when it has ended"):
        changes.record(opened, standing(store), BATCH + 1)
    opened.close()
    assert examined(store, application(tmp_path)).words == ()


def test_from_the_checkpoint_of_a_change_the_same_operators_start_empty_again(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, length="2s")
    tasks = TaskGraph(new.topology).tasks(range(len(TaskGraph(new.topology))))
    recorded_changes = recorded(store, new, "window")
    for changes in (recorded_changes, examined(store, new)):  # at once, and after a death
        opened = Store.open(store, changes.fingerprint)
        checkpoint = newest(opened)
        cut = cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes))
        shuffled = replace(cut, points=cut.points[::-1])
        applied, segments = changes.applied(shuffled, checkpoint.segments, tasks)
        assert tuple(point.task for point in applied.points) == tasks
        for version in applied.points:
            emptied = version.task.operator == "window"
            assert version == Version(version.task, BATCH, NO_PASS if emptied else PassId(1, 3))
            assert bool(segments[version.task]) is not emptied
        assert cuts.from_record(applied.number, cuts.to_record(applied)) == applied
        opened.close()


def test_what_has_no_state_is_lifted_over_batches_that_the_old_code_has_run(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), older=["keyed", "shown", "sums"], rebuilt=["window", "totals"])
    new = application(tmp_path, length="2s")
    tasks = TaskGraph(new.topology).tasks(range(len(TaskGraph(new.topology))))
    changes = examined(store, new, "window")
    opened = Store.open(store, changes.fingerprint, admitted=True)
    checkpoint = newest(opened)
    cut = cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes))
    applied, _ = changes.applied(cut, checkpoint.segments, tasks)
    points = {point.task.operator: point for point in applied.points}
    assert [name for name, point in points.items() if point == Version(point.task, BATCH, NO_PASS)] == [
        "window",
        "shown",
    ]
    assert points["keyed"].batch == BATCH - 1, "what comes before the change makes again what others ask for"
    assert isinstance(points["totals"], RebuildPoint)


def test_a_later_checkpoint_has_what_became_of_it_and_an_earlier_one_is_no_way_back(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, length="2s")
    recorded(store, new, "window")
    changes = examined(store, new)
    opened = Store.open(store, changes.fingerprint)
    later = store_checkpoint(opened, new, BATCH + 4, BATCH + 4)
    tasks = TaskGraph(new.topology).tasks(range(len(TaskGraph(new.topology))))
    newest_checkpoint = newest(opened)
    assert changes.applied(later, newest_checkpoint.segments, tasks) == (later, newest_checkpoint.segments)
    changes.check_way_back(store, newest_checkpoint, ())
    earlier = replace(newest_checkpoint, number=BATCH - 1)
    with pytest.raises(DamagedStore, match=r"from after its last change of code, .* since batch 4 damaged \(x\)"):
        changes.check_way_back(store, earlier, ["x"])
    with pytest.raises(DamagedStore, match="restore those files"):
        changes.check_way_back(store, None, ())


def test_a_log_of_changes_that_lacks_what_a_checkpoint_knows_of_is_named(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, length="2s")
    recorded(store, new, "window")
    opened = Store.open(store, {}, admitted=True)
    noted = replace(newest(opened), notes={NOTED: len(opened.changes)})
    opened.close()
    examined(store, new).check_way_back(store, noted, ())
    for path in (store / "changes").iterdir():
        path.unlink()
    with pytest.raises(DamagedStore, match="found 0 of 1: restore the folder 'changes'"):
        examined(store, application(tmp_path)).check_way_back(store, noted, ())


def test_after_a_change_without_states_any_checkpoint_will_do(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, shown=8.0)
    recorded(store, new)
    examined(store, new).check_way_back(store, None, ())


def test_a_state_that_would_get_rows_of_other_columns_is_named(tmp_path: Path) -> None:
    def chained(name: str) -> Application:
        topology = Topology("t")
        rows = topology.source("rows", elements(rate=100))
        doubled = (pl.col("sequence") * 2).alias("key"), (pl.col("value") * 2).alias(name)
        keyed = rows.with_columns(*doubled, name="keyed").key_by("sequence")
        keyed.apply(Totals(), name="totals").output("sums", parquet(tmp_path / "sums"))
        return topology.build()

    before, other = chained("twice"), chained("double")
    store = tmp_path / "store"
    opened = Store.open(store, examined(store, before).fingerprint, admitted=True)
    task = Task("totals", 0)
    tasks = TaskGraph(before.topology).tasks(range(4))
    cut = Cut(1, tuple(Version(each, 1, PassId(1, 1)) for each in tasks))
    notes = {**cuts.to_record(cut), "highest_us": {}, "schemas": to_record(before.schemas)}
    opened.log_batch(1, None)
    opened.commit_checkpoint(Checkpoint(1, 1, {task: ()}, {}, notes))
    opened.close()
    line_ = refusal(store, other)
    assert "operator 'totals' keeps rows that its new ones do not fit" in line_
    assert "double: Float64" in line_
    assert "start it empty as well by --accept-changes totals" in line_
    assert examined(store, other, "totals").emptied == ("totals",)


def test_what_a_source_plans_next_may_always_change(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), published=BATCH + 2)
    (words,) = examined(store, application(tmp_path, rows=500)).words
    assert "pace.rows was nothing, is 500" in words


def test_where_the_sources_have_ended_it_is_said_that_nothing_follows(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    opened = Store.open(store, {}, admitted=True)
    opened.log_batch(BATCH + 2, {"ranges": {}, "ended": True})
    opened.close()
    assert examined(store, application(tmp_path, rows=500)).words[-1] == (
        "the sources had ended: no batch follows batch 6"
    )


def test_lateness_may_change_where_nothing_is_stepped_again(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    (words,) = examined(store, application(tmp_path, lateness="2s")).words
    assert "lateness was 0s, is 2s" in words
    assert words.endswith(": from batch 5 on")


def test_a_source_may_end_that_has_followed_its_folder(tmp_path: Path) -> None:
    def reading(follow: bool) -> Application:
        topology = Topology("t")
        source = files(tmp_path / "in", time="ts", follow=follow)
        topology.source("rows", source).output("out", parquet(tmp_path / "out"))
        return topology.build()

    store = tmp_path / "store"
    Store.open(store, examined(store, reading(True)).fingerprint, admitted=True).log_batch(1, None)
    assert examined(store, reading(False)).words == (
        "operator 'rows': bounded was False, is True, idle_after was 10s, is nothing: from batch 1 on",
    )


def test_other_numbers_of_tasks_are_told_and_admitted(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    changes = examined(store, application(tmp_path, parallelism=4))
    assert changes.rescaled["window"] == (2, 4)
    assert "operator 'window' is to have 4 tasks, has had 2" in changes.words
    assert not changes.concerns_states


def test_another_shape_is_refused_in_one_line(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    topology = Topology("t")
    topology.source("rows", elements()).output("means", parquet(tmp_path / "means"))
    assert "operator 'keyed' is gone" in refusal(store, topology.build())


def test_an_output_that_goes_elsewhere_is_refused_by_name_or_begins_there_with_the_next_batch(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), published=BATCH + 2)
    other = application(tmp_path, out="elsewhere")
    line = refusal(store, other)
    assert f"output 'means' went to {ParquetSink(tmp_path / 'means').log}" in line
    assert "--accept-changes means" in line
    changes = recorded(store, other, "means")
    assert changes.elsewhere == {"means": [BATCH + 2] * 2}
    assert "results after batch 6 go to" in changes.words[0]
    assert examined(store, other).elsewhere == {"means": [BATCH + 2] * 2}
    fence(changes, store, 9)
    with pytest.raises(EpochLost):
        Journal.open(ParquetSink(tmp_path / "means").log, 8)


def test_an_output_that_was_moved_with_its_commit_log_goes_on(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    (tmp_path / "means").rename(tmp_path / "moved")
    (tmp_path / ".means.tenax").rename(tmp_path / ".moved.tenax")
    changes = examined(store, application(tmp_path, out="moved"))
    assert changes.elsewhere == {}
    assert "output 'means' has moved with all its results" in changes.words[0]
