"""What a node is by its place: racks take turns, the first places are standby."""

from __future__ import annotations

from tenax.engine.nodes import Roles
from tenax.model.cluster import Node


def test_nodes_are_alike_unless_something_else_is_said() -> None:
    assert [Roles().node(name, place) for place, name in enumerate("ab")] == [Node("a"), Node("b")]


def test_racks_take_turns() -> None:
    assert [Roles(racks=2).node(str(place), place).rack for place in range(4)] == ["rack1", "rack2", "rack1", "rack2"]


def test_the_first_nodes_are_standby_and_have_room_of_their_own() -> None:
    roles = Roles(slots=9, standby=1, standby_slots=3)
    assert roles.node("a", 0) == Node("a", slots=3, standby=True)
    assert roles.node("b", 1) == Node("b", slots=9)
