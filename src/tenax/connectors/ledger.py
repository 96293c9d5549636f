"""What a commit log says: which results count, final or tentative, and which were given up for lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenax.errors import DamagedStore
from tenax.store import records
from tenax.store.records import JsonObject

FINAL = "final"
TENTATIVE = "tentative"  # never among finals; the log names the kind so that both can be told apart
LOST = "lost"  # final results that are gone for good, as somebody has accepted

Payload = bytes
Key = tuple[int, int]
"""(batch, partition)"""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A result that a task has staged and nobody sees yet.

    - `name` is the staged file, or empty if nothing had to be written.
    - `payload` carries the rows to the driver (Arrow IPC) if the sink delivers them there.
    """

    partition: int
    batch: int
    name: str
    rows: int
    bytes: int
    crc32: int
    payload: Payload = b""

    @property
    def key(self) -> Key:
        """What it is the result of."""
        return self.batch, self.partition


@dataclass(slots=True)
class Ledger:
    """The entries of a commit log, summed up.

    - `final` results count, each once; `repeated` were committed more than once, which no driver does.
    - `tentative` are those that no final one has followed; `corrected` those that one has.
    - `lost` counted once, and are gone for good.
    """

    final: dict[Key, StagedFile] = field(default_factory=dict)
    tentative: dict[Key, StagedFile] = field(default_factory=dict)
    corrected: set[Key] = field(default_factory=set)
    lost: set[Key] = field(default_factory=set)
    repeated: list[Key] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[JsonObject]) -> Ledger:
        """Read a log."""
        ledger = cls()
        for entry in entries:
            for part in parts_of(entry):
                ledger._take(str(entry["kind"]), part)
        return ledger

    def _take(self, kind: str, part: StagedFile) -> None:
        if kind == TENTATIVE:
            if part.key not in self.final:
                self.tentative[part.key] = part
        elif kind == LOST:
            self.final.pop(part.key, None)
            self.lost.add(part.key)
        else:
            if part.key in self.final:
                self.repeated.append(part.key)
            self.final.setdefault(part.key, part)
            if self.tentative.pop(part.key, None) is not None:
                self.corrected.add(part.key)


def parts_of(entry: JsonObject) -> list[StagedFile]:
    """The results that an entry of a commit log makes count."""
    batch = records.integer(entry, "batch")
    parts = []
    for part in records.items(entry["parts"]):
        match list(records.items(part)):
            case [int() as partition, int() as rows, int() as size, int() as crc32, str() as name]:
                parts.append(StagedFile(partition, batch, name, rows, size, crc32))
            case _:
                raise DamagedStore(
                    f"a result is [partition, rows, bytes, crc32, name], found {part!r}: was another version at work?"
                )
    return parts
