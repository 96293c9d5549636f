"""What is rescaled together, which key groups move, and the application that comes of it."""

# ruff: noqa: ARG002

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenax as tx
from tenax.application.application import Application
from tenax.application.scaling import (
    first_version,
    next_version,
    rebalanced,
    rescaled,
    scaling_groups,
    state_keys,
    table_of,
)
from tenax.errors import InvalidRequest
from tenax.examples.apps import elements, hashtags, top_pages, traffic, window_tree
from tenax.model.topology import Partitioning
from tenax.model.topology_versions import Table, moved_groups
from tenax.operators.groups import Groups
from tenax.operators.keys import KEY_GROUPS, owners


class Totals(tx.KeyedComputation):
    keys = ("k",)
    state_schema = pl.Schema({"k": pl.Int64, "total": pl.Float64})

    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, tx.Changes]:
        return rows, tx.Changes()


class ByText(Totals):
    state_schema = pl.Schema({"k": pl.String, "total": pl.Float64})


class Plain(tx.Computation):
    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput(state, given.frames[0])


class Cut(Plain):
    def split(self, state: tx.State, groups: Groups, keys: object) -> tx.State:
        return state

    def merge(self, states: object) -> tx.State:
        return {}


class Passes(Plain):
    stateless = True


def keyed(topology: tx.Topology, partitions: int = 2) -> tx.Stream:
    stream = topology.source("rows", tx.elements(rate=10, pace=tx.Pace(rows=10)), partitions=partitions)
    return stream.with_columns(k=pl.col("sequence") % 7, j=pl.col("sequence") % 3).key_by("k")


def built(write: Callable[[tx.Stream], tx.Stream], partitions: int = 2) -> Application:
    topology = tx.Topology("toy")
    write(keyed(topology, partitions)).output("out", tx.console())
    return topology.build()


def groups_of(application: Application) -> dict[tuple[str, ...], str]:
    return {group.operators: group.reason for group in scaling_groups(application)}


def window(stream: tx.Stream, tasks: int | None = None, name: str = "window") -> tx.Stream:
    return stream.window("1s").aggregate(pl.col("value").sum(), parallelism=tasks, name=name)


def test_a_chain_goes_with_what_feeds_it_and_one_behind_a_source_stays() -> None:
    # rows (2) ─► with-columns (2) ═► window (3) ─► filter (3) ─► top-local (3) ═► top (1) ─► out (1)
    application = built(lambda stream: window(stream, 3).filter(pl.col("value") > 0).top(2, "value"))
    groups = groups_of(application)
    assert list(groups) == [("rows", "with-columns-1"), ("window", "filter-1", "top-local-1"), ("top-1", "out")]
    assert "source 'rows'" in groups["rows", "with-columns-1"]
    assert groups["window", "filter-1", "top-local-1"] == ""
    assert "'top-1' come together without a key" in groups["top-1", "out"]


def test_single_tasks_are_partners_only_if_they_would_be_with_more() -> None:
    # one task each: window ─► second has the same keys, ─► third has others, ─► whole has none
    def write(stream: tx.Stream) -> tx.Stream:
        second = window(window(stream, 1, "first").key_by("k"), name="second")
        third = second.key_by("value").window("1s").aggregate(pl.len().alias("rows"), name="third")
        return third.window("1s").aggregate(pl.col("rows").sum(), name="whole")

    groups = groups_of(built(write, partitions=1))
    assert list(groups) == [("rows", "with-columns-1"), ("first", "second"), ("third",), ("whole", "out")]
    assert [bool(reason) for reason in groups.values()] == [True, False, False, True]


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda stream: stream.apply(Totals(), name="it", parallelism=3), ""),
        (lambda stream: stream.apply(Cut(), name="it", parallelism=3), ""),
        (lambda stream: stream.apply(Passes(), name="it", parallelism=3), ""),
        (lambda stream: window(stream, 3).apply(Totals(), name="it"), ""),
        (lambda stream: window(stream, 3).filter(k=1).apply(Totals(), name="it"), ""),
        (lambda stream: window(stream, 3).with_columns(k=pl.lit(1)).apply(Totals(), name="it"), "is not known"),
        (lambda stream: stream.apply(Plain(), name="it", parallelism=3), "'it' (Plain) does not say how its state"),
        (lambda stream: stream.key_by("j").apply(Totals(), name="it", parallelism=3), "shared by 'j', which is not"),
        (lambda stream: stream.apply(ByText(), name="it", parallelism=3), "keeps its key 'k' as String"),
        (lambda stream: window(stream, 1).apply(Totals(), name="it"), "'it' come together without a key"),
        (lambda stream: replace(stream, keys=()).apply(Totals(), name="it", parallelism=2), "source 'rows'"),
    ],
)
def test_a_computation_that_cannot_be_split_says_so_by_name(
    write: Callable[[tx.Stream], tx.Stream], reason: str
) -> None:
    application = built(write)
    [group] = [group for group in scaling_groups(application) if "it" in group.operators]
    assert reason in group.reason if reason else group.reason == ""
    if reason:
        present = first_version(application)
        with pytest.raises(InvalidRequest, match="operator 'it' keeps the tasks that it has: "):
            next_version(application, present, {"it": 4}, 7, None, "")


