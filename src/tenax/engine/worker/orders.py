"""What the driver and the Python workers say to each other: orders and the reports that answer them, frozen."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenax.application.application import Application
from tenax.connectors.sink import Staged
from tenax.control.copies import Role
from tenax.control.versions import NO_PASS, PassId, Span, Version
from tenax.model.tasks import Task
from tenax.operators.lateness import Overdue
from tenax.planning.levels import Layout
from tenax.store.checkpoints import StoredSegment
from tenax.store.records import Json


@dataclass(frozen=True, slots=True)
class StepOrder:
    """One task on one node: by number, as all of an order.

    - `restored` are the files of its start version in the store; None if that version is on the node.
    - `highest_us` is the highest event time that a source task has seen at its start.
    - Results up to batch `published` are committed already: a replay need not write them again.
    - A step that is `rebuilding` a state has no output.
    """

    task: int
    node: int
    start: Version
    role: Role = Role.PRIMARY
    tentative: bool = False
    restored: tuple[StoredSegment, ...] | None = None
    highest_us: int = 0
    published: int = 0
    rebuilding: bool = False

    @property
    def takes_watermark_only(self) -> bool:
        """Whether its first batch counts by the watermark alone: what came before has left nothing else."""
        return self.rebuilding and self.start.pass_id == NO_PASS and self.start.batch > 0


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """Outputs of a task that a node sends again: from what it has retained, or what lies in the store by batch."""

    task: int
    node: int
    pass_id: PassId
    first: int
    last: int
    stored: Mapping[int, StoredSegment] | None = None


@dataclass(frozen=True, slots=True)
class UploadOrder:
    """What a checkpoint puts into the store: of each of these versions the segments that are not there yet.

    - `nodes` says where each version lies, by name; `outputs` the retained outputs that go beside a version.
    - `known` is what the store holds already, by task and segment.
    """

    versions: tuple[Version, ...]
    nodes: tuple[str, ...]
    outputs: Mapping[Task, tuple[Span, ...]]
    known: Mapping[Task, Mapping[str, StoredSegment]]


@dataclass(frozen=True, slots=True)
class Order:
    """One pass: which batches, which steps, where.

    - `ranges` has, by source operator, one tuple of ranges per batch: plain data, one entry per partition.
    - After batch `ended_at` nothing more will come: every window closes. Single sources end with the batch that `ends`
      has for them, or have ended before.
    - `floors` has, like `ranges`, what every partition counts as having reached, of sources with idle partitions.
    """

    run: str
    pass_id: PassId
    first: int
    last: int
    layout: Layout
    steps: tuple[StepOrder, ...]
    readings: tuple[ReadOrder, ...] = ()
    ranges: Mapping[str, tuple[tuple[Json, ...], ...]] = field(default_factory=dict)
    ended_at: int | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    floors: Mapping[str, tuple[tuple[int | None, ...], ...]] = field(default_factory=dict)
    keep: int = 0
    """Versions before this batch are no longer needed on the nodes."""
    retain: frozenset[int] = frozenset()
    """Tasks that keep what they send on their node."""
    active_active: frozenset[int] = frozenset()
    """Tasks whose replicas send as well."""
    retained_before: int = 0
    """Retained outputs of earlier batches are no longer needed."""
    retained_before_of: Mapping[int, int] = field(default_factory=dict)
    """The same for single tasks, by number."""
    upload: UploadOrder | None = None
    """A checkpoint that is stored on the way."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a run: one per node for its states, and the store that survives nodes."""

    nodes: Path
    store: Path


@dataclass(frozen=True, slots=True)
class Shipped:
    """What is sent to every node once per run."""

    application: Application
    places: Places


@dataclass(frozen=True, slots=True)
class Sent:
    """What went to other nodes: messages and bytes, and how much of that was for or from replicas."""

    messages: int = 0
    bytes: int = 0
    replica_messages: int = 0
    replica_bytes: int = 0

    def and_also(self, size: int, *, for_replica: bool) -> Sent:
        """With one message more."""
        return Sent(
            self.messages + 1,
            self.bytes + size,
            self.replica_messages + for_replica,
            self.replica_bytes + (size if for_replica else 0),
        )


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows of a batch that came too late, and how late those of a source were."""

    batch: int
    rows: int
    overdue: Overdue = field(default_factory=Overdue)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one step did in a pass.

    - `highest_us` has, for a source task, the highest event time after each batch; `late_rows` those with late rows.
    - Its state can be rebuilt by stepping from batch `rebuild_from` on; 0 if it cannot.
    - It took `seconds` by the clock, and `cpu_s` of processor time; of that `retaining_cpu_s` to retain its outputs.
      Before that it took `restore_s` to read its start, `read_bytes` from the store. Its state has `state_bytes`.
    """

    task: int
    node: int
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    bytes_out: int = 0
    watermark_us: int = 0
    seconds: float = 0.0
    staged: tuple[Staged, ...] = ()
    highest_us: tuple[int, ...] = ()
    role: Role = Role.PRIMARY
    sent: Sent = field(default_factory=Sent)
    retained_bytes: int = 0
    rebuild_from: int = 0
    cpu_s: float = 0.0
    retaining_cpu_s: float = 0.0
    late_rows: tuple[LateRows, ...] = ()
    restore_s: float = 0.0
    read_bytes: int = 0
    state_bytes: int = 0


NODE = "node"
"""The kind of a failure whose `task` is the name of a node on which Spark does not run what is planned for it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a pass cannot be believed: the task and batch where it stopped, and the cause.

    `place` and `trace` are those of the user's code, if it was at work.
    """

    kind: str
    operator: str
    task: str
    batch: int
    cause: str
    trace: str = ""
    place: str = ""


@dataclass(slots=True)
class Bundle:
    """What one Spark task sends to one Spark task of the next stage."""

    chunks: dict[tuple[int, int, int, int], bytes] = field(default_factory=dict)
    """By (consumer task, input, producer index, batch)."""
    reports: list[Report] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    uploaded: dict[Task, tuple[StoredSegment, ...]] = field(default_factory=dict)
    upload_s: float = 0.0
    upload_cpu_s: float = 0.0
    not_uploaded: str = ""
    """Why an upload failed; the pass is none the worse for it."""


VERSION_SIGN = "v"
"""What stands in the name of a run before the version of its topology; no hexadecimal number has it."""
ORDER = "tenax.order"
"""The property of a Spark job that holds the order of its pass."""


def packed(order: Order) -> str:
    """An order as a property of a job."""
    return base64.b64encode(pickle.dumps(order, pickle.HIGHEST_PROTOCOL)).decode()


def unpacked(text: str) -> Order:
    """What `packed` made of an order."""
    order: Order = pickle.loads(base64.b64decode(text))  # written by this run's own driver
    return order
