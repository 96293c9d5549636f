"""The recovery-bound experiment: its tree, its model of recovery, and what its tables say of recorded losses.

sources (16) --> o1 (8) --> o2 (4) --> o3 (2) --> o4 (1) --> results (1)
tasks 0..15      16..23     24..27     28, 29     30         31
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from observing import rows_of

from tenax.control.placement.spreading import place_tasks
from tenax.engine.protection import planned
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.operators.chunks import encode
from tenax.operators.computation import StepInput, StepOutput
from tenax.planning.backups import check_backups, plan_backups
from tenax_lab import lab, recovery_bound
from tenax_lab import recovery_bound_model as model
from tenax_lab.findings import Findings, Machine, Result
from tenax_lab.loads.tree import Sensors, Smoothing, smoothing_tree, tree_topology, with_times

LOAD = Sensors(sensors=5, resamples=20)
SOURCE_S, STEP_S = 0.25, 1.0  # for an interval
PLAN = recovery_bound._plan((1, 4), (1,), (4,), LOAD, interval=8, batches=24)


def unit_graph() -> TaskGraph:
    """The tree whose merges take a second each, so T is 1.25 in o1 and 1 above it."""
    bare = TaskGraph(tree_topology())
    steps = np.where(model.sources(bare), SOURCE_S, STEP_S)
    return TaskGraph(with_times(bare.topology, model.reprocess_times(bare, steps).tolist()))


def times() -> list[lab.Row]:
    bare, planned_s = TaskGraph(tree_topology()), unit_graph().reprocess
    return [
        {
            "what": recovery_bound.TIME,
            "task": task,
            "operator": bare.operators[bare.operator_of[task]].name,
            "batch_s": SOURCE_S / 8 if source else STEP_S / 8,
            "planned_s": float(planned_s[task]),
        }
        for task, source in enumerate(model.sources(bare))
        for _ in range(3)
    ]


def timed() -> recovery_bound.Timed:
    return recovery_bound.Timed(unit_graph(), model.typical_s(unit_graph(), lab.frame(times())), {1: 1.875, 4: 4.875})


# Node 2 of 4 holds o1[1], o1[5], o2[1] and o3[1]; everything else retains. Two rounds replay 6 batches of 8.
LOST = (17, 21, 25, 29)
RETAINED = tuple(range(16, 30))
STEPS = (
    *(model.Stepped(task, task % 3, 0.1) for task in (2, 3, 10, 11)),  # the sources of o1[1] and o1[5]
    model.Stepped(17, 0, 0.4),
    model.Stepped(21, 0, 0.4),
    model.Stepped(25, 1, 0.4),
    model.Stepped(29, 2, 0.4),
)
ROUNDS = (
    model.Round(9, 11, 1.5, STEPS, (18, 19, 26, 27)),
    model.Round(12, 14, 1.5, STEPS, (18, 19, 26, 27)),
)


def test_times_of_steps_become_reprocess_times() -> None:
    graph = unit_graph()
    times = {operator.name: set(graph.reprocess[graph.span(n)].tolist()) for n, operator in enumerate(graph.operators)}
    assert times == {"sources": {0.0}, "o1": {1.25}, "o2": {1.0}, "o3": {1.0}, "o4": {1.0}, "results": {0.0}}


def test_the_time_of_a_task_is_the_median_over_its_operator() -> None:
    graph = unit_graph()
    disturbed = [{**row, "batch_s": 9.0} if row["task"] == 16 else row for row in times()]
    assert model.planned_graph(graph, lab.frame(disturbed), 8).reprocess.tolist() == graph.reprocess.tolist()


def test_bounds_reach_from_all_tasks_retaining_to_none() -> None:
    graph = unit_graph()
    bounds = model.latency_bounds(graph, (1, 2, 3, 4))
    assert bounds == (1.875, 2.875, 3.875, 4.875)
    counts = []
    for bound in bounds:
        plan = plan_backups(graph, bound)
        check_backups(graph, plan, bound)
        counts.append(len(plan.backups))
    assert counts == [14, 4, 2, 0]


def test_a_run_asks_for_the_bound_as_a_user_does() -> None:
    graph = unit_graph()
    application = smoothing_tree(1, LOAD, 16, graph.reprocess.tolist())
    asked = PLAN.protection(2.875, recovery_bound.BLOCKING)
    assert asked.recovery_latency_s == 2.875
    assert planned(application.topology, asked).retain == plan_backups(graph, 2.875).backups
    settings = PLAN.settings(asked, 4)
    assert (settings.protection.checkpoint_every, settings.max_batches_per_round) == (8, 2)
    assert PLAN.killed_at == 14


def test_every_node_holds_one_of_the_tasks_by_which_nodes_are_named() -> None:
    placement = place_tasks(unit_graph(), [Node(str(number)) for number in range(recovery_bound.NODES)], {})
    homes = [node for task, node in placement.primaries.items() if task.operator == recovery_bound.VICTIM]
    assert sorted(homes) == sorted(map(str, range(recovery_bound.NODES)))


def test_lost_tasks_whose_retainers_live_are_back_within_the_bound() -> None:
    prediction = model.predicted(unit_graph(), RETAINED, LOST)
    assert prediction == model.Prediction(1.25, 1.25, retainers_live=True)


def test_a_task_lost_together_with_its_retainer_waits_for_it() -> None:
    # o1[0], o2[0] and o3[0] feed each other
    prediction = model.predicted(unit_graph(), RETAINED, (16, 20, 24, 28))
    assert prediction == model.Prediction(1.25, 3.25, retainers_live=False)


def test_a_bound_is_not_promised_to_a_fast_task_that_waits_for_a_lost_one() -> None:
    graph = unit_graph()
    slow = graph.reprocess.copy()
    slow[23] = 9.0
    prediction = model.predicted(TaskGraph(with_times(graph.topology, slow.tolist())), RETAINED, (23, 25, 29, 24, 28))
    assert prediction.alone_s == prediction.together_s == 9.0
    assert not prediction.retainers_live  # o2[1] feeds o3[0]


def test_without_backups_everything_above_a_lost_task_is_replayed() -> None:
    prediction = model.predicted(unit_graph(), (), (30, 31))
    assert prediction == model.Prediction(4.25, 4.25, retainers_live=True)


def test_the_longest_chain_counts_steps_that_wait_for_each_other() -> None:
    # per round: a source and o1 take 0.5 s; o2[1] and o3[1] read retained outputs and wait for no task
    assert model.chain_s(unit_graph(), ROUNDS) == pytest.approx(2 * 0.5)


def test_tasks_of_a_node_take_turns_in_each_level() -> None:
    graph = unit_graph()
    # sources: node 2 has two of 0.1 s; o1[1] and o1[5] are both on node 0; then o2, then o3 by themselves
    assert model.steps_s(graph, ROUNDS) == pytest.approx(2 * (0.2 + 0.8 + 0.4 + 0.4))
    assert model.stages(graph, ROUNDS) == 2 * 4


def test_no_more_nodes_work_at_once_than_there_are_cores() -> None:
    graph = unit_graph()
    batch_s = np.where(model.sources(graph), 0.0, 1.0)
    apart = model.Round(1, 2, 9.0, tuple(model.Stepped(16 + node, node, 0.0) for node in range(3)), ())
    assert model.nodes_s(graph, [apart], batch_s, cores=4) == pytest.approx(2.0)
    assert model.nodes_s(graph, [apart], batch_s, cores=2) == pytest.approx(3.0)


def test_rounds_are_read_back_from_what_the_recorder_saw() -> None:
    rows: list[lab.Row] = []
    for number, each in enumerate(ROUNDS):
        rows.append({"what": "round", "number": number, "first": each.first, "last": each.last, "seconds": 1.5})
        rows += [
            {"what": "step", "number": number, "task": step.task, "node": step.node, "seconds": step.seconds}
            for step in each.steps
        ]
        rows += [{"what": "read", "number": number, "task": task} for task in each.read]
    assert model.rounds_of(rows) == ROUNDS


def stepped(computation: Smoothing, batch: int, before: StepOutput | None = None) -> StepOutput:
    """A step on one row for each of five sensors from either of two sources."""
    rows = pl.DataFrame({"sequence": [*range(5), *range(16, 21)], "value": [0.5] * 5 + [1.5] * 5})
    state = {} if before is None else before.state
    return computation.step(state, StepInput((rows,), 0, batch))


def test_a_step_halves_its_rows_and_remembers_the_batches_before() -> None:
    computation = Smoothing(LOAD)
    first = stepped(computation, 1)
    second = stepped(computation, 2, first)
    assert first.rows["sensor"].to_list() == list(range(5))
    assert first.rows["value"].to_list() == pytest.approx([0.4] * 5)
    assert second.rows["value"].to_list() == pytest.approx([0.8 * 0.4 + 0.4] * 5)
    assert list(second.state) == ["levels/2"]


def test_a_step_gives_the_same_bytes_every_time() -> None:
    encoded = {encode(stepped(Smoothing(LOAD), 3, stepped(Smoothing(LOAD), 2)).rows, 0) for _ in range(3)}
    assert len(encoded) == 1


def test_sources_send_every_sensor_once_a_batch() -> None:
    application = smoothing_tree(1, LOAD, 2)
    source = application.sources["sources"]
    for partition in range(16):
        rows = source.read(partition, [partition, LOAD.batch_rows, 16])
        assert sorted((rows["sequence"] % LOAD.sensors).to_list()) == list(range(LOAD.sensors))


def recorded() -> Findings:
    """Two bounds and one node, blocking; the wider bound incrementally as well."""
    seen: lab.Row = {"detection_s": 0.1, "first_back_s": 3.4, "last_back_s": 3.4, "replayed": 6}

    def loss(length: int, side: str, retained: tuple[int, ...], recovery_s: float, exact: bool | None) -> lab.Row:
        trial: lab.Row = {"length": length, "victim": 1, "side": side, "round": 1}
        bound_s = timed().bounds_s[length]
        measured: lab.Row = {"what": recovery_bound.LOSS, "bound_s": bound_s, "recovery_s": recovery_s, "exact": exact}
        return {**trial, **seen, **measured, **recovery_bound.expectations(timed(), 8, ROUNDS, retained, LOST, 6)}

    losses = [
        loss(1, recovery_bound.BLOCKING, RETAINED, 3.5, exact=True),
        loss(4, recovery_bound.BLOCKING, (), 6.0, exact=True),
        loss(4, recovery_bound.INCREMENTAL, (), 6.0, exact=None),
    ]
    return recovery_bound.report(PLAN, lab.frame([*times(), *losses]))


def test_predictions_and_bounds_are_scaled_to_the_batches_replayed() -> None:
    first = rows_of(recorded(), "Each loss")[0]
    assert (first["R"], first["R replayed"], first["L_F"]) == (1.875, 0.75 * 1.875, 0.75 * 1.25)
    assert (first["backups"], first["node"], first["retainers live"]) == (14, 2, "yes")
    assert first["lost tasks"] == "o1[1 5] o2[1] o3[1]"


def test_scheduling_is_what_recovery_takes_beside_steps() -> None:
    for row in rows_of(recorded(), "Each loss"):
        parts = [row[name] for name in ("steps", "scheduling", "recovery")]
        steps, scheduling, recovery = (each for each in parts if isinstance(each, float))
        assert steps + scheduling == pytest.approx(recovery)


def test_a_bound_counts_as_kept_with_and_without_scheduling() -> None:
    first, second = rows_of(recorded(), "By bound")
    assert (first["chain kept R"], first["steps kept R"], first["recovery kept R"]) == ("1 of 1", "0 of 1", "0 of 1")
    assert (second["chain kept R"], second["steps kept R"], second["recovery kept R"]) == ("1 of 1",) * 2 + ("0 of 1",)
    claims = recorded().claims
    assert [claim.ours for claim in claims[:3]] == [100.0, 50.0, 0.0]
    assert all(claim.paper for claim in claims)


def test_losses_of_both_kinds_of_recovery_are_shown() -> None:
    rows = rows_of(recorded(), "Blocking")
    assert [row["recovery is"] for row in rows] == ["blocking", "incremental"]


def test_findings_are_written_with_table_data_and_figure(tmp_path: Path) -> None:
    findings = recorded()
    Result("recovery-bound", "summary", "figure", 1, True, Machine.here(), 1.0, findings).write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "result.json", "table.txt"]
    text = (tmp_path / "table.txt").read_text(encoding="utf-8")
    assert "paper says" in text
    assert "2 of 2 judged runs exact" in text


def test_tasks_are_named_by_operator() -> None:
    assert model.named(unit_graph(), (29, 17, 21)) == "o1[1 5] o3[1]"