def test_rows_of_a_state_are_told_apart_by_what_they_are_shared_by() -> None:
    def write(stream: tx.Stream) -> tx.Stream:
        counts = stream.key_by("k", "j").window("1s").aggregate(pl.len(), parallelism=2, name="counts")
        return window(stream, 2).join(counts, on=["k", "window"], name="join").filter(k=1).apply(Totals(), name="it")

    application = built(write)
    assert state_keys(application, "counts") == ("k", "j")
    assert state_keys(application, "join") == ("k",)
    assert state_keys(application, "it") == ("k",)
    assert state_keys(application, "with-columns-1") == ()


def test_wishes_are_checked() -> None:
    application = built(lambda stream: window(stream, 3))
    present = first_version(application)
    for wanted, words in [
        ({"windw": 2}, "did you mean 'window'"),
        ({"window": 0}, "1 to 128 tasks"),
        ({"window": 129}, "found 129"),
        ({"window": 2, "out": 4}, "'window', 'out' have as many tasks as each other, found window=2, out=4"),
        ({"rows": 4}, "operator 'rows' keeps the tasks that it has: source 'rows' has a task for each partition"),
    ]:
        with pytest.raises(InvalidRequest, match=words) as raised:
            next_version(application, present, wanted, 7, None, "")
        assert "\n" not in str(raised.value)
    version = next_version(application, present, {"out": 5, "rows": 2}, 7, 4, "asked for")
    assert (version.number, version.after, version.nodes, version.cause) == (2, 7, 4, "asked for")
    assert version.parallelism == {"rows": 2, "with-columns-1": 2, "window": 5, "out": 5}
    assert version.tables["window"] == version.tables["out"]
    assert "rows" not in version.tables


def test_partners_get_one_table_though_they_had_two() -> None:
    apart = built(lambda stream: window(window(stream, 3, "first").key_by("k"), 2, "second"))
    together = built(lambda stream: window(window(stream, 3, "first").key_by("k"), 3, "second"))
    present = first_version(apart)
    assert present.tables["first"] != present.tables["second"]
    version = next_version(together, present, {"first": 3, "second": 3}, 7, None, "")
    assert version.tables["second"] == version.tables["first"] == present.tables["first"]
    assert rescaled(together, version).topology == together.topology


@pytest.mark.parametrize(("before", "now", "moved"), [(2, 3, 42), (3, 2, 42), (2, 4, 64), (4, 2, 64), (1, 128, 127)])
def test_as_few_key_groups_move_as_equal_shares_allow(before: int, now: int, moved: int) -> None:
    table = tuple(map(int, owners([1.0] * before)))
    assert moved_groups(table, rebalanced(table, now)) == moved


def least_moved(table: Table, tasks: int) -> int:
    """By trying how many groups each task may keep: shares of either size, as many larger ones as there must be."""
    held = Counter(table)
    share, more = divmod(len(table), tasks)
    kept = {0: 0}  # the most that stays, by how many tasks have the larger share
    for task in range(tasks):
        larger = {count + 1: total + min(held[task], share + 1) for count, total in kept.items()}
        kept = {
            count: max(kept.get(count, -1) + min(held[task], share) if count in kept else -1, larger.get(count, -1))
            for count in range(task + 2)
        }
    return len(table) - kept[more]


@given(st.lists(st.integers(0, 15), min_size=KEY_GROUPS, max_size=KEY_GROUPS), st.integers(1, 20))
def test_no_table_of_equal_shares_moves_fewer(drawn: list[int], tasks: int) -> None:
    table = tuple(drawn)
    result = rebalanced(table, tasks)
    counts = Counter(result)
    assert set(result) <= set(range(tasks))
    assert max(counts.values()) - min(counts[task] for task in range(tasks)) <= 1
    assert moved_groups(table, result) == least_moved(table, tasks)
    assert rebalanced(result, tasks) == result


def test_a_chain_of_versions_moves_little_and_stays_balanced() -> None:
    application = built(lambda stream: window(stream, 2))
    version = first_version(application)
    assert version.tables["window"] == table_of(application, "window")
    seen = [version.tables["window"]]
    for number, tasks in enumerate([3, 5, 4, 2, 2], start=2):
        version = next_version(application, version, {"window": tasks}, number, None, "")
        assert version.number == number
        assert rescaled(application, version).tables["out"] == version.tables["window"]
        seen.append(version.tables["window"])
    assert [moved_groups(old, new) for old, new in pairwise(seen)] == [42, 50, 25, 64, 0]


