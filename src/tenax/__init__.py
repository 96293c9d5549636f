"""Fault-tolerant stream processing on Apache Spark.

Begin with `import tenax as tx` and `tx.Topology`; `tenax.api.public` lists all public names. They are loaded when
first used, so that planning needs neither Polars nor Spark.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenax import testing as testing
    from tenax.api.public import *  # noqa: F403

    __version__: str


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    if name.startswith("__"):
        raise AttributeError(f"module 'tenax' has no attribute {name!r}")
    if name == "testing":
        return importlib.import_module("tenax.testing")
    from tenax.api import public

    if name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module 'tenax' has no attribute {name!r}")


def __dir__() -> list[str]:
    from tenax.api import public

    return sorted({*public.__all__, "__doc__", "__name__", "__version__", "testing"})


def _version() -> str:
    """The version that pyproject.toml states, as installed; on a node that was sent Tenax as a file, unknown."""
    from importlib import metadata

    try:
        return metadata.version("tenax")
    except metadata.PackageNotFoundError:
        return "unknown"
