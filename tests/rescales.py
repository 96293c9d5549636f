"""Runs that are asked for another version of their topology, for tests: how far they have come, and what they say."""

from __future__ import annotations

from dialogues import HOMES, MAX_ROUNDS, SETTINGS, A, B, C, D, Dialogue, E, tree_at

from tenax.control.events import RescaleAsked
from tenax.control.instructions import Rescale
from tenax.control.state import Stage
from tenax.model.settings import Settings
from tenax.model.topology_versions import Target

# The tree of dialogues.py; each of its tasks has a node of its own, and n6 has none:
# a[0] n1 ──▶ e[0] n5 (output)
#    ╰──────▶ b[0] n2 ──▶ c[0] n3 ──▶ d[0] n4 (output)
TARGET = Target({"b": 3})
PUBLISH = "publish 1.3: e[0] 5-6, d[0] 5-6"


def stored(batch: int, made_by: str) -> str:
    """The order to store all tasks at one batch."""
    tasks = ", ".join(f"{task}@{batch}/{made_by} {HOMES[task]}" for task in (A, E, B, C, D))
    return f"store {batch}: {tasks}"


def live(number: int, first: int, start: str) -> list[str]:
    """A live pass of all tasks at their homes, through two batches."""
    return [
        f"live 1.{number}, batches {first}-{first + 1}, keep {first - 1}",
        "  " + ", ".join(f"{task} {HOMES[task]} {start}" for task in (A, E, B, C, D)),
    ]


def asked(batch: int = 4, target: Target = TARGET, settings: Settings = SETTINGS) -> Dialogue:
    """A run that has come to a batch, and is asked for another version; its next pass runs."""
    talk = tree_at(batch, settings)
    assert talk.tell(RescaleAsked(target))[0] == f"planned: {target.words}"
    return talk


def storing(settings: Settings = SETTINGS) -> Dialogue:
    """The checkpoint of all tasks at batch 6 is under way."""
    talk = asked(settings=settings)
    talk.finishes_live()
    assert talk.publishes() == [stored(6, "1.3")]
    return talk


def switching(settings: Settings = SETTINGS) -> Dialogue:
    """The driver records the next version, behind batch 6."""
    talk = storing(settings)
    assert talk.stores() == ["rescale from cut 6 at 6-6, passes up to 3: b to 3 tasks"]
    return talk


def comes_to_store(talk: Dialogue) -> None:
    """All that is asked for is done, until the run has paused and stores all tasks."""
    for _ in range(MAX_ROUNDS):
        state = talk.coordinator.state
        if stage(talk) is Stage.PAUSED and state.checkpoints.storing is not None:
            return
        if state.logs.publishing is not None:
            talk.publishes()
        elif state.passes.round is not None:
            talk.finishes_round()
        else:
            talk.finishes_live()
    raise AssertionError("a rescale is not put off for ever")


def stage(talk: Dialogue) -> Stage | None:
    known = talk.coordinator.state.rescaling
    return None if known is None else known.stage


def order_of(talk: Dialogue) -> Rescale:
    (order,) = (each for each in talk.coordinator.log[-1].decided if isinstance(each, Rescale))
    return order