def test_weights_go_when_an_operator_is_rescaled() -> None:
    application = built(lambda stream: window(stream, 2))
    operators = application.topology.operators
    weighted = (replace(each, weights=(3.0, 1.0) if each.name in {"window", "out"} else None) for each in operators)
    topology = replace(application.topology, operators=tuple(weighted))
    given = replace(application, topology=topology)
    present = first_version(given)
    assert Counter(present.tables["window"]) == {0: 96, 1: 32}
    assert rescaled(given, present).topology == topology
    version = next_version(given, present, {"window": 3}, 1, None, "")
    assert sorted(Counter(version.tables["window"]).values()) == [42, 43, 43]
    assert rescaled(given, version).topology.operator("window").weights is None


def test_priorities_of_tasks_that_differ_become_the_highest() -> None:
    topology = tx.Topology("toy")
    stream = window(keyed(topology), 3)
    stream.output("out", tx.console(), priority=[3, 1, 1])
    stream.output("also", tx.console(), priority=[2, 2, 2])
    application = topology.build()
    version = next_version(application, first_version(application), {"window": 2}, 1, None, "")
    outputs = rescaled(application, version).topology.outputs
    assert {name: output.priority for name, output in outputs.items()} == {"out": 3.0, "also": 2.0}
    kept = rescaled(application, first_version(application))
    assert kept.topology.outputs["out"].priority == (3.0, 1.0, 1.0)


PEERS = ["elements", "hashtags", "traffic", "top_pages", "window_tree"]


def example(name: str, tasks: int, folder: Path) -> Application:
    match name:
        case "elements":
            return elements.build(parallelism=tasks, folder=str(folder)).build()
        case "hashtags":
            return hashtags.build(parallelism=tasks, folder=str(folder)).build()
        case "traffic":
            return traffic.build(parallelism=2 * tasks, folder=str(folder)).build()
        case "top_pages":
            return top_pages.build(parallelism=tasks, folder=str(folder)).build()
    return window_tree.build(sources=8 * tasks, folder=str(folder)).build()


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize(("before", "now"), [(2, 3), (3, 2), (4, 8), (1, 4)])
def test_rescaling_an_example_gives_what_it_is_when_built_so(name: str, before: int, now: int, tmp_path: Path) -> None:
    if name in {"top_pages", "window_tree"} and before == 1:
        pytest.skip("with one task there is no top of each task, and neighbours are partners")
    given, wanted = example(name, before, tmp_path), example(name, now, tmp_path)
    fixed = {name for group in scaling_groups(given) if group.reason for name in group.operators}
    wishes = {
        operator.name: operator.parallelism
        for operator in wanted.topology.operators
        if operator.name not in fixed and operator.name in {mine.name for mine in given.topology.operators}
    }
    groups = [group.operators for group in scaling_groups(given) if not group.reason]
    wishes = {names[0]: wishes[names[0]] for names in groups}
    version = next_version(given, first_version(given), wishes, 5, None, "")
    result = rescaled(given, version)
    assert result.keys == wanted.keys
    for operator in wanted.topology.operators:
        mine = result.topology.operator(operator.name)
        assert mine.parallelism == operator.parallelism or operator.name in fixed
        for own, other in zip(mine.inputs, operator.inputs, strict=True):
            tasks = (result.topology.operator(own.operator).parallelism, mine.parallelism)
            if fixed.isdisjoint({own.operator, operator.name}):
                assert own == other
            elif (own.operator, operator.name) not in given.paired:  # the source had other partitions
                assert own.partitioning is (Partitioning.ONE_TO_ONE if tasks == (1, 1) else Partitioning.FULL)
    back = next_version(
        given, version, {names[0]: given.topology.operator(names[0]).parallelism for names in groups}, 9, None, ""
    )
    assert rescaled(result, back).topology == given.topology
    assert rescaled(given, back).topology == given.topology


def test_a_table_decides_which_task_gets_which_rows() -> None:
    application = built(lambda stream: window(stream, 2))
    rows = pl.DataFrame({"ts": pl.Series(range(40)).cast(pl.Datetime("us")), "value": 1.0, "sequence": range(40)})
    version = next_version(application, first_version(application), {"window": 3}, 1, None, "")
    whole = tx.testing.run(application, {"rows": rows}, batch_rows=7)["out"]
    for number in range(3):
        turned = {name: tuple((owner + number) % 3 for owner in table) for name, table in version.tables.items()}
        other = rescaled(application, replace(version, tables=turned))
        assert tx.testing.run(other, {"rows": rows}, batch_rows=7)["out"].equals(whole)
    alone = replace(version, tables=dict.fromkeys(version.tables, (2,) * KEY_GROUPS))
    assert tx.testing.run(rescaled(application, alone), {"rows": rows}, batch_rows=7)["out"].equals(whole)
