"""The loss of nodes and what is said of the queries behind them, from made-up observations."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tenax.chaos.record import Moment, What
from tenax.connectors.source import Limits, NothingNew, Planned
from tenax.control import events
from tenax.control.coordinator import Coordinator
from tenax.errors import ClusterFailed, Infeasible
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.operators.computation import StepInput
from tenax_lab.lab import Row, frame
from tenax_lab.loads.layered import Load, Places, Tap, Waiting, layered, layered_topology
from tenax_lab.query_recovery import BEST, BLOCKING, BOTTOM, CENTRIC, DENSITY, EXPERIMENT, SIDES, TOP, Case
from tenax_lab.query_recovery_measures import RecoveryWatch, kill_times, optimum, over_time, recovery_rows
from tenax_lab.recorder import Kind, RunRecorder

GRAPH = TaskGraph(layered_topology(1))
FULL = EXPERIMENT.full


def nodes(count: int, slots: int | None = None) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", slots=slots) for number in range(count))


def test_aggregates_lie_on_hosts_in_topological_order_and_the_source_apart() -> None:
    homes = Places(8)(GRAPH, nodes(13), {}).primaries
    assert homes[Task("source", 0)] == homes[Task("parser", 0)] == "n0"
    assert [homes[Task(f"o{number}", 0)] for number in (0, 1, 2, 13, 14)] == ["n1", "n1", "n2", "n7", "n8"]
    assert set(homes.values()) == {f"n{number}" for number in range(9)}  # further nodes hold nothing
    with pytest.raises(Infeasible):
        Places(8)(GRAPH, nodes(8), {})


def test_the_top_is_what_all_queries_need_and_the_bottom_what_only_the_last_ones_do() -> None:
    top, *_ = FULL.faults(GRAPH, Case(TOP, 2), BEST)
    assert top.what == "o0[0]+o2[0]"
    bottom = FULL.faults(GRAPH, Case(BOTTOM, 2), BEST)
    assert [fault.what for fault in bottom] == ["o12[0]+o14[0]"]


def test_only_the_best_case_keeps_its_pool_and_needs_no_node_to_return() -> None:
    faults = FULL.faults(GRAPH, Case(TOP, 4), DENSITY)
    assert [str(fault) for fault in faults[: FULL.pool]] == [f"--kill rack{rack}@1b" for rack in (10, 11, 12, 13)]
    assert [str(fault.when) for fault in faults[FULL.pool + 1 :]] == ["36s", "40s", "44s", "48s"]
    assert len(FULL.faults(GRAPH, Case(TOP, 4), BEST)) == 1


def test_sides_differ_in_how_they_recover_and_in_nothing_else() -> None:
    known = {side: FULL.settings(side).protection for side in SIDES}
    assert known[DENSITY] == known[BEST]
    assert [known[side].order for side in (DENSITY, CENTRIC)] == [DENSITY, CENTRIC]
    assert known[BLOCKING].recovery == "blocking"


def test_an_aggregate_sends_half_of_its_rows_and_its_state_counts_all() -> None:
    rows = pl.DataFrame({"key": [1, 2, 1, 2]})
    first = Waiting(0).step({}, StepInput((rows, rows), 0, 1))
    assert first.rows.to_dict(as_series=False) == {"key": [1, 1, 1, 1], "count": [4, 4, 4, 4]}
    second = Waiting(0).step(first.state, StepInput((rows,), 0, 2))
    assert second.rows["count"].to_list() == [6, 6]


def test_aggregates_cost_the_same_whatever_they_read(tmp_path: Path) -> None:
    computations = layered(1, Load(100, 600), Tap(tmp_path / "tap")).computations
    waits = {name: each.wait_us for name, each in computations.items() if isinstance(each, Waiting)}
    assert {waits[f"o{number}"] for number in range(15) if number != 4} == {600}
    assert waits["o4"] == 400  # it gets all rows of the parser and half of those of o0


def test_blocking_recovery_has_the_same_room_in_slots() -> None:
    assert FULL.settings(DENSITY).cluster.node_limit == FULL.node_limit
    assert FULL.settings(BLOCKING).cluster.slots == FULL.slots
    interval = FULL.node_limit / FULL.load.busy if FULL.node_limit is not None else 0.0
    assert FULL.slots < interval < FULL.slots + 1


def test_rows_come_by_the_clock_from_when_their_tap_is_opened_until_it_is_closed(tmp_path: Path) -> None:
    tap, limits = Tap(tmp_path / "tap"), Limits(1_000)
    source = layered(1, Load(100, 0), tap).sources["source"]
    warm = source.plan(None, 1, limits, 1_000_000)
    assert isinstance(warm, Planned)
    assert source.plan(warm.position, 1, limits, 9_000_000) == NothingNew()
    tap.open()
    opened = source.plan(warm.position, 1, limits, 10_000_000)
    assert isinstance(opened, Planned)
    more = source.plan(opened.position, 1, limits, 12_000_000)
    assert isinstance(more, Planned)
    assert (warm.rows, opened.rows, more.rows) == (101, 1, 200)
    tap.close()
    assert source.plan(more.position, 1, limits, 14_000_000) == NothingNew(ended=True)


def test_the_optimum_grows_with_the_room_up_to_all_that_was_lost() -> None:
    lost = tuple(range(2, len(GRAPH)))
    worth = [optimum(GRAPH, lost, room) for room in (0, 1, 4, 15)]
    assert worth[0] == 0.0
    assert worth == sorted(worth)
    assert worth[1] == max(GRAPH.priority[2:6])  # the best of those that need nobody else
    assert worth[-1] == GRAPH.priority.sum()


def watched(slots: int) -> tuple[RunRecorder, RecoveryWatch, Coordinator]:
    """A run on three nodes of which the first host is lost, and one comes back."""
    recorder = RunRecorder(GRAPH)
    coordinator = Coordinator(GRAPH, Settings.of(slots=slots, nodes=3), place=Places(2))
    watch = RecoveryWatch(recorder)
    lost, back = events.NodesLost(("n1",)), events.NodesJoined((Node("n3", slots=slots),))
    for event in (events.Started(1, nodes(3, slots), None, 0, {}), lost, back):
        if isinstance(event, events.NodesLost):
            recorder.note(What.FAULT, kind="kill", fault="--kill o0[0]@6s", nodes=["n1"])
        recorder.handled(coordinator, event, coordinator.handle(event))
    return recorder, watch, coordinator


def test_what_has_nodes_is_held_against_what_the_room_would_bear() -> None:
    recorder, watch, _ = watched(slots=8)
    rows = [row for row in recovery_rows(recorder, watch, 60.0) if row["what"] == "moment"]
    assert [row["room"] for row in rows] == [7, 8]  # six beside source and parser, one on the other host; then for all
    assert rows[-1]["with_nodes"] == rows[-1]["optimum"] == rows[-1]["lost_priority"]
    assert watch.lost.sum() == 8


def test_availability_is_of_the_queries_that_were_cut_off_within_the_window() -> None:
    recorder, watch, _ = watched(slots=8)
    killed_s, known_s = kill_times(recorder.moments)
    assert known_s >= killed_s
    known: dict[str, Row] = {}
    for after_s, relative in ((-1.0, 1.0), (1.0, 9.0), (2.0, 1.1), (99.0, 50.0)):
        recorder.add(
            Kind.QUERY,
            at_s=killed_s + after_s,
            output="o7",
            partition=0,
            phase="lasts",
            since_loss_s=None,
            relative=relative,
            relative_shown=1.0,
            usual_s=0.5,
        )
    for row in recovery_rows(recorder, watch, 60.0):
        known[str(row["what"])] = row
    assert known["outcome"]["availability"] == 0.5
    assert known["outcome"]["availability_shown"] == 1.0
    assert known["outcome"]["availability_others"] is None  # all queries need the top
    assert known["query"]["after_s"] == pytest.approx(2.0)


def test_the_loss_of_the_pool_is_no_loss_of_queries() -> None:
    pool = Moment(1.0, What.FAULT, {"kind": "kill", "fault": "--kill rack4@1b", "nodes": ["n3"]})
    gone = Moment(1.1, What.LOST, {"nodes": ["n3"], "outage": False})
    hosts = Moment(7.0, What.FAULT, {"kind": "kill", "fault": "--kill o0[0]+o2[0]@6s", "nodes": ["n1", "n2"]})
    missed = [Moment(at_s, What.LOST, {"nodes": [name], "outage": False}) for at_s, name in ((7.1, "n1"), (7.3, "n2"))]
    assert kill_times([pool, gone, hosts, *missed]) == (7.0, 7.3)
    with pytest.raises(ClusterFailed):
        kill_times([pool, gone, hosts, missed[0]])


def observed() -> pl.DataFrame:
    """Two losses of every side: best-density is near the optimum, operator-centric has the highest priority late."""
    rows: list[Row] = []
    for case in (Case(TOP, 2), Case(TOP, 4)):
        for side, back_s, ratio in ((DENSITY, 2.0, 0.95), (CENTRIC, 6.0, 0.5), (BLOCKING, 12.0, 1.0), (BEST, 1.0, 1.0)):
            about: Row = {"where": case.where, "killed": case.killed, "side": side, "round": 1}
            moment: Row = {"what": "moment", "lost_priority": 9.0, "with_nodes": 4.0, "optimum": 5.0, "ratio": ratio}
            rows += [{**about, **moment, "after_s": at_s, "back": at_s} for at_s in (0.0, back_s)]
            query: Row = {"what": "query", "output": "o1", "partition": 0, "lost": True, "available": True}
            rows += [{**about, **query, "after_s": float(at_s), "relative": 1.0 + at_s} for at_s in range(3)]
            rows.append(
                {
                    **about,
                    "what": "outcome",
                    "lost_tasks": 4,
                    "lost_queries": 15,
                    "first_back_s": back_s,
                    "highest_back_s": back_s,
                    "all_back_s": 2 * back_s,
                    "least_ratio": ratio,
                    "availability": 1.0 / back_s,
                    "availability_shown": 1.0,
                    "availability_others": None,
                    "exact": True,
                }
            )
    return frame(rows)


def test_the_report_says_how_near_the_optimum_best_density_is_and_who_has_the_highest_priority_first() -> None:
    findings = EXPERIMENT.report(FULL, observed())
    claims = {claim.statement: claim for claim in findings.claims}
    (near,) = [claim for statement, claim in claims.items() if "the optimum's priority" in statement]
    assert near.ours == 95.0
    assert "the least of 1 losses; goal met" in near.over  # two of eight hosts are less than half
    (sooner,) = [claim for statement, claim in claims.items() if "before operator-centric" in statement]
    assert sooner.ours == 100.0
    (table,) = findings.tables
    assert len(table.rows) == 8
    assert len(findings.panels) == 2 * len(FULL.cases)


def test_between_two_moments_a_value_stays_what_it_was() -> None:
    rows = pl.DataFrame({"after_s": [0.1, 2.4], "back": [1.0, 7.0], "side": [DENSITY] * 2, "round": [1] * 2})
    assert over_time(rows, "back", 1.0, 4.0)["back"].to_list() == [1.0, 1.0, 7.0, 7.0]
    assert over_time(rows, "back", 1.0, 4.0)["after_s"].to_list() == [1.0, 2.0, 3.0, 4.0]
