"""Fingerprints: every parameter and all code of users count, where it stands and how it is laid out does not."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import polars as pl
import pytest

from tenax.api.streams import Topology
from tenax.application import fingerprints
from tenax.application.descriptions import Describer, canonical, described
from tenax.application.fingerprints import differences
from tenax.connectors.delivery import console
from tenax.connectors.files import files
from tenax.connectors.generators import Pace
from tenax.connectors.source import Source
from tenax.connectors.workloads import elements, incident_reports, page_views, traffic_locations, tweets
from tenax.engine.loading import load_application
from tenax.operators.computation import Computation
from tenax.operators.join import join
from tenax.operators.stateless import filter_rows, map_frames, select_columns, with_columns
from tenax.operators.top import top
from tenax.operators.union import Union
from tenax.operators.windows import windows
from tenax.takeover.comparisons import compared, placed

SCHEMA = {"ts": pl.Int64(), "v": pl.Int64()}


def tailed(where: str, time: str) -> Source:
    return files(where, time=time, tail=True)


GIVEN: dict[Callable[..., Computation | Source], dict[str, tuple[object, object]]] = {
    windows: {
        "time": ("ts", "at"),
        "keys": (["a"], ["b"]),
        "length": ("10s", "20s"),
        "every": ("1s", "2s"),
        "aggregates": ([pl.col("v").mean()], [pl.col("v").sum()]),
    },
    join: {"on": (["a", "window"], ["b", "window"])},
    top: {"k": (3, 4), "by": ("a", "b"), "per": (("c",), ("d",))},
    filter_rows: {"predicates": ((pl.col("v") < 20,), (pl.col("v") < 21,))},
    select_columns: {"columns": ((pl.col("v"),), (pl.col("v") + 1,))},
    with_columns: {"columns": ((pl.col("v").alias("w"),), (pl.col("v").alias("x"),))},
    map_frames: {
        "function": (lambda rows: rows.head(1), lambda rows: rows.head(2)),
        "schema": (None, pl.Schema({"ts": pl.Datetime("us")})),
    },
    Union: {},
    files: {
        "where": ("in/*.csv", "in/*.parquet"),
        "time": ("ts", "at"),
        "follow": (True, False),
        "lateness": ("0s", "2s"),
        "schema": (SCHEMA | {"at": pl.Int64()}, SCHEMA | {"at": pl.Int64(), "w": pl.String()}),
        "idle_after": ("5s", "6s"),
        "time_unit": ("ms", "us"),
        "tail": (False, True),
        "any_time": (False, True),
    },
    tailed: {"where": ("in/*.csv", "in/*.ndjson"), "time": ("ts", "at")},
    traffic_locations: {
        "seed": (0, 1),
        "rate": (10, 20),
        "users": (100, 200),
        "segments": (10, 20),
        "exponent": (0.5, 1.0),
        "incident_every_s": (2.0, 3.0),
    },
    incident_reports: {
        "seed": (0, 1),
        "users": (100, 200),
        "segments": (10, 20),
        "exponent": (0.5, 1.0),
        "incident_every_s": (2.0, 3.0),
    },
    page_views: {"seed": (0, 1), "rate": (10, 20), "servers": (3, 4), "pages": (10, 20), "exponent": (1.0, 2.0)},
    tweets: {"seed": (0, 1), "rate": (10, 20), "hashtags": (10, 20), "users": (10, 20), "exponent": (1.0, 2.0)},
    elements: {"seed": (0, 1), "rate": (10, 20)},
}
PACES = {
    "rows": (10, 20),
    "paced": (False, True),
    "disorder": ("0s", "1s"),
    "lateness": ("0s", "1s"),
    "idle_after": ("5s", "6s"),
}


def made(factory: Callable[..., object], given: Mapping[str, object]) -> object:
    star = next(
        (parameter for parameter in signature(factory).values() if parameter.kind is inspect.Parameter.VAR_POSITIONAL),
        None,
    )
    if star is not None:
        return factory(*given[star.name])  # type: ignore[misc]
    return factory(**given)


def signature(factory: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    return {} if factory is Union else inspect.signature(factory).parameters


def single_changes() -> Iterator[object]:
    for factory in GIVEN:
        for name in signature(factory):
            if name == "pace":
                for part in inspect.signature(Pace).parameters:
                    yield pytest.param(factory, name, part, id=f"{factory.__name__}-pace.{part}")
            else:
                yield pytest.param(factory, name, None, id=f"{factory.__name__}-{name}")


@pytest.mark.parametrize(("factory", "name", "part"), list(single_changes()))
def test_a_change_of_any_single_parameter_shows(factory: Callable[..., object], name: str, part: str | None) -> None:
    given = {parameter: pair[0] for parameter, pair in GIVEN[factory].items() if parameter in signature(factory)}  # type: ignore[index]
    before = after = given
    if part is None:
        assert name in GIVEN[factory], f"{factory.__name__} has a parameter {name!r}: say two values of it above"  # type: ignore[index]
        after = {**given, name: GIVEN[factory][name][1]}  # type: ignore[index]
    else:
        assert part in PACES, f"Pace has a parameter {part!r}: say two values of it above"
        paces = [Pace(**{part: value}) for value in PACES[part]]  # type: ignore[arg-type]
        before, after = {**given, "pace": paces[0]}, {**given, "pace": paces[1]}
    first, same, other = (made(factory, each) for each in (before, before, after))
    assert isinstance(first, Computation | Source)
    assert isinstance(same, Computation | Source)
    assert isinstance(other, Computation | Source)
    assert canonical(described(first.parameters())) == canonical(described(same.parameters()))
    described_one, described_other = described(first.parameters()), described(other.parameters())
    differing = differences(
        {"computes": type(first).__name__, "parameters": described_one},
        {"computes": type(other).__name__, "parameters": described_other},
    )
    assert differing
    assert all(" was " in each.words or " has changed" in each.words for each in differing)


def test_every_computation_and_source_there_is_is_tried() -> None:
    def below(kind: type) -> Iterator[type]:
        subclasses: list[type] = kind.__subclasses__()
        for kind in subclasses:
            yield kind
            yield from below(kind)

    tried = {
        type(made(factory, {name: pair[0] for name, pair in given.items() if name in signature(factory)})).__name__
        for factory, given in GIVEN.items()
    }
    there = {
        kind.__name__  # those with slots are there twice
        for base in (Computation, Source)
        for kind in below(base)
        if kind.__module__.startswith(("tenax.operators.", "tenax.connectors.")) and not inspect.isabstract(kind)
    }
    assert there <= tried


def test_a_length_is_said_as_it_was_written() -> None:
    length, unit = (windows("ts", ["k"], text, None, [pl.len()]).parameters() for text in ("10s", "1m30s"))
    (difference, _) = differences({"parameters": described(length)}, {"parameters": described(unit)})
    assert difference.words == "length was 10s, is 1m30s"


def same_text(value: int) -> pl.Expr:
    return pl.col("a").is_in(pl.Series([1, value]))


@pytest.mark.parametrize(
    ("expression", "other"),
    [
        (pl.col("a") < 20, pl.col("a") < 20.0),
        (pl.col("a").cast(pl.Int64), pl.col("a").cast(pl.Int64, strict=False)),
        (same_text(2), same_text(3)),
        (pl.col("a").map_elements(lambda x: max(x, 1)), pl.col("a").map_elements(lambda x: max(x, 2))),
        (pl.col("a").map_batches(lambda x: x.sort()), pl.col("a").map_batches(lambda x: x.reverse())),
    ],
)
def test_expressions_differ_by_what_their_text_leaves_out(expression: pl.Expr, other: pl.Expr) -> None:
    describer = Describer()
    assert canonical(describer.plain(expression)) != canonical(describer.plain(other))


APPLICATION = """
import polars as pl
import tenax as tx
from helping import cleaned, Base
LIMIT = 20
def deeper(rows):
    return rows.head(LIMIT)
