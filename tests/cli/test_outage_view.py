"""What a run under failures shows: a coordinator is driven by events, no cluster needed."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, B, C, Dialogue
from rich.console import Console, RenderableType

from tenax.chaos.record import Moment, What
from tenax.cli.demo import demo_schedule
from tenax.cli.main import run
from tenax.cli.outage_view import GLYPHS, Condition, OutageView, conditions, drawn, output_text
from tenax.cli.outages import Kind, Outages
from tenax.cli.report import Account, history, page, write_report
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event, Published, Woken
from tenax.control.instructions import Part, Publish
from tenax.control.versions import PassId
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.pictures.timeline import save_timeline

# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks

MAX_EVENTS = 100


class Followed(Dialogue):
    """A dialogue that is followed; every event takes a second."""

    def __init__(
        self, nodes: Iterable[Node] = NODES, settings: Settings = SETTINGS, replicas: Iterable[Task] = ()
    ) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self.outages = Outages(TREE, ("d", "e"), lambda: self.now_s)
        self.view = OutageView(self.outages, "tree", Console(file=io.StringIO(), width=100))
        super().__init__(TREE, HOMES, nodes, settings, (), replicas)
        self.logs(20)

    def tell(self, event: Event) -> list[str]:
        lines = super().tell(event)
        self.now_s += 1.0
        self.view.handled(self.coordinator, event, self.coordinator.log[-1].decided)
        self.said = [text for _, text in self.outages.happenings]
        return lines

    def steps(self) -> None:
        """A live pass and all of its publications."""
        self.finishes_live()
        while self.coordinator.state.logs.publishing is not None:  # at most a final and a tentative one
            self.publishes()

    def recovers(self) -> None:
        """Whatever is under way is carried out until no task is missing and all is published."""
        for _ in range(MAX_EVENTS):
            state = self.coordinator.state
            if state.logs.publishing is not None:
                self.publishes()
            elif state.outage is None:
                return
            elif state.passes.round is not None:
                self.finishes_round()
            else:
                self.finishes_live()
        raise AssertionError(f"all is back after at most {MAX_EVENTS} events")

    @property
    def conditions(self) -> dict[str, Condition]:
        names = (operator.name for operator in TREE.operators)
        return dict(zip(names, conditions(self.coordinator), strict=True))


def text_of(drawn_part: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(drawn_part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_whole_run_shows_final_outputs_and_live_tasks() -> None:
    talk = Followed()
    assert output_text(talk.outages, "d").plain == "no result yet"
    talk.steps()
    assert set(talk.conditions.values()) == {Condition.LIVE}
    assert output_text(talk.outages, "d").plain.startswith("final  batch 2 after ")
    assert [publication.kind for publication in talk.outages.publications] == [Kind.FINAL] * 4
    assert {publication.quality for publication in talk.outages.publications} == {1.0}


def test_a_replica_in_step_has_a_sign_of_its_own() -> None:
    talk = Followed(replicas=[B])
    talk.steps()
    assert talk.conditions["b"] is Condition.REPLICATED
    assert talk.conditions["a"] is Condition.LIVE


def test_a_lost_task_catches_up_while_what_depends_on_it_is_tentative() -> None:
    talk = Followed()
    talk.steps()
    talk.loses("n3")
    assert talk.conditions["d"] is Condition.TENTATIVE
    assert output_text(talk.outages, "d").plain.startswith("held  for ")
    assert output_text(talk.outages, "e").plain.startswith("final")
    talk.steps()
    assert talk.conditions["c"] is Condition.RECOVERING
    assert talk.conditions["d"] is Condition.TENTATIVE
    assert talk.conditions["e"] is Condition.LIVE
    assert output_text(talk.outages, "d").plain.startswith("tentative  quality 0.00, batch 4")
    assert output_text(talk.outages, "e").plain.startswith("final")
    assert "LOST node 3" in talk.said
    assert "1 lost task restarts on node 6" in talk.said
    assert "d: tentative from batch 3 on, quality 0.00" in talk.said


def test_a_task_without_room_is_lost_until_a_node_comes() -> None:
    talk = Followed(nodes=[Node(node.name, rack="rack1", slots=1) for node in NODES[:5]])
    talk.steps()
    talk.loses("n3")
    assert talk.conditions["c"] is Condition.LOST
    assert "LOST node 3 of rack1" in talk.said
    talk.gains(Node("n9", rack="rack1", slots=1))
    assert "node 6 joins in rack1" in talk.said
    assert talk.conditions["c"] is not Condition.LOST


def test_corrections_are_told_once_and_end_the_outage() -> None:
    talk = Followed()
    talk.steps()
    talk.loses("n3")
    talk.steps()
    talk.recovers()
    kinds = {
        (publication.batch, publication.kind) for publication in talk.outages.publications if publication.output == "d"
    }
    assert {(3, Kind.TENTATIVE), (3, Kind.CORRECTED), (4, Kind.TENTATIVE), (4, Kind.CORRECTED)} <= kinds
    assert sum("ALL BACK after" in text for text in talk.said) == 1
    assert any("of d corrected: final now" in text for text in talk.said)
    assert talk.outages.outages[0][1] is not None
    assert set(talk.conditions.values()) == {Condition.LIVE}


def test_the_view_has_tasks_outputs_nodes_and_a_legend() -> None:
    talk = Followed(nodes=[Node(node.name, rack="rack1") for node in NODES], replicas=[C])
    talk.steps()
    talk.loses("n4")
    shown = text_of(drawn(talk.outages, "tree"))
    for sign, _, meaning in GLYPHS.values():
        assert sign in shown
        assert meaning in shown
    for text in ("output d", "output e", "rack1", "node 1", "● up", "✗ lost", "tasks are missing for", "LOST node 4"):
        assert text in shown


def test_before_the_start_the_view_says_so() -> None:
    assert "starting" in text_of(drawn(Outages(TREE, ("d", "e"), lambda: 0.0), "tree"))


def test_a_pipe_gets_lines() -> None:
    talk = Followed()
    talk.steps()
    talk.loses("n3")
    file = talk.view.console.file
    assert isinstance(file, io.StringIO)
    assert any(line.endswith("s  LOST node 3") for line in file.getvalue().splitlines())


def failed_run() -> tuple[Followed, list[Moment]]:
    """A run in which a node was killed and another one came, until all was back."""
    talk = Followed(nodes=[Node(node.name, rack="rack1", slots=1) for node in NODES[:5]])
    talk.steps()
    kill = Moment(talk.now_s, What.FAULT, {"kind": "kill", "number": 0, "fault": "--kill 1@2b", "nodes": ["n3"]})
    talk.loses("n3")
    talk.steps()
    talk.gains(Node("n9", rack="rack1", slots=1))
    talk.recovers()
    return talk, [kill]


def test_a_history_has_results_node_bars_and_landmarks() -> None:
    talk, moments = failed_run()
    timeline = history(talk.outages, moments, "A title", talk.now_s)
    assert set(timeline.outputs) == {"d", "e"}
    assert [landmark.label for landmark in timeline.landmarks] == ["1 node killed", "node 6 joins", "all tasks back"]
    assert [landmark.is_fault for landmark in timeline.landmarks] == [True, False, False]
    rows = {bar.label: bar.row for bar in timeline.nodes}
    assert rows["node 6"] == rows["node 3"]  # it takes the place of the lost one
    assert len(set(rows.values())) == 5
    assert len(timeline.outages) == 1
    assert {"final", "tentative", "corrected"} == {result.kind for result in timeline.results}


def test_a_report_is_one_file_with_its_picture(tmp_path: Path) -> None:
    talk, moments = failed_run()
    timeline = history(talk.outages, moments, "A title", talk.now_s)
    account = Account("Demo", "About <it>", "Held: 5", True, (("lost", "0"),), tuple(talk.outages.happenings), timeline)
    write_report(account, tmp_path / "new" / "report.html")
    text = (tmp_path / "new" / "report.html").read_text()
    assert text == page(account)
    assert text.count("<svg") == 1
    assert "About &lt;it&gt;" in text
    assert "LOST node 3" in text
    assert "<script" not in text
    assert 'src="' not in text
    save_timeline(timeline, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 10_000


def test_the_demo_kills_one_whole_rack_and_lets_its_nodes_return_one_by_one() -> None:
    for seed in range(10):
        kill, *back = demo_schedule(45, 4, seed)
        assert kill.what in {"rack1", "rack2"}
        assert [fault.what for fault in back] == ["1", "1"]
        times = [kill.when.amount, *(fault.when.amount for fault in back)]
        assert times == sorted(set(times))
        assert times[-1] < 45
    assert demo_schedule(45, 4, 3) == demo_schedule(45, 4, 3)


def test_the_demo_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--help"]) == 0
    shown = capsys.readouterr().out
    for text in ("--seconds", "--nodes", "--seed", "--out", "--json", "report.html"):
        assert text in shown


def test_the_demo_does_not_empty_a_folder_of_somebody_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    assert run(["demo", "--out", str(tmp_path)]) == 2
    assert "--out is an empty folder or one of an earlier demo" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


def test_an_output_whose_other_partitions_are_missing_is_partial_and_then_completed() -> None:
    # a ──▶ b[0], b[1] (output): nothing of b is tentative while one of its tasks is lost
    graph = TaskGraph(Topology("two", (Operator("a"), Operator("b", 2, (Input("a", Partitioning.SPLIT),)))))
    outages = Outages(graph, ("b",), lambda: 1.0)
    coordinator = Coordinator(graph)
    for pass_id, index in ((PassId(1, 1), 0), (PassId(1, 2), 1)):
        publish = Publish(pass_id, (Part(Task("b", index), 1, 1),), tentative=False, attempt=1)
        outages.handled(coordinator, Woken(0), [publish])
        outages.handled(coordinator, Published(pass_id), [])
    assert [(publication.kind, publication.quality) for publication in outages.publications] == [
        (Kind.PARTIAL, 0.5),
        (Kind.COMPLETED, 1.0),
    ]
