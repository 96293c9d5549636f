"""What a node is by its place: racks take turns, the first places are standby; and by whose name it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenax.engine.driver.nodes import Nodes
from tenax.engine.session import NodeInfo
from tenax.errors import ClusterFailed
from tenax.model.cluster import Node
from tenax.model.settings import ClusterSettings

CLUSTER = ClusterSettings()


def test_nodes_are_alike_unless_something_else_is_said() -> None:
    assert [ClusterSettings().node(name, place) for place, name in enumerate("ab")] == [Node("a"), Node("b")]


def test_racks_take_turns() -> None:
    cluster = ClusterSettings(racks=2)
    assert [cluster.node(str(place), place).rack for place in range(4)] == ["rack1", "rack2", "rack1", "rack2"]


def test_the_first_nodes_are_standby_and_have_room_of_their_own() -> None:
    roles = ClusterSettings(slots=9, standby_nodes=1, standby_slots=3)
    assert roles.node("a", 0) == Node("a", slots=3, standby=True)
    assert roles.node("b", 1) == Node("b", slots=9)


class Executors:
    """Stands in for a session and a pass runner: executors that say names when they are asked."""

    def __init__(self, **names: str) -> None:
        self.names = names

    def live_nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(NodeInfo(executor, "host") for executor in self.names)

    def names_of(self, nodes: tuple[NodeInfo, ...]) -> tuple[str, ...]:
        return tuple(self.names[node.executor] for node in nodes)


def test_a_node_under_whose_name_another_executor_answers_says_its_name_again(tmp_path: Path) -> None:
    executors = Executors(first="a", second="b")
    nodes = Nodes(executors, executors, tmp_path, CLUSTER)  # type: ignore[arg-type]  # all that they need of both
    assert [node.name for node in nodes.register(nodes.unregistered())] == ["a", "b"]
    (tmp_path / "b").mkdir()
    nodes.deregister("b")
    assert list(nodes.live) == ["a"]
    assert not (tmp_path / "b").exists()  # what it held is of no use under another name
    executors.names["second"] = "c"
    assert [node.name for node in nodes.register(nodes.unregistered())] == ["c"]
    assert nodes.lost() == ()


def test_a_new_executor_that_says_the_name_of_a_known_node_takes_nothing_from_it(tmp_path: Path) -> None:
    executors = Executors(first="a")
    nodes = Nodes(executors, executors, tmp_path, CLUSTER)  # type: ignore[arg-type]  # all that they need of both
    nodes.register(nodes.unregistered())
    executors.names["second"] = "a"
    assert nodes.register(nodes.unregistered()) == ()
    assert nodes.live == {"a": NodeInfo("first", "host")}
    executors.names["second"] = "b"
    assert [node.name for node in nodes.register(nodes.unregistered())] == ["b"]


def test_a_job_for_a_node_that_was_lost_says_which(tmp_path: Path) -> None:
    executors = Executors(first="a", second="b")
    nodes = Nodes(executors, executors, tmp_path, CLUSTER)  # type: ignore[arg-type]  # all that they need of both
    nodes.register(nodes.unregistered())
    del executors.names["second"]
    assert nodes.lost() == ("b",)
    assert nodes.info(["a"]) == (NodeInfo("first", "host"),)
    with pytest.raises(ClusterFailed, match="found b lost"):
        nodes.info(["a", "b"])


class Dying(Executors):
    """Once they begin to die, whoever looks sees one less each time."""

    dying = False

    def live_nodes(self) -> tuple[NodeInfo, ...]:
        if self.dying and self.names:
            del self.names[next(iter(self.names))]
        return super().live_nodes()


def test_nodes_that_die_one_shortly_after_the_other_are_lost_together(tmp_path: Path) -> None:
    executors = Dying(first="a", second="b", third="c")
    nodes = Nodes(executors, executors, tmp_path, CLUSTER)  # type: ignore[arg-type]  # all that they need of both
    nodes.register(nodes.unregistered())
    executors.dying = True
    assert nodes.lost() == ("a", "b", "c")
    assert nodes.lost() == ()
    assert nodes.live == {}


def test_what_a_lost_node_held_is_gone_at_once_and_in_the_end_deleted(tmp_path: Path) -> None:
    executors = Executors(first="a", second="b")
    nodes = Nodes(executors, executors, tmp_path, CLUSTER)  # type: ignore[arg-type]  # all that they need of both
    nodes.register(nodes.unregistered())
    for name in nodes.live:
        (tmp_path / name / "speed.0").mkdir(parents=True)
        (tmp_path / name / "speed.0" / "0000000001-1.1.seg").write_bytes(b"state")
    del executors.names["first"]
    assert nodes.lost() == ("a",)
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()  # a worker that has outlived its executor goes on writing
    nodes.deregister("a")
    nodes.close()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