def checked(rows, most=5):
    def inner(part):
        return part.filter(pl.col("value") < most + 7)
    return cleaned(deeper(inner(rows)))
def scaled(factor):
    return lambda rows: rows.with_columns(pl.col("value") * factor)
class Totals(Base):
    keys = ("sequence",)
    state_schema = pl.Schema({"sequence": pl.Int64, "total": pl.Float64})
    def __init__(self, start):
        self.start = start
    def step_keys(self, rows, state, watermark_us):
        return rows, tx.Changes(upserts=self.made(rows))
topology = tx.Topology("t")
rows = topology.source("rows", tx.elements(rate=10, pace=tx.Pace(rows=10)))
rows = rows.map(checked, name="check").map(scaled(3), name="scale")
rows = rows.with_columns(pl.col("value").map_elements(lambda x: max(x, 2.5, LIMIT), pl.Float64).alias("w"), name="each")
rows.key_by("sequence").apply(Totals(start=1), name="totals").output("out", tx.console())
"""
HELPING = """
import polars as pl
import tenax as tx
FLOOR = 0.25
def cleaned(rows):
    return rows.filter(pl.col("value") >= FLOOR)
class Base(tx.KeyedComputation):
    def made(self, rows):
        return rows.select("sequence", total=pl.col("value") + 1)
