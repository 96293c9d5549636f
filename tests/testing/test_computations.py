"""`tx.testing.check_computation` accepts what keeps the contract, and names the rule that a computation breaks."""

# ruff: noqa: ARG002

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tenax as tx
from tenax.errors import BrokenContract, InvalidRequest
from tenax.operators.join import join
from tenax.operators.windows import windows

SECOND = 1_000_000


def rows(count: int = 640, keys: int = 1_000_000) -> pl.DataFrame:
    """Ten rows a second, of so many keys."""
    draw = np.random.default_rng(1)
    return pl.DataFrame(
        {
            "ts": pl.Series(np.arange(count) * SECOND // 10).cast(pl.Datetime("us")),
            "key": [f"k{number}" for number in draw.integers(0, keys, count)],
            "value": draw.random(count),
        }
    )


class Totals(tx.KeyedComputation):
    """The total of each key so far."""

    keys = ("key",)
    state_schema = pl.Schema({"key": pl.String, "total": pl.Float64})
    any_batches = False

    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, tx.Changes]:
        sums = rows.group_by("key", maintain_order=True).agg(pl.col("value").sum())
        known = sums.join(state, on="key", how="left", maintain_order="left")
        totals = known.select("key", total=pl.col("value") + pl.col("total").fill_null(0.0))
        return totals, tx.Changes(upserts=totals)


class Own(tx.Computation):
    """A base for computations that break something."""

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput(state, given.frames[0])


class Mutates(Own):
    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        given.frames[0].insert_column(0, pl.lit(1).alias("more"))
        return tx.StepOutput(state, given.frames[0].clone())


class RenamesNothing(Own):
    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput({"last": given.frames[0]}, given.frames[0])


class HasState(Own):
    stateless = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput({f"last/{given.batch}": given.frames[0]}, given.frames[0])


class Varies(Own):
    stateless = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput({}, given.frames[0].select("ts", *["key"] * (given.batch % 2)))


class NeedsRows(Own):
    stateless = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput({}, given.frames[0].with_columns(first=pl.lit(given.frames[0]["key"][0])))


class Declares(Varies):
    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:
        return inputs[0]


class WritesAll(Own):
    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        together = pl.concat([*state.values(), given.frames[0]])
        return tx.StepOutput({f"all/{given.batch}": together}, given.frames[0])


class Counts(Own):
    """Its attribute is no part of the state."""

    def __init__(self) -> None:
        self.calls = itertools.count()

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput(state, given.frames[0].select("ts", n=pl.lit(next(self.calls))))


class OfSets(Own):
    """A set has another order in every process."""

    stateless = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        keys = list(set(given.frames[0]["key"].to_list()))
        return tx.StepOutput(state, pl.DataFrame({"key": keys}, schema={"key": pl.String}))


class ForgetsTooSoon(Own):
    """All that ever came, and says that the last batch decides it."""

    bounded = True

    def oldest(self, state: tx.State, batch: int) -> int:
        return batch

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        count = sum(frame.height for frame in state.values())
        segments = {**state, f"rows/{given.batch}": given.frames[0].select("ts")}
        return tx.StepOutput(segments, pl.DataFrame({"count": [count]}))


class ShowsCuts(Own):
    stateless = True
    any_batches = True

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput({}, pl.DataFrame({"rows": [given.frames[0].height]}))


def test_a_keyed_computation_keeps_the_contract_and_its_cost_is_judged() -> None:
    checked = tx.testing.check_computation(Totals(), rows(), time="ts")
    assert checked.cost_judged
    assert (checked.batches, checked.rows_in) == (32, 640)
    assert checked.rows_out > 600


def test_windows_keep_the_contract_and_are_rebuilt_from_a_few_batches() -> None:
    computation = windows("ts", ["key"], "4s", "1s", [pl.col("value").sum(), pl.len().alias("n")])
    checked = tx.testing.check_computation(computation, rows(keys=5), time="ts", lateness="1s")
    assert checked.rebuilt_from is not None
    assert 1 < checked.rebuilt_from < 8


def test_several_inputs_are_tried_together() -> None:
    computation = windows("ts", ["key"], "2s", None, [pl.len().alias("n")])
    made = computation.step({}, tx.StepInput((rows(200, 5),), 2**63 - 1, 1)).rows
    checked = tx.testing.check_computation(join(["key", "window"]), [made, made], time="window_end", batches=12)
    assert checked.rows_out == made.height


