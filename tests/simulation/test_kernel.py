from __future__ import annotations

import pytest

from tenax.simulation.kernel import Group, Kernel, Steps, TooLong


def ticking(kernel: Kernel, name: str, seen: list[tuple[float, str]], wait_s: float, times: int) -> Steps:
    for _ in range(times):
        seen.append((kernel.now_s, name))
        yield wait_s


def test_events_at_one_time_happen_in_the_order_they_were_scheduled() -> None:
    kernel, group, seen = Kernel(), Group(), list[tuple[float, str]]()
    for name in "bac":
        kernel.start(group, ticking(kernel, name, seen, 1.0, 2))
    kernel.run(10.0, 100)
    assert seen == [(0.0, "b"), (0.0, "a"), (0.0, "c"), (1.0, "b"), (1.0, "a"), (1.0, "c")]


def test_a_killed_group_takes_no_further_step() -> None:
    kernel, killed, other, seen = Kernel(), Group(), Group(), list[tuple[float, str]]()
    kernel.start(killed, ticking(kernel, "killed", seen, 1.0, 9))

    def killer() -> Steps:
        kernel.kill(killed)
        yield 0.0

    kernel.start(other, killer(), 1.5)
    kernel.run(10.0, 100)
    assert seen == [(0.0, "killed"), (1.0, "killed")]


def test_a_paused_group_goes_on_where_it_was() -> None:
    kernel, paused, other, seen = Kernel(), Group(), Group(), list[tuple[float, str]]()
    kernel.start(paused, ticking(kernel, "x", seen, 1.0, 3))
    kernel.start(paused, ticking(kernel, "y", seen, 1.0, 3))

    def pauser() -> Steps:
        kernel.pause(paused)
        yield 4.0
        kernel.resume(paused)

    kernel.start(other, pauser(), 0.5)
    kernel.run(10.0, 100)
    assert seen == [(0.0, "x"), (0.0, "y"), (4.5, "x"), (4.5, "y"), (5.5, "x"), (5.5, "y")]


def test_a_run_beyond_its_bounds_fails() -> None:
    kernel = Kernel()
    kernel.start(Group(), ticking(kernel, "x", [], 1.0, 1000))
    with pytest.raises(TooLong, match="virtual seconds"):
        kernel.run(10.0, 100)
    kernel = Kernel()
    kernel.start(Group(), ticking(kernel, "x", [], 1.0, 1000))
    with pytest.raises(TooLong, match="events"):
        kernel.run(1000.0, 100)
