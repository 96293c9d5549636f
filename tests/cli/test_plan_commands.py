"""The commands of the contract: exactly the promised fields, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenax.cli.experiment import Bar
from tenax.cli.main import run

TOPOLOGY = """
name: roads
operators:
  - {name: locations, parallelism: 2, rate: 100, safe: true}
  - {name: speed, parallelism: 4, weights: [4, 3, 2, 1], inputs: [{from: locations}]}
  - {name: jams, parallelism: 2, inputs: [{from: speed, partitioning: merge}], output: {priority: [3, 1]}, cost: 2}
"""


@pytest.fixture
def roads(tmp_path: Path) -> str:
    path = tmp_path / "roads.yaml"
    path.write_text(TOPOLOGY)
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict)
    return data


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line on standard error of a command that must fail with code 2."""
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("tenax: ")
    assert "Traceback" not in lines[0]
    return lines[0]


def test_backups_prints_exactly_the_promised_fields(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    data = printed(capsys, "plan", "backups", roads, "--latency", "2")
    assert list(data) == ["algorithm", "backups", "count", "recovery_latency", "optimal"]
    assert data["count"] == 2
    assert data["backups"] == ["locations[0]", "locations[1]"]
    assert data["recovery_latency"] == 2.0
    assert data["optimal"] is True


def test_replicas_prints_exactly_the_promised_fields(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    data = printed(capsys, "plan", "replicas", roads, "--budget", "2")
    assert list(data) == ["algorithm", "replicas", "count", "fidelity", "completeness", "optimal"]
    assert data["replicas"] == ["speed[0]", "jams[0]"]
    # jams[0] gets 70 of 100 tuples/s at priority 3, 40 of them from speed[0]: 120 of 210 + 30.
    assert data["fidelity"] == pytest.approx(120 / 240)
    assert data["optimal"] is True


def test_recovery_prints_exactly_the_promised_fields(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    data = printed(capsys, "plan", "recovery", roads, "--failed", "speed[0],jams[0],jams[1]", "--capacity", "3")
    assert list(data) == ["algorithm", "recover", "queries", "priority", "cost", "optimal"]
    assert data["recover"] == ["speed[0]", "jams[0]"]
    assert data["queries"] == ["jams[0]"]
    assert (data["priority"], data["cost"], data["optimal"]) == (3.0, 3.0, True)


def test_fidelity_prints_exactly_the_promised_fields(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    data = printed(capsys, "fidelity", roads, "--failed", "speed[0]")
    assert data == {"fidelity": pytest.approx(1 - 120 / 240), "completeness": pytest.approx(220 / 300)}


@pytest.mark.parametrize("algorithm", ["exact", "dag", "tree", "share", "exhaustive"])
def test_every_backup_algorithm_can_be_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, algorithm: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("name: t\noperators: [{name: a, parallelism: 2}, {name: b, inputs: [{from: a}]}]")
    data = printed(capsys, "plan", "backups", str(path), "--latency", "1", "--algorithm", algorithm)
    assert data["algorithm"] == algorithm
    assert data["count"] == 2


@pytest.mark.parametrize("algorithm", ["exact", "structure-aware", "greedy", "dp"])
@pytest.mark.parametrize("metric", ["fidelity", "completeness"])
def test_every_replica_algorithm_can_be_asked_for(
    capsys: pytest.CaptureFixture[str], roads: str, algorithm: str, metric: str
) -> None:
    data = printed(capsys, "plan", "replicas", roads, "--budget", "3", "--algorithm", algorithm, "--metric", metric)
    assert data["algorithm"] == algorithm


@pytest.mark.parametrize("algorithm", ["exact", "best-density", "dp", "operator-centric"])
def test_every_recovery_algorithm_can_be_asked_for(
    capsys: pytest.CaptureFixture[str], roads: str, algorithm: str
) -> None:
    words = ("--failed", "speed[*],jams[*]", "--capacity", "4", "--algorithm", algorithm)
    assert printed(capsys, "plan", "recovery", roads, *words)["algorithm"] == algorithm


def test_a_schedule_shows_both_paradigms(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    words = ("--failed", "speed[*],jams[*]", "--nodes", "2,2,2,2", "--limit", "1")
    schedules = printed(capsys, "plan", "schedule", roads, *words)["schedules"]
    assert isinstance(schedules, list)
    assert [schedule["algorithm"] for schedule in schedules] == ["exact", "operator-centric"]
    assert run(["plan", "schedule", roads, *words]) == 0
    assert "queries back" in capsys.readouterr().out


def test_latency_follows_lost_backups(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    words = ("--backups", "speed[*]", "--failed", "jams[0],speed[1]")
    assert printed(capsys, "latency", roads, *words) == {
        "recovery_latency": 3.0,
        "tasks": {"speed[1]": 2.0, "jams[0]": 3.0},
    }


def test_the_whole_plan_has_its_parts(capsys: pytest.CaptureFixture[str], roads: str, tmp_path: Path) -> None:
    domains = tmp_path / "cluster.yaml"
    domains.write_text("nodes: [{name: n1}, {name: n2}, {name: n3}]\ncheckpoint: 1\nfailures_per_day: {n1: 1}")
    words = ("plan", "all", roads, "--latency", "2", "--budget", "2", "--domains", str(domains))
    data = printed(capsys, *words)
    assert list(data) == [
        "topology", "latency", "budget", "backups", "replicas", "proofs", "placement", "checkpoint_interval",
        "promises", "cost",
    ]  # fmt: skip
    assert run(words) == 0
    assert "When a domain is lost" in capsys.readouterr().out
    assert run(words[:-2]) == 0
    assert "--domains" in capsys.readouterr().out


def test_a_plan_looks_the_same_alone_and_as_part_of_the_whole(capsys: pytest.CaptureFixture[str], roads: str) -> None:
    whole = printed(capsys, "plan", "all", roads, "--latency", "2", "--budget", "2")
    assert printed(capsys, "plan", "backups", roads, "--latency", "2") == whole["backups"]
    assert printed(capsys, "plan", "replicas", roads, "--budget", "2") == whole["replicas"]


CONTRACT = {
    ("backups", "--latency", "2"): ["algorithm", "backups", "count", "recovery_latency", "optimal"],
    ("replicas", "--budget", "2"): ["algorithm", "replicas", "count", "fidelity", "completeness", "optimal"],
    ("recovery", "--failed", "speed[*]", "--capacity", "2"): [
        "algorithm", "recover", "queries", "priority", "cost", "optimal",
    ],
}  # fmt: skip


@pytest.mark.parametrize("words", CONTRACT)
def test_other_programs_find_the_keys_that_they_know(
    capsys: pytest.CaptureFixture[str], roads: str, words: tuple[str, ...]
) -> None:
    command, *options = words
    assert list(printed(capsys, "plan", command, roads, *options)) == CONTRACT[words]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_pictures_are_drawn(capsys: pytest.CaptureFixture[str], roads: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"plan.{suffix}"
    assert run(["plan", "backups", roads, "--latency", "2", "--picture", str(path)]) == 0
    assert path.stat().st_size > 1000
    assert str(path) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("describe",),
        ("plan", "backups", "--latency", "2"),
        ("plan", "replicas", "--budget", "2"),
        ("plan", "recovery", "--failed", "speed[0]", "--capacity", "1"),
        ("fidelity", "--failed", "speed[0]"),
        ("latency", "--failed", "speed[0]"),
    ],
)
def test_every_command_has_a_readable_form(
    capsys: pytest.CaptureFixture[str], roads: str, words: tuple[str, ...]
) -> None:
    assert run([*words, roads]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 2


MISTAKES = [
    (("plan", "backups", "nowhere.yaml", "--latency", "2"), "no such file"),
    (("plan", "backups", "ROADS"), "Missing option '--latency'"),
    (("plan", "backups", "ROADS", "--latency", "soon"), "'--latency': must be a number, found 'soon'"),
    (("plan", "backups", "ROADS", "--latency", "-1"), "-1"),
    (("plan", "backups", "ROADS", "--latency", "0"), "0"),
    (("plan", "backups", "ROADS", "--latency", "nan"), "nan"),
    (("plan", "backups", "ROADS", "--latency", "inf"), "inf"),
    (("plan", "backups", "ROADS", "--latency", "0.5"), "locations[0]"),
    (("plan", "backups", "ROADS", "--latency", "2", "--algorithm", "tre"), "did you mean 'tree'?"),
    (("plan", "backups", "ROADS", "--latency", "2", "--algorithm", "line"), "line"),
    (("plan", "backups", "ROADS", "--latency", "2", "--picture", "plan.gif"), "svg"),
    (("plan", "backups", "ROADS", "--latency", "2", "--time-limit", "0"), "--time-limit"),
    (("plan", "replicas", "ROADS", "--budget", "-1"), "-1"),
    (("plan", "replicas", "ROADS", "--budget", "1.5"), "1.5"),
    (("plan", "replicas", "ROADS", "--budget", "1", "--metric", "beauty"), "beauty"),
    (("plan", "replicas", "ROADS", "--budget", "1", "--algorithm", "gredy"), "did you mean 'greedy'?"),
    (("plan", "recovery", "ROADS", "--failed", "sped[0]", "--capacity", "1"), "did you mean 'speed'?"),
    (("plan", "recovery", "ROADS", "--failed", "speed[9]", "--capacity", "1"), "speed has 4 tasks"),
    (("plan", "recovery", "ROADS", "--failed", "speed", "--capacity", "1"), "operator[index]"),
    (("plan", "recovery", "ROADS", "--failed", "locations[0]", "--capacity", "1"), "safe tasks never fail"),
    (("plan", "recovery", "ROADS", "--failed", "speed[0]", "--capacity", "-1"), "-1"),
    (("plan", "recovery", "ROADS", "--failed", "speed[0]", "--capacity", "nan"), "nan"),
    (("plan", "schedule", "ROADS", "--failed", "speed[0]", "--nodes", "2,x"), "'x'"),
    (("plan", "schedule", "ROADS", "--failed", "speed[0]", "--nodes", "2,-1"), "-1"),
    (("plan", "schedule", "ROADS", "--failed", "speed[0]", "--nodes", "2", "--limit", "2"), "2"),
    (("plan", "all", "ROADS", "--latency", "2", "--budget", "1", "--domains", "no.yaml"), "no such file"),
    (("plan", "everything", "ROADS"), "No such command 'everything'"),
    (("fidelity", "ROADS", "--failed", "speed[0]", "--shout"), "--shout"),
    (("fidelity", "ROADS"), "Missing option '--failed'"),
    (("schema", "poem"), "poem"),
    (("experiment", "run", "backup"), "did you mean 'backups'?"),
    (("experiment", "run", "backups", "--out", "ROADS"), "--out is a folder"),
    (("demo", "--out", "ROADS"), "--out is a folder"),
    (("plan", "backups", "ROADS", "--latency=late"), "must be a number, found 'late'"),
]


@pytest.mark.parametrize(("words", "expected"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], roads: str, words: tuple[str, ...], expected: str
) -> None:
    assert expected in complaint(capsys, *(roads if word == "ROADS" else word for word in words))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: t\noperators: [{name: a, inputs: [{from: b}]}, {name: b, inputs: [{from: a}]}]", "cycle"),
        ("name: t\noperators: [{name: a, paralelism: 2}]", "did you mean 'parallelism'?"),
        ("name: t\noperators: [{name: a, rate: .inf}]", "finite number"),
        ("a: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    assert expected in complaint(capsys, "plan", "backups", str(path), "--latency", "1")


@pytest.mark.parametrize("words", [(), ("plan",), ("experiment",), ("plan", "backups"), ("plan", "all"), ("fidelity",)])
def test_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert run([*words, "--help"]) == 0
    assert "tenax " in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("plan",), ("experiment",)])
def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert run(words) == 0
    assert "Usage" in capsys.readouterr().out


def test_where_there_is_no_terminal_an_experiment_says_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenax.cli.experiment.SAY_EVERY_S", 0.0)
    with Bar() as bar:
        bar.total(3)
        bar.advance("first round")
        bar.advance("second round")
    assert capsys.readouterr().err.split("\n")[:2] == ["1 of 3 steps: first round", "2 of 3 steps: second round"]


def test_schemas_examples_and_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "cluster"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Tenax cluster"
    assert run(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(Path(line.split("  ")[0]).name == "traffic.yaml" for line in lines)
    assert all(Path(line.split("  ")[0]).exists() for line in lines)
    assert run(["experiment", "list"]) == 0
    assert "planner-scale" in capsys.readouterr().out
