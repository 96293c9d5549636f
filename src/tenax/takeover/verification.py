"""Reading all that a run has left behind: what is damaged, what can be made again, what is gone for good.

Works on the files alone: neither Spark nor the application is needed. What can be made again is set aside, so that the
next start of the run makes it; nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenax.connectors.delivery import CallbackSink
from tenax.connectors.ledger import LOST, Key
from tenax.connectors.parquet import ParquetSink, visible_name
from tenax.connectors.sink import Sink, commit_entry
from tenax.errors import DamagedStore
from tenax.store import durable, journal, records
from tenax.store.checkpoints import Manifests
from tenax.store.journal import Journal
from tenax.store.records import Json, JsonObject
from tenax.store.store import CHANGES, claim
from tenax.takeover.changes import moved_results
from tenax.takeover.consistency import Standings, contradicts, look, oldest_remade

OUTPUTS = "outputs.json"  # in a store: where the results of its outputs are
PASSED_OVER = "the next start goes on from an older one"
MADE_AGAIN = "set aside; the next start of the run makes it again"
CAN_BE_MADE = "can be made again from the batch log"
GONE = "cannot be made again: restore it from a copy, or go on without it (--accept-losses)"
ACCEPTED = "taken for lost: the run goes on without it"
STRANGE = "no commit names it: the next start sets it aside"
STOPS = "the run cannot go on: restore it from a copy"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written, and what becomes of it."""

    what: str
    then: str

    @property
    def is_lost(self) -> bool:
        """Whether nothing makes it good again."""
        return self.then in {GONE, STOPS}


@dataclass(slots=True)
class Findings:
    """What was read, and all that is wrong with it."""

    checkpoints: int = 0
    batches: int = 0
    results: int = 0
    bytes: int = 0
    found: list[Finding] = field(default_factory=list)

    def add(self, what: str, then: str) -> None:
        """Something more is wrong."""
        self.found.append(Finding(what, then))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the results of an output are: a folder of Parquet files, or nowhere but in the hands of a function."""

    partitions: int
    folder: str | None

    def sink(self) -> Sink:
        """A sink that reads what is there."""
        return CallbackSink(None) if self.folder is None else ParquetSink(self.folder)


def note_outputs(store: Path, outputs: Mapping[str, tuple[Sink, int]]) -> None:
    """Write down where results go, for those who look at the store without the application."""
    told: dict[str, Json] = {}
    for name, (sink, partitions) in outputs.items():
        folder = str(sink.folder) if isinstance(sink, ParquetSink) else None
        told[name] = {"partitions": partitions, "folder": folder}
    durable.write_file(store / OUTPUTS, records.encode(told))


def noted_outputs(store: Path) -> dict[str, Place]:
    """What `note_outputs` wrote; nothing if no driver has come so far."""
    path = store / OUTPUTS
    if not durable.exists(path):
        return {}
    found: dict[str, Place] = {}
    for name, one in records.decode_object(durable.read_bytes(path), str(path)).items():
        place = records.mapping(one)
        folder = place["folder"]
        found[name] = Place(records.integer(place, "partitions"), None if folder is None else str(folder))
    return found


def verify(
    store: Path,
    *,
    repair: bool = True,
    accept_losses: bool = False,
    folders: Mapping[str, Path] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Read a store and all results of its run; `folders` is where outputs are that were moved.

    With `repair`, damaged results that can be made again are set aside. With `accept_losses`, those that cannot are
    entered into the commit log as lost, which needs an epoch: a driver that still runs ends by itself.
    """
    findings = Findings()
    about = records.decode_object(durable.read_bytes(store / "store.json"), str(store / "store.json"))
    progress("checkpoints")
    checkpoints = Manifests(store).verified()
    findings.checkpoints = len(checkpoints)
    usable = [key for key, problems in checkpoints if not problems]
    progress("logs and results")
    outputs = {name: (place.sink(), place.partitions) for name, place in noted_outputs(store).items()}
    for name, folder in (folders or {}).items():
        outputs[name] = (ParquetSink(folder), outputs[name][1] if name in outputs else 1)
    try:
        found = look(store, outputs, moved_results(journal.read(store / CHANGES)), read=True)
    except DamagedStore as error:
        findings.add(str(error), STOPS)
        return findings
    findings.batches = found.logged[1] - found.logged[0] + 1
    then = PASSED_OVER if usable or found.logged[0] == 1 else STOPS
    for problem in (one for _, problems in checkpoints for one in problems):
        findings.add(problem, then)
    contradiction = contradicts(found)
    if contradiction is not None:
        findings.add(contradiction, STOPS)
    identity = records.text(about, "identity")
    for name, (sink, _) in outputs.items():
        _judge(findings, found, name, sink, repair=repair and contradiction is None)
    if accept_losses and contradiction is None:
        _accept(store, found, outputs, identity)
        findings.found = [Finding(one.what, ACCEPTED) if one.then == GONE else one for one in findings.found]
    return findings


def _judge(findings: Findings, found: Standings, output: str, sink: Sink, *, repair: bool) -> None:
    """What is wrong with the results of an output, and what can be done."""
    survey = found.surveys[output]
    findings.results += len(survey.ledger.final)
    findings.bytes += sum(one.bytes for one in survey.ledger.final.values())
    for path in survey.unexplained:
        findings.add(f"{path}: a file among the results of output {output!r}", STRANGE)
    oldest = oldest_remade(found)
    for key, wrong in sorted(survey.damaged.items()):
        if key[0] < oldest:
            findings.add(wrong, GONE)
            continue
        findings.add(wrong, MADE_AGAIN if repair else CAN_BE_MADE)
        if repair and isinstance(sink, ParquetSink):
            _put_aside(sink, output, key)


def _put_aside(sink: ParquetSink, output: str, key: Key) -> None:
    """Take a damaged result out of the folder, so that the next start misses it."""
    path = sink.folder / visible_name(output, key[1], key[0])
    if path.exists():
        folder = sink.set_aside / "verified"
        durable.make_folder(folder)
        durable.move(path, folder / path.name)
        durable.sync_folder(folder)
        durable.sync_folder(sink.folder)


def _accept(store: Path, found: Standings, outputs: Mapping[str, tuple[Sink, int]], identity: str) -> None:
    """Enter results that cannot be made again as lost."""
    oldest = oldest_remade(found)
    epoch = claim(store)
    for output, (sink, _) in outputs.items():
        survey = found.surveys[output]
        lost = [survey.ledger.final[key] for key in sorted(survey.damaged) if key[0] < oldest]
        log, _entries = Journal.open(sink.log_of(output, store), epoch)
        try:
            for part in lost:
                entry: JsonObject = commit_entry(identity, output, LOST, epoch, part.batch, [part])
                log.append(entry)
                if isinstance(sink, ParquetSink):
                    _put_aside(sink, output, part.key)
        finally:
            log.close()
    Journal.open(store / "batches", epoch)[0].close()
