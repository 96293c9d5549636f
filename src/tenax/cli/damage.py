"""Damage to the files of a run that was really killed: a part of what `make chaos` runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tenax.chaos.corruption import STORE, Campaign
from tenax.cli.chaos import emptied
from tenax.engine.loading import load_application
from tenax.engine.session import Session
from tenax.errors import ClusterFailed
from tenax.examples import app_path
from tenax.model.settings import Settings
from tenax.store import journal

ROWS, BATCH_ROWS, KILLED_AT = 9_000, 500, 11
NODES = 2
CHECKPOINT_EVERY = 4
DEADLINE_S = 300.0
POLL_S = 0.02
TENAX = [sys.executable, "-c", "from tenax.cli.main import main; main()"]


def damaged(console: Console, seeds: Sequence[int], out: Path) -> Iterator[str]:
    """Damage a file of a killed run for every seed, start again and judge; the seeds that failed."""
    if not seeds:
        return
    folder = (out / "damage").absolute()
    emptied(folder)
    root = folder / "run"
    options = {
        "rows": ROWS,
        "rate": 1_000,
        "servers": 4,
        "pages": 50,
        "count": 5,
        "length": "1s",
        "parallelism": 2,
        "folder": str(root),
    }
    console.print(f"a run is killed after batch {KILLED_AT}, and single files of it are damaged")
    _killed(options, root)
    application = load_application(app_path("top_pages"), options)
    settings = Settings.of(nodes=NODES, max_rows=BATCH_ROWS, checkpoint_every=CHECKPOINT_EVERY)
    session = Session(folder / "cluster", settings.cluster)
    try:
        campaign = Campaign(application, root, settings, session)
        endings: dict[str, int] = {}
        for seed in seeds:
            harmed = campaign.trial(seed)
            endings[harmed.ending] = endings.get(harmed.ending, 0) + 1
            if harmed.wrong:
                console.print(Text(f"FAILED: damage {seed}: {harmed}", style="bold red"), soft_wrap=True)
                only = "--schedules 0 --simulated 0 --random-graphs 0 --damages 1"
                yield f"python -m tenax.cli.soak {only} --seed {seed}"
        console.print(f"damaged {len(seeds)} files: {', '.join(f'{count} {name}' for name, count in endings.items())}")
    finally:
        session.stop()


def _killed(options: dict[str, object], root: Path) -> None:
    """Run an example in a process of its own, and kill it in the middle."""
    words = [f"{name}={value}" for name, value in options.items()]
    settings = ["--nodes", str(NODES), "--max-rows", str(BATCH_ROWS), "--checkpoint-every", str(CHECKPOINT_EVERY)]
    command = [*TENAX, "run", str(app_path("top_pages")), *words, *settings, "--store", str(root / STORE)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(journal.read(root / ".top.tenax" / "log")) < KILLED_AT:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ClusterFailed(
                    f"a run comes to batch {KILLED_AT}, found it ended before: run {' '.join(command[2:])}"
                )
            time.sleep(POLL_S)
    finally:
        process.kill()
        process.wait()
