"""Timelines: what they say of failures, and that they survive being written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenax.chaos.record import FaultImpact, Moment, Outcome, Timeline, What, impacts, median_batch_s, worst
from tenax.chaos.reference import Judgement
from tenax.control.records import Data


def fault(at_s: float, kind: str = "kill", *nodes: str) -> Moment:
    return Moment(at_s, What.FAULT, {"number": 0, "fault": f"--{kind}", "kind": kind, "nodes": list(nodes)})


def lost(at_s: float, *nodes: str, outage: bool = True) -> Moment:
    return Moment(at_s, What.LOST, {"nodes": list(nodes), "outage": outage})


def published(at_s: float, last: int, *, tentative: bool = False) -> Moment:
    outputs: Data = {}
    return Moment(at_s, What.PUBLISHED, {"tentative": tentative, "first": last, "last": last, "outputs": outputs})


def live(at_s: float, first: int, last: int, seconds: float) -> Moment:
    return Moment(at_s, What.PASS_ENDED, {"kind": "live", "first": first, "last": last, "seconds": seconds})


ENDED = What.OUTAGE_ENDED


def test_a_fault_is_measured_from_the_fault_to_loss_to_output_to_the_end_of_the_outage() -> None:
    moments = [
        live(1.0, 1, 4, 1.0),
        fault(10.0, "kill", "a", "b"),
        published(10.1, 4),  # computed before the fault: says nothing
        lost(10.5, "x"),
        lost(10.8, "a", outage=False),
        lost(11.0, "b"),
        published(12.0, 5, tentative=True),
        Moment(15.0, ENDED),
        Moment(18.0, ENDED),
    ]
    assert impacts(moments) == (FaultImpact("--kill", 10.0, ("a", "b"), 1.0, 2.0, 5.0),)


def test_a_loss_without_an_outage_is_over_when_it_is_known() -> None:
    (impact,) = impacts([fault(10.0, "kill", "a"), lost(10.25, "a", outage=False), published(11.0, 1)])
    assert (impact.detection_s, impact.recovered_s) == (0.25, 0.25)


def test_what_never_happened_is_none() -> None:
    (impact,) = impacts([fault(10.0, "hang", "a")])
    assert (impact.detection_s, impact.first_output_s, impact.recovered_s) == (None, None, None)


def test_a_dead_driver_is_back_when_its_successor_publishes() -> None:
    moments = [
        fault(5.0, "kill", "a"),
        lost(5.5, "a"),
        fault(6.0, "driver"),
        Moment(16.0, What.STARTED, {"epoch": 2}),
        published(20.0, 3),
    ]
    node, driver = impacts(moments)
    assert (driver.detection_s, driver.first_output_s, driver.recovered_s) == (10.0, 14.0, 14.0)
    assert (node.detection_s, node.recovered_s) == (0.5, 15.0)


def test_returns_take_nothing_away() -> None:
    assert impacts([fault(5.0, "return")]) == ()


def test_the_median_batch_is_of_live_passes_and_per_batch() -> None:
    moments = [live(1, 1, 4, 2.0), live(2, 5, 5, 0.3), live(3, 6, 7, 2.0)]
    moments.append(Moment(4, What.PASS_ENDED, {"kind": "round", "first": 1, "last": 1, "seconds": 90.0}))
    assert median_batch_s(moments) == pytest.approx(0.5)
    assert median_batch_s([]) is None


def test_the_worst_of_times_is_none_if_one_never_ended() -> None:
    assert worst([1.0, 3.0, 2.0]) == 3.0
    assert worst([1.0, None]) is None
    assert worst([]) is None


def test_a_timeline_is_read_back_as_written_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path / "timeline.jsonl")
    assert timeline.read() == []
    moments = [fault(1.5, "kill", "a"), Moment(2.0, What.NOTED, {"text": "ä\nb"})]
    for moment in moments:
        timeline.append(moment)
    with timeline.path.open("a") as file:
        file.write('{"at_s": 3.0, "wh')
    assert timeline.read() == moments


def test_an_outcome_is_read_back_as_written() -> None:
    impact = FaultImpact("--kill 1@2b", 1.0, ("a",), 0.5, None, 3.0)
    outcome = Outcome(
        held=True,
        final_equals_failure_free=True,
        lost=0,
        duplicated=0,
        different=0,
        final_results=8,
        tentative_results=2,
        corrected_results=2,
        detection_s=0.5,
        first_output_after_failure_s=None,
        all_recovered_s=3.0,
        median_batch_s=0.1,
        batches=4,
        drivers=1,
        schedule=("--kill 1@2b",),
        unreached=(),
        seed=7,
        faults=(impact,),
        findings="well",
        reference=Judgement(2, 70, 0, 0, 1, ("speed segment=3: speed 1.0 for 2.0",), ("late (it does not end)",)),
    )
    assert Outcome.from_json(outcome.to_json()) == outcome
