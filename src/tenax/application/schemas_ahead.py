"""What the inputs of operators will look like with changed code, found by running it on no rows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

import polars as pl

from tenax.application.application import Application
from tenax.operators.computation import NO_WATERMARK_US, StepInput

Frames = tuple[pl.DataFrame, ...]


def inputs_ahead(application: Application, known: Mapping[str, Frames], affected: Collection[str]) -> dict[str, Frames]:
    """What each operator gets, as frames without rows: as known, or made anew where an operator before it has changed.

    `known` has for a source its own rows. Where code does not say what becomes of no rows, all behind it is left out.
    """
    found: dict[str, Frames] = {name: frames for name, frames in known.items() if name not in affected}
    sent: dict[str, pl.DataFrame] = {}
    for operator in application.topology.operators:
        name = operator.name
        if name in application.sources:
            if name in found:
                sent[name] = found[name][0]
            continue
        with contextlib.suppress(Exception):  # code of users: what is wrong with it will be said when it runs
            if name in affected and all(one.operator in sent for one in operator.inputs):
                found[name] = _combined(application, name, [sent[one.operator] for one in operator.inputs])
            if name in found:
                sent[name] = _stepped(application, name, found[name])
    return found


def columns(frame: pl.DataFrame) -> str:
    """The columns of a frame in words."""
    return ", ".join(f"{name}: {kind}" for name, kind in frame.schema.items()) or "none"


def _combined(application: Application, name: str, rows: Sequence[pl.DataFrame]) -> Frames:
    computation = application.computations[name]
    return tuple(computation.combined(number, one).clear() for number, one in enumerate(rows))


def _stepped(application: Application, name: str, frames: Frames) -> pl.DataFrame:
    computation = application.computations[name]
    return computation.step(computation.initial(), StepInput(frames, NO_WATERMARK_US, 1)).rows.clear()
