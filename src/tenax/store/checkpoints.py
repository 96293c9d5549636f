"""Checkpoints: manifests that list every task's segments, and the files with segments that they share."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from urllib.parse import quote

from tenax.errors import DamagedStore, EpochLost, InvalidRequest, StoreFailed
from tenax.model.tasks import Task
from tenax.operators.groups import Groups
from tenax.store import durable, records
from tenax.store.records import Json, JsonObject

_MANIFEST = re.compile(r"(\d{10})-(\d{8})\.json")
_MAX_NAME = 120  # of a segment, quoted; file systems take 255 bytes
RETAINED = "retained/"  # how the names of segments begin that are outputs beside a state; no state has one that does


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A part of a task's state as it lies in a file of the store; `file` is relative to the store's folder.

    A rescale copies nothing: the tasks that are new refer to what those before have stored. Then `origin` is the task
    whose state it was, and `groups` the key groups whose rows count, all if it is empty. Several pieces of one segment
    have its name, in the order of their tasks.
    """

    segment: str
    file: str
    offset: int
    bytes: int
    crc32: int
    groups: str = ""
    origin: str = ""

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Where its bytes lie, and their checksum."""
        return self.file, self.offset, self.bytes, self.crc32


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state of every task, each after a batch.

    - `segments` names for every task the files of its state, and of outputs beside it; checkpoints share files.
    - `positions` are the sources' positions after the newest of these batches; `notes` is whatever else the driver
      must know. Batches after `oldest` are needed to go on from here; that is the number, if all states are of it.
    """

    number: int
    epoch: int
    segments: Mapping[Task, tuple[StoredSegment, ...]]
    positions: Mapping[str, Json] = field(default_factory=dict)
    notes: Json = None
    oldest: int | None = None

    @property
    def batch(self) -> int:
        """The batch of its oldest state."""
        return self.number if self.oldest is None else self.oldest

    @property
    def files(self) -> frozenset[str]:
        """Every file that it lists."""
        return frozenset(part.file for parts in self.segments.values() for part in parts)

    @property
    def last_parts(self) -> Mapping[str, StoredSegment]:
        """Of every file that it lists, what lies last in it."""
        parts = sorted((part for parts in self.segments.values() for part in parts), key=lambda part: part.offset)
        return {part.file: part for part in parts}


@dataclass(frozen=True, slots=True)
class ValidCheckpoint:
    """The newest checkpoint that is whole; `damage` says what is wrong with newer ones."""

    checkpoint: Checkpoint
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """No checkpoint is whole: a run starts from the beginning of its batch log."""

    damage: tuple[str, ...] = ()


def upload_segments(store: Path, task: Task, payloads: Mapping[str, bytes]) -> tuple[StoredSegment, ...]:
    """Put parts of a task's state into the store, in one file; any process may do that, again and again.

    The file's name holds its checksum, so that the same segments made twice are one file, and any that differ are two.
    """
    content = b"".join(payloads.values())
    folder = store / "segments" / f"{task.operator}.{task.index}"
    path = folder / f"{_file_name(next(iter(payloads)))}-{len(payloads)}-{zlib.crc32(content):08x}"
    file, offset, parts = str(path.relative_to(store)), 0, []
    for segment, payload in payloads.items():
        parts.append(StoredSegment(segment, file, offset, len(payload), zlib.crc32(payload)))
        offset += len(payload)
    if any(damage_of(store, part, verify=True) is not None for part in parts):
        durable.make_folder(folder, below=store)
        durable.write_file(path, content)
    return tuple(parts)


def read_segment(store: Path, part: StoredSegment) -> bytes:
    """The content of a segment, checked."""
    payload = durable.read_bytes(store / part.file, part.offset, part.bytes)
    if len(payload) != part.bytes or zlib.crc32(payload) != part.crc32:
        raise DamagedStore(
            f"{store / part.file}: a segment has the size and checksum of its manifest, found {len(payload)} bytes "
            f"with {zlib.crc32(payload):08x} for {part.bytes} with {part.crc32:08x}: restore it or an older checkpoint"
        )
    return payload


