"""Examples that people can follow: one decision for all operators, what is in the way, and demands that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planning.scaling.demands import GROUPS, demand, roads

from tenax.errors import InvalidPlan, InvalidRequest
from tenax.model.elasticity import POLICIES
from tenax.model.topology import Input, Operator, Partitioning, Topology
from tenax.planning.scaling import (
    ALGORITHMS,
    Demand,
    Direction,
    Group,
    Keep,
    Rescale,
    check_scaling,
    declared_groups,
    plan_scaling,
)

BUSY: dict[str, float | tuple[float, ...]] = {"rows": 0.04, "parse": 0.16, "speed": 0.4, "jams": 0.2, "top": 0.02}


# rows (2) ─one-to-one─▶ parse (2) ═══▶ speed (2) ═══▶ jams (2) ──▶ top (1)
def busy(**others: Any) -> Demand:
    """A pass of 0.1 + 0.2 + 0.1 + 0.02 s on two nodes."""
    return demand(roads(), BUSY, **others)


def test_the_algorithms_are_the_policies() -> None:
    assert ALGORITHMS == POLICIES


def test_a_pass_is_the_sum_of_the_slowest_nodes_of_its_levels() -> None:
    plan = plan_scaling(busy(fixed_s=0.01))
    assert isinstance(plan, Keep)
    assert plan.now.level_s == pytest.approx((0.1, 0.2, 0.1, 0.02))  # rows and parse are one level
    assert plan.now.pass_s == pytest.approx(0.46)
    assert (str(plan.now.bottleneck.task), plan.now.bottleneck.level) == ("speed[0]", 1)
    assert plan.now.bottleneck.busy_part == pytest.approx(0.2)
    assert plan.now.bottleneck.rows_per_s == pytest.approx(500)
    check_scaling(busy(fixed_s=0.01), plan)


def test_three_times_the_rate_is_one_decision_for_all_operators() -> None:
    wanted = busy(factor=3.0)
    plan = plan_scaling(wanted)
    assert isinstance(plan, Rescale)
    assert plan.direction is Direction.OUT
    # 0.3 s and 0.06 s stay, for rows, parse and top are never split; 1.8 s must fit into the other 0.34 s
    assert plan.shape.nodes == 6
    assert plan.changed == {"speed": 6, "jams": 5}
    assert plan.now.pass_s == pytest.approx(1.26)
    assert (plan.feasible, plan.optimal) == (True, True)
    assert plan.reason == (
        "a pass takes 1.26 s at 3 × the measured rate, above 0.7 s (70% of the batch interval), and speed[0] is the "
        "bottleneck, busy 60% of the interval: speed 2 → 6, jams 2 → 5, nodes 2 → 6, then a pass takes 0.688 s"
    )
    check_scaling(wanted, plan)


def test_the_threshold_splits_the_operator_of_the_busiest_task_alone() -> None:
    wanted = busy(factor=6.0)
    plan = plan_scaling(wanted, "threshold")
    assert isinstance(plan, Rescale)
    assert plan.changed == {"speed": 4}  # ⌈2 · 1.2 / 0.7⌉
    assert plan.shape.nodes == 4  # two tasks more, two nodes more
    assert not plan.feasible
    check_scaling(wanted, plan)


def test_little_to_do_is_merged_and_keeps_away_from_the_bound() -> None:
    graph = roads(8, 8)
    wanted = demand(graph, BUSY, nodes=8, factor=1.0)
    plan = plan_scaling(wanted)
    assert isinstance(plan, Rescale)
    assert plan.direction is Direction.IN
    assert plan.shape.nodes == 2
    assert plan.after.pass_s <= 0.7 * 0.8
    assert "well below" in plan.reason
    check_scaling(wanted, plan)
    assert isinstance(plan_scaling(demand(graph, BUSY, nodes=8, factor=3.0)), Keep)  # six would be enough, just so


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"factor": 3.0, "bounds": (2, 4)}, "the most nodes are reached (4)"),
        ({"factor": 3.0, "groups": ()}, "more nodes than 2 make no pass shorter"),
        ({"factor": 5.0, "groups": ()}, "speed[0] is busy 100% of the interval and speed cannot be split"),
        (
            {"factor": 6.0, "groups": (Group(("speed",), 1, 2), Group(("jams",), 1, 2))},
            "speed[0] is busy 120% of the interval and speed has the most tasks it may have (2)",
        ),
        (
            {"fixed_s": 0.2},
            "scheduling alone takes 0.8 s of a pass of 4 levels, above 0.7 s (70% of the batch interval)",
        ),
    ],
)
def test_what_is_in_the_way_is_said(words: dict[str, Any], reason: str) -> None:
    wanted = busy(**words)
    plan = plan_scaling(wanted)
    assert not plan.feasible
    assert not plan.optimal
    assert reason in plan.reason
    check_scaling(wanted, plan)


def test_a_split_task_with_busy_keys_leaves_busy_parts() -> None:
    wanted = demand(roads(), {"speed": (0.9, 0.1)}, bounds=(1, 8))
    plan = plan_scaling(wanted)
    assert isinstance(plan, Rescale)
    assert plan.changed == {"speed": 3}
    assert plan.after.busy_s[4:7] == pytest.approx((0.9 * 43 / 64, 0.1 * 43 / 64, 1.0 - 43 / 64), rel=0.02)


def test_partners_have_as_many_tasks_and_one_level() -> None:
    # rows (2) ─one-to-one─▶ parse (2) ═══▶ speed and jams, if they were partners, have the table of both
    pair = (Group(("speed", "jams"), 1, 16),)
    plan = plan_scaling(busy(factor=3.0, groups=pair))
    assert isinstance(plan, Rescale)
    assert plan.shape.parallelism["speed"] == plan.shape.parallelism["jams"]


def test_a_shape_that_is_not_allowed_is_put_right() -> None:
    for nodes, bounds, direction in ((1, (2, 8), Direction.OUT), (9, (2, 8), Direction.IN)):
        plan = plan_scaling(busy(nodes=nodes, bounds=bounds))
        assert isinstance(plan, Rescale)
        assert plan.direction is direction
        assert 2 <= plan.shape.nodes <= 8
        assert plan.reason.startswith(f"{nodes} nodes and their tasks are not what is allowed")


def test_a_search_that_gives_up_still_finds_what_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenax.planning.scaling.rates.MAX_TRIES", 0)
    wanted = busy(factor=2.9)
    plan = plan_scaling(wanted)
    assert isinstance(plan, Rescale)
    assert (plan.feasible, plan.optimal) == (True, False)
    check_scaling(wanted, plan)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"interval_s": 0.0}, "follows from the time between batches, found 0 s"),
        ({"target": 0.0}, "a target is above 0 and at most 1, found 0"),
        ({"factor": -1.0}, "are finite numbers of at least 0, found -1.0"),
        ({"bounds": (3, 2)}, "the fewest nodes are at least 1 and not above the most, found 3 and 2"),
        ({"rows": (1.0,)}, "those of all 9 tasks, found 1 and 9"),
        ({"groups": (Group(("speed",), 1, 4), Group(("speed",), 1, 4))}, "found 'speed' in two"),
        ({"groups": (Group(("sped",), 1, 4),)}, "found 'sped': did you mean 'speed'?"),
        ({"groups": (Group(("speed", "top"), 1, 4),)}, "operators of a group have as many tasks, found speed, top"),
        ({"margin": 1.0}, "headroom and margin are from 0 to below 1"),
    ],
)
def test_a_demand_that_makes_no_sense_is_one_line(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        replace(busy(), **words)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_full_streams_are_shared_by_key_and_partners_go_together() -> None:
    """
    s (2) ─one-to-one─▶ a (2) ═══▶ b (3) ─one-to-one─▶ c (3) ══merge══▶ d (1)
                                     └─one-to-one─▶ e (3) ◀═══ a
    """
    full, merge, alike = Partitioning.FULL, Partitioning.MERGE, Partitioning.ONE_TO_ONE
    topology = Topology(
        "t",
        (
            Operator("s", 2),
            Operator("a", 2, (Input("s", alike),)),
            Operator("b", 3, (Input("a", full),)),
            Operator("c", 3, (Input("b", alike),)),
            Operator("d", 1, (Input("c", merge),)),
            Operator("e", 3, (Input("b", alike), Input("a", full))),
            Operator("f", 2, (Input("d", full),)),
        ),
    )
    groups = declared_groups(topology)
    assert [group.operators for group in groups] == [("b", "c", "e"), ("f",)]
    assert {(group.fewest, group.most) for group in groups} == {(1, 128)}


def test_unknown_algorithms_and_groups_without_sense_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown algorithm 'rate': did you mean 'rates'"):
        plan_scaling(busy(), "rate")
    for fewest, most in ((0, 4), (4, 2), (1, 129)):
        with pytest.raises(InvalidRequest, match="the fewest tasks are at least 1"):
            Group(("speed",), fewest, most)
    with pytest.raises(InvalidRequest, match="names at least one"):
        Group((), 1, 2)


def test_the_validator_knows_wrong_plans() -> None:
    wanted = busy(factor=3.0)
    plan = plan_scaling(wanted)
    assert isinstance(plan, Rescale)
    after = plan.after
    fewer = replace(after.shape, nodes=1)
    wrong: list[Rescale] = [
        replace(plan, bound_s=1.0),
        replace(plan, feasible=False),
        replace(plan, reason=""),
        replace(plan, now=after),
        replace(plan, direction=Direction.IN),
        replace(plan, after=replace(after, pass_s=0.1)),
        replace(plan, after=replace(after, busy_s=(0.1,) * len(after.busy_s))),
        replace(plan, after=replace(after, homes=(0,) * len(after.homes))),
        replace(plan, after=replace(after, level_s=after.level_s[:-1])),
        replace(plan, after=replace(after, shape=fewer)),
        replace(plan, after=plan.now, feasible=False),
    ]
    for each in wrong:
        with pytest.raises(InvalidPlan):
            check_scaling(wanted, each)
    tight = busy(factor=3.0, bounds=(2, 4))
    with pytest.raises(InvalidPlan, match="from 2 to 4 nodes, found 6"):
        check_scaling(tight, plan)
    with pytest.raises(InvalidPlan, match="keeps its tasks"):
        check_scaling(busy(factor=3.0, groups=GROUPS[:1]), plan)
