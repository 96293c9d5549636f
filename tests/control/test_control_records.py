from __future__ import annotations

import json
from typing import get_args

import pytest

from tenax.control.coordinator import Coordinator
from tenax.control.events import BatchesLogged, PassFailed, Started
from tenax.control.instructions import Decided, Instruction, Outcome, Stop
from tenax.control.notices import Notice
from tenax.control.records import plain
from tenax.control.recovery.failures import Refused
from tenax.control.versions import PassId, RebuildPoint, Version, parse_restore_point
from tenax.errors import InvalidRequest
from tenax.model.cluster import Node
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology import Operator, Topology


def test_events_and_instructions_are_plain_data() -> None:
    event = PassFailed(PassId(3, 17), Refused(Task("a", 0), "wrong node"))
    assert plain(event) == {
        "type": "PassFailed",
        "pass_id": "3.17",
        "failure": {"type": "Refused", "task": "a[0]", "cause": "wrong node"},
    }
    stop = Stop(Outcome.FINISHED, "the sources have ended", resumable=False)
    assert plain(stop) == {
        "type": "Stop",
        "outcome": "finished",
        "reason": "the sources have ended",
        "resumable": False,
    }


def test_a_whole_log_can_be_written_as_json() -> None:
    coordinator = Coordinator(TaskGraph(Topology("one", (Operator("a", 2),))))
    coordinator.handle(Started(1, (Node("n1"),), None, 0, {}))
    coordinator.handle(BatchesLogged(1, 2))
    written = json.loads(json.dumps(plain(coordinator.log)))
    ordered = written[1]["decided"][0]
    assert [(step["start"], step["node"], step["role"]) for step in ordered["steps"]] == [
        ("a[0]@0/0.0", "n1", "primary"),
        ("a[1]@0/0.0", "n1", "primary"),
    ]
    assert ordered["retain"] == []


def test_names_can_be_read_back() -> None:
    version = Version(Task("speed", 2), 40, PassId(3, 17))
    assert str(version) == "speed[2]@40/3.17"
    assert Version.parse(str(version)) == version
    for text in ("speed[2]", "speed[2]@40/3", "speed@40/3.1"):
        with pytest.raises(InvalidRequest):
            Version.parse(text)


def test_rebuild_points_can_be_read_back_and_told_from_versions() -> None:
    point = RebuildPoint(Task("speed", 2), 40, 37)
    assert str(point) == plain(point) == "speed[2]@40/from 37"
    assert parse_restore_point(str(point)) == point
    version = Version(Task("speed", 2), 40, PassId(3, 17))
    assert parse_restore_point(str(version)) == version
    assert (point.inputs_after, version.inputs_after) == (36, 40)
    for text in ("speed[2]@40/from", "speed[2]@40/3.17", "speed[2]@40/from x"):
        with pytest.raises(InvalidRequest, match="a rebuild point is written task@batch/from batch, found"):
            RebuildPoint.parse(text)
    with pytest.raises(InvalidRequest, match="a version is written"):
        parse_restore_point("speed[2]@40/from x")


def test_what_is_decided_is_either_an_instruction_or_a_notice() -> None:
    assert not set(get_args(Instruction)) & set(get_args(Notice))
    assert set(get_args(Decided)) == {*get_args(Instruction), *get_args(Notice)}


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeError, match="found set"):
        plain({1})
