"""The process from which Spark forks the Python workers of a node: it has imported whatever they need.

A worker that imports by itself takes most of a second of processor time, and that just after a pass was cancelled, when
others wait for the results of the next. Nothing here may start a thread of Polars before a fork: to import is enough.
"""

from __future__ import annotations

from pyspark.daemon import manager

import tenax.engine.worker.proof
import tenax.engine.worker.stages  # noqa: F401

if __name__ == "__main__":
    manager()
