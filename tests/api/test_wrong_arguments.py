"""Wrong arguments of a topology are refused at the call that got them, in one line with the value found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tenax as tx
from tenax.engine.loading import load_application
from tenax.errors import InvalidFile, TenaxError
from tenax.model.protection import Protection


class Totals(tx.KeyedComputation):
    keys = ("sequence",)
    state_schema = pl.Schema({"sequence": pl.Int64})

    def step_keys(self, rows: pl.DataFrame, *_: object) -> tuple[pl.DataFrame, tx.Changes]:
        return rows, tx.Changes()


class KeysAreText(Totals):
    keys = "sequence"  # type: ignore[assignment]


class KeysAreNotInTheState(Totals):
    state_schema = pl.Schema({"total": pl.Int64})


def numbers(partitions: Any = 1, name: Any = "numbers", made: Any = None) -> Any:
    topology = made or tx.Topology("t")
    return topology.source(name, tx.elements(rate=1.0, pace=tx.Pace(rows=1)), partitions=partitions)


def windows(partitions: int = 1) -> Any:
    return numbers(partitions).key_by("sequence").window("10s").aggregate(pl.len().alias("n"))


def two() -> tuple[Any, Any]:
    topology = tx.Topology("t")
    return numbers(4, "a", topology), numbers(2, "b", topology)


def union_of_unequal() -> object:
    left, right = two()
    return left.union(right)


def source_of(given: Any, **more: Any) -> object:
    return tx.Topology("t").source("a", given, **more)


V = pl.col("value")
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: tx.Topology(5), "the name of a topology is text, found int 5"),  # type: ignore[arg-type]
    (lambda: tx.Topology("My app"), "found 'My app': rename it"),
    (lambda: source_of("data/*.csv"), "found str 'data/*.csv': write tx.files('data/*.csv', time=...)"),
    (lambda: source_of(tx.elements), "found the function elements: call it"),
    (lambda: source_of(None), "found None"),
    (lambda: numbers(0), "number of partitions of source 'numbers' is a whole number of at least 1, found int 0"),
    (lambda: numbers(2.0), "found float 2.0"),
    (lambda: numbers(True), "found bool True"),
    (lambda: numbers(1, "Numbers"), "found 'Numbers': rename it"),
    (lambda: numbers(1, None), "the name of a source is text, found None"),
    (lambda: source_of(tx.elements(rate=1.0), late="out/late"), "write tx.parquet('out/late')"),
    (lambda: numbers().filter("v"), "filter takes Polars expressions, found str 'v': write pl.col('v')"),
    (lambda: numbers().filter(lambda rows: rows), "found a lambda: use map(function)"),
    (lambda: numbers().filter(True), "found bool True"),
    (lambda: numbers().filter(), "filter takes at least one expression"),
    (lambda: numbers().filter([[V > 1]]), "leave the brackets out"),
    (lambda: numbers().filter(value=[1]), "filter(value=...) takes the value that the column has, found list [1]"),
    (lambda: numbers().filter(V - V.mean() > 0), "filter looks at one row at a time"),
    (lambda: numbers().select(5), "select takes Polars expressions or names of columns, found int 5"),
    (lambda: numbers().select([["value"]]), "leave the brackets out"),
    (lambda: numbers().select(x=[1]), "select(x=...) takes a Polars expression, the name of a column or a constant"),
    (lambda: numbers().with_columns("value"), "with_columns takes Polars expressions, found str 'value'"),
    (lambda: numbers().map(V), 'map takes a function, found the expression col("value"): use with_columns'),
    (lambda: numbers().map("f"), "map takes a function, found str 'f'"),
    (lambda: numbers().map(lambda: None), "map calls its function with one frame"),
    (lambda: numbers().map(lambda rows, more: (rows, more)), "missing a required argument: 'more'"),
    (lambda: numbers().map(lambda rows: rows, name="My map"), "found 'My map': rename it"),
    (lambda: numbers().key_by(V), 'key_by takes names of columns, found the expression col("value"): name a column'),
    (lambda: numbers().key_by(), "key_by takes at least 1 column"),
    (lambda: numbers().key_by([["a", "b"]]), "leave the brackets out"),
    (lambda: numbers().key_by([]), "key_by takes at least 1 column"),
    (lambda: numbers().with_columns(name=V), "name is the name of the operator, found the expression"),
    (lambda: numbers().window(timedelta(seconds=-1)), "a span of time is whole numbers with units"),
    (lambda: numbers().window(timedelta(seconds=10), every=timedelta(seconds=3)), "found length 10s, every 3s"),
    (lambda: numbers().window("10s").aggregate(n="value"), "aggregate(n=...) takes a Polars expression, found str"),
    (lambda: numbers().window(10), "found 10; write '10s'"),
    (lambda: numbers().window("ten"), "found 'ten'"),
    (lambda: numbers().window("10s", every="3s"), "multiple of its every"),
    (lambda: numbers().window("10s", every=1), "found 1; write '10s'"),
    (lambda: numbers().window("10s").aggregate("v"), "aggregate takes Polars expressions, found str 'v'"),
    (lambda: numbers().window("10s").aggregate(), "aggregate takes at least one expression"),
    (lambda: numbers().window("10s").aggregate(V), "an aggregate is sum, mean"),
    (lambda: numbers().window("10s").aggregate(V.sum(), parallelism=0), "found int 0"),
    (lambda: windows().join(windows(), on="window"), "on is a list of columns, found str 'window': write ['window']"),
    (lambda: windows().join(windows(), on=5), "on is a list of columns, found int 5"),
    (lambda: windows().join(windows(), on=[V]), "on takes names of columns"),
    (lambda: windows().join("speed", on=["window"]), "join takes streams, found str 'speed'"),
    (lambda: windows().join(numbers(), on=["window"]), "join takes streams of windows, found 'numbers'"),
    (lambda: windows().join(numbers().window("1s"), on=["window"]), "aggregate it first"),
    (lambda: windows().join(windows(), on=["window"]), "its inputs are of one topology, found two"),
    (lambda: windows(2).join(windows(2), on=["window"]), "found 2 tasks and no key beside the window"),
    (lambda: windows().top(0, "n"), "how many rows top keeps is a whole number of at least 1, found int 0"),
    (lambda: windows().top("n", 3), "found str 'n'"),
    (lambda: windows().top(3, V), 'by is the name of a column, found the expression col("value")'),
    (lambda: numbers().top(3, "value"), "top takes streams of windows, found 'numbers' with the time 'ts'"),
    (lambda: numbers().apply(lambda rows: rows), "apply takes a tx.Computation, found a lambda: use map(function)"),
    (lambda: numbers().apply(Totals), "found the class Totals: make one: Totals()"),
    (lambda: numbers().apply(None), "apply takes a tx.Computation, found None"),
    (lambda: numbers().apply(KeysAreText()), "KeysAreText.keys is a tuple of the names of its key columns"),
    (lambda: numbers().apply(KeysAreNotInTheState()), "state_schema is a pl.Schema that has its keys"),
    (lambda: numbers().apply(Totals(), parallelism=0), "parallelism of operator 'apply-1' is a whole number"),
    (lambda: numbers().apply(Totals(), parallelism="2"), "found str '2'"),
    (lambda: numbers().apply(Totals(), time=5), "time is the name of a column, found int 5"),
    (lambda: tx.apply(numbers(), Totals()), "apply takes a list of streams, found Stream"),
    (lambda: tx.apply([], Totals()), "apply takes a list of streams, found list []"),
    (lambda: tx.apply(["a"], Totals()), "apply takes streams, found str 'a'"),  # type: ignore[list-item]
    (lambda: tx.apply([numbers(), numbers()], Totals()), "apply reads each stream once, found 'numbers' twice"),
    (lambda: tx.apply([numbers(), numbers(1, "b")], Totals()), "its inputs are of one topology, found two"),
    (lambda: numbers().union(), "union takes at least one other stream"),
    (lambda: numbers().union("b"), "union takes streams, found str 'b'"),
    (union_of_unequal, "found 4 of 'a' and 2 of 'b': give sources as many partitions"),
    (lambda: numbers().output("out", "out/folder"), "found str 'out/folder': write tx.parquet('out/folder')"),
    (lambda: numbers().output("out", tx.console), "found the function console: call it: tx.console(...)"),
    (lambda: numbers().output("out", print), "write tx.callback(...) around a function"),
    (lambda: numbers().output(tx.console(), "out"), "the name of an output is text"),
    (lambda: numbers().output("My output", tx.console()), "found 'My output': rename it"),
    (lambda: numbers().output("out", tx.console(), priority="high"), "per task, found str 'high': write 1.0"),
    (lambda: numbers().output("out", tx.console(), priority=["high"]), "a list of one per task, found str 'high'"),
    (lambda: numbers(3).output("out", tx.console(), priority=[3, 1]), "are one per task (3), found 2: write as many"),
    (lambda: numbers().output("out", tx.console(), priority=[]), "found 0: write as many, or one number for all"),
    (lambda: numbers().output("out", tx.console(), priority=-1), "found int -1"),
    (lambda: numbers().output("out", tx.console(), priority=float("nan")), "found float nan"),
    (lambda: tx.parquet(5), "parquet writes to a folder, found 5"),  # type: ignore[arg-type]
    (lambda: tx.parquet(""), "parquet writes to a folder, found ''"),
    (lambda: tx.callback("print"), "callback takes functions, found 'print'"),  # type: ignore[arg-type]
    (lambda: tx.callback(None), "callback takes functions, found None"),  # type: ignore[arg-type]
    (lambda: tx.files(5, time="ts"), "named by a folder or pattern"),  # type: ignore[arg-type]
    (lambda: tx.files("data", time=0), "the column of event times, found 'data' and 0"),  # type: ignore[arg-type]
    (lambda: tx.Topology("t").protect(recovery_latency=5), "found 5"),  # type: ignore[call-overload]
    (lambda: tx.Topology("t").protect(replicas=2.5), "found 2.5"),  # type: ignore[call-overload]
    (lambda: tx.Topology("t").protect(replicas=["a[0]", 3]), "found ['a[0]', 3]"),  # type: ignore[list-item]
    (lambda: tx.Topology("t").protect(checkpoints="sweeping"), "said by operator, found 'sweeping'"),  # type: ignore[call-overload]
    (lambda: tx.Topology("t").protect(standby=["join"]), "said by operator, found ['join']"),  # type: ignore[call-overload]
    (lambda: tx.Topology("t").protect(follow_load="much"), "number from 0 to 1, found 'much'"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("call", "expected"), WRONG, ids=[expected[:50] for _, expected in WRONG])
def test_a_wrong_argument_is_one_line_at_the_call(call: Callable[[], object], expected: str) -> None:
    with pytest.raises(TenaxError) as raised:
        call()
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rows.output('out', 'folder')", "line 4: output 'out' goes to a tenax sink"),
        ("rows.window(10)", "line 4: a span of time is whole numbers with units"),
        ("topology.protect(replica=3)", "line 4: TypeError: Topology.protect() got an unexpected keyword argument"),
        ("rows.fliter(1)", "line 4: AttributeError: 'Stream' object has no attribute 'fliter'"),
    ],
)
def test_the_file_and_the_line_are_named(line: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    start = "import tenax as tx\ntopology = tx.Topology('t')\nrows = topology.source('a', tx.elements(rate=1.0))\n"
    path.write_text(f"{start}{line}\n")
    with pytest.raises(InvalidFile) as raised:
        load_application(path, {})
    assert f"{path}, {expected}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_module_beside_the_file_that_is_not_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "helper_of_a_broken_app.py").write_text("\n\nx = (\n")
    path = tmp_path / "app.py"
    path.write_text("import helper_of_a_broken_app\n")
    with pytest.raises(InvalidFile, match=r"helper_of_a_broken_app\.py: not Python: .* in line 3"):
        load_application(path, {})


def test_every_field_of_a_protection_can_be_said_in_the_file() -> None:
    said: dict[str, Any] = {
        "replicas": 3,
        "recovery_latency": "5s",
        "backups": "adaptive",
        "recovery": "incremental",
        "outputs": "tentative",
        "order": "dp",
        "tentative_delay": "2s",
        "checkpoint_every": "5s",
        "checkpoint": "sweeping",
        "checkpoints": {"numbers": "individual"},
        "failure_every": "1h",
        "standby": {"numbers": "active"},
        "follow_load": 0.2,
        "storage_patience": "1m",
        "correlated_losses": 3,
        "cutover_lag": 4,
        "patience": 5,
        "max_outage_bytes": 6,
        "max_attempts": 7,
    }
    assert set(said) == {field.name for field in fields(Protection)}
    topology = tx.Topology("t")
    numbers(made=topology).output("out", tx.console())
    topology.protect(**said)
    assert topology.build().protection == Protection(**said)


def test_an_operator_knows_the_line_that_made_it() -> None:
    stream = numbers()
    made = stream.filter(V > 1)
    application = made.output("out", tx.console()).topology.build()
    assert application.places["filter-1"].startswith(f"{__file__}, line ")
