"""Damage to any single file of a killed run: the next start is exact, repairs it, or refuses it by name."""

from __future__ import annotations

from pathlib import Path

from spark.runs import Watcher, example, settings

from tenax.chaos.corruption import STORE, Campaign
from tenax.engine.driver import Driver
from tenax.engine.session import Session

BATCH = settings(500, checkpoint_every=4)
TRIALS = 8


def test_damage_to_any_single_file_is_exact_repaired_or_refused_by_name(cluster: Session, tmp_path: Path) -> None:
    root = tmp_path / "run"
    application = example(
        "top_pages", rows=9_000, rate=1_000, servers=4, pages=50, count=5, length="1s", folder=str(root)
    )
    watcher = Watcher()
    driver = Driver(application, root / STORE, BATCH, watcher, cluster)
    watcher.on_published = lambda last: driver.request_stop() if last >= 10 else None
    driver.run()
    campaign = Campaign(application, root, BATCH, cluster)
    trials = [campaign.trial(seed) for seed in range(TRIALS)]
    for trial in trials:
        print(trial)
    assert [trial for trial in trials if trial.wrong] == []
