"""How rows go from the tasks of one operator to those of the next, as it follows from keys and numbers of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from tenax.errors import InvalidTopology
from tenax.model.topology import Partitioning


def partitioning(
    name: str, producers: int, tasks: int, keys: Sequence[str], shared: Sequence[str]
) -> tuple[Partitioning, bool]:
    """How the rows of so many producers reach the tasks of an operator, by these `keys`, if they are `shared` so far.

    With it goes whether a task's rows are all for its partner whatever there is of them, unless both are one task.
    """
    alike = tuple(keys) == tuple(shared) if keys else tasks > 1
    if producers == tasks and (alike or tasks == 1 or not keys):
        return Partitioning.ONE_TO_ONE, alike
    if keys or 1 in (producers, tasks):
        return Partitioning.FULL, False
    raise InvalidTopology(
        f"operator {name!r}: rows of {producers} tasks are spread over {tasks} by key, found none: "
        "use key_by(...) before it"
    )
