"""The public names, pinned: one that is added, renamed or dropped is changed here as well, on purpose."""

from __future__ import annotations

import inspect
import subprocess
import sys

import tenax as tx
from tenax.api import public

NAMES = [
    "ChangedSource",
    "Changes",
    "Committer",
    "Computation",
    "ConflictingResults",
    "DamagedStore",
    "EpochLost",
    "Groups",
    "InvalidSource",
    "Json",
    "KeyedComputation",
    "Limits",
    "LoggedCommitter",
    "LoggedSink",
    "NothingNew",
    "Pace",
    "Plain",
    "Planned",
    "Results",
    "RunFailed",
    "RunResult",
    "Sink",
    "SinkFailed",
    "Source",
    "SourceFailed",
    "Splits",
    "Staged",
    "State",
    "StepInput",
    "StepOutput",
    "Stream",
    "Survey",
    "TenaxError",
    "Topology",
    "UnreadableSource",
    "Windowed",
    "apply",
    "callback",
    "collect",
    "console",
    "elements",
    "files",
    "incident_reports",
    "page_views",
    "parquet",
    "read_committed",
    "read_latest",
    "run",
    "stop_cluster",
    "traffic_locations",
    "tweets",
]
TESTING = ["BrokenContract", "ComputationCheck", "check_computation", "check_sink", "check_source", "run"]
TOPOLOGY = ["build", "elastic", "protect", "source"]
STREAM = ["apply", "filter", "join", "key_by", "map", "output", "select", "top", "union", "window", "with_columns"]


def test_the_public_names_are_these() -> None:
    assert public.__all__ == NAMES
    assert dir(tx) == sorted({*NAMES, "__doc__", "__name__", "__version__", "testing"})


def test_the_names_for_tests_are_these() -> None:
    assert tx.testing.__all__ == TESTING


def test_the_calls_of_a_topology_and_of_a_stream_are_these() -> None:
    for kind, names in ((tx.Topology, TOPOLOGY), (tx.Stream, STREAM)):
        calls = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
        assert calls == names


def test_every_public_name_says_what_it_is_for() -> None:
    for name in NAMES:
        assert inspect.getdoc(getattr(tx, name)) or name == "State", name


def test_names_are_loaded_without_spark_and_pictures() -> None:
    script = (
        "import sys, tenax as tx\n"
        f"[getattr(tx, name) for name in {NAMES!r}]; tx.testing\n"
        "heavy = {'pyspark', 'py4j', 'matplotlib', 'ortools', 'pandas', 'rich', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
