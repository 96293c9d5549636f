"""Schedules of faults: how they are written, when they are due, how they are drawn."""

from __future__ import annotations

from typing import cast

import pytest

from tenax.chaos.injector import Injector
from tenax.chaos.record import Moment, Recorder, What
from tenax.chaos.schedule import (
    Fault,
    Kind,
    Progress,
    Unit,
    When,
    check,
    check_tasks,
    parse_fault,
    random_rescales,
    random_schedule,
)
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import InvalidRequest, UnknownTask
from tenax.model.graph import TaskGraph
from tenax.model.topology import Input, Operator, Topology


@pytest.mark.parametrize(
    ("kind", "text", "what", "when"),
    [
        (Kind.KILL, "2@10s", "2", When(10, Unit.SECONDS)),
        (Kind.KILL, "rack1@12b", "rack1", When(12, Unit.BATCHES)),
        (Kind.HANG, "all@1.5s", "all", When(1.5, Unit.SECONDS)),
        (Kind.KILL, "speed-window[0]+join[1]@1r", "speed-window[0]+join[1]", When(1, Unit.ROUNDS)),
        (Kind.RETURN, "1@2c", "1", When(2, Unit.CHECKPOINTS)),
        (Kind.DRIVER, "50s", "", When(50, Unit.SECONDS)),
    ],
)
def test_a_fault_is_read_as_it_is_written(kind: Kind, text: str, what: str, when: When) -> None:
    fault = parse_fault(kind, text)
    assert fault == Fault(kind, what, when)
    assert str(fault).endswith(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.KILL, "2"),
        (Kind.KILL, "0@3s"),
        (Kind.KILL, "two@3s"),
        (Kind.KILL, "2@3"),
        (Kind.KILL, "2@3m"),
        (Kind.KILL, "2@-3s"),
        (Kind.RETURN, "rack1@3s"),
        (Kind.DRIVER, "2@3s"),
    ],
)
def test_a_wrong_fault_is_refused_in_one_line_with_what_was_found(kind: Kind, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_fault(kind, text)
    assert "\n" not in str(refused.value)
    moment = text.partition("@")[2] or text
    assert repr(text) in str(refused.value) or repr(moment) in str(refused.value)


@pytest.mark.parametrize("text", ["5@3s", "rack3@3s", "rack0@3s"])
def test_a_cluster_loses_only_what_it_has(text: str) -> None:
    with pytest.raises(InvalidRequest):
        check((parse_fault(Kind.KILL, text),), nodes=4, racks=2)


def test_only_tasks_that_there_are_can_be_hit() -> None:
    graph = TaskGraph(Topology("line", (Operator("a"), Operator("join-1", 2, (Input("a"),)))))
    check_tasks((parse_fault(Kind.KILL, "a[0]+join-1[1]@3b"), parse_fault(Kind.KILL, "all@4b")), graph)
    for wrong in ("join[0]@3b", "a[0]+join-1[2]@3b"):
        with pytest.raises(UnknownTask, match="join"):
            check_tasks((parse_fault(Kind.KILL, wrong),), graph)


def test_a_cluster_may_lose_all_that_it_has() -> None:
    check(tuple(parse_fault(Kind.KILL, text) for text in ("4@3s", "all@3s", "rack2@3s", "a[9]@3s")), nodes=4, racks=2)


def test_seconds_count_from_the_first_result() -> None:
    progress = Progress()
    assert not progress.reached(When(0, Unit.SECONDS), 100.0)
    progress.learn([Moment(7.0, What.PUBLISHED), Moment(8.0, What.PUBLISHED)])
    assert not progress.reached(When(3, Unit.SECONDS), 9.9)
    assert progress.reached(When(3, Unit.SECONDS), 10.0)


def test_batches_rounds_and_checkpoints_are_counted_over_all_drivers() -> None:
    progress = Progress()
    progress.learn(
        [
            Moment(1.0, What.PASS_ENDED, {"kind": "live", "last": 5}),
            Moment(1.5, What.PASS_ENDED, {"kind": "round", "last": 9}),
            Moment(2.0, What.STARTED),
            Moment(2.5, What.PASS_ENDED, {"kind": "live", "last": 4}),
            Moment(3.0, What.PASS_BEGUN, {"kind": "round"}),
            Moment(3.5, What.PASS_BEGUN, {"kind": "live"}),
            Moment(4.0, What.CHECKPOINT_BEGUN, {"number": 4}),
        ]
    )
    for when, reached in {"5b": True, "6b": False, "1r": True, "2r": False, "1c": True, "2c": False}.items():
        assert progress.reached(When(int(when[0]), Unit(when[1])), 0.0) is reached, when


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("racks", [None, 2])
def test_a_random_schedule_is_always_one_that_a_cluster_can_suffer(nodes: int, racks: int | None) -> None:
    for seed in range(300):
        schedule = random_schedule(seed, nodes, racks, within=20)
        check(schedule, nodes, racks)
        assert any(fault.kind is not Kind.RETURN for fault in schedule), seed
        assert all(2 <= fault.when.amount <= 18 for fault in schedule), seed
        assert [fault.when.amount for fault in schedule] == sorted(fault.when.amount for fault in schedule), seed


def test_a_seed_gives_the_same_schedule_and_seeds_give_all_kinds_of_faults() -> None:
    drawn = [random_schedule(seed, 4, 2, within=20) for seed in range(200)]
    assert drawn == [random_schedule(seed, 4, 2, within=20) for seed in range(200)]
    kinds = {fault.kind for schedule in drawn for fault in schedule}
    whats = {fault.what for schedule in drawn for fault in schedule}
    assert kinds == set(Kind) - {Kind.RESCALE}  # drawn apart, see below
    assert {"1", "2", "all", "rack1", "rack2"} <= whats
    spared = [random_schedule(seed, 4, 2, within=20, driver=False) for seed in range(200)]
    assert all(fault.kind is not Kind.DRIVER for schedule in spared for fault in schedule)


def test_a_fault_that_is_due_when_a_driver_follows_another_waits_until_that_one_knows_its_nodes() -> None:
    schedule = (parse_fault(Kind.KILL, "1@26b"),)
    earlier = [Moment(1.0, What.PASS_ENDED, {"kind": "live", "last": 27})]
    injector = Injector(cast(Session, None), 4, schedule, Recorder(), earlier)
    injector.look(cast(Driver, None))  # neither has anything to offer yet
    assert injector.unreached == schedule


def test_random_rescales_are_drawn_apart_from_faults_and_can_be_written() -> None:
    drawn = [random_rescales(seed, ["sums", "best"], 3, 20, 4) for seed in range(50)]
    assert drawn == [random_rescales(seed, ["sums", "best"], 3, 20, 4) for seed in range(50)]
    for fault in (fault for schedule in drawn for fault in schedule):
        assert parse_fault(Kind.RESCALE, str(fault).removeprefix("--rescale ")) == fault
        assert set(fault.target.parallelism) <= {"sums", "best"}
        assert 1 <= fault.when.amount <= 18
    assert random_rescales(1, [], 3, 20, 4) == ()


@pytest.mark.parametrize("text", ["speed@10s", "speed=0@10s", "speed=4", "=4@10s", "speed=x@10s"])
def test_a_rescale_that_says_nothing_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidRequest, match="a rescale is written"):
        parse_fault(Kind.RESCALE, text)
