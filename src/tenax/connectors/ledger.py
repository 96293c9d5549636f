"""What a commit log says: which results count, final or tentative, and which were given up for lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenax.connectors.sink import Key
from tenax.errors import DamagedStore
from tenax.store import records
from tenax.store.records import Json, JsonObject

FINAL = "final"
TENTATIVE = "tentative"  # never among finals; the log names the kind so that both can be told apart
LOST = "lost"  # final results that are gone for good, as somebody has accepted


@dataclass(frozen=True, slots=True)
class Committed:
    """A result as a commit log has it; `note` is what its sink wanted to remember of it."""

    partition: int
    batch: int
    rows: int
    note: tuple[Json, ...] = ()

    @property
    def key(self) -> Key:
        """What it is the result of."""
        return self.batch, self.partition

    def to_data(self) -> Json:
        """A part of an entry."""
        return [self.partition, self.rows, *self.note]


@dataclass(slots=True)
class Ledger:
    """The entries of a commit log, summed up.

    - `final` results count, each once; `repeated` were committed more than once, which no driver does.
    - `tentative` are those that no final one has followed; `corrected` those that one has.
    - `lost` counted once, and are gone for good.
    """

    final: dict[Key, Committed] = field(default_factory=dict)
    tentative: dict[Key, Committed] = field(default_factory=dict)
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

    def _take(self, kind: str, part: Committed) -> None:
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


def parts_of(entry: JsonObject) -> list[Committed]:
    """The results that an entry of a commit log makes count."""
    batch = records.integer(entry, "batch")
    parts = []
    for part in records.items(entry["parts"]):
        match list(records.items(part)):
            case [int() as partition, int() as rows, *note]:
                parts.append(Committed(partition, batch, rows, tuple(note)))
            case _:
                raise DamagedStore(f"a result is [partition, rows, ...], found {part!r}: was another version at work?")
    return parts
