"""Which operators of an application can have more or fewer tasks, and the application as it is then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import polars as pl

from tenax.application.application import Application
from tenax.errors import InvalidRequest
from tenax.model.topology import Input, Operator, Output, Partitioning, PerTask, Topology, suggestion
from tenax.model.topology_versions import Table, TopologyVersion
from tenax.operators.computation import Computation, Splits, splits_itself
from tenax.operators.custom import KeyedComputation
from tenax.operators.join import Join
from tenax.operators.keys import KEY_GROUPS, owners
from tenax.operators.stateless import Filter, Stateless
from tenax.operators.windows import Windows


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """Operators that always have the same number of tasks, in topological order; `reason` is why it stays, or ''."""

    operators: tuple[str, ...]
    reason: str = ""


def scaling_groups(application: Application) -> tuple[ScalingGroup, ...]:
    """What is rescaled together: operators that are connected by pairs of tasks.

    Rows come into a group by the edges that are not between partners. Where each of these is keyed, any number of tasks
    can share the rows, by one table for the whole group, because partners have the same keys. So a chain without state
    goes with what feeds it, and one behind a source stays with the source.
    """
    order = application.topology.in_order
    group_of = {name: name for name in order}  # each by the first of its group
    there = (pair for pair in sorted(application.paired) if group_of.keys() >= set(pair))  # some may have been left out
    for producer, consumer in there:
        old, new = sorted((group_of[producer], group_of[consumer]), key=order.index)[::-1]
        group_of = {name: new if first == old else first for name, first in group_of.items()}
    members: dict[str, list[str]] = {}
    for name in order:
        members.setdefault(group_of[name], []).append(name)
    return tuple(ScalingGroup(tuple(names), _why_fixed(application, names)) for names in members.values())


def state_keys(application: Application, operator: str) -> tuple[str, ...]:
    """The columns by which the rows of an operator are shared among its tasks, as they come to it; () if unknown.

    Along an edge without keys these are the columns that its producer's rows are known to be shared by.
    """
    inputs = application.topology.operator(operator).inputs
    known = [
        application.keys.get((stream.operator, operator), ()) or _shared(application, stream.operator)
        for stream in inputs
    ]
    return known[0] if known and all(known) else ()


def table_of(application: Application, operator: str) -> Table:
    """The task of an operator that owns each key group: as it was given, or by weights."""
    given = application.tables.get(operator)
    if given is not None:
        return given
    described = application.topology.operator(operator)
    return tuple(map(int, owners(described.weights or (1.0,) * described.parallelism)))


def first_version(application: Application) -> TopologyVersion:
    """The version that an application begins with."""
    parallelism = {operator.name: operator.parallelism for operator in application.topology.operators}
    tables = {
        name: table_of(application, name)
        for group in scaling_groups(application)
        if _are_keyed(application, group.operators)
        for name in group.operators
    }
    return TopologyVersion(1, 0, parallelism, tables)


def next_version(
    application: Application,
    present: TopologyVersion,
    wanted: Mapping[str, int],
    after: int,
    nodes: int | None,
    cause: str,
) -> TopologyVersion:
    """The version that follows: with so many tasks of each operator named, and of those that are rescaled with it.

    As few key groups move as equal shares allow; the same wishes always give the same tables.
    """
    parallelism, tables = dict(present.parallelism), dict(present.tables)
    for name, tasks in wanted.items():
        _check_wish(application, name, tasks)
    for group in scaling_groups(application):
        wishes = {name: wanted[name] for name in group.operators if name in wanted}
        standing = {(parallelism.get(name), tables.get(name)) for name in group.operators}
        if not wishes or (len(standing) == 1 and {tasks for tasks, _ in standing} == set(wishes.values())):
            continue
        tasks = _agreed(group, wishes)
        head = group.operators[0]
        table = rebalanced(tables.get(head) or table_of(application, head), tasks)
        for name in group.operators:
            parallelism[name], tables[name] = tasks, table
    return TopologyVersion(present.number + 1, after, parallelism, tables, nodes, cause)


def carried_over(
    application: Application,
    present: TopologyVersion,
    staying: Collection[str],
    keeping: Collection[str],
    after: int,
    cause: str,
) -> TopologyVersion:
    """The version that follows where other code takes over, with operators that the present one may not know.

    Operators that are `keeping` states have the tasks and tables that these lie in, and so has whatever is rescaled
    with them. Else those that are `staying` as they were have the tasks that they had, where that can be; all others
    are as the application declares them.
    """
    declared = first_version(application)
    parallelism, tables = dict(declared.parallelism), dict(declared.tables)
    for group in scaling_groups(application):
        chosen = _carried(application, group, present, staying, keeping)
        if chosen is None:
            continue
        tasks, table = chosen
        for name in group.operators:
            parallelism[name] = tasks
            if table is None:
                tables.pop(name, None)
            else:
                tables[name] = table
    return TopologyVersion(present.number + 1, after, parallelism, tables, present.nodes, cause)


def _carried(
    application: Application,
    group: ScalingGroup,
    present: TopologyVersion,
    staying: Collection[str],
    keeping: Collection[str],
) -> tuple[int, Table | None] | None:
    """The tasks and the table that a group takes over; None if it is as declared."""
    states = {name: _standing(present, name) for name in group.operators if name in keeping}
    fixed = next((name for name in group.operators if name in application.sources), None)
    if fixed is not None:
        states = {fixed: (application.topology.operator(fixed).parallelism, None), **states}
    if len(set(states.values())) > 1:
        standing = ", ".join(f"{name} has {tasks}" for name, (tasks, _) in states.items())
        raise InvalidRequest(
            f"{', '.join(map(repr, states))} are to share their rows task by task, so their states lie in the same "
            f"tasks, found that they do not ({standing}): key the rows of one of them by key_by(...) before it"
        )
    if states:
        return None if fixed is not None else next(iter(states.values()))
    stays = [name for name in group.operators if name in staying]
    return _standing(present, stays[0]) if stays and not group.reason else None


def _standing(present: TopologyVersion, name: str) -> tuple[int, Table | None]:
    return present.parallelism[name], present.tables.get(name)


def rebalanced(table: Table, tasks: int) -> Table:
    """The same key groups for so many tasks, in equal shares that differ by at most 1; as few as can be move.

    Of the tasks that stay, those that have the most keep one more, where shares differ; so what stays is the sum of
    the smaller of what each has and may have, and no table has more. The highest groups of a task move, to the lowest
    task that lacks any. Cost: proportional to the key groups.
    """
    held = Counter(owner for owner in table if owner < tasks)
    share, more = divmod(len(table), tasks)
    richest = sorted(range(tasks), key=lambda task: (-held[task], task))
    room = dict.fromkeys(range(tasks), share) | dict.fromkeys(richest[:more], share + 1)
    kept: list[int | None] = []
    for owner in table:
        stays = room.get(owner, 0) > 0
        kept.append(owner if stays else None)
        if stays:
            room[owner] -= 1
    free = (task for task in range(tasks) for _ in range(room[task]))
    return tuple(next(free) if owner is None else owner for owner in kept)


def rescaled(application: Application, version: TopologyVersion) -> Application:
    """The application in a version: what building it with these numbers of tasks gives, with the tables of the version.

    - Where the tasks of an operator change in number, its weights go: shares are equal then. Priorities of single tasks
      are those of the tasks that were; if they differ, each of the new ones has the highest, so none comes back later.
    - An edge whose ends both stay keeps its partitioning.
    - Operators that the version does not know, because other code has made it, are as declared, or as their partners.
    """
    before = {operator.name: operator for operator in application.topology.operators}
    tasks = {name: version.parallelism.get(name, operator.parallelism) for name, operator in before.items()}
    unknown = [name for name in before if name not in version.parallelism]
    for group in scaling_groups(application) if unknown else ():
        known = [name for name in group.operators if name not in unknown]
        tasks |= {name: tasks[known[0]] for name in group.operators if known and name in unknown}
    operators = tuple(
        _with_tasks(operator, tasks[operator.name], _inputs(application, operator, tasks))
        for operator in application.topology.operators
    )
    topology = Topology(application.topology.name, operators)
    return replace(application, topology=topology, tables=dict(version.tables))


def _with_tasks(operator: Operator, tasks: int, inputs: tuple[Input, ...]) -> Operator:
    if tasks == operator.parallelism:
        return replace(operator, inputs=inputs)
    output = operator.output
    return replace(
        operator,
        parallelism=tasks,
        inputs=inputs,
        weights=None,
        rate=_for_all(operator.rate),
        reprocess=_for_all(operator.reprocess),
        cost=_for_all(operator.cost),
        output=None if output is None else Output(_for_all(output.priority)),
    )


def _for_all(value: PerTask) -> PerTask:
    """One number for tasks that are not the ones that there were."""
    return max(value) if isinstance(value, tuple) else value


def _inputs(application: Application, operator: Operator, tasks: Mapping[str, int]) -> tuple[Input, ...]:
    topology = application.topology
    return tuple(
        stream
        if tasks[stream.operator] == topology.operator(stream.operator).parallelism
        and tasks[operator.name] == operator.parallelism
        else Input(stream.operator, _partitioning(application, stream.operator, operator.name, tasks))
        for stream in operator.inputs
    )


def _partitioning(application: Application, producer: str, consumer: str, tasks: Mapping[str, int]) -> Partitioning:
    """How rows go from tasks to tasks, as the API decides when a topology is written."""
    before, after = tasks[producer], tasks[consumer]
    if before == after and ((producer, consumer) in application.paired or before == 1):
        return Partitioning.ONE_TO_ONE
    if after > 1 and not application.keys.get((producer, consumer), ()):
        raise InvalidRequest(
            f"operator {consumer!r} shares its rows by key among {after} tasks, found none: use key_by(...) before it"
        )
    return Partitioning.FULL


def _check_wish(application: Application, name: str, tasks: int) -> None:
    names = [operator.name for operator in application.topology.operators]
    if name not in names:
        raise InvalidRequest(f"an operator of the topology is rescaled, found {name!r}{suggestion(name, names)}")
    if not 1 <= tasks <= KEY_GROUPS:
        raise InvalidRequest(
            f"operator {name!r} has 1 to {KEY_GROUPS} tasks, one for each key group at most, found {tasks}: "
            "choose a number between"
        )


def _agreed(group: ScalingGroup, wishes: Mapping[str, int]) -> int:
    """The one number of tasks that is wished for a group."""
    names = ", ".join(map(repr, group.operators))
    if len(set(wishes.values())) > 1:
        said = ", ".join(f"{name}={tasks}" for name, tasks in wishes.items())
        raise InvalidRequest(f"{names} have as many tasks as each other, found {said}: name one of them")
    if group.reason:
        raise InvalidRequest(f"operator {next(iter(wishes))!r} keeps the tasks that it has: {group.reason}")
    return next(iter(wishes.values()))


def _are_keyed(application: Application, operators: tuple[str, ...] | list[str]) -> bool:
    """Whether all rows that come to these operators from outside come by key, and some do."""
    return not any(name in application.sources for name in operators) and _unkeyed(application, operators) is None


def _unkeyed(application: Application, operators: tuple[str, ...] | list[str]) -> str | None:
    """The first of these operators that gets rows from outside without a key."""
    for name in operators:
        for stream in application.topology.operator(name).inputs:
            edge = (stream.operator, name)
            if edge not in application.paired and not application.keys.get(edge, ()):
                return name
    return None


def _why_fixed(application: Application, operators: list[str]) -> str:
    """Why the operators of a group keep their number of tasks; '' if they need not."""
    source = next((name for name in operators if name in application.sources), None)
    if source is not None:
        with_it = "" if len(operators) == 1 else ", and what follows it task by task has as many"
        return f"source {source!r} has a task for each partition{with_it}; use key_by(...) behind it"
    unkeyed = _unkeyed(application, operators)
    if unkeyed is not None:
        return f"the rows of {unkeyed!r} come together without a key; use key_by(...) before it"
    reasons = (_why_whole(application, name) for name in operators)
    return next((reason for reason in reasons if reason), "")


def _why_whole(application: Application, operator: str) -> str:
    """Why the state of an operator cannot be split; '' if it can."""
    computation = application.computations[operator]
    kind = type(computation).__name__
    if computation.stateless or (computation.splits is Splits.ANYWHERE and not splits_itself(computation)):
        return ""
    if not splits_itself(computation) and computation.splits is Splits.NOT:
        return f"{operator!r} ({kind}) does not say how its state is split; give it split and merge"
    keys = state_keys(application, operator)
    if not keys:
        return f"by which columns the rows of {operator!r} are shared is not known; use key_by(...) before it"
    columns = None if splits_itself(computation) else state_columns(computation)
    missing = [key for key in keys if columns is not None and key not in columns]
    if missing:
        return f"the rows of {operator!r} are shared by {missing[0]!r}, which is not among its keys {columns}; add it"
    return _why_moved(application, operator, computation, keys)


def _why_moved(application: Application, operator: str, computation: Computation, keys: tuple[str, ...]) -> str:
    """Whether rows of a state hash otherwise than the rows they are of, because keys are kept in another type."""
    producer = application.topology.operator(operator).inputs[0].operator
    if not isinstance(computation, KeyedComputation) or producer not in application.schemas:
        return ""
    rows = application.schemas[producer]
    for key in keys:
        if _hashed_as(rows[key]) != _hashed_as(computation.state_schema[key]):
            return (
                f"{operator!r} keeps its key {key!r} as {computation.state_schema[key]}, its rows have it as "
                f"{rows[key]}; declare the type of the rows"
            )
    return ""


def _hashed_as(kind: pl.DataType | type[pl.DataType]) -> str:
    """Types of a key with the same name here have the same hash for the same value."""
    if kind in (pl.String, pl.Binary) or isinstance(kind, pl.Categorical | pl.Enum):
        return "bytes"
    if kind.is_float():
        return "float"
    if kind.is_integer() or kind == pl.Boolean:
        return "integer"
    return str(kind.base_type())


def state_columns(computation: Computation) -> tuple[str, ...] | None:
    """The columns that every segment of rows has and that no step changes; None if only its author knows."""
    if isinstance(computation, Windows | KeyedComputation):
        return computation.keys
    return computation.on if isinstance(computation, Join) else None


def _shared(application: Application, operator: str) -> tuple[str, ...]:
    """The columns by which the rows that an operator gives are shared by its tasks, as the API knows them."""
    computation = application.computations.get(operator)
    if isinstance(computation, Windows | Join) or _filters(computation):
        return state_keys(application, operator)
    return ()


def _filters(computation: Computation | None) -> bool:
    """Whether all it does is to leave rows out."""
    return isinstance(computation, Stateless) and all(
        isinstance(transformation, Filter) for transformation in computation.transformations
    )
