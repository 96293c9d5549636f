"""Large states on the way back: outputs neither wait for what has yet to be read, nor run beside it at first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dialogues import SETTINGS, C, Dialogue, finished, tree_at

from tenax.control.copies import Copy, Role
from tenax.control.load import TRUSTED, Load, TaskLoad
from tenax.control.recovery.restores import ASSUMED_S, restore_s
from tenax.control.recovery.rounds import LaggingCopy
from tenax.control.state import RunState
from tenax.control.versions import PassId, Version
from tenax.model.settings import Settings

# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)          n6 has no tasks

LARGE = 1 << 30  # takes longer to read than the interval of a batch, 1 s
NEAR = SETTINGS.but(checkpoint_every=6, cutover_lag=2)


def finishes(talk: Dialogue, state_bytes: int) -> list[str]:
    """The live pass is through, and tells how large states are."""
    assert talk.live is not None
    event = finished(talk.live)
    reports = tuple(replace(report, state_bytes=state_bytes) for report in event.reports)
    return talk.tell(replace(event, reports=reports))


def two_batches_after_a_checkpoint(state_bytes: int, settings: Settings = NEAR) -> Dialogue:
    """The tree with a checkpoint of batch 6 and batch 8 finished; the next pass runs."""
    talk = tree_at(0, settings)
    while talk.coordinator.state.finished < 8:
        finishes(talk, state_bytes)
        talk.publishes()
        if talk.coordinator.state.checkpoints.storing is not None:
            talk.stores()
    assert talk.coordinator.state.newest.newest_batch == 6
    return talk


def test_live_passes_wait_for_a_task_that_is_near_and_soon_read() -> None:
    said = two_batches_after_a_checkpoint(1_000).loses("n3")
    assert any(line.startswith("round") for line in said)
    assert not any(line.startswith("live") for line in said)


def test_live_passes_do_not_wait_for_a_task_that_is_near_and_has_much_to_read() -> None:
    talk = two_batches_after_a_checkpoint(LARGE)
    assert any(line.startswith("live") for line in talk.loses("n3"))
    said = talk.finishes_live()
    assert any(line.startswith("round") for line in said)
    assert any(line.startswith("live") for line in said)


def test_when_a_large_state_is_read_the_cutover_is_a_pause_as_ever() -> None:
    talk = two_batches_after_a_checkpoint(LARGE)
    talk.loses("n3")
    talk.finishes_live()
    talk.finishes_round()  # the task has come from 6 to 8, and is on its node now; live passes are at 10 and run on
    assert not any(line.startswith("live") for line in talk.finishes_live())
    talk.comes_back()
    assert talk.coordinator.state.outage is None
    assert talk.coordinator.state.passes.live is not None


def test_a_round_that_has_much_to_read_waits_for_the_first_live_pass_since_a_loss() -> None:
    talk = two_batches_after_a_checkpoint(LARGE)
    assert not any(line.startswith("round") for line in talk.loses("n3"))
    assert any(line.startswith("round") for line in talk.finishes_live())
    assert not any(line.startswith("round") for line in talk.loses("n6"))  # lost once more: outputs come first again
    assert any(line.startswith("round") for line in talk.finishes_live())


def test_a_round_does_not_wait_for_a_live_pass_that_fails() -> None:
    talk = two_batches_after_a_checkpoint(LARGE)
    talk.loses("n3")
    assert any(line.startswith("round") for line in talk.fails_live())


def test_a_round_does_not_wait_where_live_passes_do() -> None:
    talk = two_batches_after_a_checkpoint(LARGE, NEAR.but(recovery="blocking"))
    said = talk.loses("n3")
    assert any(line.startswith("round") for line in said)
    assert not any(line.startswith("live") for line in said)


def lagging(number: int, node: str, *, stored: bool = True) -> LaggingCopy:
    return LaggingCopy(number, Copy(node, Version(C, 6, PassId(1, 3)), stored=stored), Role.PRIMARY)


def with_states(*state_bytes: int, restore_s: float = 0.0) -> RunState:
    tasks = tuple(TaskLoad(state_bytes=each) for each in state_bytes)
    return RunState(load=Load(tasks, TRUSTED, restore_s=restore_s))


def test_a_restore_takes_as_long_as_the_node_with_most_to_read() -> None:
    state = with_states(100, 200, 400, 800, 1_600, restore_s=0.01)
    copies = [lagging(1, "n1"), lagging(2, "n1"), lagging(3, "n2"), lagging(4, "n2", stored=False)]
    assert restore_s(state, copies) == pytest.approx(8.0)
    assert restore_s(state, copies[:2]) == pytest.approx(6.0)
    assert restore_s(state, []) == 0.0


def test_what_nothing_is_known_of_is_assumed_and_what_is_unknown_is_no_reason_to_wait() -> None:
    copies = [lagging(2, "n1")]
    assert restore_s(with_states(0, 0, LARGE), copies) == pytest.approx(LARGE * ASSUMED_S)
    assert restore_s(RunState(), copies) == 0.0
