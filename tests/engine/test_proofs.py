"""Nodes that take long prove that their workers work, or are found to hang."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenax.engine.driver.proofs import Proofs
from tenax.engine.session import NodeInfo
from tenax.model.settings import ClusterSettings

NODES = {name: NodeInfo(name, "here") for name in ("a", "b")}


@dataclass
class Asked:
    """A question that a test answers."""

    node: str
    said: tuple[int, ...] | None = None
    has_begun: bool = True
    cancelled: bool = False

    def answer(self) -> tuple[int, ...] | None:
        return self.said

    def began(self) -> bool:
        return self.has_begun

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class World:
    """Proofs with heartbeats of 5 s, three of which may be missed, and a clock that a test moves."""

    now_s: float = 100.0
    asked: list[Asked] = field(default_factory=list)
    has_room: bool = True
    answers: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.proofs = Proofs(self.ask, ClusterSettings(heartbeat="5s", missed=3), lambda: self.now_s)

    def ask(self, node: NodeInfo) -> Asked:
        self.asked.append(Asked(node.executor, self.answers.get(node.executor), self.has_room))
        return self.asked[-1]

    def pass_time(self, seconds: float) -> list[tuple[float, str]]:
        """Look ten times a second; when which node was found to hang, since the beginning."""
        hung, began_s = [], self.now_s
        for _ in range(round(10 * seconds)):
            self.now_s += 0.1
            hung += [(round(self.now_s - began_s, 1), name) for name in self.proofs.hung(NODES)]
        return hung


def test_nobody_is_asked_while_jobs_end_within_a_heartbeat() -> None:
    world = World()
    for _ in range(20):
        with world.proofs.owed(NODES):
            assert world.pass_time(4.5) == []
    assert world.asked == []


def test_a_node_that_does_not_answer_is_found_after_the_time_of_the_missed_heartbeats() -> None:
    world = World(answers={"b": ()})
    with world.proofs.owed(NODES):
        hung = world.pass_time(15.5)
    assert {name for _, name in hung} == {"a"}
    assert 15.0 <= hung[0][0] <= 15.2
    assert [question.node for question in world.asked].count("a") == 1  # one question at a time
    assert [question.node for question in world.asked].count("b") == 3  # at 5, 10 and 15 s


def test_a_node_that_answers_may_take_as_long_as_it_likes() -> None:
    world = World(answers={"a": (), "b": ()})
    with world.proofs.owed(NODES):
        assert world.pass_time(600) == []


def test_a_stopped_worker_is_found_although_another_answers() -> None:
    world = World(answers={"a": (4711,), "b": ()})
    with world.proofs.owed(NODES):
        hung = world.pass_time(16)
    assert {name for _, name in hung} == {"a"}


def test_a_worker_that_is_stopped_late_in_a_long_step_is_found_as_soon_after_its_last_proof() -> None:
    world = World(answers={"a": (), "b": ()})
    with world.proofs.owed(NODES):
        assert world.pass_time(60) == []
        del world.answers["a"]
        hung = world.pass_time(21)
    assert {name for _, name in hung} == {"a"}
    assert hung[0][0] <= 20.2


def test_a_worker_that_goes_on_is_not_held_against_its_node() -> None:
    world = World(answers={"a": (4711,), "b": ()})
    with world.proofs.owed(NODES):
        assert world.pass_time(9) == []
        world.answers["a"] = ()
        assert world.pass_time(60) == []


def test_a_node_without_room_for_the_question_is_not_judged() -> None:
    world = World(has_room=False)
    with world.proofs.owed(NODES):
        assert world.pass_time(60) == []
    assert len(world.asked) == 2


def test_questions_end_with_the_jobs_that_they_are_about() -> None:
    world = World()
    with world.proofs.owed(NODES):
        world.pass_time(6)
    world.pass_time(1)
    assert [question.cancelled for question in world.asked] == [True, True]