def damage_of(store: Path, part: StoredSegment, *, verify: bool) -> str | None:
    """What is wrong with a segment's file, or None; `verify` reads the segment, else only the size is looked at."""
    path = store / part.file
    try:
        size = path.stat().st_size
    except OSError:
        return f"{part.file} is missing"
    if size < part.offset + part.bytes:
        return f"{part.file} has {size} bytes, at least {part.offset + part.bytes} were written"
    if verify and (checksum := durable.checksum(path, part.offset, part.bytes)) != part.crc32:
        return f"{part.file} has a segment with the checksum {checksum:08x}, {part.crc32:08x} was written"
    return None


class Manifests:
    """The checkpoints of a store: a manifest each, committed last, never changed."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._folder = store / "checkpoints"
        self._committed: dict[tuple[int, int], Checkpoint] = {}

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint count, if every file that the checkpoint before it does not list is there."""
        known = self._listed_by_newest()
        for file, part in checkpoint.last_parts.items():
            damage = None if file in known else damage_of(self._store, part, verify=False)
            if damage is not None:
                raise DamagedStore(f"checkpoint {checkpoint.number}: {damage}: upload it again")
        durable.make_folder(self._folder, below=self._store)
        path = self._path(checkpoint.number, checkpoint.epoch)
        try:
            durable.create_exclusively(path, records.encode(_to_record(checkpoint)))
        except FileExistsError:
            raise EpochLost(
                f"{path}: a checkpoint is committed once, found it there: start again under a new epoch"
            ) from None
        self._committed[checkpoint.number, checkpoint.epoch] = checkpoint

    def newest_valid(
        self, *, verify: bool = True, fits: Callable[[Checkpoint], bool] | None = None
    ) -> ValidCheckpoint | NoCheckpoint:
        """The newest checkpoint whose manifest and files are whole and that fits, and what is wrong with newer ones."""
        damage: list[str] = []
        for key in reversed(self.known()):
            checkpoint, problems = self._check(key, verify=verify)
            if checkpoint is not None and not problems and fits is not None and not fits(checkpoint):
                continue
            if checkpoint is not None and not problems:
                return ValidCheckpoint(checkpoint, tuple(damage))
            damage += problems
        return NoCheckpoint(tuple(damage))

    def verified(self) -> list[tuple[tuple[int, int], list[str]]]:
        """Every checkpoint, newest first, all of it read; with what is wrong with it."""
        return [(key, self._check(key, verify=True)[1]) for key in reversed(self.known())]

    def set_aside(self, number: int, epoch: int) -> None:
        """Take newer checkpoints than this one out of the count, but for those of epochs after this one."""
        for key in self.known():
            if key[0] > number and key[1] <= epoch:
                path = self._path(*key)
                durable.move(path, path.with_suffix(".damaged"))

    def newest_whole(self, count: int) -> list[Checkpoint]:
        """Up to `count` checkpoints whose files are all there, by size, newest first."""
        whole: list[Checkpoint] = []
        for key in reversed(self.known()):
            checkpoint, problems = self._check(key, verify=False)
            if checkpoint is not None and not problems:
                whole.append(checkpoint)
            if len(whole) == count:
                break
        return whole

    def drop_before(self, number: int) -> tuple[int, int]:
        """Delete manifests with lower numbers, then the segment files that only they list; how many of each.

        Files that no manifest lists are left alone: they may belong to a checkpoint that is being uploaded.
        """
        dropped = [key for key in self.known() if key[0] < number]
        needed: set[str] = set()
        for key in self.known() if dropped else ():
            with contextlib.suppress(DamagedStore, StoreFailed):  # one that cannot be read cannot be restored either
                needed |= self._known(key).files if key[0] >= number else set()
        free: set[str] = set()
        for key in dropped:
            with contextlib.suppress(DamagedStore):  # what a damaged one listed is found by the sweep of the next start
                free |= self._known(key).files - needed
            durable.remove(self._path(*key))
            self._committed.pop(key, None)
        if dropped:
            durable.sync_folder(self._folder)
        for file in sorted(free):
            durable.remove(self._store / file)
        return len(dropped), len(free)

    def sweep(self, check_epoch: Callable[[], None]) -> int:
        """Delete every segment file that no manifest lists, and files that were never finished; how many.

        Only at the start of an epoch: then no upload of its own is under way, and one of a newer epoch is checked for
        before each deletion. A manifest that cannot be read stops it.
        """
        listed: set[str] = set()
        try:
            for key in self.known():
                listed |= self.read(key).files
        except DamagedStore:
            return 0
        removed = 0
        for name in durable.names(self._folder):
            if name.endswith(durable.PARTIAL):
                check_epoch()
                durable.remove(self._folder / name)
        for task in durable.names(self._store / "segments"):
            for name in durable.names(self._store / "segments" / task):
                file = f"segments/{task}/{name}"
                if file not in listed:
                    check_epoch()
                    durable.remove(self._store / file)
                    removed += 1
        return removed

    def known(self) -> list[tuple[int, int]]:
        """Number and epoch of every manifest, oldest first."""
        matches = (_MANIFEST.fullmatch(name) for name in durable.names(self._folder))
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def read(self, key: tuple[int, int]) -> Checkpoint:
        """A manifest; DamagedStore names it if it is not as it was written."""
        path = self._path(*key)
        return _from_record(records.decode_object(durable.read_bytes(path), str(path)))

    def _check(self, key: tuple[int, int], *, verify: bool) -> tuple[Checkpoint | None, list[str]]:
        name = f"checkpoint {key[0]} of epoch {key[1]}"
        try:
            checkpoint = self.read(key) if verify else self._known(key)
        except DamagedStore:
            return None, [f"{name}: its manifest {self._path(*key).name} does not match its checksum"]
        except StoreFailed:
            return None, [f"{name}: its manifest {self._path(*key).name} cannot be read"]
        listed = {part.place: part for parts in checkpoint.segments.values() for part in parts}  # tasks may share one
        parts = listed.values() if verify else checkpoint.last_parts.values()
        damages = (damage_of(self._store, part, verify=verify) for part in parts)
        return checkpoint, [f"{name}: {damage}" for damage in damages if damage is not None]

    def _listed_by_newest(self) -> frozenset[str]:
        keys = self.known()
        try:
            return self._known(keys[-1]).files if keys else frozenset()
        except DamagedStore:
            return frozenset()

    def _known(self, key: tuple[int, int]) -> Checkpoint:
        """A manifest; what was committed here need not be read again."""
        return self._committed.get(key) or self.read(key)

    def _path(self, number: int, epoch: int) -> Path:
        return self._folder / f"{number:010d}-{epoch:08d}.json"


