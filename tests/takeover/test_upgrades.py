"""Other operators on the same store: what keeps its state, what begins, what is refused, and what a store remembers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from takeover.stores import BATCH, Totals, left, newest, recorded, refusal, standing

from tenax.api.streams import Stream, Topology
from tenax.application.application import Application
from tenax.application.scaling import first_version, next_version, rescaled
from tenax.cli.main import run
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import ParquetSink, parquet, visible_name
from tenax.connectors.workloads import elements
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.errors import DamagedStore, EpochLost, UnsuitableStore
from tenax.model.graph import TaskGraph
from tenax.store import cuts, journal, records
from tenax.store.journal import Journal
from tenax.store.records import Json
from tenax.store.store import CHANGES, Store
from tenax.store.topology_versions import read_versions
from tenax.takeover.admission import admitted, fence
from tenax.takeover.changes import Changes, shown
from tenax.takeover.consistency import outputs_of
from tenax.takeover.upgrades import complete, versions_of
from tenax.takeover.verification import note_outputs, verify


def application(
    folder: Path,
    *,
    name: str = "t",
    length: str = "1s",
    totals: str | None = "totals",
    extra: bool = False,
    filtered: bool = False,
    second: bool = False,
    partitions: int = 2,
    parallelism: int = 2,
    rows: int | None = None,
    out: str = "means",
    extra_out: str = "counts",
    wider: bool = False,
) -> Application:
    """rows (2) --> [some] --> keyed (2) --+--full--> window (2) --> means
    |
    more (1), if second: a union before keyed
    +--full--> totals (2) --> sums
    +--full--> extra (2) --> counts
    """
    topology = Topology(name)
    stream: Stream = topology.source("rows", elements(rate=100, pace=Pace(rows=rows)), partitions=partitions)
    if filtered:
        stream = stream.filter(pl.col("value") > 0, name="some")
    if second:
        more = topology.source("more", elements(seed=5, rate=100, pace=Pace(rows=rows)), partitions=partitions)
        stream = stream.union(more, name="both")
    key = (pl.col("sequence") % 5).cast(pl.Int32 if wider else pl.Int64).alias("key")
    by_key = stream.with_columns(key, name="keyed").key_by("key")
    if extra:
        counts = by_key.window("2s").aggregate(pl.len().alias("n"), name="extra")
        counts.output("counts", parquet(folder / extra_out))
    window = by_key.window(length).aggregate(pl.col("value").mean(), name="window", parallelism=parallelism)
    window.output("means", parquet(folder / out))
    if totals is not None:
        by_key.apply(Totals(), name=totals).output("sums", parquet(folder / "sums"))
    return topology.build()


def examined(store: Path, built: Application, *accept: str) -> Changes:
    return admitted(built, store, built.fingerprint(), accept, upgrade=True)


def upgraded(store: Path, built: Application, *accept: str) -> Changes:
    """What a driver does when it starts."""
    return recorded(store, built, *accept, upgrade=True)


def begun(store: Path, built: Application, changes: Changes) -> tuple[dict[str, set[PassId]], Mapping[str, int]]:
    """By operator, by which passes its tasks were made, and how many parts of states they have."""
    opened = Store.open(store, changes.fingerprint, admitted=True)
    checkpoint = newest(opened)
    opened.close()
    cut = cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes))
    version = (*versions_of(store, changes.known), *changes.versions)[-1]
    graph = TaskGraph(rescaled(built, version).topology)
    tasks = graph.tasks(range(len(graph)))
    applied, segments = changes.applied(cut, checkpoint.segments, tasks)
    assert tuple(point.task for point in applied.points) == tasks == tuple(segments)
    made: dict[str, set[PassId]] = {}
    parts: dict[str, int] = {}
    for point in applied.points:
        assert isinstance(point, Version)
        assert point.batch == BATCH
        made.setdefault(point.task.operator, set()).add(point.pass_id)
        parts[point.task.operator] = parts.get(point.task.operator, 0) + len(segments[point.task])
        if point.pass_id != NO_PASS:
            assert segments[point.task] == checkpoint.segments[point.task], "a state that is kept is kept to the byte"
    return made, parts


OLD, NEW = {PassId(1, 3)}, {NO_PASS}


def test_another_shape_is_refused_and_the_line_names_the_remedy(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    line = refusal(store, application(tmp_path, extra=True))
    assert "operator 'extra' is new" in line
    assert line.endswith("or go on with this one by --upgrade")


def test_operators_come_and_go_and_the_others_keep_their_states(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, extra=True, totals=None)
    changes = examined(store, new)
    assert changes.new == ("extra", "counts")
    assert changes.emptied == ()
    made, parts = begun(store, new, changes)
    assert (made["window"], made["extra"], made["counts"]) == (OLD, NEW, NEW)
    assert (parts["window"], parts["extra"]) == (2, 0)
    assert "totals" not in made
    said = "\n".join(changes.words)
    assert f"operator 'extra' is new: it begins empty with batch {BATCH + 1}" in said
    assert "operator 'totals' is gone: its state (20 bytes) is dropped" in said
    assert "operator 'window' goes on with its state (20 bytes)" in said
    assert "as they are go on 'rows', 'keyed', 'means'" in said
    assert f"output 'counts' is new: it begins with batch {BATCH + 1}" in said
    assert "output 'sums' is written no more; its results stay where they are" in said


def test_changed_operators_start_empty_without_being_named(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, length="2s")
    changes = examined(store, new)
    assert changes.emptied == ("window",)
    assert changes.versions == (), "the same operators are of the same version of the topology"
    assert any("starts empty with batch 5" in words for words in changes.words)
    assert any("'totals' goes on with its state" in words for words in changes.words)


def test_the_state_of_ones_own_computation_may_be_kept_beside(tmp_path: Path) -> None:
    class Other(Totals):
        pass

    def built(kind: type[Totals]) -> Application:
        topology = Topology("t")
        rows = topology.source("rows", elements(rate=100), partitions=2)
        by_key = rows.with_columns((pl.col("sequence") % 5).alias("key"), name="keyed").key_by("key")
        if kind is Other:
            by_key.window("1s").aggregate(pl.len(), name="w").output("o", parquet(tmp_path / "o"))
        by_key.apply(kind(), name="totals", parallelism=2).output("sums", parquet(tmp_path / "sums"))
        return topology.build()

    store = left(tmp_path, built(Totals))
    assert examined(store, built(Other)).emptied == ("totals",)
    changes = examined(store, built(Other), "totals=keep")
    assert changes.emptied == ()
    assert begun(store, built(Other), changes)[0]["totals"] == OLD


def test_an_operator_before_others_begins_with_the_next_batch_and_their_states_stay(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, filtered=True)
    changes = examined(store, new)
    assert changes.emptied == ()
    made, _ = begun(store, new, changes)
    assert (made["some"], made["window"], made["totals"]) == (NEW, OLD, OLD)
    assert "operator 'keyed': inputs were rows, are some: from batch 5 on" in changes.words


def test_an_operator_that_reads_others_starts_empty(tmp_path: Path) -> None:
    def built(*, direct: bool) -> Application:
        topology = Topology("t")
        rows = topology.source("rows", elements(rate=100), partitions=2)
        some = rows.filter(pl.col("value") > 0, name="some")
        some.output("seen", parquet(tmp_path / "seen"))
        read = rows if direct else some
        read.key_by("sequence").window("1s").aggregate(pl.len(), name="w").output("o", parquet(tmp_path / "o"))
        return topology.build()

    store = left(tmp_path, built(direct=False))
    changes = examined(store, built(direct=True))
    assert changes.emptied == ("w",)
    assert any("operator 'w' (inputs were some, are rows) starts empty" in words for words in changes.words)


def test_a_state_whose_rows_come_to_other_tasks_starts_empty(tmp_path: Path) -> None:
    def built(*, by: str) -> Application:
        topology = Topology("t")
        rows = topology.source("rows", elements(rate=100), partitions=2)
        keyed = rows.with_columns(a=pl.col("sequence") % 3, b=pl.col("sequence") % 4, key=pl.col("sequence"))
        if by == "b":  # another shape as well
            keyed.output("seen", parquet(tmp_path / "seen"))
        first = keyed.key_by(by).apply(Totals(), name="first", parallelism=2)
        first.apply(Totals(), name="behind", parallelism=2).output("sums", parquet(tmp_path / "sums"))
        return topology.build()

    store = left(tmp_path, built(by="a"))
    changes = examined(store, built(by="b"))
    assert changes.emptied == ("first", "behind")
    assert any("operator 'behind' (its rows are shared otherwise) starts empty" in words for words in changes.words)


def test_a_state_that_gets_other_columns_starts_empty(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    changes = examined(store, application(tmp_path, extra=True, wider=True))
    assert changes.emptied == ("window", "totals")


def test_an_operator_that_seems_to_be_renamed_is_told_of(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    words = examined(store, application(tmp_path, totals="sums-by-key")).words
    assert (
        "operator 'totals' is gone and 'sums-by-key' is new and computes the same: was it renamed? its state is not "
        "taken over; name it 'totals'"
    ) in words


def test_another_name_of_the_topology_is_told(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, name="other")
    assert "the topology was t, is other" in refusal(store, new)
    changes = examined(store, new)
    assert "the topology was called 't', is 'other'" in changes.words
    assert begun(store, new, changes)[0]["window"] == OLD


def refused(store: Path, built: Application, *accept: str) -> str:
    with pytest.raises(UnsuitableStore) as error:
        examined(store, built, *accept)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_other_partitions_of_a_source_are_refused(tmp_path: Path) -> None:
    line = refused(left(tmp_path, application(tmp_path)), application(tmp_path, partitions=3, extra=True))
    assert "source 'rows' has other partitions than its log" in line
    assert "declare 'rows' as it was, or give it another name" in line


def test_what_a_source_reads_is_accepted_by_name_only(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    topology = Topology("t")
    topology.source("rows", elements(seed=3, rate=100), partitions=2).output("o", parquet(tmp_path / "o"))
    assert "let them go on from where they are by --accept-changes rows" in refused(store, topology.build())
    assert examined(store, topology.build(), "rows").changed == ("rows",)


def test_after_a_kill_states_behind_a_change_wait_for_a_good_end_and_additions_do_not(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), published=BATCH + 2)
    for new in (application(tmp_path, extra=True, length="2s"), application(tmp_path, extra=True, filtered=True)):
        line = refused(store, new)
        assert "let the old code run once more until it ends in good order" in line
    new = application(tmp_path, extra=True, totals=None)
    changes = examined(store, new)
    assert begun(store, new, changes)[0]["extra"] == NEW
    upgraded(store, new)
    assert [version.after for version in read_versions(store)] == [0, BATCH]


def test_a_new_output_does_not_go_where_other_results_are(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    line = refused(store, application(tmp_path, totals=None, extra=True, extra_out="sums"))
    assert "output 'counts' is to go to" in line
    assert "where results of output 'sums' of this run are" in line
    left(tmp_path / "other", application(tmp_path / "other"))
    line = refused(store, application(tmp_path, extra=True, extra_out="other/means"))
    assert "where results of output 'means' of run " in line
    assert "choose another folder" in line


def test_a_dropped_output_is_fenced_and_known_and_may_come_again(tmp_path: Path) -> None:
    old, new = application(tmp_path), application(tmp_path, totals=None)
    store = left(tmp_path, old)
    note_outputs(store, outputs_of(old))
    changes = upgraded(store, new)
    fence(changes, store, 9)
    with pytest.raises(EpochLost):
        Journal.open(ParquetSink(tmp_path / "sums").log, 8)
    note_outputs(store, outputs_of(new))
    assert verify(store).problems == []
    assert verify(store).results == 4 * BATCH, "its results are read as well"
    again = upgraded(store, old)
    assert again.elsewhere["sums"] == [BATCH] * 2


def test_a_damaged_result_from_before_an_upgrade_is_not_made_again_by_the_new_code(tmp_path: Path) -> None:
    old, new = application(tmp_path), application(tmp_path, totals=None)
    store = left(tmp_path, old)
    note_outputs(store, outputs_of(old))
    upgraded(store, new)
    (tmp_path / "means" / visible_name("means", 0, 1)).unlink()
    (tmp_path / "sums" / visible_name("sums", 0, 2)).unlink()
    assert [problem.is_lost for problem in verify(store, repair=False).problems] == [True, True]


def test_a_version_is_recorded_with_the_tasks_of_kept_operators_and_the_rest_as_declared(tmp_path: Path) -> None:
    old = application(tmp_path)
    store = left(tmp_path, old)
    new = application(tmp_path, extra=True, totals=None)
    first, version = upgraded(store, new).versions
    assert read_versions(store) == (first, version)
    assert (version.number, version.after) == (2, BATCH)
    assert set(version.parallelism) == {operator.name for operator in new.topology.operators}
    assert version.tables["window"] == first.tables["window"]
    again = rescaled(new, first)  # of a version that does not know all operators: those are as declared
    assert again.topology.operator("extra").parallelism == 2


def test_an_operator_that_was_rescaled_keeps_its_tasks_and_new_ones_behind_it_have_as_many(tmp_path: Path) -> None:
    def built(*, more: bool) -> Application:
        topology = Topology("t")
        by_key = topology.source("rows", elements(rate=100), partitions=2).key_by("sequence")
        window = by_key.window("1s").aggregate(pl.len(), name="w", parallelism=2)
        if more:
            window.filter(pl.col("len") > 1, name="many").output("many-out", parquet(tmp_path / "many"))
            by_key.window("2s").aggregate(pl.len(), name="apart", parallelism=3).output("a", parquet(tmp_path / "a"))
        window.output("o", parquet(tmp_path / "o"))
        return topology.build()

    old = built(more=False)
    first = first_version(old)
    second = next_version(old, first, {"w": 4}, after=2, nodes=None, cause="")
    store = left(tmp_path, rescaled(old, second), declared=old, versions=(first, second))
    new = built(more=True)
    changes = upgraded(store, new)
    (version,) = changes.versions
    assert version.number == 3
    assert {name: version.parallelism[name] for name in ("w", "o", "many", "many-out", "apart")} == {
        "w": 4,
        "o": 4,
        "many": 4,
        "many-out": 4,
        "apart": 3,
    }
    assert version.tables["many"] == version.tables["w"] == second.tables["w"]
    assert begun(store, new, changes)[0]["w"] == OLD


def test_other_numbers_of_tasks_are_asked_for_when_the_upgrade_is_done(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    for length in ("1s", "2s"):
        changes = examined(store, application(tmp_path, extra=True, parallelism=4, length=length))
        assert changes.versions[-1].parallelism["window"] == 2
        assert changes.rescaled["window"] == (2, 4)
        assert "operator 'window' is to have 4 tasks, has had 2" in changes.words
        assert (
            next_version(
                rescaled(application(tmp_path, extra=True, parallelism=4, length=length), changes.versions[-1]),
                changes.versions[-1],
                {name: tasks for name, (_, tasks) in changes.rescaled.items()},
                after=BATCH,
                nodes=None,
                cause="",
            ).parallelism["window"]
            == 4
        )


def test_a_run_whose_rescale_is_not_behind_it_is_not_upgraded(tmp_path: Path) -> None:
    old = application(tmp_path)
    first = first_version(old)
    second = next_version(old, first, {"window": 3}, after=BATCH, nodes=None, cause="")
    store = left(tmp_path, old, versions=(first, second))
    line = refused(store, application(tmp_path, extra=True))
    assert (
        "an upgrade begins from a checkpoint of the newest version of the topology, found one of version 1 of 2" in line
    )


def test_what_was_upgraded_is_remembered_and_the_old_code_is_refused(tmp_path: Path) -> None:
    old, new = application(tmp_path), application(tmp_path, extra=True, totals=None)
    store = left(tmp_path, old)
    upgraded(store, new)
    assert examined(store, new).words == (), "the same command again"
    assert admitted(new, store, new.fingerprint(), ()).words == (), "and without the option"
    line = refusal(store, old)
    assert "operator 'extra' is gone" in line
    assert "operator 'totals' is new" in line
    (change,) = journal.read(store / CHANGES)
    assert shown(change)["version"] == 2
    assert {"topology", "versions"}.isdisjoint(shown(change))


def test_from_the_checkpoint_of_an_upgrade_all_begin_as_before(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, extra=True, length="2s")
    first = begun(store, new, upgraded(store, new))
    assert begun(store, new, examined(store, new)) == first
    assert first[0]["window"] == first[0]["extra"] == NEW
    assert first[0]["totals"] == OLD


def test_upgraded_twice_before_anything_is_stored_what_was_dropped_comes_back_empty(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    upgraded(store, application(tmp_path, totals=None, extra=True))
    again = application(tmp_path)
    made, _ = begun(store, again, upgraded(store, again))
    assert made["totals"] == NEW
    assert made["window"] == OLD
    assert [(version.number, version.after) for version in read_versions(store)] == [(1, 0), (2, BATCH), (3, BATCH)]
    assert begun(store, again, examined(store, again))[0] == made


def test_a_driver_that_dies_between_its_two_records_is_completed_by_the_next(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, extra=True, totals=None)
    changes = upgraded(store, new)
    whole = read_versions(store)
    for path in (store / "versions").iterdir():
        path.unlink()
    again = admitted(new, store, new.fingerprint(), ())
    assert versions_of(store, again.known) == whole == changes.versions
    opened = Store.open(store, again.fingerprint, admitted=True)
    complete(opened)
    opened.close()
    assert read_versions(store) == whole


def test_a_driver_that_was_overtaken_upgrades_nothing(tmp_path: Path) -> None:
    old, new = application(tmp_path), application(tmp_path, extra=True)
    store = left(tmp_path, old)
    changes = examined(store, new)
    slow = Store.open(store, changes.fingerprint, admitted=True)
    Store.open(store, old.fingerprint(), admitted=True).close()
    with pytest.raises(EpochLost):
        changes.record(slow, standing(store), BATCH)
    assert admitted(old, store, old.fingerprint(), ()).words == ()
    assert read_versions(store) == ()


def test_a_run_does_not_go_back_behind_an_upgrade(tmp_path: Path) -> None:
    store, new = left(tmp_path, application(tmp_path)), application(tmp_path, extra=True)
    upgraded(store, new)
    with pytest.raises(DamagedStore, match="from after its last change of code"):
        examined(store, new).check_way_back(store, None, ())


def test_before_anything_is_stored_everything_may_come_and_go(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path), published=0, checkpoint=False)
    changes = upgraded(store, application(tmp_path, extra=True, totals=None, length="2s", parallelism=3))
    assert changes.emptied == ()
    assert changes.versions[-1].after == 0
    assert changes.versions[-1].parallelism["window"] == 3


def test_rows_of_a_new_source_would_be_late_where_all_windows_have_closed(tmp_path: Path) -> None:
    ended: Mapping[str, Json] = {"ended": True, "done": ["rows"]}
    store = left(tmp_path, application(tmp_path), last=ended, logged=BATCH)
    line = refused(store, application(tmp_path, second=True))
    assert "operator 'window' has closed all its windows, for its sources had ended" in line
    assert "start it empty by --accept-changes window" in line
    changes = examined(store, application(tmp_path, second=True), "window")
    assert changes.emptied == ("window",)
    assert not any("no batch follows" in words for words in changes.words)


def test_an_operator_that_goes_on_with_a_new_source_before_it_is_told_of(tmp_path: Path) -> None:
    store = left(tmp_path, application(tmp_path))
    words = examined(store, application(tmp_path, second=True)).words
    assert "source 'more' is new: it is read from its beginning, from batch 5 on" in words
    assert any("operator 'window' goes on and waits for 'more' from now on" in each for each in words)


def test_inspect_shows_an_upgrade_among_the_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = left(tmp_path, application(tmp_path))
    upgraded(store, application(tmp_path, extra=True, totals=None))
    assert run(["inspect", str(store)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "upgrade: version 2 of the topology begins" in said
    assert "operator 'extra' is new" in said
    assert run(["inspect", str(store), "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["version"], change["new"]) == (2, ["extra", "counts"])


APPLICATION = """
import tenax as tx
topology = tx.Topology("t")
topology.source("rows", tx.elements(rate=100.0), partitions=3).output("means", tx.parquet("means"))
"""


def test_the_command_refuses_an_upgrade_in_one_line_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = left(tmp_path, application(tmp_path))
    (tmp_path / "app.py").write_text(APPLICATION)
    for words, line in (([], "parallelism was 2, is 3"), (["--upgrade"], "other partitions than its log")):
        assert run(["run", "app.py", "--store", str(store), *words]) == 2
        error = capsys.readouterr().err
        assert line in error
        assert error.count("\n") == 1
