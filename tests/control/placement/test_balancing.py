"""Nodes come, and tasks spread over them: which ones, when they change places, and what a loss in between leaves."""

from __future__ import annotations

from dialogues import SETTINGS, TREE, A, B, C, D, Dialogue, E, goes_on

from tenax.control.placement.balancing import keeping
from tenax.model.cluster import Node
from tenax.model.plans import Placement
from tenax.model.protection import Strategy
from tenax.model.tasks import Task

EVERY_4 = SETTINGS.but(checkpoint_every=4)
N1, N2, N3 = Node("n1"), Node("n2"), Node("n3")


def with_new_nodes(*nodes: Node, replicas: tuple[Task, ...] = (), strategy: Strategy = Strategy.ALIGNED) -> Dialogue:
    """All tasks on n1 or these nodes, 6 batches finished, the next pass runs."""
    talk = Dialogue(TREE, None, nodes or (N1,), EVERY_4.but(checkpoint=strategy), replicas=replicas)
    talk.logs(20)
    goes_on(talk, 6)
    return talk


def catching_up() -> Dialogue:
    """All tasks on n1, and copies of those that are to move on n2, behind the live passes."""
    talk = with_new_nodes()
    talk.gains(N2)
    talk.finishes_live()
    talk.publishes()
    talk.stores()
    return talk


def homes(talk: Dialogue) -> dict[Task, str]:
    tasks = zip(TREE.tasks(range(len(TREE))), talk.coordinator.state.tasks, strict=True)
    return {name: task.primary.node for name, task in tasks if task.primary is not None}


def moves(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith("move")]


def test_tasks_move_to_nodes_that_come_and_chains_stay_whole() -> None:
    talk = with_new_nodes()
    talk.gains(N2, N3)
    assert moves(goes_on(talk, 8)) == ["move a[0] n3, e[0] n2"]
    assert homes(talk) == {A: "n3", E: "n2", B: "n1", C: "n1", D: "n1"}
    assert all(task.replica is None for task in talk.coordinator.state.tasks)
    assert "goes on at n2, to spread the load" in "\n".join(map(str, talk.coordinator.story(E)))


def test_live_passes_go_on_while_a_copy_catches_up() -> None:
    talk = with_new_nodes()
    talk.gains(N2)
    talk.finishes_live()
    talk.publishes()
    talk.stores()  # the copy of e starts from this checkpoint
    task = talk.coordinator.state.tasks[TREE.number(E)]
    assert task.replica is not None
    assert (task.replica.node, task.replica.stored) == ("n2", True)
    assert talk.coordinator.state.passes.live is not None
    assert homes(talk)[E] == "n1"
    goes_on(talk, 6)
    assert homes(talk)[E] == "n2"


def test_nobody_moves_if_that_takes_nothing_off_the_fullest_node() -> None:
    talk = with_new_nodes(*(Node(f"n{number}") for number in range(1, 4)))
    talk.gains(Node("n4"))
    assert moves(goes_on(talk, 8)) == []  # b, c and d are a chain: no other node could be fuller


def test_whoever_has_a_replica_stays() -> None:
    talk = with_new_nodes(N1, N2, replicas=(B, C, D, E))
    before = homes(talk)
    talk.gains(N3)
    goes_on(talk, 8)
    assert {task: home for task, home in homes(talk).items() if task != A} == {
        task: home for task, home in before.items() if task != A
    }


def test_a_new_node_that_is_lost_again_leaves_everything_as_it_was() -> None:
    talk = catching_up()
    talk.loses("n2")
    goes_on(talk, 6)
    assert set(homes(talk).values()) == {"n1"}
    assert all(task.replica is None for task in talk.coordinator.state.tasks)
    assert talk.coordinator.state.placement.moving == {}


def test_an_old_node_that_is_lost_leaves_the_copies_to_go_on() -> None:
    talk = catching_up()
    assert "promote e[0] n2" in talk.loses("n1")
    goes_on(talk, 6)
    assert set(homes(talk).values()) == {"n2"}


def test_room_is_respected() -> None:
    talk = with_new_nodes(Node("n1", slots=5))
    talk.gains(Node("n2", slots=1))
    goes_on(talk, 8)
    assert sum(home == "n2" for home in homes(talk).values()) <= 1


def test_a_sweep_that_a_move_overtakes_stores_what_there_is() -> None:
    talk = with_new_nodes(strategy=Strategy.SWEEPING)
    talk.gains(N2)
    assert moves(goes_on(talk, 8)) == ["move e[0] n2"]
    assert talk.coordinator.state.newest.oldest_batch >= 8


def test_behind_a_switch_tasks_stay_where_most_of_their_states_lies() -> None:
    placed = {A: "n1", B: "n2", C: "n1", D: "n2", E: "n1"}
    place = keeping(lambda *_: Placement(placed, {B: "n1"}), {B: ("n1", 500.0), A: ("n1", 0.0)})
    placement = place(TREE, (N1, N2), {})
    assert placement.primaries[B] == "n1"  # it is the heaviest: the two nodes change their names
    assert placement.primaries[A] == "n2"
    assert placement.replicas[B] == "n2"


def test_nodes_of_another_kind_do_not_take_each_others_tasks() -> None:
    standby = Node("n2", standby=True)
    place = keeping(lambda *_: Placement({B: "n1"}, {}), {B: ("n2", 500.0)})
    assert place(TREE, (N1, standby), {}).primaries[B] == "n1"


def test_what_was_on_a_node_that_is_gone_decides_nothing() -> None:
    place = keeping(lambda *_: Placement({B: "n1", C: "n2"}, {}), {B: ("n9", 500.0), C: ("n2", 1.0)})
    assert place(TREE, (N1, N2), {}).primaries == {B: "n1", C: "n2"}
