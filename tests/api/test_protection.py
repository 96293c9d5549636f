"""What a user says about protection: wrong words are one line, right ones become the settings of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import get_overloads

import polars as pl
import pytest

from tenax.api.streams import Topology
from tenax.cli.arguments import overridden
from tenax.connectors.delivery import console
from tenax.connectors.generators import Pace
from tenax.connectors.workloads import elements
from tenax.control.coordinator import Coordinator
from tenax.engine.protection import planned
from tenax.errors import Infeasible, InvalidRequest, TenaxError, UnknownTask
from tenax.model import topology as model
from tenax.model.graph import TaskGraph
from tenax.model.options import options_of
from tenax.model.protection import Backups, OperatorProtection, Outputs, Protection, Recovery, Strategy
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.planning.measured import Measures
from tenax.planning.promises import Promise
from tenax.planning.rates import Rows


# numbers (2) ──▶ sums (2) ──▶ out (2)
def topology() -> Topology:
    made = Topology("t")
    numbers = made.source("numbers", elements(rate=1.0, pace=Pace(rows=1)), partitions=2)
    numbers.key_by("sequence").window("1s").aggregate(pl.col("value").sum(), name="sums").output("out", console())
    return made


SAID: list[tuple[Callable[[Topology], None], str]] = [
    (lambda topology: topology.protect(replicas=-1), "number of at least 0, 'all' or a list of tasks, found -1"),
    (lambda topology: topology.protect(replicas=True), "found True"),
    (lambda topology: topology.protect(replicas="most"), "found 'most'"),
    (lambda topology: topology.protect(backups="sauce"), "found 'sauce': did you mean 'source'"),
    (lambda topology: topology.protect(backups="sums"), "all or a list of tasks, found 'sums'"),
    (lambda topology: topology.protect(backups=["sums[0]"], recovery_latency="5s"), "leave one of the two out"),
    (lambda topology: topology.protect(backups="planned"), "planned backups need a recovery_latency"),
    (lambda topology: topology.protect(backups="all", recovery_latency="5s"), "leave one of the two out"),
    (lambda topology: topology.protect(recovery_latency="0s"), "above 0, found '0s'"),
    (lambda topology: topology.protect(recovery_latency="soon"), "found 'soon'"),
    (
        lambda topology: topology.protect(recovery="fast"),
        "one of incremental, blocking, auto, found 'fast'",
    ),
    (lambda topology: topology.protect(outputs="none"), "outputs is one of tentative, hold, found 'none'"),
    (lambda topology: topology.protect(order="best"), "found 'best'"),
    (lambda topology: topology.protect(tentative_delay="2s", outputs="hold"), "needs tentative outputs"),
    (lambda topology: topology.protect(checkpoint_every=0), "at least 1 or a time above 0, found 0"),
    (lambda topology: topology.protect(checkpoint_every="0s"), "at least 1 or a time above 0, found '0s'"),
    (lambda topology: topology.protect(failure_every="0s"), "failure_every is a time above 0, found '0s'"),
    (lambda topology: topology.protect(checkpoint="swept"), "sweeping, none, found 'swept'"),
    (
        lambda topology: topology.protect(checkpoints={"sums": "some"}),
        "the checkpoint of operator 'sums' is one of aligned",
    ),
]


@pytest.mark.parametrize(("protect", "expected"), SAID)
def test_a_wrong_word_is_refused_where_it_is_said(protect: Callable[[Topology], None], expected: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        protect(topology())
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("asked", "error", "expected"),
    [
        (Protection(("numbers[0]",)), InvalidRequest, "sources need no replica, found numbers[0]"),
        (Protection(("sums[7]",)), UnknownTask, "sums[7]"),
        (Protection(backups=("sums[7]",)), UnknownTask, "sums[7]"),
        (Protection(backups=("sums[*]", "numbers[0]")), InvalidRequest, "sources retain nothing: they have their log"),
    ],
)
def test_what_the_topology_cannot_give_is_refused_before_the_run(
    asked: Protection, error: type[TenaxError], expected: str
) -> None:
    with pytest.raises(error) as raised:
        planned(topology().build().topology, asked)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("checkpoint", "single", "queued"),
    [("sweeping", {}, False), ("individual", {}, True), ("sweeping", {"sums": "aligned"}, True)],
)
def test_the_plan_says_where_lost_tasks_are_fed_from(checkpoint: str, single: dict[str, str], queued: bool) -> None:
    line = planned(topology().build().topology, Protection(checkpoint=checkpoint, checkpoints=single)).line
    assert "lost tasks replay from the sources" in line
    assert ("their producers' queues" in line) is queued
    assert f"checkpoints {checkpoint}" in line


def test_nothing_is_protected_unless_asked_for() -> None:
    application = topology().build()
    assert application.protection == Protection()
    plan = planned(application.topology, application.protection)
    assert plan.line == "no replicas; lost tasks replay from the sources"
    settings = Settings(protection=application.protection).but(nodes=3, racks=2)
    assert (settings.cluster.nodes, settings.cluster.racks, plan.retain, plan.replicas) == (3, 2, (), ())
    assert settings.protection.recovery is Recovery.INCREMENTAL
    assert settings.protection.outputs is Outputs.TENTATIVE
    assert settings.protection.backups_or_default is Backups.SOURCE


def test_a_budget_buys_the_best_replicas_and_no_sources() -> None:
    made = topology()
    made.protect(replicas=2)
    application = made.build()
    plan = planned(application.topology, application.protection)
    assert sorted(task.operator for task in plan.replicas) == ["out", "sums"]
    assert plan.fidelity == pytest.approx(0.5)
    assert plan.line.startswith("2 replicas: ")
    assert "fidelity if all else fails 0.50" in plan.line


def test_all_means_every_task_but_the_sources() -> None:
    plan = planned(topology().build().topology, Protection("all"))
    assert {task.operator for task in plan.replicas} == {"sums", "out"}
    assert plan.fidelity == 1.0


def test_named_tasks_run_twice() -> None:
    plan = planned(topology().build().topology, Protection(("sums[*]", "out[1]")))
    assert plan.replicas == (Task("sums", 0), Task("sums", 1), Task("out", 1))


def test_a_latency_makes_tasks_retain_their_outputs_but_never_sources() -> None:
    plan = planned(topology().build().topology, Protection(recovery_latency="1s"))
    assert {task.operator for task in plan.retain} == {"sums"}
    assert plan.latency_s == 1.0
    words = "a lost task is back within 1 s, reckoned with a second per task until it is measured"
    assert f"outputs retained by sums[0 1] ({words})" in plan.line


def with_times(seconds: float) -> model.Topology:
    """The topology, of which every task but the sources says how long it takes."""
    built = topology().build().topology
    timed = (replace(each, reprocess=1.0 if each.is_source else seconds) for each in built.operators)
    return replace(built, operators=tuple(timed))


def test_a_latency_below_a_second_is_taken_unless_tasks_are_known_to_take_longer() -> None:
    plan = planned(topology().build().topology, Protection(recovery_latency="500ms"))
    assert plan.retain == (Task("sums", 0), Task("sums", 1))  # the best that can be had until it is measured
    assert "is back within 1 s, reckoned with a second per task" in plan.line
    declared = planned(with_times(0.25), Protection(recovery_latency="500ms"))
    assert declared.retain == ()
    assert "is back within 0.5 s, reckoned with the times declared" in declared.line
    with pytest.raises(Infeasible, match=r"above 0\.5 s"):
        planned(with_times(2.0), Protection(recovery_latency="500ms"))


def measured(busy_s: float) -> Measures:
    """Every task is so long busy with a batch, ten of these lie between checkpoints, and out has 900 MB to read."""
    even, state_bytes = (busy_s,) * 6, (0.0,) * 4 + (9e8,) * 2
    return Measures(Rows((1.0,) * 6, (1.0,) * 6), even, (10,) * 6, state_bytes, restore_s=1e-9, rounds=3, level_s=0.1)


def test_backups_follow_what_was_measured_and_the_promise_includes_scheduling() -> None:
    plan = planned(topology().build().topology, Protection(recovery_latency="2s"))
    assert plan.retain == ()
    easy = plan.followed(measured(0.01), plan.retain, {}, detection_s=0.1)
    assert (easy.backups, easy.promise) == ((), Promise(2.0, 1.1, 0.4))  # the log is read, sums are stepped
    sums, out = ((Task(name, 0), Task(name, 1)) for name in ("sums", "out"))
    tight = plan.followed(measured(0.05), plan.retain, {}, detection_s=0.1)  # 1.9 s of steps, and 0.4 s beside them
    assert (tight.backups, tight.promise) == (sums, Promise(2.0, 1.0, 0.4))
    late = plan.followed(measured(0.1), sums, {}, detection_s=0.1)
    assert (late.backups, late.promise) == (sums, Promise(2.0, 2.0, 0.4, sums))
    still = planned(topology().build().topology, Protection(recovery_latency="2s", follow_load=1.0))
    stays = still.followed(measured(0.05), (), {}, detection_s=0.1)
    assert (stays.backups, stays.promise) == ((), Promise(2.0, 1.9, 0.4, out))


def test_named_tasks_retain_their_outputs_if_there_are_consumers_for_them() -> None:
    plan = planned(topology().build().topology, Protection(backups=("out[*]", "sums[1]")))
    assert plan.retain == (Task("sums", 1),)
    assert plan.line.endswith("outputs retained by sums[1]")
    assert planned(topology().build().topology, Protection(backups=())).retain == ()


def test_every_word_reaches_the_coordinator() -> None:
    asked = Protection(1, None, "adaptive", "blocking", "hold", "dp", checkpoint_every=4)
    settings = Settings(protection=asked)
    coordinator = Coordinator(TaskGraph(topology().build().topology), settings)
    control = coordinator.settings.protection
    assert (control.recovery, control.outputs, control.backups) == (Recovery.BLOCKING, Outputs.HOLD, Backups.ADAPTIVE)
    assert (control.order, control.checkpoint_every, coordinator.settings.max_batches_per_pass) == ("dp", 4, 4)
    assert Protection(tentative_delay="1s500ms").tentative_delay_s == 1.5


def test_what_the_command_line_says_wins_over_the_application() -> None:
    own = Protection(3, "5s", outputs="hold")
    assert overridden(own, {"replicas": None, "outputs": None}) == own
    assert overridden(own, {"replicas": "7"}).replicas == 7
    assert overridden(own, {"replicas": "a[0], b[*]"}).replicas == ("a[0]", "b[*]")
    assert overridden(own, {"backups": "a[0], b[*]"}) == Protection(3, None, ("a[0]", "b[*]"), outputs="hold")
    assert overridden(Protection(backups=("a[0]",)), {"recovery_latency": "2s"}) == Protection(recovery_latency="2s")
    assert overridden(own, {"backups": "all"}) == Protection(3, None, "all", outputs="hold")
    assert overridden(Protection(backups="all"), {"recovery_latency": "2s"}) == Protection(recovery_latency="2s")
    assert overridden(Protection(tentative_delay="2s"), {"outputs": "hold"}) == Protection(outputs="hold")
    with pytest.raises(InvalidRequest, match="found -3"):
        overridden(own, {"replicas": "-3"})


def test_protection_may_change_between_runs_on_one_store() -> None:
    protected = topology()
    protected.protect(replicas="all", checkpoint_every=3)
    assert protected.build().fingerprint() == topology().build().fingerprint()


def test_checkpoints_are_chosen_for_the_topology_and_for_single_operators() -> None:
    made = topology()
    made.protect(
        checkpoint="sweeping", checkpoints={"sums": "individual"}, checkpoint_every="500ms", failure_every="1h"
    )
    application = made.build()
    asked = application.protection
    assert asked.checkpoint is Strategy.SWEEPING
    assert asked.strategies == {"sums": Strategy.INDIVIDUAL}
    assert (asked.checkpoint_every_s, asked.failure_every_s) == (0.5, 3600.0)
    assert planned(application.topology, asked).line.endswith("checkpoints sweeping, sums individual")


def test_the_command_line_speaks_of_single_operators() -> None:
    own = Protection(checkpoint="individual", checkpoints={"sums": "none"}, standby={"out": "active-active"})
    protection = overridden(own, {"checkpoint": "sweeping, out=aligned"})
    assert (protection.checkpoint, protection.checkpoints) == ("sweeping", {"sums": "none", "out": "aligned"})
    protection = overridden(own, {"checkpoint": "sums=synchronous", "standby": "sums=active,out=passive"})
    assert (protection.checkpoint, protection.checkpoints) == ("individual", {"sums": "synchronous"})
    assert protection.standby == {"sums": "active", "out": "passive"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"checkpoint": "sweeping,sums=often"}, "the checkpoint of operator 'sums' is one of"),
        ({"checkpoint": "sums="}, "the checkpoint of operator 'sums' is one of"),
        ({"standby": "active"}, "standbys are written OPERATOR=MODE, found 'active'"),
        ({"standby": "sums=hot"}, "the standby of operator 'sums' is one of"),
    ],
)
def test_wrong_words_of_the_command_line_are_told_with_the_operator(given: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidRequest, match=expected):
        overridden(Protection(), given)


def test_the_command_line_counts_checkpoints_in_batches_or_time() -> None:
    assert overridden(Protection(), {"checkpoint_every": "4"}).checkpoint_every == 4
    assert overridden(Protection(), {"checkpoint_every": "2s"}).checkpoint_every_s == 2.0
    with pytest.raises(InvalidRequest, match="at least 1 or a time above 0, found 0"):
        overridden(Protection(), {"checkpoint_every": "0"})


def test_a_checkpoint_of_an_unknown_operator_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"operators that are no sources, found 'sum'.*sums"):
        planned(topology().build().topology, Protection(checkpoints={"sum": "sweeping"}))


def test_standbys_of_single_operators_win_over_the_plan() -> None:
    built = topology().build().topology
    active = planned(built, Protection(replicas=0, standby={"sums": "active-active"}))
    assert active.replicas == (Task("sums", 0), Task("sums", 1))
    assert active.active_active == active.replicas
    assert "active-active: sums[0 1]" in active.line
    assert planned(built, Protection(standby={"sums": "none"})).line.endswith("checkpoints aligned, sums none")
    passive = planned(built, Protection(replicas="all", standby={"sums": "passive"}))
    assert {task.operator for task in passive.replicas} == {"out"}
    assert passive.active_active == ()


def test_a_budget_follows_the_load_and_a_list_does_not() -> None:
    following = Protection(replicas=2)
    assert (following.follows, following.follow_load) == (True, 0.05)
    for still in (Protection(replicas=("sums[0]",)), Protection(replicas=2, follow_load=1.0), Protection()):
        assert not still.follows


def test_replicas_are_planned_where_the_rows_are() -> None:
    built = topology().build().topology
    graph = TaskGraph(built)
    asked = Protection(replicas=2)
    plan = planned(built, asked)
    for busy in range(2):
        rows = [100.0 if task.index == busy else 1.0 for task in graph.tasks(range(len(graph)))]
        best = plan.replanned(Rows(tuple(rows), tuple(rows)), plan.replicas)
        assert {task.index for task in best.replicas} == {busy}
        assert best.after >= best.before
        assert best.after > 0.9


def test_how_much_following_must_gain_is_checked() -> None:
    with pytest.raises(InvalidRequest, match="follow_load is a number from 0 to 1, found"):
        Protection(replicas=2, follow_load=1.5)


def test_operators_with_a_standby_of_their_own_take_nothing_of_the_budget() -> None:
    # numbers (2) ─► sums (2) ─► out (2)
    built = topology().build().topology
    for mode, copies in (("active", 2), ("passive", 0)):
        plan = planned(built, Protection(replicas=2, standby={"sums": mode}))
        assert sorted(task.operator for task in plan.replicas) == ["out"] * 2 + ["sums"] * copies


def test_an_operator_without_standby_has_neither_replicas_nor_stored_states() -> None:
    built = topology().build().topology
    plan = planned(built, Protection(replicas="all", standby={"sums": "none"}))
    assert {task.operator for task in plan.replicas} == {"out"}
    assert plan.protection.strategies == {"sums": Strategy.NONE}
    with pytest.raises(InvalidRequest, match="standby none stores no state, found checkpoint 'aligned' beside it"):
        Protection(standby={"sums": "none"}, checkpoints={"sums": "aligned"})


def test_the_signature_of_protect_agrees_with_the_records_field_by_field() -> None:
    whole, single = (inspect.signature(each).parameters for each in get_overloads(Topology.protect))
    settings = {name: each for name, each in whole.items() if name != "self"}
    assert list(settings) == list(options_of(Protection))
    for name, option in options_of(Protection).items():
        assert settings[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert settings[name].default == option.default
    own = {name: each for name, each in single.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert list(own) == list(options_of(OperatorProtection))
    assert all(own[name].default == option.default for name, option in options_of(OperatorProtection).items())
    assert inspect.signature(Topology.protect) == inspect.signature(get_overloads(Topology.protect)[0])


def test_single_operators_are_protected_by_name_before_or_after_all_others() -> None:
    expected = Protection(
        2,
        checkpoint="aligned",
        checkpoints={"sums": "sweeping"},
        standby={"sums": "active-active", "out": "active-active"},
    )
    for backwards in (False, True):
        made = topology()
        calls: list[Callable[[], None]] = [
            lambda made=made: made.protect(replicas=2),  # type: ignore[misc]
            lambda made=made: made.protect("sums", "out", standby="active-active"),  # type: ignore[misc]
            lambda made=made: made.protect("sums", checkpoint="sweeping"),  # type: ignore[misc]
        ]
        for call in reversed(calls) if backwards else calls:
            call()
        assert made.build().protection == expected


def test_what_cannot_be_said_of_a_single_operator_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'replicas'"):
        topology().protect("sums", replicas=2)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="standby is one of none, passive, active, active-active, found 'hot'"):
        topology().protect("sums", standby="hot")
    made = topology()
    made.protect("sum", standby="active")
    application = made.build()
    with pytest.raises(InvalidRequest, match=r"operators that are no sources, found 'sum'.*sums"):
        planned(application.topology, application.protection)
