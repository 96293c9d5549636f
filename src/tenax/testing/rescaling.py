"""Whether a computation gives the same rows when its tasks become more and fewer: its state split and merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tenax.application.scaling import rebalanced, state_columns
from tenax.errors import BrokenContract, InvalidRequest
from tenax.model.topology_versions import Table
from tenax.operators import rescaling
from tenax.operators.chunks import decode, encode
from tenax.operators.computation import Computation, Splits, State, StepInput, StepOutput, splits_itself
from tenax.operators.event_time import WINDOW
from tenax.operators.groups import Groups
from tenax.operators.keys import KEY_GROUPS, split
from tenax.operators.rescaling import Piece

TASKS = (1, 3, 2)  # first one, then as many as these, each for as long
TOLERANCE = 1e-9  # of floats, whose sums may be of other parts


def check_rescaled(computation: Computation, inputs: Sequence[StepInput], keys: Sequence[str]) -> bool:
    """Rescale a computation while it steps, and hold its rows against those of a single task; whether that was tried.

    It is where its state can be split by key, and where it is known by which columns: `keys`, or those of its own.
    """
    keys = keys or tuple(name for name in state_columns(computation) or () if name not in WINDOW)
    if computation.stateless or not (computation.splits is Splits.BY_KEY or splits_itself(computation)) or not keys:
        return False
    for number, frame in enumerate(inputs[0].frames, start=1):
        missing = [key for key in keys if key not in frame.columns]
        if missing:
            raise InvalidRequest(
                f"keys are columns of every input, found none of {missing} in input {number}: add them"
            )
    table: Table = (0,) * KEY_GROUPS
    states = [computation.initial()]
    alone = computation.initial()
    for number, given in enumerate(inputs):
        count = TASKS[number * len(TASKS) // len(inputs)]
        if count != len(states):
            table, states = _rescaled(computation, keys, table, states, count)
        whole = computation.step(alone, given)
        parts = _stepped(computation, keys, table, states, given)
        alone, states = whole.state, [part.state for part in parts]
        if not _same(whole, parts):
            raise BrokenContract(
                f"{type(computation).__name__}: what a state is split into gives the same rows, found others of "
                f"{count} tasks than of one in batch {given.batch}: let what comes of a key follow from its rows "
                "alone, or say by splits = tx.Splits.NOT that it keeps its tasks"
            )
    return len(inputs) >= len(TASKS)


def _rescaled(
    computation: Computation, keys: Sequence[str], before: Table, states: Sequence[State], count: int
) -> tuple[Table, list[State]]:
    """The states of so many tasks, and which key groups each has."""
    table = rebalanced(before, count)
    merged = []
    for task in range(count):
        own = Groups.of(table, task)
        pieces: dict[str, list[Piece]] = {}
        for number, state in enumerate(states):
            groups = own & Groups.of(before, number)
            for name, frame in state.items() if groups else ():
                piece = Piece(decode(encode(frame, 0))[0], groups, f"{type(computation).__name__}[{number}]")
                pieces.setdefault(name, []).append(piece)
        merged.append(rescaling.restored(computation, keys, pieces))
    return table, merged


def _stepped(
    computation: Computation, keys: Sequence[str], table: Table, states: Sequence[State], given: StepInput
) -> list[StepOutput]:
    """One batch, its rows shared by key."""
    shared = [split(frame, keys, np.array(table, np.uint16), len(states)) for frame in given.frames]
    return [
        computation.step(state, StepInput(tuple(parts[task] for parts in shared), given.watermark_us, given.batch))
        for task, state in enumerate(states)
    ]


def _same(whole: StepOutput, parts: Sequence[StepOutput]) -> bool:
    """Whether tasks give the rows of one, in whatever order."""
    mine, other = _ordered([part.rows for part in parts]), _ordered([whole.rows])
    if mine.schema != other.schema or mine.height != other.height or whole.late != sum(part.late for part in parts):
        return False
    return all(_close(mine[name], other[name]) for name in mine.columns)


def _ordered(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows by their columns, floats last: they may differ a little."""
    rows = pl.concat(frames)
    names = sorted(rows.columns, key=lambda name: rows.schema[name].is_float())
    return rows.sort(names, nulls_last=True, maintain_order=True) if names else rows


def _close(mine: pl.Series, other: pl.Series) -> bool:
    if not mine.dtype.is_float():
        return mine.equals(other, null_equal=True)
    left, right = mine.fill_null(0.0).to_numpy(), other.fill_null(0.0).to_numpy()
    largest = float(np.nanmax(np.abs(right), initial=1.0))
    return mine.is_null().equals(other.is_null()) and np.allclose(left, right, TOLERANCE, TOLERANCE * largest, True)
