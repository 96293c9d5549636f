"""Topologies of files: described in YAML or JSON, or written as an application in Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenax.cli.arguments import name_values
from tenax.errors import InvalidRequest
from tenax.model.files import read_topology
from tenax.model.topology import Topology

if TYPE_CHECKING:
    from tenax.application.application import Application

PYTHON = ".py"


def topology_of(file: Path, options: Sequence[str] | None, store: Path | None = None) -> Topology:
    """The topology of a file, `options` being arguments of an application's build(...); its sources are safe.

    With the store of a run of an application it has the tasks that the run has now.
    """
    if file.suffix == PYTHON:
        from tenax.engine.protection import with_safe_sources

        return with_safe_sources(application_of(file, options, store).topology)
    if options:
        raise InvalidRequest(f"{file}: options are for applications in Python, found {options[0]!r}: leave it out")
    return read_topology(file)


def application_of(file: Path, options: Sequence[str] | None, store: Path | None = None) -> Application:
    """The application of a Python file; with the tasks that a run of it has now, if its store is given."""
    from tenax.application.scaling import rescaled
    from tenax.engine.loading import load_application
    from tenax.store.topology_versions import read_versions

    application = load_application(file, name_values(list(options or [])))
    versions = () if store is None else read_versions(store)
    return rescaled(application, versions[-1]) if versions else application
