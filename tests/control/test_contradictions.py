"""Errors of the coordinator itself: they say what happened to the tasks concerned."""

from __future__ import annotations

import traceback
from dataclasses import replace

import pytest
from dialogues import HOMES, NODES, SETTINGS, TREE, C, Dialogue

from tenax.control import transitions
from tenax.control.contradictions import MAX_LINES, MAX_TASKS, ImpossibleTransition, InvariantBroken
from tenax.control.copies import Copy
from tenax.control.state import RunState

STRANGE_NODE = "n99"


def run_of_two_passes() -> Dialogue:
    talk = Dialogue(TREE, HOMES, NODES, SETTINGS)
    talk.logs(4)
    talk.finishes_live()
    talk.publishes()
    return talk


def with_wrong_copy(state: RunState) -> RunState:
    """A state in which one copy of a task is on a node that is not there."""
    number = TREE.number(C)
    task = state.tasks[number]
    wrong = replace(task, primary=Copy(STRANGE_NODE, task.head))
    return replace(state, tasks=(*state.tasks[:number], wrong, *state.tasks[number + 1 :]))


def test_a_broken_invariant_carries_the_story_of_its_task() -> None:
    talk = run_of_two_passes()
    talk.coordinator._state = with_wrong_copy(talk.coordinator.state)
    with pytest.raises(InvariantBroken, match=r"c\[0\]: copies are on live nodes") as raised:
        talk.coordinator.check_invariants()
    assert "\n" not in str(raised.value)
    assert list(raised.value.stories) == [C]
    texts = [line.text for line in raised.value.stories[C]]
    assert texts == [line.text for line in talk.coordinator.story(C)]
    assert any(text.startswith("live pass 1.1: as primary through batches 1 to 2 on n3") for text in texts)
    shown = "".join(traceback.format_exception(raised.value))
    assert "the story of c[0], by events:" in shown
    assert "live pass 1.1: as primary through batches 1 to 2 on n3" in shown


def test_an_impossible_transition_carries_the_stories_of_the_tasks_of_its_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = run_of_two_passes()
    before = talk.coordinator.state

    def impossible(*_: object) -> None:
        raise AssertionError("a copy that steps is there")

    monkeypatch.setattr(transitions, "_stepped", impossible)
    expected = "nothing follows from PassFinished in this state: AssertionError: a copy that steps is there"
    with pytest.raises(ImpossibleTransition, match="nothing follows from PassFinished") as raised:
        talk.finishes_live()
    assert str(raised.value) == expected
    assert talk.coordinator.state == before, "a state that is half made is never kept"
    assert len(raised.value.stories) == MAX_TASKS
    assert all(0 < len(lines) <= MAX_LINES for lines in raised.value.stories.values())
    assert isinstance(raised.value.__cause__, AssertionError)
