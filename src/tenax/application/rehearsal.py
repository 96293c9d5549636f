"""A look at an application before anything starts: its first rows are found, and no rows pass every operator."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from tenax.application.application import Application
from tenax.application.traces import RAISED, cause_of, place_of
from tenax.connectors.files import FileSource
from tenax.connectors.source import Limits, Planned, Source
from tenax.errors import InvalidTopology, TenaxError, UnreadableSource
from tenax.model.graph import TaskGraph
from tenax.model.topology import Operator
from tenax.operators.chunks import encode
from tenax.operators.columns import is_users
from tenax.operators.computation import NO_WATERMARK_US, StepInput
from tenax.operators.custom import KeyedComputation
from tenax.operators.event_time import check_time
from tenax.operators.keys import key_hashes

LOOK = Limits(1)  # of each source: its columns are wanted, not its rows
MAX_PARTITIONS = 4  # that are looked at: with files, as many of these
MICROSECONDS = 1_000_000


def rehearse(application: Application, *, resumed: bool = False) -> list[str]:
    """Refuse an application whose sources cannot be read, or whose operators miss columns or types; notes for the user.

    - Steps are pure, so one with no rows from the initial state leaves nothing behind.
    - Functions of users may not be made for no rows: what they raise then does not count, and what they return may be
      of other types than with rows, so that of what lies behind them only a note is made.
    - What lies behind a source that has no rows yet is left to the first batch.
    - Where a run is `resumed`, files that were read may be gone, and their columns are unknown.
    """
    known: dict[str, pl.DataFrame] = {}
    notes: list[str] = []
    guessed: set[str] = set()
    for operator in TaskGraph(application.topology).operators:  # producers come before consumers
        source = application.sources.get(operator.name)
        try:
            rows = _output(application, operator, known) if source is None else _first(operator, source, resumed, notes)
        except InvalidTopology as error:
            above = guessed.intersection(one.operator for one in operator.inputs)
            if not above:
                raise
            notes.append(f"{error}: so it would be for no rows, unless {min(above)!r} gives them the usual columns")
            continue
        if rows is not None:
            known[operator.name] = rows
            if source is None and _is_guess(application, operator, guessed):
                guessed.add(operator.name)
    return notes


def _is_guess(application: Application, operator: Operator, guessed: Collection[str]) -> bool:
    """Whether code of a user's has decided what an operator gives for no rows, or what goes into it."""
    computation = application.computations[operator.name]
    return is_users(computation) or any(one.operator in guessed for one in operator.inputs)


def _first(operator: Operator, source: Source, resumed: bool, notes: list[str]) -> pl.DataFrame | None:
    """The columns of a source, from its first rows; none if it has none yet."""
    try:
        if isinstance(source, FileSource) and not resumed:
            _check_there(source)
        partitions = min(operator.parallelism, MAX_PARTITIONS)
        planned = source.plan(None, partitions, LOOK, int(time.time() * MICROSECONDS))
        if not isinstance(planned, Planned):
            if isinstance(source, FileSource) and not resumed and not planned.ended:
                notes.append(f"source {operator.name!r} waits: no file is at {source.root / source.pattern} yet")
            return None
        frames = [source.read(number, one) for number, one in enumerate(planned.ranges)]
        check_time(frames[0], source.time)
    except TenaxError as error:
        if resumed:
            return None
        raise UnreadableSource(f"source {operator.name!r}: {error}") from error
    except RAISED as error:
        if resumed or place_of(error):  # a source of the user's own: the run will tell whether it can go on
            return None
        raise UnreadableSource(f"source {operator.name!r} cannot be read: {cause_of(error)}") from error
    return frames[0].clear()


def _check_there(source: FileSource) -> None:
    """A folder that is to be followed is there; only its files may come later."""
    single = not any(sign in source.pattern for sign in "*?[")
    wanted = source.root / source.pattern if single else source.root
    if not wanted.exists():
        remedy = "correct the path" if single else "make the folder, or correct the path"
        raise UnreadableSource(f"{wanted}: a source reads what is there, found nothing of that name: {remedy}")


def _output(application: Application, operator: Operator, known: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """What an operator makes of no rows; none if that cannot be known."""
    if any(one.operator not in known for one in operator.inputs):
        return None
    computation = application.computations[operator.name]
    try:
        frames = []
        for number, one in enumerate(operator.inputs):
            rows = known[one.operator]
            key_hashes(rows, application.keys.get((one.operator, operator.name), ()))
            frames.append(computation.combined(number, rows))
        made = computation.step(computation.initial(), StepInput(tuple(frames), NO_WATERMARK_US, 1)).rows
        encode(made, NO_WATERMARK_US)
    except RAISED as error:
        own = isinstance(computation, KeyedComputation) and isinstance(error, TenaxError)  # it has checked its keys
        if place_of(error) or (is_users(computation) and not own):
            return None
        at = application.places.get(operator.name)
        made_in = f" (made in {at})" if at else ""
        raise InvalidTopology(f"operator {operator.name!r}{made_in}: {cause_of(error)}") from error
    return made.clear() if isinstance(made, pl.DataFrame) else None


def has_batches(store: Path) -> bool:
    """Whether a run has been there before: sources are then read on, not from the beginning."""
    return any(log.is_file() and log.stat().st_size for log in (store / "batches").glob("*.jsonl"))