def _to_record(checkpoint: Checkpoint) -> JsonObject:
    return {
        "number": checkpoint.number,
        "oldest": checkpoint.batch,
        "epoch": checkpoint.epoch,
        "segments": {str(task): [_listed(part) for part in parts] for task, parts in checkpoint.segments.items()},
        "positions": checkpoint.positions,
        "notes": checkpoint.notes,
    }


def _from_record(record: JsonObject) -> Checkpoint:
    number, oldest = records.integer(record, "number"), records.integer(record, "oldest")
    return Checkpoint(
        number=number,
        epoch=records.integer(record, "epoch"),
        segments={
            Task.parse(task): tuple(_part(part) for part in records.items(parts))
            for task, parts in records.mapping(record["segments"]).items()
        },
        positions=records.mapping(record["positions"]),
        notes=record["notes"],
        oldest=None if oldest == number else oldest,
    )


def _listed(part: StoredSegment) -> list[Json]:
    """A segment in a manifest; only a piece since a rescale tells more than where it lies."""
    fields = list(astuple(part))
    return fields if part.groups or part.origin else fields[:5]


def _part(value: Json) -> StoredSegment:
    match value:
        case [str() as segment, str() as file, int() as offset, int() as size, int() as crc32]:
            return StoredSegment(segment, file, offset, size, crc32)
        case [
            str() as segment,
            str() as file,
            int() as offset,
            int() as size,
            int() as crc32,
            str() as groups,
            str() as origin,
        ]:
            with contextlib.suppress(InvalidRequest):
                known = str(Groups.parse(groups)) if groups else ""
                return StoredSegment(segment, file, offset, size, crc32, known, str(Task.parse(origin)))
    raise DamagedStore(
        f"a segment is [name, file, offset, bytes, crc32], or these with groups and origin, found {value!r}: was it "
        "written by another version?"
    )


def _file_name(segment: str) -> str:
    quoted = quote(segment, safe="")
    if len(quoted) <= _MAX_NAME and not quoted.startswith("."):
        return quoted
    return f"{quoted.lstrip('.')[: _MAX_NAME - 9]}~{zlib.crc32(segment.encode()):08x}"
