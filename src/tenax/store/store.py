"""The driver's store: one folder that holds what a restarted driver needs to go on exactly."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.control.state import KEPT_CHECKPOINTS
from tenax.errors import DamagedStore, EpochLost, StoreFailed, UnsuitableStore
from tenax.store import durable, journal, records
from tenax.store.checkpoints import Checkpoint, Manifests, NoCheckpoint, ValidCheckpoint
from tenax.store.events import EventLog
from tenax.store.journal import Journal
from tenax.store.records import Json, JsonObject
from tenax.store.topology_versions import VERSIONS

FORMAT = 6
ABOUT = "store.json"
CHANGES = "changes"  # the folder of the log of other topologies that were admitted
MAX_CLAIMS = 1_000  # drivers that start at the very same moment


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch as it was logged before it ran: what every source reads, and whatever else was decided for it."""

    number: int
    data: Json


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim has deleted."""

    checkpoints: int
    segments: int
    batches: int


class Store:
    """The driver's store, held by one epoch.

    - Opening claims the next epoch; whoever held an older one is refused at its next step (`EpochLost`).
    - A batch runs only after `log_batch` has returned: then its ranges survive, and no newer driver missed them.
    - A checkpoint counts from the moment its manifest is there; its segment files are there before.
    - Every write is a partial file, synced and renamed, or a synced append of one checksummed line.
    - Batches may be logged and trimmed by different threads at once.
    """

    def __init__(self, folder: Path, identity: str, epoch: int) -> None:
        self.folder = folder
        self.identity = identity
        self.epoch = epoch
        self.checkpoints = Manifests(folder)
        self._journal, entries = Journal.open(folder / "batches", epoch)
        self._batches = [LoggedBatch(records.integer(entry, "batch"), entry["data"]) for entry in entries]
        # taken over by every driver, so that what an older one records later is never read
        self._changes, self.changes = Journal.open(folder / CHANGES, epoch)
        self.versions, _ = Journal.open(folder / VERSIONS, epoch)  # what an older driver records later never counts
        self._events = EventLog(folder, epoch)
        self._batch_lock = threading.RLock()  # a trim rewrites the log from what it has read

    @classmethod
    def open(cls, folder: Path, topology: object, *, admitted: bool = False) -> Store:
        """Claim the store in `folder` for a run of a topology, given as plain data; a new folder becomes a store.

        Another topology than the store's is refused, unless somebody has looked at the differences and admitted it.
        """
        durable.make_folder(folder)
        durable.check_exclusive_create(folder)
        identity = _identify(folder, topology, admitted)
        store = cls(folder, identity, claim(folder))
        store.checkpoints.sweep(store.check_epoch)
        return store

    def check_epoch(self) -> None:
        """Refuse to go on if a newer driver has claimed the store."""
        # Epochs are claimed one after the other and never deleted, so the next one tells of all.
        if durable.exists(self.folder / "epochs" / f"{self.epoch + 1:08d}.json"):
            raise EpochLost(
                f"{self.folder}: only the newest driver goes on, found epoch {self.epoch + 1} claimed after this one's "
                f"{self.epoch}: let this driver end"
            )

    def log_batch(self, number: int, data: Json) -> None:
        """Log what a batch will read, before it runs; batches are numbered without gaps."""
        with self._batch_lock:
            if number != self._journal.last + 1:  # the number of a batch is that of its entry
                raise StoreFailed(
                    f"{self.folder}: batches are logged in order, found {number} after {self._journal.last}: "
                    "log the next one"
                )
            self._journal.append({"batch": number, "data": data})
            self._batches.append(LoggedBatch(number, data))
        self.check_epoch()

    def replace_batches(self, batches: Sequence[LoggedBatch]) -> None:
        """Put other batches into the log, in one rename: the caller knows that no result would differ."""
        with self._batch_lock:
            self._rewrite(batches[0].number - 1 if batches else self._journal.dropped, batches)
        self.check_epoch()

    @property
    def batches(self) -> Sequence[LoggedBatch]:
        """The logged batches that are kept, in order."""
        return self._batches

    def record_event(self, event: JsonObject) -> None:
        """Append an event to the run's `events.jsonl`."""
        self._events.append(event)

    def record_change(self, change: JsonObject) -> None:
        """Remember that another topology runs from here on; it is in the record, under `topology`."""
        self.check_epoch()
        self._changes.append(change)
        self.changes.append(change)

    def commit_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint count; all of its segment files are uploaded before."""
        if checkpoint.epoch != self.epoch:
            raise EpochLost(
                f"{self.folder}: a checkpoint names the epoch that commits it, found {checkpoint.epoch} in "
                f"{self.epoch}: let the driver of that epoch end"
            )
        self.check_epoch()
        self.checkpoints.commit(checkpoint)
        self.check_epoch()

    def newest_valid(
        self, *, verify: bool = True, fits: Callable[[Checkpoint], bool] | None = None
    ) -> ValidCheckpoint | NoCheckpoint:
        """The newest whole checkpoint from which the kept batch log goes on, and what is wrong with newer ones.

        One that does not fit is passed over as well.
        """
        newest = self.checkpoints.newest_valid(verify=verify, fits=fits)
        after = newest.checkpoint.batch if isinstance(newest, ValidCheckpoint) else 0
        if self._batches and self._batches[0].number > after + 1:
            self.check_epoch()  # a newer driver may have trimmed what this one was about to read
            raise DamagedStore(
                f"{self.folder}: recovery needs batches {after + 1} to {self._batches[0].number - 1}, found them "
                f"trimmed and newer checkpoints damaged ({'; '.join(newest.damage) or 'missing'}): restore those files"
            )
        return newest

    def set_aside(self, number: int) -> None:
        """Let checkpoints after this one count no more: they were passed over, and new ones will follow it."""
        self.check_epoch()  # what a newer driver goes on from is not ours to judge
        self.checkpoints.set_aside(number, self.epoch)

    def trim(self, checkpoints_before: int, batches_before: int) -> Trimmed:
        """Delete checkpoints with lower numbers, the segment files that only they list, and earlier batches.

        Nothing is deleted unless two of the checkpoints that stay are there with all their files: what was to be
        deleted may be the way back. A later trim will do it.
        """
        self.check_epoch()
        stay = [
            checkpoint
            for checkpoint in self.checkpoints.newest_whole(KEPT_CHECKPOINTS)
            if checkpoint.number >= checkpoints_before
        ]
        if len(stay) < KEPT_CHECKPOINTS:
            return Trimmed(0, 0, 0)
        if batches_before > stay[-1].batch + 1:
            raise StoreFailed(
                f"{self.folder}: batches after {stay[-1].batch}, the oldest of checkpoint {stay[-1].number}, stay, "
                f"found a trim before {batches_before}: trim less"
            )
        with self._batch_lock:
            rest = [batch for batch in self._batches if batch.number >= batches_before]
            trimmed = len(self._batches) - len(rest)
            if trimmed:
                self._rewrite(self._batches[trimmed - 1].number, rest)
        return Trimmed(*self.checkpoints.drop_before(checkpoints_before), trimmed)

    def _rewrite(self, dropped: int, batches: Sequence[LoggedBatch]) -> None:
        self._journal.rewrite(dropped, [{"batch": batch.number, "data": batch.data} for batch in batches])
        self._batches = list(batches)

    def close(self) -> None:
        """Let the files go; the epoch stays claimed."""
        self._journal.close()
        self._changes.close()
        self.versions.close()


def claim(store: Path) -> int:
    """The next epoch of a store, ours alone; newer than all that have left a trace, should claims be lost."""
    folder = store / "epochs"
    durable.make_folder(folder)
    traces = [*journal.epochs(store / "batches"), *(epoch for _, epoch in Manifests(store).known())]
    for _ in range(MAX_CLAIMS):
        taken = [int(name[:8]) for name in durable.names(folder) if not name.startswith(".")]
        epoch = max([*taken, *traces], default=0) + 1
        try:
            durable.create_exclusively(folder / f"{epoch:08d}.json", records.encode({"epoch": epoch}))
        except FileExistsError:
            continue
        return epoch
    raise StoreFailed(f"{folder}: an epoch is claimed within {MAX_CLAIMS} tries, found all taken: start fewer drivers")


def _identify(folder: Path, topology: object, admitted: bool) -> str:
    """Make the folder a store, or check that it is a store of this format and topology; its identity."""
    wanted: Json = json.loads(json.dumps(topology))  # through JSON, so that tuples and lists are alike
    ours: JsonObject = {"format": FORMAT, "identity": uuid.uuid4().hex, "topology": wanted}
    with contextlib.suppress(FileExistsError):
        durable.create_exclusively(folder / ABOUT, records.encode(ours))
    record = about(folder) or ours
    difference = None if admitted else first_difference(newest_topology(folder, record), wanted)
    if difference is not None:
        raise UnsuitableStore(
            f"{folder}: a store belongs to one topology, found another: {difference}: use another folder"
        )
    return records.text(record, "identity")


def about(folder: Path) -> JsonObject | None:
    """What a store says of itself; None if there is no store yet. One of another format is refused."""
    path = folder / ABOUT
    if not path.exists():
        return None
    record = records.decode_object(durable.read_bytes(path), str(path))
    if record.get("format") != FORMAT:
        raise UnsuitableStore(
            f"{folder}: this version reads stores of format {FORMAT}, found {record.get('format')}: "
            "use the version that wrote it, or another folder"
        )
    return record


def newest_topology(folder: Path, record: JsonObject) -> Json:
    """The topology that runs on a store: the one that made it, or that of the last change."""
    changes = journal.read(folder / CHANGES)
    return changes[-1]["topology"] if changes else record["topology"]


def first_difference(stored: Json, given: Json, where: str = "") -> str | None:
    """The first place at which two values of plain data differ, in words; None if they are equal."""
    place = where or "the whole"
    if isinstance(stored, Mapping) and isinstance(given, Mapping):
        for name in sorted(stored.keys() | given.keys()):
            inner = f"{where}.{name}" if where else name
            if name not in given:
                return f"{inner} is in the store only"
            if name not in stored:
                return f"{inner} is not in the store"
            if (difference := first_difference(stored[name], given[name], inner)) is not None:
                return difference
        return None
    if isinstance(stored, list) and isinstance(given, list):
        for number, (left, right) in enumerate(zip(stored, given, strict=False)):
            if (difference := first_difference(left, right, f"{where}[{number}]")) is not None:
                return difference
        if len(stored) != len(given):
            return f"{place} has {len(stored)} entries in the store, {len(given)} in this run"
        return None
    return None if stored == given else f"{place} is {stored!r} in the store, {given!r} in this run"
