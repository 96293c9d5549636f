"""The base of users' own operators with state by key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from tenax.errors import InvalidRequest
from tenax.operators.computation import Computation, Splits, State, StepInput, StepOutput
from tenax.operators.keys import Hashes, key_hashes
from tenax.operators.waiting import newest_to_merge, numbered

SEGMENT = "keys"
HASH = "tenax.hash"
DELETED = "tenax.deleted"


@dataclass(frozen=True, slots=True)
class Changes:
    """What a step does to the state: rows to put, one for each key, and keys to delete."""

    upserts: pl.DataFrame | None = None
    deletions: pl.DataFrame | None = None


class KeyedComputation(Computation):
    """A stateful operator of a user's: at most one row of state for each key.

        class Totals(KeyedComputation):
            keys = ("page",)
            state_schema = pl.Schema({"page": pl.String, "total": pl.Int64})

            def step_keys(self, rows, state, watermark_us):
                ...
                return rows_out, Changes(upserts=totals)

    - `step_keys` gets the rows of the batch and the state rows of the keys that occur in them, as the keys first occur;
      a key without state has none. It is pure, like every step.
    - A step writes one segment, `keys/{batch}`, with what changed. Segments are sorted by the hash of the key (see
      `keys`, so key groups lie together) and looked up by binary search, newest first.
    - When segments are merged is a function of their sizes alone: each stays at least twice as long as the next newer
      one. So there are O(log rows of state) of them, and a row is rewritten O(log) times.

    Cost of a step: keys of the batch × O(log² state), and the merges, O(log state) for each changed row over time.
    """

    splits = Splits.BY_KEY

    keys: tuple[str, ...]
    state_schema: pl.Schema

    @abstractmethod
    def step_keys(self, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> tuple[pl.DataFrame, Changes]:
        """One batch: the rows for the consumers, and what changes in the state of these keys."""

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Look the keys up, let the user's step run, write what it changed."""
        rows = given.frames[0]
        missing = [key for key in self.keys if key not in self.state_schema or key not in rows.columns]
        if missing or not self.keys:
            raise InvalidRequest(
                f"keys are columns of the rows and of the state: found {self.keys}, without {missing}; add them to both"
            )
        wanted = rows.select(pl.col(key).cast(self.state_schema[key]) for key in self.keys).unique(maintain_order=True)
        names = numbered(state, SEGMENT)
        current = self.looked_up([state[name] for name in reversed(names)], wanted)
        emitted, changes = self.step_keys(rows, current, given.watermark_us)
        delta = self.delta(changes)
        if not delta.height:
            return StepOutput(state, emitted)
        count = newest_to_merge([*(state[name].height for name in names), delta.height])
        kept, absorbed = names[: len(names) + 1 - count], names[len(names) + 1 - count :]
        merged = newest_rows([delta, *(state[name] for name in reversed(absorbed))], self.keys)
        if not kept:
            merged = merged.filter(~pl.col(DELETED))  # nothing older is left to hide
        segments = {name: state[name] for name in kept}
        if merged.height:
            segments[f"{SEGMENT}/{given.batch}"] = merged
        return StepOutput(segments, emitted)

    def unite(self, name: str, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:  # noqa: ARG002
        """The rows by the hash of their keys."""
        return pl.concat(frames).sort(HASH, maintain_order=True)

    def looked_up(self, segments: Sequence[pl.DataFrame], wanted: pl.DataFrame) -> pl.DataFrame:
        """The state rows of these keys, from segments newest first."""
        columns = list(self.state_schema)
        order = wanted.with_row_index("tenax.order")
        hashes = key_hashes(wanted, self.keys)
        candidates = [candidate_rows(segment, hashes) for segment in segments]
        if not candidates:
            return pl.DataFrame(schema=self.state_schema)
        # equal hashes of different keys fall out here, and so do older rows of the same key
        newest = pl.concat(candidates).unique(self.keys, keep="first", maintain_order=True).filter(~pl.col(DELETED))
        known = newest.join(order, on=self.keys, how="inner", nulls_equal=True)
        return known.sort("tenax.order").select(columns)

    def delta(self, changes: Changes) -> pl.DataFrame:
        """The changes as a segment."""
        parts = []
        if changes.upserts is not None:
            parts.append(self.conformed(changes.upserts, list(self.state_schema), "upserts").with_columns(gone(False)))
        if changes.deletions is not None:
            keys = self.conformed(changes.deletions, list(self.keys), "deletions").unique(maintain_order=True)
            values = [name for name in self.state_schema if name not in self.keys]
            empty = [pl.lit(None, self.state_schema[name]).alias(name) for name in values]
            parts.append(keys.with_columns(*empty, gone(True)).select(*self.state_schema, DELETED))
        if not parts:
            return pl.DataFrame(schema={**self.state_schema, DELETED: pl.Boolean, HASH: pl.UInt64})
        together = pl.concat(parts)
        if together.select(self.keys).is_duplicated().any():
            twice = together.filter(together.select(self.keys).is_duplicated()).select(self.keys).row(0)
            raise InvalidRequest(f"a step changes each key once: found {twice} twice; put one row for each key")
        hashes = pl.Series(HASH, key_hashes(together, self.keys), dtype=pl.UInt64)
        return together.with_columns(hashes).sort(HASH, maintain_order=True)

    def conformed(self, rows: pl.DataFrame, columns: Sequence[str], what: str) -> pl.DataFrame:
        """The columns of the state, as their types say."""
        missing = [name for name in columns if name not in rows.columns]
        if missing:
            raise InvalidRequest(f"{what} have the columns {list(columns)}: {missing} are missing; add them")
        return rows.select(pl.col(name).cast(self.state_schema[name]) for name in columns)


def gone(deleted: bool) -> pl.Expr:
    """The column that says whether a key was deleted."""
    return pl.lit(deleted).alias(DELETED)


def newest_rows(frames: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Of several segments, newest first, the newest row of each key, sorted by hash."""
    if len(frames) == 1:
        return frames[0].rechunk()
    together = pl.concat(frames).unique(keys, keep="first", maintain_order=True)
    return together.sort(HASH, maintain_order=True).rechunk()


def candidate_rows(segment: pl.DataFrame, hashes: Hashes) -> pl.DataFrame:
    """The rows of a segment with one of these hashes: two binary searches for each, no look at the others."""
    held = segment[HASH].to_numpy()
    starts, ends = np.searchsorted(held, hashes, "left"), np.searchsorted(held, hashes, "right")
    lengths = ends - starts
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    positions: npt.NDArray[np.int64] = np.repeat(starts, lengths) + within
    return segment[positions]
