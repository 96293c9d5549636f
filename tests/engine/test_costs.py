"""What protection costs, as it is counted from reports and events."""

from __future__ import annotations

import pytest

from tenax.control.copies import Role
from tenax.control.events import CheckpointStored
from tenax.engine.costs import Costs
from tenax.engine.worker.orders import Report


def report(role: Role, cpu_s: float, retaining_cpu_s: float = 0.0) -> Report:
    return Report(task=0, node=0, seconds=9.0, role=role, cpu_s=cpu_s, retaining_cpu_s=retaining_cpu_s)


def test_nothing_is_spent_on_protection_before_anything_happened() -> None:
    assert Costs().share == 0.0


def test_checkpoints_replicas_and_retained_outputs_are_protection() -> None:
    costs = Costs()
    costs.passed([report(Role.PRIMARY, 5.0, 1.0), report(Role.REPLICA, 4.0, 0.5)])
    assert costs.share == pytest.approx(5 / 9)  # what a replica retains is in its own time already
    costs.handled(CheckpointStored(4, 1, 100, 30.0, 200, 1.0))
    assert costs.share == pytest.approx(6 / 10)
    assert (costs.checkpoints, costs.checkpoint_s, costs.written_bytes, costs.held_bytes) == (1, 30.0, 100, 200)
