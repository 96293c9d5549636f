"""Runs of an operator whose tasks become more and fewer while it runs, beside one that has one task all the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from operators.step_runs import Batch

from tenax.application.scaling import rebalanced
from tenax.model.topology_versions import Table
from tenax.operators import rescaling
from tenax.operators.chunks import decode, encode
from tenax.operators.computation import Computation, Splits, State, StepInput, StepOutput
from tenax.operators.groups import Groups
from tenax.operators.keys import KEY_GROUPS, split
from tenax.operators.rescaling import Piece

ONE_TASK: Table = (0,) * KEY_GROUPS


@dataclass
class Tasks:
    """The tasks of one operator, in their states."""

    computation: Computation
    keys: Sequence[str]
    table: Table = ONE_TASK
    states: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = self.states or [self.computation.initial() for _ in range(max(self.table) + 1)]

    def step(self, batch: Batch, number: int) -> list[StepOutput]:
        """One batch, its rows shared by the table."""
        owners = np.array(self.table, np.uint16)
        frames = [self.computation.combined(place, frame) for place, frame in enumerate(batch.frames)]
        shared = [split(frame, self.keys, owners, len(self.states)) for frame in frames]
        outputs = [
            self.computation.step(state, StepInput(tuple(parts[task] for parts in shared), batch.watermark_us, number))
            for task, state in enumerate(self.states)
        ]
        self.states = [output.state for output in outputs]
        return outputs

    def rescaled(self, count: int) -> Tasks:
        """So many tasks, by the definition: every row to the owner of its key, from bytes, as on other nodes."""
        table = rebalanced(self.table, count)
        states = [
            rescaling.restored(self.computation, self.keys, self.pieces(Groups.of(table, task)))
            for task in range(count)
        ]
        return Tasks(self.computation, self.keys, table, states)

    def pieces(self, own: Groups) -> Mapping[str, list[Piece]]:
        """What a task with these key groups gets."""
        pieces: dict[str, list[Piece]] = {}
        for task, state in enumerate(self.states):
            held = Groups.of(self.table, task)
            if not held & own:
                continue
            groups: Groups | None = held & own
            for name, frame in state.items():
                if self.computation.splits is Splits.ANYWHERE:
                    groups = None
                    if self.computation.holds_rows(name) and not own.bits >> held.lowest & 1:
                        continue
                piece = Piece(decode(encode(frame, 0))[0], groups, f"it[{task}]")
                pieces.setdefault(name, []).append(piece)
        return pieces


Outputs = list[list[StepOutput]]


def followed(
    computation: Computation,
    keys: Sequence[str],
    batches: Sequence[Batch],
    counts: Mapping[int, int],
    watch: Callable[[Tasks, int], None] = lambda *_: None,
) -> Outputs:
    """The outputs of all tasks, by batch; from batch to batch there are as many as `counts` says for the next."""
    tasks = Tasks(computation, keys)
    outputs: Outputs = []
    for number, batch in enumerate(batches, start=1):
        if number in counts:
            tasks = tasks.rescaled(counts[number])
        outputs.append(tasks.step(batch, number))
        watch(tasks, number)
    return outputs


def rows_of(outputs: Sequence[StepOutput]) -> pl.DataFrame:
    """The rows of all tasks, in an order that does not depend on their number."""
    rows = pl.concat([output.rows for output in outputs])
    order = sorted(rows.columns, key=lambda name: rows.schema[name].is_float())
    return rows.sort(order, nulls_last=True, maintain_order=True)


def assert_same(
    given: Outputs, wanted: Outputs, merged: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows
) -> None:
    """Batch by batch the same rows, floats within 1e-9 of the largest, and as many late ones."""
    for number, (mine, other) in enumerate(zip(given, wanted, strict=True), start=1):
        rows, expected = merged(rows_of(mine)), merged(rows_of(other))
        assert rows.schema == expected.schema
        assert rows.height == expected.height, f"batch {number}: {rows} {expected}"
        for name in rows.columns:
            assert_close(rows[name], expected[name], f"batch {number}, column {name}")
        assert sum(output.late for output in mine) == sum(output.late for output in other), f"batch {number}"


def assert_close(mine: pl.Series, other: pl.Series, where: str) -> None:
    if not mine.dtype.is_float():
        assert mine.equals(other), where
        return
    assert mine.is_null().equals(other.is_null()), where
    left, right = mine.fill_null(0.0).to_numpy(), other.fill_null(0.0).to_numpy()
    scale = max(1.0, float(np.nanmax(np.abs(right), initial=0.0)))
    assert np.allclose(left, right, rtol=1e-9, atol=1e-9 * scale, equal_nan=True), where
