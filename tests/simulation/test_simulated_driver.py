from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tenax.control import transitions
from tenax.control.events import PassFinished
from tenax.control.state import RunState
from tenax.control.transitions import Learned, Run
from tenax.control.versions import PassId, StoredCheckpoint, Version
from tenax.model.tasks import Task
from tenax.simulation.runs import SimulationFailed, simulate
from tenax.simulation.store import EpochRefused, Store, StoreMisused

SEEDS = 1000
TASK = Task("a", 0)
ROWS = (0, 1)


def test_results_are_exact_whenever_drivers_die_or_hang() -> None:
    runs = [simulate(seed) for seed in range(SEEDS)]
    assert sum(run.drivers for run in runs) > 2 * SEEDS  # the faults do happen
    assert sum(run.superseded for run in runs) > SEEDS // 4
    assert max(run.time_s for run in runs) < 200.0


def test_a_seed_gives_the_same_run_every_time() -> None:
    seen: list[list[str]] = [[], []]
    for one in seen:
        simulate(7, one.append)
    assert seen[0] == seen[1]
    assert seen[0]


def test_a_failing_seed_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(run: Run, state: RunState, event: PassFinished) -> Learned:
        return transitions.Ignored("forgotten")

    monkeypatch.setattr(transitions, "_pass_finished", forgetful)
    text = re.escape('see it again: python -c "from tenax.simulation.runs import simulate; simulate(3, print)"')
    with pytest.raises(SimulationFailed, match=rf"^seed 3 fails: .*{text}$"):
        simulate(3)


def test_the_store_refuses_older_epochs() -> None:
    store = Store((TASK,))
    old, new = store.claim(), store.claim()
    writes: tuple[Callable[[], None], ...] = (
        lambda: store.log(old, 1, ROWS),
        lambda: store.commit(old, TASK, 1, b""),
        lambda: store.upload(old, 1, Version(TASK, 1, PassId(1, 1)), b""),
        lambda: store.trim(old, 0, 1),
        lambda: store.seal(old, StoredCheckpoint(1, ())),
    )
    for write in writes:
        with pytest.raises(EpochRefused):
            write()
    store.log(new, 1, ROWS)
    assert store.logged == 1


def test_the_store_notices_misuse() -> None:
    store = Store((TASK,))
    epoch = store.claim()
    version = Version(TASK, 1, PassId(1, 1))
    with pytest.raises(StoreMisused, match="in order"):
        store.log(epoch, 2, ROWS)
    with pytest.raises(StoreMisused, match="after it is logged"):
        store.read(epoch, 1)
    store.log(epoch, 1, ROWS)
    with pytest.raises(StoreMisused, match="manifest"):
        store.seal(epoch, StoredCheckpoint(1, (version,)))
    store.upload(epoch, 1, version, b"")
    with pytest.raises(StoreMisused, match="committed"):
        store.seal(epoch, StoredCheckpoint(1, (version,)))
    with pytest.raises(StoreMisused, match="restored before it is trimmed"):
        store.fetch(epoch, version)
    with pytest.raises(StoreMisused, match="stay"):
        store.trim(epoch, 0, 2)
