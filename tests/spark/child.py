"""A driver in a process of its own, to be killed: `python child.py EXAMPLE STORE BATCH_ROWS NODES OPTIONS` (JSON)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from spark.runs import Watcher, example, run, settings

from tenax.control.instructions import Outcome


def main() -> int:
    name, store, batch_rows, nodes, options = sys.argv[1:]
    application = example(name, **json.loads(options))
    how = settings(int(batch_rows), checkpoint_every=5, nodes=int(nodes))
    stop = run(application, Path(store), how, None, Watcher())
    print(stop, flush=True)
    return 0 if stop.outcome is Outcome.FINISHED else 1


if __name__ == "__main__":
    raise SystemExit(main())