@pytest.mark.parametrize(
    ("computation", "rule"),
    [
        (Mutates(), "a step changes nothing it is given, found the frames changed in batch 1"),
        (RenamesNothing(), "the name of a segment stands for one content, found another under 'last' in batch 2"),
        (HasState(), "stateless = True says that the state is empty"),
        (Varies(), "columns are the same in every batch"),
        (Declares(), "columns are the same in every batch"),
        (NeedsRows(), "columns are known before it runs, found that a step without rows raises IndexError"),
        (WritesAll(), "a step writes what follows from its batch"),
        (Counts(), "found others when batch 1 was repeated"),
        (OfSets(), "a step gives the same bytes in every process"),
        (ForgetsTooSoon(), "bounded = True says that a state follows from the batches since oldest"),
        (ShowsCuts(), "any_batches = True says that cuts do not show"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, tx.Computation) else "",
)
def test_what_breaks_the_contract_is_named(computation: tx.Computation, rule: str) -> None:
    with pytest.raises(BrokenContract) as raised:
        tx.testing.check_computation(computation, rows(), time="ts")
    assert rule in str(raised.value)
    assert str(raised.value).startswith(f"{type(computation).__name__}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "time", "message"),
    [
        (rows(0), "ts", "a computation is tried with rows, found none"),
        (rows(3), "when", "the time column 'when' of input 1 is a Datetime in microseconds, found None"),
        (rows(3), "value", "found Float64"),
    ],
)
def test_wrong_rows_are_one_line(given: Any, time: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        tx.testing.check_computation(Own(), given, time=time)
    assert message in str(raised.value)


class ByKey(Own):
    """The highest value of every key, in segments with its column."""

    splits = tx.Splits.BY_KEY

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        [frame] = given.frames
        known = pl.concat([frame.select("key", "value").clear(), *state.values()])
        best = known.group_by("key", maintain_order=True).agg(pl.col("value").max().alias("before"))
        out = frame.join(best, on="key", how="left", maintain_order="left")
        return tx.StepOutput({**state, f"seen/{given.batch}": frame.select("key", "value")}, out)


class Itself(ByKey):
    splits = tx.Splits.NOT

    def split(self, state: tx.State, groups: tx.Groups, keys: Sequence[str]) -> tx.State:
        return {name: groups.rows(frame, keys) for name, frame in state.items()}

    def merge(self, states: Sequence[tx.State]) -> tx.State:
        return {f"{number}/{name}": frame for number, state in enumerate(states) for name, frame in state.items()}


class LosesRows(Itself):
    def merge(self, states: Sequence[tx.State]) -> tx.State:
        return states[0]


class OfAllKeys(ByKey):
    """Its rows hang on those of other keys."""

    def step(self, state: tx.State, given: tx.StepInput) -> tx.StepOutput:
        return tx.StepOutput(state, given.frames[0].with_columns(rank=pl.col("value").rank()))


@pytest.mark.parametrize("computation", [ByKey(), Itself()])
def test_a_state_that_can_be_split_is(computation: tx.Computation) -> None:
    assert not tx.testing.check_computation(computation, rows(60, 9), time="ts", batches=6).rescaled
    assert tx.testing.check_computation(computation, rows(60, 9), time="ts", batches=6, keys=["key"]).rescaled


@pytest.mark.parametrize("computation", [LosesRows(), OfAllKeys()])
def test_a_split_that_shows_breaks_the_contract(computation: tx.Computation) -> None:
    with pytest.raises(BrokenContract, match=r"split into gives the same rows, found others of [23] tasks than of one"):
        tx.testing.check_computation(computation, rows(60, 9), time="ts", batches=6, keys=["key"])
    with pytest.raises(InvalidRequest, match="keys are columns of every input"):
        tx.testing.check_computation(computation, rows(60, 9), time="ts", keys=["nothing"])


def test_the_example_of_the_contract_runs_as_it_stands(tmp_path: Path) -> None:
    text = inspect.getdoc(tx.Computation) or ""
    lines = text.split("takes less:")[1].split("The contract:")[0]
    script = tmp_path / "example.py"
    script.write_text(textwrap.dedent(lines))
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path)