"""
LAID_OUT_OTHERWISE = (
    APPLICATION.replace(
        "    def inner(part):", '    """Says what it does."""\n\n\n    # a comment\n    def inner(part):'
    )
    .replace("rows.head(LIMIT)", "rows.head(\n        LIMIT,\n    )")
    .replace("return cleaned(deeper(inner(rows)))", "return cleaned(\n        deeper(inner(rows))\n    )  # done")
    .replace("LIMIT = 20", "UNUSED = 1\nLIMIT = 20")
    .replace("class Totals(Base):", 'class Totals(Base):\n    """Totals."""\n')
)


def loaded(folder: Path, application: str = APPLICATION, helping: str = HELPING) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    sys.modules.pop("helping", None)
    sys.path[:] = [folder for folder in sys.path if not Path(folder, "helping.py").exists()]
    (folder / "app.py").write_text(application)
    (folder / "helping.py").write_text(helping)
    return load_application(folder / "app.py", {}).fingerprint()  # type: ignore[return-value]


def words(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, list[str]]:
    differing_words = {}
    for name in before["operators"]:  # type: ignore[attr-defined]
        first, other = (whole["operators"][name] for whole in (before, after))  # type: ignore[index]
        if differing := differences(first, other):
            differing_words[name] = [each.words for each in differing]
    return differing_words


def test_code_laid_out_otherwise_in_another_folder_is_the_same(tmp_path: Path) -> None:
    before = loaded(tmp_path / "one")
    after = loaded(tmp_path / "other" / "place", LAID_OUT_OTHERWISE, "\n\n# moved down\n" + HELPING)
    assert canonical(before) == canonical(after)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "old", "new", "operator", "expected"),
    [
        ("app", "most + 7", "most + 8", "check", "the code of map has changed"),
        ("app", "most=5", "most=6", "check", "map was 5, is 6"),
        ("app", "LIMIT = 20", "LIMIT = 21", "check", "map.deeper.LIMIT was 20, is 21"),
        ("app", "LIMIT = 20", "LIMIT = 21", "each", "does not show"),
        ("app", "rows.head(LIMIT)", "rows.tail(LIMIT)", "check", "the code of map.deeper has changed"),
        ("helping", "FLOOR = 0.25", "FLOOR = 0.5", "check", "map.cleaned.FLOOR was 0.25, is 0.5"),
        ("app", "scaled(3)", "scaled(4)", "scale", "map.factor was 3, is 4"),
        ("app", "(x, 2.5,", "(x, 2.0,", "each", "does not show"),
        ("app", "Totals(start=1)", "Totals(start=2)", "totals", "start was 1, is 2"),
        (
            "app",
            '"total": pl.Float64',
            '"total": pl.Float32',
            "totals",
            "code.state_schema.total was Float64, is Float32",
        ),
        ("helping", 'pl.col("value") + 1)', 'pl.col("value") + 2)', "totals", "the code of made has changed"),
        ("app", 'key_by("sequence")', 'key_by("value")', "totals", "keys.each was sequence, is value"),
        ("app", "rate=10,", "rate=20,", "rows", "rate.rows was 10, is 20"),
    ],
)
def test_what_means_something_else_is_named(
    tmp_path: Path, file: str, old: str, new: str, operator: str, expected: str
) -> None:
    texts = {"app": APPLICATION, "helping": HELPING}
    assert old in texts[file]
    before = loaded(tmp_path / "one")
    texts[file] = texts[file].replace(old, new)
    changed = words(before, loaded(tmp_path / "two", texts["app"], texts["helping"]))
    assert any(expected in line for line in changed[operator]), changed
    assert not {"check", "scale", "each", "totals", "rows"} - {operator} & set(changed) or file == "app"


def test_a_fingerprint_is_the_same_in_every_process(tmp_path: Path) -> None:
    loaded(tmp_path)
    code = (
        "import sys, json; from pathlib import Path; from tenax.engine.loading import load_application; "
        f"print(json.dumps(load_application(Path({str(tmp_path / 'app.py')!r}), {{}}).fingerprint(), sort_keys=True))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["operators"]


def simple(name: str = "t", *, limit: int = 20, swapped: bool = False, priority: float | list[float] = 1.0) -> Topology:
    topology = Topology(name)
    sources = ["a", "b"]
    streams = {name: topology.source(name, elements(rate=10)) for name in (sources[::-1] if swapped else sources)}
    both = streams["a"].union(streams["b"], name="both").filter(pl.col("value") < limit, name="few")
    both.window("1s").aggregate(pl.len(), name="count").output("out", console(), priority=priority)
    return topology


def test_the_order_of_declarations_and_priorities_may_change(tmp_path: Path) -> None:
    first = simple().build()
    for other in (simple(swapped=True, priority=9.0).build(), simple(priority=[9.0]).build()):
        before, after = (placed(each.fingerprint(), each.sinks, tmp_path) for each in (first, other))
        assert compared(other, before, after).is_empty


@pytest.mark.parametrize("which", ["polars", "python"])
def test_another_version_of_polars_or_python_is_no_other_code_and_is_said(tmp_path: Path, which: str) -> None:
    application = simple().build()
    now = placed(application.fingerprint(), application.sinks, tmp_path)
    other = json.loads(json.dumps(now))
    other[which] = "0.1"
    other["operators"]["few"]["parameters"]["filter"][0]["(digest)"] = "of another form"
    other["operators"]["few"]["parameters"]["filter"][0]["(expression)"] = 'col("value") < 20'
    comparison = compared(application, other, now)
    assert not comparison.changed
    assert f"{which.capitalize()} 0.1" in comparison.notes[0]
    other["operators"]["few"]["parameters"]["filter"][0]["(columns)"] = ["other"]
    assert list(compared(application, other, now).changed) == ["few"]


def test_values_that_hold_themselves_or_cannot_travel_are_described_all_the_same() -> None:
    import threading

    ring: list[object] = [1]
    ring.append(ring)

    def forever(rows: pl.DataFrame) -> pl.DataFrame:
        return forever(rows) if ring else rows

    lock = threading.Lock()
    described({"ring": ring, "lock": lock, "function": forever, "nan": float("nan"), "kind": Pace, "set": {2, 1}})


def test_values_of_enumerations_and_keys_that_are_objects_count() -> None:
    from enum import Enum, IntEnum

    class Key:
        def __init__(self, value: int) -> None:
            self.value = value

    def kinds(value: int) -> list[object]:
        return [Enum("Colour", {"RED": value}).RED, IntEnum("Number", {"ONE": value}).ONE, {Key(value): 1}]  # type: ignore[attr-defined]

    for first, same, other in zip(kinds(1), kinds(1), kinds(2), strict=True):
        assert canonical(described({"it": first})) == canonical(described({"it": same}))
        assert canonical(described({"it": first})) != canonical(described({"it": other}))


def test_attributes_of_any_name_count() -> None:
    class Plain:
        def __init__(self, value: int) -> None:
            self.function = self.code = self.digest = value

    assert canonical(described({"it": Plain(1)})) != canonical(described({"it": Plain(2)}))
    for name in ("function", "class", "expression", "digest", "code", "type"):
        assert canonical(described({name: 1})) != canonical(described({name: 2}))
        assert fingerprints.differences({"parameters": {name: 1}}, {"parameters": {name: 2}})
