"""How a node proves that its Python workers work: one of them answers, and looks at the others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator

from tenax.engine.processes import children, stopped


class Proof:
    """A question to a node. A long step is no reason for doubt: only a process that is stopped is."""

    def __call__(self, _partition: int, elements: Iterable[object]) -> Iterator[bytes]:
        """The process ids of Python workers of this node that are stopped, and of their daemon."""
        for _ in elements:  # Spark ends a worker that leaves some of its input
            pass
        daemon = os.getppid()
        yield json.dumps(stopped([daemon, *children(daemon)])).encode()
