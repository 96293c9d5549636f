"""Topology files: what is written reads back equal, and every wrong file gets one line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from strategies import topologies

from tenax.errors import InvalidFile
from tenax.model.cluster_files import cluster_schema
from tenax.model.files import read_topology, topology_data, topology_schema, write_topology
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology

DOCS = Path(__file__).parents[2] / "docs"


@given(topologies())
@settings(max_examples=150, deadline=None)
def test_a_written_topology_reads_back_equal(topology: Topology) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".yaml", ".json"):
            path = Path(folder) / f"topology{suffix}"
            write_topology(topology, path)
            assert read_topology(path) == topology


@given(topologies())
@settings(max_examples=50, deadline=None)
def test_what_is_written_fits_the_published_schema(topology: Topology) -> None:
    jsonschema.validate(topology_data(topology), topology_schema())


@pytest.mark.parametrize(("name", "schema"), [("topology", topology_schema()), ("cluster", cluster_schema())])
def test_the_published_schemas_are_current(name: str, schema: dict[str, object]) -> None:
    published = json.loads((DOCS / f"{name}.schema.json").read_text())
    assert published == schema, f"run: tenax schema {name} > docs/{name}.schema.json"


def test_the_format_of_the_contract_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("""
name: traffic
operators:
  - name: jams
    parallelism: 2
    correlated: true
    inputs: [{from: speed, partitioning: full}, {from: reports}]
    output: {priority: [2, 1]}
    reprocess: 1.5
    cost: 10
    safe: false
  - {name: locations, parallelism: 4, rate: 2e4}
  - {name: reports, parallelism: 2, rate: [10, 20.5]}
  - name: speed
    parallelism: 3
    weights: [3, 2, 1]
    selectivity: 0.05
    inputs:
      - {from: locations, partitioning: full}
""")
    assert read_topology(path) == Topology(
        "traffic",
        (
            Operator(
                "jams",
                2,
                (Input("speed"), Input("reports")),
                correlated=True,
                output=Output((2.0, 1.0)),
                reprocess=1.5,
                cost=10.0,
            ),
            Operator("locations", 4, rate=20_000.0),
            Operator("reports", 2, rate=(10.0, 20.5)),
            Operator("speed", 3, (Input("locations", Partitioning.FULL),), weights=(3.0, 2.0, 1.0), selectivity=0.05),
        ),
    )


ONE = "name: t\noperators:\n  - "

WRONG = [
    (ONE + "{name: a, paralelism: 3}", "operator 'a': unknown key 'paralelism': did you mean 'parallelism'?"),
    (ONE + "{name: a, inputs: [{form: b}]}", "inputs[0]: unknown key 'form': did you mean 'from'?"),
    (ONE + "{name: a, output: {prio: 2}}", "unknown key 'prio': did you mean 'priority'?"),
    ("name: t\noperator: []", "unknown key 'operator': did you mean 'operators'?"),
    (ONE + "{parallelism: 2}", "operators[0]: 'name' is missing"),
    (ONE + "{name: a, rate: -1}", "rate must be at least 0, found -1"),
    (ONE + "{name: a, rate: .nan}", "rate must be a finite number, found nan"),
    (ONE + "{name: a, rate: [1, .inf], parallelism: 2}", "rate[1] must be a finite number, found inf"),
    (ONE + "{name: a, rate: fast}", "rate must be a number, found 'fast'"),
    (ONE + "{name: a, rate: true}", "rate must be a number, found true"),
    (ONE + "{name: a, weights: [1, x], parallelism: 2}", "weights[1] must be a number, found 'x'"),
    (ONE + "{name: a, weights: [1, 2, 3], parallelism: 2}", "weights needs one number per task (2), found 3"),
    (ONE + "{name: a, parallelism: 2.5}", "parallelism must be a whole number, found 2.5"),
    (ONE + "{name: a, parallelism: '2'}", "parallelism must be a whole number, found '2'"),
    (ONE + "{name: a, parallelism: 0}", "parallelism must be at least 1, found 0"),
    (ONE + "{name: a, parallelism: 99999999999}", "parallelism must be at most 10000000"),
    (ONE + "{name: A}", "name must be lower-case letters"),
    (ONE + "{name: on}", "name must be text, found true: put it in quotes"),
    (ONE + "{name: a, correlated: 1}", "correlated must be true or false, found 1"),
    (ONE + "{name: a, inputs: b}", "inputs must be a list, found 'b'"),
    (ONE + "{name: a, output: true}", "output must be a mapping, found true"),
    (
        ONE + "{name: a, inputs: [{from: b, partitioning: ful}]}",
        "must be one-to-one, split, merge or full, found 'ful'",
    ),
    (ONE + "{name: a, inputs: [{from: a}]}", "no cycles, found a -> a"),
    (ONE + "{name: a, inputs: [{from: b}]}", "unknown input 'b'"),
    (ONE + "{name: a, name: b}", "key 'name' twice in line 3"),
    (ONE + "!!python/object/apply:os.system ['true']", "could not determine a constructor"),
    (ONE + "3", "operators[0] must be a mapping, found 3"),
    ("", "a mapping with name, operators is expected, found nothing"),
    ("[1, 2]", "a mapping with name, operators is expected, found a list of 2"),
    ("a: [1", "not YAML"),
    ("a: &a [*a]", "not YAML: more than"),
    (
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
        "not YAML: more than",
    ),
    ("[" * 5000, "nested too deeply"),
    ("\x00", "not YAML"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_wrong_file_gets_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(InvalidFile) as caught:
        read_topology(path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('{"name": "t", "operators": [{"name": "a", "rate": NaN}]}', "rate must be a finite number, found nan"),
        ('{"name": "t", "name": "u"}', "keys are unique, found 'name' twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_json_file_gets_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=words.replace("[", r"\[")):
        read_topology(path)


def test_missing_files_folders_and_other_encodings_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="no such file"):
        read_topology(tmp_path / "nothing.yaml")
    with pytest.raises(InvalidFile, match="found a folder"):
        read_topology(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("name: f\xfcr".encode("latin-1"))
    with pytest.raises(InvalidFile, match="UTF-8"):
        read_topology(tmp_path / "latin.yaml")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be written"):
        write_topology(Topology("t", (Operator("a"),)), tmp_path / "nowhere" / "t.yaml")
