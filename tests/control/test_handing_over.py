from __future__ import annotations

from dataclasses import replace

from dialogues import NODES, SETTINGS, TREE, A, B, C, D, Dialogue, E, goes_on, tree_at
from rescales import TARGET, asked, comes_to_store, order_of, storing, switching

from tenax.control.events import (
    CheckpointFailed,
    LoggingFailed,
    NodesJoined,
    NodesLost,
    PassFailed,
    RescaleAsked,
    RescaleFailed,
    Woken,
)
from tenax.control.instructions import Rescale
from tenax.control.recovery.failures import JobFailed
from tenax.control.rescaling import handed_over
from tenax.control.state import LogRequest
from tenax.control.versions import Cut, PassId, Version
from tenax.model.cluster import Node
from tenax.model.protection import Strategy
from tenax.model.topology_versions import Target, TopologyVersion

# What goes over to the next coordinator


def begun(
    talk: Dialogue, order: Rescale, nodes: tuple[Node, ...] = NODES, next_version: Target | None = None
) -> Dialogue:
    """The next coordinator; of the same topology, for simplicity."""
    cut = Cut(6, tuple(Version(task, 6, PassId(1, order.passes + 1)) for task in (A, E, B, C, D)))
    started = handed_over(talk.coordinator.state, order, cut, nodes, {E: 6, D: 6}, next_version)
    return Dialogue(TREE, None, nodes, talk.coordinator.settings, started=started)


def test_pass_ids_are_not_used_again() -> None:
    talk = switching()
    following = begun(talk, order_of(talk))
    assert following.live is not None
    assert following.live.pass_id == PassId(1, 5)  # 1.4 names what was re-cut
    assert following.live.first == 7


def test_a_run_that_went_back_before_two_versions_goes_over_to_one_after_the_other() -> None:
    talk = switching()
    third = Target({"b": 2}, version=TopologyVersion(3, 6, {"a": 1, "e": 1, "b": 2, "c": 1, "d": 1}))
    following = begun(talk, order_of(talk), next_version=third)
    assert following.live is None
    assert order_of(following).target == third
    assert order_of(following).passes == 4  # 1.4 names what was re-cut for the second


def test_batches_that_are_being_logged_belong_to_the_next_version() -> None:
    talk = storing()
    state = talk.coordinator.state
    talk.coordinator._state = replace(state, logs=replace(state.logs, logging=LogRequest(21, 4, 1)))
    talk.stores()
    following = begun(talk, order_of(talk))
    assert following.coordinator.state.logs.logging == LogRequest(21, 4, 1)
    assert following.tell(LoggingFailed(21, 1, "x")) == ["log 6 from 21, attempt 2"]


def test_nodes_that_are_gone_do_not_come_back_in_the_next_version() -> None:
    talk = switching()
    order = order_of(talk)
    talk.loses("n6", "n7")  # n7 has come and gone before anybody was told
    following = begun(talk, order, NODES[:5])
    assert following.tell(NodesJoined((Node("n7"),))) == []
    assert following.coordinator.log[-1].ignored == "these nodes are known"


def test_what_an_outage_was_waited_for_does_not_end_a_wait_of_the_next_version() -> None:
    settings = SETTINGS.but(tentative_delay="5s")
    talk = tree_at(4, settings)
    assert "wake after 5 s, outage 1" in talk.loses("n3")
    talk.tell(RescaleAsked(TARGET))
    comes_to_store(talk)
    talk.stores()
    following = begun(talk, order_of(talk), talk.coordinator.state.nodes)
    assert "wake after 5 s, outage 2" in following.loses("n4")
    assert following.tell(Woken(1)) == []
    assert following.coordinator.log[-1].ignored == "this outage does not wait"


def test_late_answers_to_what_the_version_before_asked_for_are_ignored() -> None:
    talk = switching()
    following = begun(talk, order_of(talk))
    for event in (PassFailed(PassId(1, 3), JobFailed("x")), CheckpointFailed(6, 1, "x"), RescaleFailed(1, "x")):
        assert following.tell(event) == []
        assert following.coordinator.log[-1].ignored


def test_a_version_whose_nodes_were_all_lost_meanwhile_waits_for_others() -> None:
    talk = switching()
    order = order_of(talk)
    talk.tell(NodesLost(tuple(node.name for node in NODES)))
    following = begun(talk, order, ())
    assert following.coordinator.state.stop is None
    assert following.live is None
    assert following.gains(Node("n7"))[0].startswith("recover a[0] n7, ")
    assert following.live is not None


def test_a_version_for_which_there_is_no_room_left_goes_on_with_what_fits() -> None:
    talk = switching()
    following = begun(talk, order_of(talk), (Node("n1", slots=3),))
    assert following.coordinator.state.stop is None
    assert [task.operator for task in following.coordinator.state.placement.waiting] == ["c", "d"]


def test_a_switch_that_fails_leaves_strategies_as_they_were() -> None:
    # a checkpoint of all acknowledges all outputs: nothing is due to a sweep before the next interval
    settings = SETTINGS.but(checkpoint=Strategy.SWEEPING, checkpoint_every=4)
    talk = asked(settings=settings)
    talk.finishes_live()
    talk.publishes()
    talk.stores()
    talk.tell(RescaleFailed(1, "x"))
    talk.tell(RescaleFailed(2, "x"))
    assert talk.coordinator.state.newest.known_acknowledged == (6,) * 5
    assert not any("store" in said for said in talk.finishes_live())
    assert goes_on(talk, 4)
