"""Random demands: every plan is what the validator says, and none is larger than what brute force finds."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning.scaling.demands import demands

from tenax.operators import keys
from tenax.planning.scaling import ALGORITHMS, Demand, Keep, Rescale, Shape, check_scaling, plan_scaling
from tenax.planning.scaling.prediction import PassModel
from tenax.planning.scaling.rates import Room, smallest
from tenax.planning.scaling.shares import KEY_GROUPS, shared
from tenax.planning.scaling.validator import _busy, _levels

SLACK = 1e-9


def shapes(demand: Demand) -> list[Shape]:
    """All shapes that are allowed."""
    names = [operator.name for operator in demand.graph.operators]
    allowed = []
    for nodes in range(demand.bounds[0], demand.bounds[1] + 1):
        for tasks in product(*(range(group.fewest, group.most + 1) for group in demand.groups)):
            own = {name: count for group, count in zip(demand.groups, tasks, strict=True) for name in group.operators}
            allowed.append(Shape(nodes, {name: own.get(name, demand.present.parallelism[name]) for name in names}))
    return allowed


def pass_s(demand: Demand, shape: Shape) -> float:
    """The time of a pass by its definition, level by level, the longest tasks first; partners are one task."""
    levels = _levels(demand, shape.parallelism)
    first: dict[str, str] = {}
    for operator in demand.graph.operators:
        inputs = operator.inputs
        joins = len(inputs) == 1 and levels[inputs[0].operator] == levels[operator.name]
        first[operator.name] = first[inputs[0].operator] if joins else operator.name
    total_s = 0.0
    for level in set(levels.values()):
        parts: dict[tuple[str, int], float] = {}
        for number, operator in enumerate(demand.graph.operators):
            if levels[operator.name] == level:
                for index, seconds in enumerate(_busy(demand, number, shape.parallelism[operator.name])):
                    part = first[operator.name], index
                    parts[part] = parts.get(part, 0.0) + seconds
        load = [0.0] * shape.nodes
        for seconds in sorted(parts.values(), reverse=True):
            load[load.index(min(load))] += seconds
        total_s += max(load) * demand.batches * demand.correction
    return total_s + demand.fixed_s * len(set(levels.values()))


@given(demands(), st.sampled_from(ALGORITHMS))
@settings(max_examples=300, deadline=None)
def test_every_plan_is_what_it_says(demand: Demand, algorithm: str) -> None:
    check_scaling(demand, plan_scaling(demand, algorithm))


@given(demands())
@settings(max_examples=300, deadline=None)
def test_no_shape_that_is_enough_is_smaller_than_the_planned_one(demand: Demand) -> None:
    model, present = PassModel(demand), demand.present
    rooms = [(Room.allowed(model), shapes(demand))]
    if demand.allows(present):
        rooms.append((Room.larger(model), [each for each in shapes(demand) if each.covers(present)]))
        rooms.append((Room.smaller(model), [each for each in shapes(demand) if present.covers(each)]))
    for limit_s, (room, possible) in product((demand.bound_s, demand.bound_s * (1 - demand.margin)), rooms):
        enough = [each.size for each in possible if pass_s(demand, each) <= limit_s * (1 + SLACK)]
        choice = smallest(model, limit_s, room)
        assert choice.keeps(limit_s) is bool(enough)
        if enough:
            assert (choice.nodes, sum(choice.parallelism)) == min(enough)
            assert choice.proven


@given(demands())
@settings(max_examples=300, deadline=None)
def test_a_pass_is_predicted_by_its_definition(demand: Demand) -> None:
    model = PassModel(demand)
    for shape in shapes(demand)[::7]:
        parallelism = tuple(shape.parallelism[operator.name] for operator in demand.graph.operators)
        assert model.pass_s(parallelism, shape.nodes) == pytest.approx(pass_s(demand, shape))
        assert model.predicted(parallelism, shape.nodes).pass_s == pytest.approx(pass_s(demand, shape))


@given(demands())
@settings(max_examples=200, deadline=None)
def test_where_a_plan_is_not_enough_no_shape_is_that_only_splits(demand: Demand) -> None:
    plan = plan_scaling(demand)
    if not plan.feasible:
        possible = [each for each in shapes(demand) if not demand.allows(demand.present) or each.covers(demand.present)]
        assert not any(pass_s(demand, each) <= demand.bound_s for each in possible)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=128), st.integers(1, 128))
@settings(max_examples=300, deadline=None)
def test_no_work_is_lost_or_made_when_key_groups_move(busy: list[int], tasks: int) -> None:
    after = shared([float(each) for each in busy], tasks)
    assert len(after) == tasks
    assert sum(after) == pytest.approx(sum(busy))
    assert min(after) >= 0
    if tasks > len(busy):
        assert max(after) <= max(busy) + SLACK


def test_the_key_groups_are_those_of_the_operators() -> None:
    assert KEY_GROUPS == keys.KEY_GROUPS


@given(demands())
@settings(max_examples=100, deadline=None)
def test_plans_are_plain_data(demand: Demand) -> None:
    plan = plan_scaling(demand)
    data = plan.to_data()
    assert data["outcome"] == ("keep" if isinstance(plan, Keep) else str(plan.direction))
    assert isinstance(plan, Keep | Rescale)
