"""Work folders: where the nodes of a run keep states while a driver runs, and what stays of that afterwards."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from tenax.engine.scratch import sweep
from tenax.engine.session import SCRATCH
from tenax.engine.virtual_machine import LOG, SPARK_HOME
from tenax.store.store import Store

RUNS = "run"  # in a store
NODES = "nodes"  # in a work folder: where nodes keep states


def make_work_folder(store: Store) -> Path:
    """The work folder of the driver that has claimed a store; what earlier drivers left is of no use any more."""
    runs = store.folder / RUNS
    for link in runs.glob(f"*/{SCRATCH}"):
        sweep(link.readlink())
    for old in runs.glob("*"):
        shutil.rmtree(old, ignore_errors=True)
    work = runs / f"{store.epoch:08d}"
    (work / NODES).mkdir(parents=True)  # no node makes it: it may be away for a moment
    return work


def tidy(work: Path, *, keep_logs: bool) -> None:
    """Leave nothing of a run but what Spark's processes wrote for developers; executors' logs if something failed."""
    for entry in work.iterdir() if work.exists() else ():  # a newer driver may have swept it
        if entry.name == LOG or (keep_logs and entry.name == SPARK_HOME):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    with suppress(OSError):  # it is gone, or a log is there
        work.rmdir()
