"""Passes that do not end: the nodes that hold them up are lost, and code that never ends stops the run."""

from __future__ import annotations

from dialogues import SETTINGS, TREE, C, Dialogue, tree_at

from tenax.control.events import NodesLost
from tenax.model.protection import Recovery

# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks

BLOCKING = SETTINGS.but(recovery=Recovery.BLOCKING)


def overdue(talk: Dialogue, node: str) -> list[str]:
    return talk.tell(NodesLost((node,), overdue=True))


def home_of_c(talk: Dialogue) -> str:
    primary = talk.coordinator.state.tasks[TREE.number(C)].primary
    assert primary is not None
    return primary.node


def test_a_node_that_holds_a_pass_up_is_lost_like_any_other() -> None:
    lost, held_up = tree_at(4), tree_at(4)
    assert overdue(held_up, "n3") == lost.loses("n3")


def test_the_next_try_may_take_longer_until_a_live_pass_of_all_tasks_has_ended() -> None:
    talk = tree_at(4, BLOCKING)
    overdue(talk, "n3")
    assert talk.round is not None
    assert talk.round.deadline_s == 2 * SETTINGS.bounds.pass_deadline_s
    talk.comes_back()
    talk.finishes_live()
    assert talk.live is not None
    assert talk.live.deadline_s == SETTINGS.bounds.pass_deadline_s


def test_code_that_never_ends_takes_only_so_many_nodes() -> None:
    talk = tree_at(4, BLOCKING.but(max_attempts=3))
    decided: list[str] = []
    for _ in range(3):
        assert not any(line.startswith("stop") for line in decided)
        decided = overdue(talk, home_of_c(talk))
    assert decided[-1].startswith("stop failed: a pass ends within its deadline, found that batches 1 to 2 did")
    assert "correct the operator whose code does not end" in decided[-1]
