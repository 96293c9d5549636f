"""What a planner of a simulation answers: any replicas and backups at all, for results must be right with all."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tenax.control.events import BackupsPlanned, Event, PlanKind, PlanningFailed, ReplicasPlanned
from tenax.control.instructions import PlanBackups, PlanReplicas
from tenax.model.tasks import Task
from tenax.planning.promises import Promise

FAILED_PLAN = 0.1  # the part of plans of backups that cannot be made


def replicas_planned(order: PlanReplicas, tasks: Sequence[Task], plans: Random, *, fails: bool) -> Event:
    """Some replicas, and that they gain something."""
    if fails:
        return PlanningFailed(order.batch, "unlucky")
    return ReplicasPlanned(order.batch, _some(tasks, plans), 0.0, plans.random())


def backups_planned(order: PlanBackups, tasks: Sequence[Task], promises: Random) -> Event:
    """Some backups, and a promise that some tasks break."""
    if promises.random() < FAILED_PLAN:
        return PlanningFailed(order.batch, "unlucky", PlanKind.BACKUPS)
    backups, late = _some(tasks, promises), _some(tasks, promises)
    return BackupsPlanned(order.batch, backups, Promise(1.0, promises.random(), order.measures.scheduling_s, late))


def _some(tasks: Sequence[Task], random: Random) -> tuple[Task, ...]:
    return tuple(random.sample(tasks, random.randint(0, len(tasks))))
