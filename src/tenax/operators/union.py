"""The rows of several streams as one stream."""

from __future__ import annotations

import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.computation import Computation, State, StepInput, StepOutput


class Union(Computation):
    """The rows of all inputs of a batch one after the other, in the order of the inputs.

    The inputs have the same columns; the first says in which order. Cost: proportional to the rows.
    """

    __slots__ = ()
    stateless = True

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Append the inputs to one another."""
        first = given.frames[0]
        for number, other in enumerate(given.frames[1:], start=2):
            check_same_columns(first, other, number)
        return StepOutput(state, pl.concat([frame.select(first.columns) for frame in given.frames], rechunk=True))


def check_same_columns(first: pl.DataFrame, other: pl.DataFrame, number: int) -> None:
    """Both frames have the same columns, in any order."""
    rule = f"the inputs of a union have the same columns: input {number}"
    for name in sorted({*first.columns, *other.columns}):
        if name not in other.columns:
            raise InvalidRequest(f"{rule} lacks {name!r}; add it, or select the columns that all have")
        if name not in first.columns:
            raise InvalidRequest(f"{rule} has {name!r}, input 1 has not; select the columns that all have")
        if first.schema[name] != other.schema[name]:
            raise InvalidRequest(
                f"{rule} has {name!r} as {other.schema[name]}, input 1 as {first.schema[name]}; cast one of them"
            )
