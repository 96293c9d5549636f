"""Re-cuts: what every task of a rescaled application begins with, by reference to what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tenax.application.application import Application
from tenax.application.scaling import table_of
from tenax.control.versions import NO_PASS, Cut, PassId, Version
from tenax.errors import InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology_versions import Table
from tenax.operators.computation import Computation, Splits, splits_itself
from tenax.operators.groups import Groups
from tenax.store.checkpoints import RETAINED, StoredSegment

Segments = Mapping[Task, tuple[StoredSegment, ...]]


@dataclass(frozen=True, slots=True)
class Share:
    """What a task gets of the state of one that was: the rows of these groups, all if None.

    Where rows may be with any task, `rows` says whether it gets them; what is said of the whole task it always gets.
    """

    task: Task
    groups: Groups | None = None
    rows: bool = True


def recut(
    cut: Cut, segments: Segments, before: Application, now: Application, made_by: PassId
) -> tuple[Cut, dict[Task, tuple[StoredSegment, ...]]]:
    """A cut and what it lists, for the tasks of the application as it is `now`; nothing is read or copied.

    - The cut has versions of one batch alone. The new one has the version of that batch that `made_by` made of every
      task, a pass id of its own because a node may know other content under the same name; the initial one where all
      that a task gets is that. Retained outputs are left out: no batch before the cut is stepped with other tasks.
    - A task gets the segments of every task some of whose key groups are its own now, in task order. Tasks whose
      operator has the same table as before get their own, as they are.
    - Re-cutting again before anything is stepped is the same as re-cutting once: groups intersect, and pieces of one
      segment that come together again become one.

    Cost: tasks × tasks of each operator whose table has changed, and the segments.
    """
    batch = cut.newest_batch
    versions = {point.task: point for point in cut.points if isinstance(point, Version) and point.batch == batch}
    if len(versions) < len(cut.points):
        odd = next(point for point in cut.points if point.task not in versions)
        raise InvalidRequest(f"a re-cut is of versions of batch {batch} alone, found {odd}: store all tasks")
    tables = {operator.name: table_of(before, operator.name) for operator in before.topology.operators}
    graph = TaskGraph(now.topology)
    points: list[Version] = []
    listed: dict[Task, tuple[StoredSegment, ...]] = {}
    for task in graph.tasks(range(len(graph))):
        if tables.get(task.operator) == table_of(now, task.operator):
            shares, listed[task] = [Share(task)], _own(segments.get(task, ()))
        else:
            shares = _shares(now, task, tables.get(task.operator, ()))
            listed[task] = _shared(now, task.operator, segments, shares)
        begun = any(versions[share.task].pass_id != NO_PASS for share in shares)
        points.append(Version(task, batch, made_by if begun else NO_PASS))
    return Cut(cut.number, tuple(points)), listed


def _own(parts: Iterable[StoredSegment]) -> tuple[StoredSegment, ...]:
    """The state of a task, without the outputs beside it."""
    return tuple(part for part in parts if not part.segment.startswith(RETAINED))


def _shares(now: Application, task: Task, before: Table) -> list[Share]:
    """What a task gets of the tasks that were, by the table of its operator before and now."""
    own = Groups.of(table_of(now, task.operator), task.index)
    anywhere = _is_anywhere(_splitting(now, task.operator))
    shares = []
    for index in sorted(set(before)):
        held = Groups.of(before, index)
        if not held & own:
            continue
        old = Task(task.operator, index)
        if anywhere:
            shares.append(Share(old, rows=bool(own & Groups(1 << held.lowest))))
        else:
            shares.append(Share(old, None if own.covers(held) else held & own))
    return shares


def _splitting(now: Application, operator: str) -> Computation:
    """What an operator computes whose table has changed, if its state can be split."""
    computation = now.computations.get(operator)
    if computation is not None and (
        computation.stateless or computation.splits is not Splits.NOT or splits_itself(computation)
    ):
        return computation
    raise InvalidRequest(
        f"operator {operator!r} keeps its tasks, because its state cannot be split, found another table of key groups: "
        "rescale others"
    )


def _is_anywhere(computation: Computation) -> bool:
    return computation.splits is Splits.ANYWHERE and not splits_itself(computation)


def _shared(now: Application, operator: str, segments: Segments, shares: Iterable[Share]) -> tuple[StoredSegment, ...]:
    """The pieces that a task refers to; those of one segment of one task are one piece."""
    computation = now.computations[operator]
    pieces: dict[tuple[object, ...], StoredSegment] = {}
    for share in shares:
        for part in _own(segments.get(share.task, ())):
            if not share.rows and computation.holds_rows(part.segment):
                continue
            piece = _piece(part, share)
            if piece is not None:
                place = (piece.segment, piece.origin, piece.place)
                pieces[place] = _united(pieces.get(place, piece), piece)
    return tuple(pieces.values())


def _piece(part: StoredSegment, share: Share) -> StoredSegment | None:
    """What a share has of a stored segment; None if that is nothing."""
    origin = part.origin or str(share.task)
    if share.groups is None:
        return replace(part, origin=origin)
    groups = share.groups & Groups.parse(part.groups) if part.groups else share.groups
    return replace(part, groups=str(groups), origin=origin) if groups else None


def _united(piece: StoredSegment, other: StoredSegment) -> StoredSegment:
    """Two pieces of the same segment of one task as one."""
    if not (piece.groups and other.groups):
        return replace(piece, groups="")
    return replace(piece, groups=str(Groups.parse(piece.groups) | Groups.parse(other.groups)))
