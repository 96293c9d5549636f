"""What a pass tells its workers, and what they answer: small, frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenax.control.versions import PassId, Version
from tenax.engine.layout import Layout
from tenax.engine.sinks.sink import StagedFile
from tenax.engine.store.checkpoints import SegmentFile
from tenax.engine.store.records import Json
from tenax.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Order:
    """One pass: which batches, from which versions, where.

    - `starts` has the version of each task to begin with, by task number.
    - `ranges` has, by source operator, one tuple of ranges per batch: plain data, one entry per partition.
    - `ended` says that after the last batch nothing more will come: every window closes.
    """

    run: str
    pass_id: PassId
    first: int
    last: int
    layout: Layout
    starts: tuple[Version, ...]
    ranges: Mapping[str, tuple[tuple[Json, ...], ...]]
    ended: bool
    keep: int = 0
    """Versions before this batch are no longer needed on the nodes."""
    published: int = 0
    """Results up to this batch are committed already: a replay need not write them again."""
    retain: frozenset[int] = frozenset()
    """Tasks that keep what they send on their node."""
    retained_before: int = 0
    """Retained outputs of earlier batches are no longer needed."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a run: one per node for its states, and the store that survives nodes."""

    nodes: Path
    store: Path


@dataclass(frozen=True, slots=True)
class Restored:
    """The checkpoint that a run began with: where the states of its tasks lie in the store."""

    batch: int
    segments: Mapping[Task, tuple[SegmentFile, ...]]


@dataclass(frozen=True, slots=True)
class Staged:
    """A result that waits to be published: of an output, or of the late rows of a source."""

    output: str
    file: StagedFile


@dataclass(frozen=True, slots=True)
class Report:
    """What one task did in a pass."""

    task: int
    rows_in: int
    rows_out: int
    late: int
    bytes_out: int
    watermark_us: int
    seconds: float
    staged: tuple[Staged, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pass cannot be believed: the task and batch where it stopped, and the cause."""

    kind: str
    operator: str
    task: str
    batch: int
    cause: str
    trace: str = ""


@dataclass(slots=True)
class Bundle:
    """What one Spark task sends to one Spark task of the next stage."""

    chunks: dict[tuple[int, int, int, int], bytes] = field(default_factory=dict)
    """By (consumer task, input, producer index, batch)."""
    reports: list[Report] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
