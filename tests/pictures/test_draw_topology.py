"""Pictures are files that hold everything, say the same twice, and refuse what they cannot draw in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from tenax.errors import InvalidRequest, TooLarge, UnknownTask
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.pictures.topology import MAX_DRAWN_TASKS, draw_topology


def joined(parallelism: int = 2) -> TaskGraph:
    r"""Two sources meet in a join; one of them is also archived.

    locations ──── speed ──── jams
        └── archive          /
    reports ────────────────┘
    """
    return TaskGraph(
        Topology(
            "traffic",
            (
                Operator("locations", parallelism, rate=20_000.0, safe=True),
                Operator("reports", parallelism),
                Operator("speed", parallelism, (Input("locations", Partitioning.ONE_TO_ONE),)),
                Operator("jams", parallelism, (Input("speed"), Input("reports")), correlated=True, output=Output(2.0)),
                Operator("archive", 1, (Input("locations"),), output=Output(1.0)),
            ),
        )
    )


MARKS = {
    "backups": (Task("speed", 0),),
    "replicas": (Task("speed", 0), Task("jams", 1)),
    "failed": (Task("speed", 1), Task("reports", 0)),
    "recovered": (Task("speed", 1),),
}


def drawn_words(path: Path) -> str:
    """The text of an SVG; matplotlib writes it beside the outlines of its letters."""
    return path.read_text(encoding="utf-8")


def test_a_picture_names_every_operator_its_kind_and_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "new" / "picture.svg"
    draw_topology(joined(), path, marks=MARKS, title="Traffic & jams", notes=("budget 2 of 9 tasks",))
    words = drawn_words(path)
    for expected in ("locations", "source · 20,000/s", "safe", "join", "output · priority 2", "Traffic", "budget 2 of"):
        assert expected in words, expected
    for mark in MARKS:
        assert f"<!-- {mark} -->" in words


def test_the_legend_shows_only_the_marks_that_are_present(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    draw_topology(joined(), path, marks={"failed": MARKS["failed"], "backups": ()})
    words = drawn_words(path)
    assert "<!-- failed -->" in words
    assert "<!-- backups -->" not in words


def test_the_same_topology_gives_the_same_svg(tmp_path: Path) -> None:
    first, second = tmp_path / "one.svg", tmp_path / "two.svg"
    draw_topology(joined(), first, marks=MARKS)
    draw_topology(joined(), second, marks={name: tuple(reversed(tasks)) for name, tasks in reversed(MARKS.items())})
    assert first.read_bytes() == second.read_bytes()


def test_many_tasks_are_counted_instead_of_drawn(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    graph = joined(MAX_DRAWN_TASKS)
    marks = {"failed": [Task("speed", index) for index in range(30)], "replicas": [Task("speed", 0)]}
    draw_topology(graph, path, marks=marks)
    words = drawn_words(path)
    for expected in ("120 tasks", "30 failed", "1 replica", "one-to-one", "full"):
        assert f"<!-- {expected} -->" in words, expected


def test_nothing_reaches_the_border_of_a_picture(tmp_path: Path) -> None:
    for parallelism in (1, 7, 29, MAX_DRAWN_TASKS):
        path = tmp_path / f"{parallelism}.png"
        marks = {
            name: [Task(operator, 0) for operator in ("locations", "reports", "speed", "jams", "archive")]
            for name in MARKS
            if name != "failed"
        }
        draw_topology(joined(parallelism), path, marks=marks, title="a title " * 12, notes=("a note " * 30,))
        pixels = imread(path)[..., :3]
        border = 20
        for strip in (pixels[:border], pixels[-border:], pixels[:, :border], pixels[:, -border:]):
            assert strip.min() == 1.0


def test_a_single_operator_and_parts_without_a_common_edge_are_drawn(tmp_path: Path) -> None:
    """One operator alone; and two parts: left ── sink, lonely."""
    draw_topology(TaskGraph(Topology("single", (Operator("only", 3),))), tmp_path / "single.png")
    parts = (Operator("left", 2), Operator("lonely"), Operator("sink", 2, (Input("left"),)))
    draw_topology(TaskGraph(Topology("parts", parts)), tmp_path / "parts.svg")
    assert "lonely" in drawn_words(tmp_path / "parts.svg")


def test_text_that_looks_like_a_formula_is_drawn_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    draw_topology(joined(), path, title="costs $5 and $6_{x", notes=("100 % of <all> & more",))
    assert "costs $5 and $6_{x" in drawn_words(path)


@pytest.mark.parametrize("name", ["picture.pdf", "picture"])
def test_another_ending_is_refused_with_the_remedy(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"\.svg or \.png file, found .*: change the ending"):
        draw_topology(joined(), tmp_path / name)


def test_unknown_marks_and_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="unknown mark 'fialed': did you mean 'failed'"):
        draw_topology(joined(), tmp_path / "picture.svg", marks={"fialed": ()})
    with pytest.raises(UnknownTask):
        draw_topology(joined(), tmp_path / "picture.svg", marks={"failed": [Task("speed", 2)]})


def test_thousands_of_operators_are_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    graph = TaskGraph(Topology("wide", tuple(Operator(f"o{number}") for number in range(301))))
    with pytest.raises(TooLarge, match="at most 300 operators, found 301"):
        draw_topology(graph, tmp_path / "picture.svg")
    assert not (tmp_path / "picture.svg").exists()
