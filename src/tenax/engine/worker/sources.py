"""Source tasks: read the logged range, put late rows aside, carry the watermark."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tenax.connectors.lifecycle import Connections
from tenax.connectors.source import Source
from tenax.errors import UnreadableSource
from tenax.operators.columns import listed
from tenax.operators.computation import END_WATERMARK_US, Computation, State, StepInput, StepOutput
from tenax.operators.lateness import Overdue, admit
from tenax.store.records import Json


@dataclass(frozen=True, slots=True)
class Made:
    """What a source task made of its range; `highest_us` is the highest event time that it has seen by now."""

    rows: pl.DataFrame
    late: pl.DataFrame
    overdue: Overdue
    rows_in: int
    watermark_us: int
    highest_us: int


class SourceComputation(Computation):
    """The computation of a source operator.

    All that it must know of the past is one number, the highest event time that its partition has seen. The driver
    carries it from pass to pass, so that a source task can start anywhere, at any logged batch. What is logged of idle
    partitions is a floor of the watermark, never of what is late: rows that are behind it may still find their window.
    """

    stateless = True

    def __init__(self, source: Source) -> None:
        self.source = source
        self._opened = Connections({"source": source})

    def close(self) -> None:
        """Let go of what the source has connected in this process."""
        self._opened.close()

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Sources read ranges, not frames."""
        raise NotImplementedError

    def read(
        self, partition: int, logged: Json, highest_us: int, nothing: pl.DataFrame, floor_us: int | None, ended: bool
    ) -> Made:
        """Read a logged range again or for the first time: the same rows either way; `nothing` has its columns."""
        rows = nothing if logged is None else self._opened["source"].read(partition, logged)
        if rows.schema != nothing.schema:
            if rows.height:
                raise UnreadableSource(
                    f"rows of a source have the columns that it told before the run, found {listed(rows.schema)} for "
                    f"{listed(nothing.schema)}: correct its schema(), or its rows"
                )
            rows = nothing
        admitted = admit(rows, self.source.time, highest_us, self.source.lateness_us)
        watermark = admitted.watermark_us if floor_us is None else max(admitted.watermark_us, floor_us)
        return Made(
            admitted.on_time,
            admitted.late,
            admitted.overdue,
            rows.height,
            END_WATERMARK_US if ended else watermark,
            admitted.maximum_us,
        )
