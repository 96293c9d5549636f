"""Plan files: what plan commands print is handed to a run, held against its topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenax.errors import InvalidRequest, TenaxError
from tenax.model.graph import TaskGraph
from tenax.model.plan_files import read_plan
from tenax.model.settings import Settings
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.backups import plan_backups
from tenax.planning.protection import plan_protection
from tenax.planning.replicas import plan_replicas

# a (2) ──▶ b (2) ──▶ c (1)
TOPOLOGY = Topology(
    "line",
    (Operator("a", 2, safe=True, reprocess=0.0), Operator("b", 2, (Input("a"),)), Operator("c", 1, (Input("b"),))),
)


def written(folder: Path, data: object) -> Path:
    path = folder / "plan.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_plan_of_everything_is_its_replicas_and_backups(tmp_path: Path) -> None:
    plan = plan_protection(TaskGraph(TOPOLOGY), 1.0, 2)
    words = read_plan(written(tmp_path, plan.to_data()), TOPOLOGY)
    assert words == {"replicas": ("b[0]", "c[0]"), "backups": ("b[0]", "b[1]")}
    made = Settings.of(recovery_latency="1s", replicas=4).but(**words).protection
    assert (made.replicas, made.backups, made.recovery_latency) == (("b[0]", "c[0]"), ("b[0]", "b[1]"), None)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (plan_backups(TaskGraph(TOPOLOGY), 1.0).to_data(), {"backups": ("b[0]", "b[1]")}),
        (plan_backups(TaskGraph(TOPOLOGY), 2.0).to_data(), {"backups": "source"}),
        (plan_replicas(TaskGraph(TOPOLOGY), 0).to_data(), {"replicas": 0}),
    ],
)
def test_a_plan_of_one_kind_says_nothing_of_the_other(tmp_path: Path, data: object, words: dict[str, Any]) -> None:
    assert read_plan(written(tmp_path, data), TOPOLOGY) == words


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "plan.json: not JSON"),
        ([], "plan.json: a plan has replicas or backups, found neither: make it by 'tenax plan all"),
        ({"backups": 3}, "backups of a plan are a list of tasks, found 3: make it by"),
        ({"backups": ["b"]}, "plan.json: a task is written operator[index], found 'b'"),
        ({"backups": ["bb[0]"]}, "unknown operator in task bb[0]: did you mean 'b'?"),
        ({"replicas": ["b[7]"]}, "b[7]"),
        ({"replicas": ["a[0]"]}, "plan.json: sources have their log, found a[0] among the replicas: plan the"),
    ],
)
def test_a_file_that_is_no_plan_of_the_topology_is_one_line_with_the_remedy(
    tmp_path: Path, data: object, message: str
) -> None:
    with pytest.raises(TenaxError) as raised:
        read_plan(written(tmp_path, data), TOPOLOGY)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("word", ["replicas", "backups", "recovery_latency"])
def test_a_plan_stands_alone(tmp_path: Path, word: str) -> None:
    with pytest.raises(InvalidRequest, match=f"found {word} beside it: leave one of the two out"):
        read_plan(written(tmp_path, {"backups": []}), TOPOLOGY, beside={"nodes", word})
