"""A driver that upgrades a store, in a process of its own, to be killed: `python upgrading_child.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from spark.runs import Watcher, run
from spark.test_upgrades import counts, upgrading

from tenax.control.instructions import Outcome


def main() -> int:
    folder = Path(sys.argv[1])
    stop = run(counts(folder, new=True), folder / "store", upgrading(every=100).but(nodes=1), None, Watcher())
    print(stop, flush=True)
    return 0 if stop.outcome is Outcome.FINISHED else 1


if __name__ == "__main__":
    raise SystemExit(main())
