"""States whose operator has been rescaled: made of pieces of the states that its tasks had before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tenax.errors import StatesDiffer
from tenax.operators.chunks import encode
from tenax.operators.computation import NO_WATERMARK_US, Computation, State, splits_itself
from tenax.operators.groups import Groups
from tenax.operators.waiting import PASSED


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment of a task that was: `groups` are those that count, None for all; `origin` says which task."""

    rows: pl.DataFrame
    groups: Groups | None = None
    origin: str = ""


def restored(computation: Computation, keys: Sequence[str], pieces: Mapping[str, Sequence[Piece]]) -> State:
    """The state that these pieces make, by the name of their segment and in the order of the tasks they come from.

    `keys` are the columns by which rows are shared. Pure; the same pieces give the same bytes.
    """
    if splits_itself(computation) and any(piece.origin for given in pieces.values() for piece in given):
        return merged(computation, keys, pieces)
    united = {name: segment(computation, keys, name, given) for name, given in pieces.items()}
    state = {name: rows for name, rows in united.items() if rows is not None}
    check_level(computation, state)
    return state


def segment(computation: Computation, keys: Sequence[str], name: str, pieces: Sequence[Piece]) -> pl.DataFrame | None:
    """A segment made of its pieces; None if no row of it is left."""
    if len(pieces) == 1 and pieces[0].groups is None:
        return pieces[0].rows
    if not holds_rows(computation, keys, name, pieces):
        return agreed(computation, name, [piece.rows for piece in pieces])
    parts = [piece.rows if piece.groups is None else piece.groups.rows(piece.rows, keys) for piece in pieces]
    filled = [part for part in parts if part.height]
    if not filled:
        return None
    return filled[0] if len(filled) == 1 else computation.unite(name, filled)


def holds_rows(computation: Computation, keys: Sequence[str], name: str, pieces: Sequence[Piece]) -> bool:
    """Whether a segment is split by its rows; else it says something of the whole task, and each part has it."""
    if not computation.holds_rows(name):
        return False
    return all(piece.groups is None or set(keys) <= set(piece.rows.columns) for piece in pieces)


def agreed(computation: Computation, name: str, said: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """What several tasks say of themselves under one name."""
    if any(encode(other, NO_WATERMARK_US) != encode(said[0], NO_WATERMARK_US) for other in said[1:]):
        raise StatesDiffer(
            f"tasks that are merged say the same of themselves, found {type(computation).__name__} with different "
            f"segments {name!r}: put key columns into it, or say how by split and merge"
        )
    return said[0]


def check_level(computation: Computation, names: Iterable[str]) -> None:
    """Refuse to merge states that stand at different watermarks: a window might close twice, or never.

    Tasks that can be merged are fed alike: every edge into what is rescaled together is keyed, so each of its tasks has
    the same producers and after every batch the same watermark, and so have those that follow them task by task.
    """
    passed = sorted(name for name in names if name.startswith(f"{PASSED}/") and not computation.holds_rows(name))
    if len(passed) > 1:
        raise StatesDiffer(
            f"tasks that are merged stand at one watermark, found {' and '.join(passed)} of "
            f"{type(computation).__name__}: keep its number of tasks, or go back to an older checkpoint"
        )


def merged(computation: Computation, keys: Sequence[str], pieces: Mapping[str, Sequence[Piece]]) -> State:
    """The state of a computation that splits and merges by itself, from parts of whole states."""
    states: dict[tuple[int, str, str], tuple[Groups | None, dict[str, pl.DataFrame]]] = {}
    for name, given in pieces.items():
        for piece in given:
            place = (_index(piece.origin), piece.origin, "" if piece.groups is None else str(piece.groups))
            states.setdefault(place, (piece.groups, {}))[1][name] = piece.rows
    parts = [
        state if groups is None else computation.split(state, groups, keys)
        for groups, state in (states[place] for place in sorted(states))
    ]
    return parts[0] if len(parts) == 1 else computation.merge(parts)


def _index(origin: str) -> int:
    """The place of a task within its operator, by its name."""
    return int(origin.rpartition("[")[2].rstrip("]") or 0)
