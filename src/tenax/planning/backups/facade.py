"""The facade of the backup planners: one request, several algorithms, one kind of plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tenax.errors import InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.plans import BackupPlan
from tenax.model.topology import suggestion
from tenax.planning.backups.dag import dag
from tenax.planning.backups.exact import exact
from tenax.planning.backups.exhaustive import exhaustive
from tenax.planning.backups.problem import BackupProblem, Choice, as_plan
from tenax.planning.backups.share import share
from tenax.planning.backups.tree import line, tree

_WITHOUT_LIMIT: Mapping[str, Callable[[BackupProblem], Choice]] = {
    "dag": dag,
    "tree": tree,
    "line": line,
    "share": share,
    "exhaustive": exhaustive,
}

ALGORITHMS: tuple[str, ...] = ("exact", *_WITHOUT_LIMIT)


def plan_backups(
    graph: TaskGraph, latency_s: float, algorithm: str | None = None, time_limit_s: float = 10.0
) -> BackupPlan:
    """The fewest tasks that retain their outputs, so that any lost task is back within `latency_s`.

    - Without `algorithm`: exact; if the solver's `time_limit_s` is over first, the best plan known, named for what
      gave it.
    - exact: fewest backups, then the smallest overall latency. exhaustive: the same by trying all sets, small graphs.
    - tree, line: fewest backups in O(tasks), for graphs of that shape.
    - dag: the paper's heuristic, for all graphs. share: a simpler one, to compare with.
    """
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise InvalidRequest(f"unknown backup algorithm {algorithm!r}{suggestion(algorithm, ALGORITHMS)}")
    if not time_limit_s > 0:
        raise InvalidRequest(f"a time limit is a number of seconds above 0, found {time_limit_s!r}: raise it")
    problem = BackupProblem.of(graph, latency_s)
    if algorithm is None:
        return as_plan(problem, exact(problem, time_limit_s))
    if algorithm == "exact":
        return as_plan(problem, replace(exact(problem, time_limit_s), algorithm="exact"))
    return as_plan(problem, _WITHOUT_LIMIT[algorithm](problem))
