"""What a user says about elasticity: words become settings, bounds of operators stay with the application."""

from __future__ import annotations

import inspect
from dataclasses import replace

import polars as pl
import pytest

from tenax.api.streams import Parallelism, Topology
from tenax.cli.arguments import parsed
from tenax.connectors.delivery import console
from tenax.connectors.generators import Pace
from tenax.connectors.workloads import elements
from tenax.errors import InvalidRequest, InvalidTopology
from tenax.model.elasticity import Elasticity
from tenax.model.options import options_of
from tenax.model.settings import Settings
from tenax.operators.computation import Computation, State, StepInput, StepOutput


# numbers (2) ──▶ sums (1 to 16) ──▶ top-local ──▶ top (1) ──▶ out (1)
def topology(parallelism: Parallelism = (1, 16)) -> Topology:
    made = Topology("t")
    numbers = made.source("numbers", elements(rate=1.0, pace=Pace(rows=1)), partitions=2)
    sums = (
        numbers.key_by("sequence").window("1s").aggregate(pl.col("value").sum(), name="sums", parallelism=parallelism)
    )
    sums.top(3, "value").output("out", console())
    return made


def test_an_elastic_operator_begins_with_its_fewest_tasks_and_the_application_keeps_its_bounds() -> None:
    application = topology().build()
    assert application.topology.operator("sums").parallelism == 1
    assert application.bounds == {"sums": (1, 16)}
    assert topology(3).build().bounds == {}


def test_what_an_elastic_operator_gives_is_cut_to_the_top_in_each_of_its_tasks_from_the_start() -> None:
    assert "top-local" in "".join(each.name for each in topology().build().topology.operators)
    assert "top-local" not in "".join(each.name for each in topology(1).build().topology.operators)


@pytest.mark.parametrize("given", [0, (0, 4), (4, 2), (1, 2, 3), (1.0, 2), (True, 2), "4"])
def test_wrong_bounds_of_tasks_are_one_line(given: Parallelism) -> None:
    with pytest.raises(InvalidRequest, match="the parallelism of a window is a whole number of at least 1") as raised:
        topology(given)
    assert "\n" not in str(raised.value)


def test_an_operator_without_keys_cannot_have_several_tasks_at_any_time() -> None:
    made = Topology("t")
    numbers = made.source("numbers", elements(rate=1.0, pace=Pace(rows=1)))
    with pytest.raises(InvalidTopology, match="windows of several tasks need keys"):
        numbers.window("1s").aggregate(pl.col("value").sum(), parallelism=(1, 4))


def test_a_join_and_an_own_computation_take_bounds_too() -> None:
    made = Topology("t")
    numbers = made.source("numbers", elements(rate=1.0, pace=Pace(rows=1))).key_by("sequence")
    left, right = (
        numbers.window("1s").aggregate(pl.col("value").sum().alias(name), name=name) for name in ("left", "right")
    )
    joined = left.join(right, on=["sequence", "window"], parallelism=(2, 4), name="both")
    joined.key_by("sequence").apply(Passing(), parallelism=(1, 8), name="own").output("out", console())
    assert made.build().bounds == {"both": (2, 4), "own": (1, 8)}


class Passing(Computation):
    """Gives what it gets."""

    stateless = True

    def step(self, state: State, given: StepInput) -> StepOutput:
        return StepOutput(state, given.frames[0])


def test_nothing_is_elastic_unless_it_is_asked_for() -> None:
    assert not topology().build().elastic.elastic
    assert Elasticity().nearest(1) == 1


def test_what_is_said_of_elasticity_becomes_the_settings_of_a_run_and_options_win() -> None:
    made = topology()
    made.elastic(target=0.6, nodes=(3, 5), cooldown="2m")
    application = made.build()
    assert application.elastic == Elasticity(True, target=0.6, elastic_nodes=(3, 5), cooldown="2m")
    assert (application.elastic.period_s, application.elastic.cooldown_s) == (10.0, 120.0)
    settings = Settings(elastic=application.elastic).but(**parsed({"target": "0.5", "elastic_nodes": "4..6"}))
    assert settings.elastic == replace(application.elastic, target=0.5, elastic_nodes=(4, 6))
    assert [settings.elastic.nearest(nodes) for nodes in (1, 5, 9)] == [4, 5, 6]
    assert made.build().fingerprint() == topology().build().fingerprint()


@pytest.mark.parametrize("text", ["8..2", "4", "0..3", "a..b", "1..2..3", ""])
def test_wrong_bounds_of_nodes_are_one_line_with_the_remedy(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"--elastic-nodes is two whole numbers .* write \[2, 8\], or 2..8"):
        parsed({"elastic_nodes": text})


def test_the_signature_of_elastic_agrees_with_the_record_field_by_field() -> None:
    known = {name.removeprefix("elastic_"): option for name, option in options_of(Elasticity).items()}
    parameters = {name: each for name, each in inspect.signature(Topology.elastic).parameters.items() if name != "self"}
    assert list(parameters) == [name for name in known if name != "elastic"]
    for name, each in parameters.items():
        assert each.kind is inspect.Parameter.KEYWORD_ONLY
        assert each.default == known[name].default
