"""Source tasks: read the logged range, put late rows aside, carry the watermark."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tenax.engine.sources.source import Source
from tenax.engine.store.records import Json
from tenax.operators.computation import END_WATERMARK_US, NO_WATERMARK_US, Computation, State, StepInput, StepOutput
from tenax.operators.lateness import admit

HIGHEST = "highest"
COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Made:
    """What a source task made of its range."""

    output: StepOutput
    watermark_us: int
    rows: int
    late: pl.DataFrame


class SourceComputation(Computation):
    """The computation of a source operator.

    Its state is the highest event time that the partition has seen, and its columns, for batches without a range.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Sources read ranges, not frames."""
        raise NotImplementedError

    def read(self, state: State, partition: int, logged: Json, batch: int, ended: bool) -> Made:
        """Read a logged range again or for the first time: the same rows either way."""
        rows = state[COLUMNS] if logged is None else self.source.read(partition, logged)
        highest = next((frame.item() for name, frame in state.items() if name.startswith(HIGHEST)), NO_WATERMARK_US)
        admitted = admit(rows, self.source.time, highest, self.source.lateness_us)
        after: State = state
        if admitted.maximum_us != highest or COLUMNS not in state:
            seen = pl.DataFrame({"us": [admitted.maximum_us]}, schema={"us": pl.Int64})
            after = {COLUMNS: state.get(COLUMNS, rows.clear()), f"{HIGHEST}-{batch}": seen}
        watermark = END_WATERMARK_US if ended else admitted.watermark_us
        return Made(StepOutput(after, admitted.on_time), watermark, rows.height, admitted.late)
