"""How queries come back, followed while it happens: who has a node, who is level, and what the optimum would have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import polars as pl

from tenax.chaos.record import Moment, What, names
from tenax.control import events
from tenax.control.coordinator import Coordinator
from tenax.engine.queries import AVAILABLE, Phase
from tenax.errors import ClusterFailed
from tenax.model.graph import Bools, TaskGraph
from tenax.model.queries import membership
from tenax.planning.recovery import plan_recovery
from tenax_lab.lab import WHAT, Row
from tenax_lab.recorder import Kind, RunRecorder

MOMENT, QUERY, OUTCOME = "moment", "query", "outcome"
"""What rows tell of: the priority that is back, a query in an interval, and the loss as a whole."""
EXACT, EXACT_TIME_LIMIT_S = "exact", 10.0
SLACK = 1e-6  # of a task: what sums of floats may be off


class RecoveryWatch:
    """Notes, whenever that changes after a loss, which lost queries have nodes and which are level again.

    - A query that has `nodes` has one for each of its tasks; one that is `back` makes final results of the newest
      batches.
    - The optimum is the most priority that has nodes if the room for lost tasks is shared out anew, by the exact
      planner: the room of all nodes that live, without what they held before. Aggregates cost the same, declared or
      measured, so that room is a number of tasks.
    - Only losses of nodes that held aggregates count.
    """

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self._graph = recorder.graph
        outputs = np.flatnonzero(self._graph.is_output)
        self._outputs, self._needs = outputs, membership(self._graph, outputs)
        self._homes: dict[int, str] = {}
        self._seen: tuple[object, ...] = ()
        self.lost: Bools = np.zeros(len(self._graph), dtype=np.bool_)
        self.rows: list[Row] = []
        self.back_s: dict[int, float] = {}
        """When each lost query was level again."""
        recorder.after_event.append(self.learn)

    @property
    def queries(self) -> Bools:
        """The queries that a loss has cut off, in the order of their output tasks."""
        return np.asarray(self._needs[:, self.lost].any(axis=1), dtype=np.bool_)

    def learn(self, event: events.Event) -> None:
        """Something has happened."""
        coordinator = self._recorder.coordinator
        assert coordinator is not None
        if isinstance(event, events.NodesLost):
            for task, node in self._homes.items():
                self.lost[task] |= node in event.nodes and bool(self._graph.is_output[task])
        if coordinator.state.tasks:
            self._look(coordinator)

    def _look(self, coordinator: Coordinator) -> None:
        state = coordinator.state
        self._homes = {task: known.primary.node for task, known in enumerate(state.tasks) if known.primary is not None}
        if not self.lost.any():
            return
        unplaced = np.array([task.primary is None for task in state.tasks], dtype=np.bool_)
        with_nodes = self.queries & ~self._needs[:, unplaced].any(axis=1)
        back = self.queries & ~coordinator.standing.degraded[self._outputs]
        room = self._room(coordinator)
        for query in np.flatnonzero(back):
            self.back_s.setdefault(int(query), self._recorder.now_s)
        seen = (len(state.nodes), room, with_nodes.tobytes(), back.tobytes())
        if seen == self._seen:
            return
        self._seen = seen
        priority = self._graph.priority[self._outputs]
        self.rows.append(
            {
                WHAT: MOMENT,
                "at_s": self._recorder.now_s,
                "nodes": len(state.nodes),
                "room": room,
                "lost_priority": float(priority[self.queries].sum()),
                "with_nodes": float(priority[with_nodes].sum()),
                "back": float(priority[back].sum()),
                "optimum": self._optimum(room),
            }
        )

    def _room(self, coordinator: Coordinator) -> int:
        """How many lost tasks the live nodes have room for, those included that they have taken: all cost the same."""
        state, settings = coordinator.state, coordinator.settings
        costs: Sequence[float] | None = self._graph.cost.tolist()
        if any(node.slots is None for node in state.nodes):
            costs = state.load.busy_s(settings.batches.batch_s)
        if costs is None:  # nothing is measured, and nothing binds
            return int(self.lost.sum())
        limit_s = settings.cluster.node_limit * settings.batches.batch_s
        left = {node.name: limit_s if node.slots is None else float(node.slots) for node in state.nodes}
        for task, node in self._homes.items():
            if not self.lost[task]:
                left[node] -= costs[task]
        each = max(costs[task] for task in np.flatnonzero(self.lost).tolist())
        fitting = sum(int(max(0.0, room) / each + SLACK) for room in left.values())
        return min(int(self.lost.sum()), fitting)

    def _optimum(self, room: int) -> float:
        return optimum(self._graph, tuple(np.flatnonzero(self.lost).tolist()), room)


@cache
def optimum(graph: TaskGraph, lost: tuple[int, ...], room: int) -> float:
    """The most priority of queries that so many of the lost tasks can bring back."""
    failed = np.zeros(len(graph), dtype=np.bool_)
    failed[list(lost)] = True
    return float(plan_recovery(graph, failed, float(room), EXACT, EXACT_TIME_LIMIT_S).priority)


def recovery_rows(recorder: RunRecorder, watch: RecoveryWatch, window_s: float) -> Iterator[Row]:
    """What a run says of its loss; times are counted from the kill, and what comes later than the window is left out.

    - Rows of `moment` are as `RecoveryWatch` has them; the `ratio` is the priority that has nodes over the optimum's.
    - Rows of `query` are of an interval: `relative` latency by final results and by what was shown, and whether it was
      `available` by these; `lost` says that it was cut off.
    - The `outcome` has when the highest priority and all were back, and the mean availability of lost queries.
    """
    killed_s, known_s = kill_times(recorder.moments)
    graph = recorder.graph
    outputs = np.flatnonzero(graph.is_output)
    places = {str(graph.task(int(number))): place for place, number in enumerate(outputs)}
    lost, priority = watch.queries, graph.priority[outputs]
    if not lost.any():
        raise ClusterFailed("a loss of nodes cuts queries off, found none: kill nodes that hold aggregates")
    least = 1.0
    for row in watch.rows:
        with_nodes, best = row["with_nodes"], row["optimum"]
        assert isinstance(with_nodes, float)
        assert isinstance(best, float)
        ratio = with_nodes / best if best else 1.0
        least = min(least, ratio)
        yield {**_since(row, killed_s), "ratio": ratio}
    queries = [row for row in recorder.rows if row[WHAT] == Kind.QUERY and row["phase"] != Phase.BEGINS]
    shares: dict[bool, list[tuple[bool, bool]]] = {True: [], False: []}
    for row in queries:
        place = places[f"{row['output']}[{row['partition']}]"]
        interval = _query(row, killed_s, is_lost=bool(lost[place]), priority=float(priority[place]))
        after_s = interval["after_s"]
        assert isinstance(after_s, float)
        if after_s <= window_s:
            yield interval
            if after_s > 0 and interval["available"] is not None:
                shares[bool(lost[place])].append((bool(interval["available"]), bool(interval["available_shown"])))
    highest = max(np.flatnonzero(lost).tolist(), key=lambda query: (priority[query], -query))
    back_s = {query: at_s - killed_s for query, at_s in watch.back_s.items()}
    yield {
        WHAT: OUTCOME,
        "lost_tasks": int(watch.lost.sum()),
        "lost_queries": int(lost.sum()),
        "lost_priority": float(priority[lost].sum()),
        "detection_s": known_s - killed_s,
        "highest_priority": float(priority[highest]),
        "highest_query": str(graph.task(int(outputs[highest]))),
        "highest_back_s": back_s.get(highest),
        "first_back_s": min(back_s.values(), default=None),
        "all_back_s": max(back_s.values()) if len(back_s) == lost.sum() else None,
        "least_ratio": least,
        "availability": _mean(final for final, _ in shares[True]),
        "availability_shown": _mean(shown for _, shown in shares[True]),
        "availability_others": _mean(final for final, _ in shares[False]),
        "exact": recorder.exact,
    }


def kill_times(moments: Iterable[Moment]) -> tuple[float, float]:
    """When the nodes of aggregates were killed, and when the run knew of all of them."""
    killed_s, unknown = None, set[str]()
    for moment in moments:
        if moment.what is What.FAULT and "[" in str(moment.detail["fault"]):  # it names tasks
            killed_s, unknown = moment.at_s, set(names(moment.detail["nodes"]))
        elif moment.what is What.LOST and unknown:
            unknown -= set(names(moment.detail["nodes"]))
            if killed_s is not None and not unknown:
                return killed_s, moment.at_s
    raise ClusterFailed("nodes of aggregates are killed and missed, found none that were: see spark.log")


def _since(row: Row, killed_s: float) -> Row:
    at_s = row["at_s"]
    assert isinstance(at_s, float)
    return {**{name: value for name, value in row.items() if name != "at_s"}, "after_s": at_s - killed_s}


def _query(row: Row, killed_s: float, *, is_lost: bool, priority: float) -> Row:
    """One interval of a query; nobody knows whether it was available before it is known how late it usually is."""
    relative, shown = row["relative"], row["relative_shown"]
    known = row["usual_s"] is not None
    return {
        **_since(row, killed_s),
        WHAT: QUERY,
        "lost": is_lost,
        "priority": priority,
        "available": relative is None or (isinstance(relative, float) and relative < AVAILABLE) if known else None,
        "available_shown": shown is None or (isinstance(shown, float) and shown < AVAILABLE) if known else None,
    }


def _mean(flags: Iterable[bool]) -> float | None:
    listed = list(flags)
    return sum(listed) / len(listed) if listed else None


def over_time(frame: pl.DataFrame, column: str, every_s: float, window_s: float) -> pl.DataFrame:
    """A column of moments as steps: its value at every so many seconds from the loss on, by side and round.

    Between two moments a value stays what it was.
    """
    grid = pl.DataFrame({"after_s": np.arange(0.0, window_s + every_s / 2, every_s)})
    by = ["side", "round"]
    known = frame.select("after_s", column, *by)
    runs = (own.sort("after_s") for own in known.partition_by(by, maintain_order=True))
    steps = (grid.join_asof(own, on="after_s").drop_nulls(column) for own in runs)
    return pl.concat([known.clear(), *steps])
