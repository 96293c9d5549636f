"""The example files that ship with Tenax: topologies by name, most of them from the papers."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tenax.errors import InvalidRequest
from tenax.model.topology import suggestion

_SUFFIX = ".yaml"
_CLUSTER = "-cluster"  # how the name of a file ends that holds a cluster, not a topology
_FOLDER = Path(str(files(__name__)))
_FILES = {path.stem: path for path in sorted(_FOLDER.glob(f"*{_SUFFIX}"), key=lambda path: path.stem)}

EXAMPLES: tuple[str, ...] = tuple(name for name in _FILES if not name.endswith(_CLUSTER))
"""The names of all example topologies, sorted."""


def app_path(name: str) -> Path:
    """The Python file of an example application."""
    return _FOLDER / "apps" / f"{name}.py"


def example_path(name: str) -> Path:
    """The file of an example, topology or cluster, by its name without suffix."""
    if name not in _FILES:
        raise InvalidRequest(f"unknown example {name!r}{suggestion(name, _FILES)}")
    return _FILES[name]


def describe(name: str) -> str:
    """What an example is: the first line of its file, a comment, without the comment sign."""
    with example_path(name).open(encoding="utf-8") as file:
        return file.readline().removeprefix("#").strip()
