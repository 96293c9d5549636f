"""What a run has measured of its tasks, as the tasks of the next version of its topology are to be expected."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tenax.application.application import Application
from tenax.application.scaling import table_of
from tenax.control.load import Load, TaskLoad
from tenax.model.graph import TaskGraph


def shared_load(load: Load, before: Application, now: Application) -> Load:
    """The load with tasks that are expected to cost what their key groups did; rows lie evenly on those of a task.

    Nothing is known of the tasks if what was measured is not of those before.
    """
    old, new = TaskGraph(before.topology), TaskGraph(now.topology)
    if len(load.tasks) != len(old):
        return replace(load, tasks=(), batches=0, of_version=0)
    first = {operator.name: int(old.first[number]) for number, operator in enumerate(old.operators)}
    tasks: list[TaskLoad] = []
    for operator in new.operators:
        were = old.topology.operator(operator.name).parallelism
        own = load.tasks[first[operator.name] : first[operator.name] + were]
        if were == operator.parallelism:
            tasks += own
        else:
            tables = table_of(before, operator.name), table_of(now, operator.name)
            tasks += _shared(own, *tables, operator.parallelism)
    return replace(load, tasks=tuple(tasks), of_version=0)


def _shared(own: tuple[TaskLoad, ...], before: tuple[int, ...], now: tuple[int, ...], tasks: int) -> list[TaskLoad]:
    """What tasks do that take over parts of others."""
    groups, both = Counter(before), Counter(zip(before, now, strict=True))
    loads = [TaskLoad(level=own[0].level)] * tasks
    for (old, new), moved in both.items():
        part, known, so_far = moved / groups[old], own[old], loads[new]
        loads[new] = TaskLoad(
            so_far.rows + part * known.rows,
            so_far.rows_out + part * known.rows_out,
            so_far.busy_s + part * known.busy_s,
            so_far.state_bytes + part * known.state_bytes,
            known.level,
        )
    return loads
