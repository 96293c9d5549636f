"""Plan files: what `tenax plan all FILE --json` prints, handed to a run as its settings.

A plan says who has replicas and who retains outputs. Where it has tasks on nodes of a cluster file, that is left out:
executors have no such names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tenax.errors import InvalidFile, InvalidRequest
from tenax.model.documents import read_document
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Topology

REPLICAS, BACKUPS = "replicas", "backups"
SAID_BY_PLANS = (REPLICAS, BACKUPS, "recovery_latency")  # settings that stand in no command beside a plan
MADE_BY = "tenax plan all FILE --latency R --budget K --json"


def read_plan(path: Path, topology: Topology, beside: Collection[str] = ()) -> dict[str, Any]:
    """A plan as settings, held against the topology that is to run; `beside` are settings that were said as well."""
    for word in SAID_BY_PLANS:
        if word in beside:
            raise InvalidRequest(
                f"a plan says itself who has replicas and who retains outputs, found {word} beside it: leave one of "
                "the two out"
            )
    data = read_document(path)
    words: dict[str, Any] = {}
    for what in (REPLICAS, BACKUPS):
        value = data.get(what) if isinstance(data, Mapping) else None
        named = value.get(what) if isinstance(value, Mapping) else value  # of all, or of just this
        if named is None:
            continue
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise InvalidFile(f"{path}: {what} of a plan are a list of tasks, found {named!r}: make it by '{MADE_BY}'")
        words[what] = _checked(path, topology, what, named)
    if not words:
        raise InvalidFile(f"{path}: a plan has replicas or backups, found neither: make it by '{MADE_BY}'")
    return {
        what: tasks or (0 if what == REPLICAS else "source")  # as one says it who wants none
        for what, tasks in words.items()
    }


def _checked(path: Path, topology: Topology, what: str, named: list[str]) -> tuple[str, ...]:
    graph = TaskGraph(topology)
    for name in named:
        try:
            task = Task.parse(name)
            graph.number(task)
        except InvalidRequest as error:
            raise InvalidFile(f"{path}: {error}") from None
        if topology.operator(task.operator).is_source:
            raise InvalidFile(
                f"{path}: sources have their log, found {task} among the {what}: plan the application itself, or say "
                f"'safe: true' of {task.operator} and plan anew"
            )
    return tuple(named)
