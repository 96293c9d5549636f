"""Loads of simulated runs: what tasks cost, how fast rows come, and the judges of which lost tasks find room.

The judges share nothing with the planners: whether a query fits is tried place by place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from tenax.control.coordinator import Coordinator
from tenax.control.events import BatchesLogged, Event, NodesJoined, NodesLost, PassFinished, Started, TaskReport
from tenax.control.instructions import Decided, RunPass
from tenax.control.load import Load
from tenax.control.notices import RecoveryBegun
from tenax.control.state import Phase, RunState
from tenax.model.protection import OPERATOR_CENTRIC, Recovery
from tenax.model.queries import membership
from tenax.model.tasks import Task
from tenax.simulation.store import StoreMisused
from tenax.simulation.toy import Toy

INTERVAL_S = 1.0
ROWS = 27_720  # of a batch at the usual rate; so that sources, however many, share them evenly
PHASE = 8  # batches that come at one rate
FIXED_S = 0.1
ROUNDING_S = 1e-4
MOST_TRIED = 8  # tasks of a query for which all places are tried


@dataclass(frozen=True, slots=True)
class VirtualLoad:
    """How long every task is busy in a batch at the usual rate, in task order, and which part of that rate comes when.

    A run where `replays` is set takes a backlog: rows do not come by the clock.
    """

    busy_s: tuple[float, ...]
    rates: tuple[float, ...]
    replays: bool = False

    @classmethod
    def drawn(cls, random: Random, toy: Toy, nodes: int, limit: float) -> VirtualLoad:
        """A load that fills some of the nodes, or more than all."""
        shares = [random.choice([0.2, 1.0, 1.0, 3.0]) for _ in toy.tasks]
        filled = random.choice([0.4, 0.7, 0.9, 1.1]) * nodes * limit * INTERVAL_S
        rates = tuple(random.choice([1.0, 1.0, 0.6, 0.2]) for _ in range(8))
        return cls(tuple(filled * share / sum(shares) for share in shares), rates, random.random() < 0.1)

    def rows(self, first: int, last: int) -> int:
        """The rows of these batches."""
        return sum(int(ROWS * self.rates[batch // PHASE % len(self.rates)]) for batch in range(first, last + 1))

    def costs(self, known: Load) -> tuple[float, ...] | None:
        """What tasks cost at the rate that is known; None if none is, or too little was measured."""
        rate = known.arrival.rows_per_s
        if rate is None or not known.is_measured:
            return None
        return tuple(busy_s * rate * INTERVAL_S / ROWS for busy_s in self.busy_s)

    def logged(self, event: BatchesLogged) -> BatchesLogged:
        """The same with what is known of the rows; a batch comes every second."""
        rows = self.rows(event.first, event.last)
        return BatchesLogged(event.first, event.last, event.ended, rows, event.last * INTERVAL_S, not self.replays)

    def finished(self, toy: Toy, order: RunPass, event: PassFinished) -> PassFinished:
        """The same with what it took."""
        batches = self.rows(order.first, order.last) / ROWS
        sources = sum(not inputs for inputs in toy.inputs)
        reports = []
        for report in event.reports:
            number = toy.number[report.version.task]
            reports.append(
                TaskReport(
                    report.version,
                    report.node,
                    rows=round(batches * ROWS / sources),
                    rows_out=report.rows_out,
                    busy_s=self.busy_s[number] * batches,
                    rebuild_from=report.rebuild_from,
                    level=int(toy.graph.operator_of[number]),
                )
            )
        return PassFinished(event.pass_id, tuple(reports), event.at_s, FIXED_S + sum(r.busy_s for r in reports))


def judge_room(
    coordinator: Coordinator,
    toy: Toy,
    costs: Sequence[float] | None,
    event: Event,
    decided: Sequence[Decided],
) -> None:
    """No node takes more than it has room for, and no query waits that would fit as a whole into what is left.

    Where live passes would pause for those that wait, all find room: in blocking recovery, and if nothing else runs.
    """
    state, settings = coordinator.state, coordinator.settings
    if settings.protection.recovery is Recovery.BLOCKING or costs is None or state.phase is not Phase.RUNNING:
        return
    limit = settings.cluster.node_limit * settings.batches.batch_s
    costs = [min(limit, cost) for cost in costs]
    left = _left(state, costs, limit)
    for notice in decided:
        tasks = {task for task in toy.tasks if toy.inputs[toy.number[task]]}
        if isinstance(notice, RecoveryBegun) and not tasks <= notice.homes.keys():
            _judge_homes(toy, notice.homes, left)
            if settings.protection.order != OPERATOR_CENTRIC:
                _judge_priorities(toy, state, costs, left, notice.homes)
    if isinstance(event, Started | NodesLost | NodesJoined) and state.nodes:
        _judge_waiting(toy, state, costs, left)


def _left(state: RunState, costs: Sequence[float], limit: float) -> dict[str, float]:
    left = {node.name: limit for node in state.nodes}
    for number, task in enumerate(state.tasks):
        for copy in (task.primary, task.replica):
            if copy is not None:
                left[copy.node] -= costs[number]
    return left


def _judge_homes(toy: Toy, homes: Mapping[Task, str], left: Mapping[str, float]) -> None:
    for task, node in homes.items():
        if toy.inputs[toy.number[task]] and left[node] < -ROUNDING_S:
            raise StoreMisused(f"nodes take what they have room for, found {task} on {node} and {left[node]:g} s left")


def _judge_waiting(toy: Toy, state: RunState, costs: Sequence[float], left: Mapping[str, float]) -> None:
    outputs = np.flatnonzero(toy.graph.is_output)
    needs = membership(toy.graph, outputs)
    rooms = sorted(room for room in left.values() if room > 0)
    for output, needed in zip(outputs.tolist(), needs, strict=True):
        lacking = [number for number, task in enumerate(state.tasks) if needed[number] and task.primary is None]
        wanted = sorted((costs[number] + ROUNDING_S for number in lacking), reverse=True)
        if lacking and len(lacking) <= MOST_TRIED and _fit(wanted, rooms):
            raise StoreMisused(f"no query waits that would fit, found {toy.tasks[output]}: {wanted} s into {rooms} s")


def _judge_priorities(
    toy: Toy, state: RunState, costs: Sequence[float], left: Mapping[str, float], homes: Mapping[Task, str]
) -> None:
    """No query waits that would fit in place of another of lower priority that has just got its nodes."""
    outputs = np.flatnonzero(toy.graph.is_output)
    needs = membership(toy.graph, outputs)
    placed = np.array([task.primary is not None for task in state.tasks])
    back = ~(needs & ~placed).any(axis=1)
    new = np.array([task in homes and bool(toy.inputs[toy.number[task]]) for task in toy.tasks])
    for waiting in np.flatnonzero(~back).tolist():
        lacking = np.flatnonzero(needs[waiting] & ~placed).tolist()
        wanted = sorted((costs[number] + ROUNDING_S for number in lacking), reverse=True)
        for lower in np.flatnonzero(back).tolist():
            if toy.graph.priority[outputs[lower]] >= toy.graph.priority[outputs[waiting]] or len(lacking) > MOST_TRIED:
                continue
            others = back.copy()
            others[[lower, waiting]] = False, True
            rooms = dict(left)
            for number in np.flatnonzero(needs[lower] & new & ~needs[others].any(axis=0)).tolist():
                rooms[homes[toy.tasks[number]]] += costs[number]
            if rooms != left and _fit(wanted, sorted(room for room in rooms.values() if room > 0)):
                before, after = toy.tasks[outputs[lower]], toy.tasks[outputs[waiting]]
                raise StoreMisused(f"higher priorities come first, found {before} back, and {after} waits")


def _fit(wanted: Sequence[float], rooms: Sequence[float]) -> bool:
    if not wanted:
        return True
    return any(
        room >= wanted[0] and _fit(wanted[1:], (*rooms[:place], room - wanted[0], *rooms[place + 1 :]))
        for place, room in enumerate(rooms)
    )
