"""Operators split and merge while nodes die: final results are those of a replay through the same versions.

locations (4) --> speed-window (4) --+--> speed (4)
                                     +--> join-1 (4) --> filter-1 (4) --> jams (4)
reports (2) ----> incidents (2) -----+
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from spark.test_chaos import CHECKPOINT_EVERY, LONG, NODES, OPTIONS, RACKS, faults, tried

from tenax.application.scaling import scaling_groups
from tenax.chaos.runs import STORE, varied
from tenax.chaos.schedule import random_rescales, random_schedule
from tenax.engine.loading import load_application
from tenax.engine.session import Session
from tenax.examples import app_path
from tenax.model.protection import Protection
from tenax.store.topology_versions import answered

TARGETED: Mapping[str, tuple[str, Protection]] = {
    "while tasks are missing": (
        "kill 2@6b, rescale speed-window=6@7b, return 2@10b, rescale incidents=1@16b",
        Protection(),
    ),
    "between two losses, all replicated": (
        "rescale speed-window=2@4b, kill 1@8b, return 1@10b, rescale speed-window=5@14b",
        Protection(replicas="all"),
    ),
    "swept": (
        "rescale speed-window=6@5b, kill speed-window[5]@11b, return 1@13b, rescale speed-window=3@17b",
        Protection(checkpoint="sweeping"),
    ),
    "every task stored by its own timer": (
        "rescale incidents=4,speed-window=3@5b, kill 2@11b, return 2@13b",
        Protection(checkpoint="individual"),
    ),
    "every node stored by its own timer": (
        "rescale incidents=4,speed-window=3@5b, kill 2@11b, return 2@13b",
        Protection(checkpoint="synchronous"),
    ),
    "nothing stored but at a switch": (
        "rescale speed-window=6@8b, kill 1@12b, return 1@14b, rescale incidents=3@17b",
        Protection(checkpoint="none", backups="all"),
    ),
    "both copies of which send": (
        "rescale speed-window=2@6b, kill 1@11b, return 1@13b",
        Protection(standby={"speed-window": "active-active", "join-1": "active-active"}),
    ),
}
IN_EVERY_RUN = {"while tasks are missing"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[LONG] * (name not in IN_EVERY_RUN)) for name in TARGETED])
def test_rescales_among_losses_change_no_final_result(name: str, four: Session, tmp_path: Path) -> None:
    text, how = TARGETED[name]
    outcome = tried(four, tmp_path, faults(text), how.but(checkpoint_every=CHECKPOINT_EVERY))
    assert outcome.unreached == ()
    store, asked = tmp_path / STORE, text.count("rescale ")
    assert all(answered(store, number) is not None for number in range(1, asked + 1))  # done, or given up at the end


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=LONG) for number in range(1, 5))])
def test_random_rescales_among_random_faults_change_no_final_result(number: int, four: Session, tmp_path: Path) -> None:
    seed = int(os.environ.get("TENAX_SEED", "300")) + number
    application = load_application(app_path("traffic"), OPTIONS)
    able = [group.operators[0] for group in scaling_groups(application) if not group.reason]
    schedule = random_schedule(seed, NODES, RACKS, within=20, driver=False)
    schedule += random_rescales(seed, able, 3, within=20, nodes=NODES)
    tried(four, tmp_path, schedule, varied(seed, checkpoint_every=CHECKPOINT_EVERY), seed)
