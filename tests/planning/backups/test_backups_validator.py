"""The validator rejects every backup plan that breaks its promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tenax.errors import InvalidPlan
from tenax.model.graph import TaskGraph
from tenax.model.plans import BackupPlan
from tenax.model.tasks import Task
from tenax.model.topology import Input, Operator, Topology
from tenax.planning.backups import check_backups, plan_backups

#   a(2) =full=> b(3) =full=> c(2) -> d(1): two backups for R = 2
GRAPH = TaskGraph(
    Topology(
        "example",
        (
            Operator("a", 2),
            Operator("b", 3, (Input("a"),)),
            Operator("c", 2, (Input("b"),)),
            Operator("d", 1, (Input("c"),)),
        ),
    )
)
PLAN = plan_backups(GRAPH, 2)

Damage = Callable[[BackupPlan], BackupPlan]


def test_a_sound_plan_passes() -> None:
    check_backups(GRAPH, PLAN, 2)
    assert [str(task) for task in PLAN.backups] == ["b[0]", "b[1]", "b[2]"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda plan: replace(plan, backups=plan.backups[1:]), r"within 2 s, found c\[0\] with 3.0 s"),
        (lambda plan: replace(plan, backups=()), r"found c\[0\] with 3.0 s"),
        (lambda plan: replace(plan, backups=(*plan.backups, Task("e", 0))), r"unknown operator in task e\[0\]"),
        (lambda plan: replace(plan, backups=(*plan.backups, Task("d", 1))), r"unknown task d\[1\]"),
        (lambda plan: replace(plan, backups=(*plan.backups, plan.backups[-1])), r"named once, found b\[2\] twice"),
        (lambda plan: replace(plan, backups=plan.backups[::-1]), r"in task order, found b\[1\] after b\[2\]"),
        (lambda plan: replace(plan, recovery_latency_s=1.0), "recovery_latency_s is the longest of all tasks, 2.0"),
        (lambda plan: replace(plan, recovery_latency_s=2.1), "found 2.1"),
        (lambda plan: replace(plan, recovery_latency_s=float("nan")), "found nan"),
        (lambda plan: replace(plan, bound=4), "the bound is between 0 and the number of backups, 3, found 4"),
        (lambda plan: replace(plan, bound=-1), "found -1"),
        (lambda plan: replace(plan, bound=2), "as many backups as its bound, found 3 and 2"),
    ],
)
def test_a_damaged_plan_is_rejected(damage: Damage, message: str) -> None:
    with pytest.raises(InvalidPlan, match=message) as caught:
        check_backups(GRAPH, damage(PLAN), 2)
    assert "\n" not in str(caught.value)


def test_a_plan_for_a_larger_bound_is_rejected() -> None:
    with pytest.raises(InvalidPlan, match=r"found c\[0\] with 3.0 s"):
        check_backups(GRAPH, plan_backups(GRAPH, 3), 2)


def test_a_plan_that_claims_less_passes() -> None:
    check_backups(GRAPH, replace(PLAN, optimal=False, bound=0), 2)


def test_decimals_add_up_as_people_write_them() -> None:
    # a -> b -> c, a tenth each
    graph = TaskGraph(
        Topology(
            "tenths",
            tuple(
                Operator(name, 1, tuple(Input(operator) for operator in before), reprocess=0.1)
                for name, before in (("a", ()), ("b", ("a",)), ("c", ("b",)))
            ),
        )
    )
    check_backups(graph, BackupPlan("exact", (), 0.3, True, 0), 0.3)
    with pytest.raises(InvalidPlan, match=r"found c\[0\] with 0.3 s"):
        check_backups(graph, BackupPlan("exact", (), 0.3, True, 0), 0.2999999999999999)
