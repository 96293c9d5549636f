"""Fault-tolerant stream processing on Apache Spark.

Begin with `import tenax as tx` and `tx.Topology`; `tenax.api.public` lists all public names. They are loaded when
first used, so that planning needs neither Polars nor Spark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenax.api.public import *  # noqa: F403


def __getattr__(name: str) -> object:
    from tenax.api import public

    if name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module 'tenax' has no attribute {name!r}")
