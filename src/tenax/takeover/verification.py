"""Reading all that a run has left behind: what is damaged, what can be made again, what is gone for good.

Works on the files alone: neither Spark nor the application is needed. What can be made again is set aside, so that the
next start of the run makes it; nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tenax.connectors.delivery import CallbackSink
from tenax.connectors.ledger import LOST, Committed, Ledger
from tenax.connectors.logged import LoggedSink, commit_entry
from tenax.connectors.parquet import ParquetSink
from tenax.connectors.sink import Sink
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
ALL = 2**62  # more batches than there will be
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
    not_read: tuple[str, ...] = ()
    problems: list[Finding] = field(default_factory=list)

    def add(self, what: str, then: str) -> None:
        """Something more is wrong."""
        self.problems.append(Finding(what, then))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the results of an output are, for those who look at a store without the application.

    In a `folder` of Parquet files, or at a `place` of another kind; `logged` says that the store has its commit log.
    Nothing is `written` any more to an output that an upgrade has dropped; its results stay.
    """

    partitions: int
    folder: str | None
    logged: bool = True
    place: str = ""
    written: bool = True

    def sink(self) -> LoggedSink | None:
        """A sink that reads what is there; None if only the application's own can."""
        if self.folder is not None:
            return ParquetSink(self.folder)
        return CallbackSink(None) if self.logged else None


def note_outputs(store: Path, outputs: Mapping[str, tuple[Sink, int]]) -> None:
    """Write down where results go, for those who look at the store without the application.

    Outputs that were there and are no more stay known.
    """
    noted: dict[str, Json] = {
        name: {**asdict(place), "written": False} for name, place in noted_outputs(store).items() if name not in outputs
    }
    for name, (sink, partitions) in outputs.items():
        folder = str(sink.folder) if isinstance(sink, ParquetSink) else None
        logged = isinstance(sink, LoggedSink) and sink.log_of(name, store) == CallbackSink(None).log_of(name, store)
        noted[name] = asdict(Place(partitions, folder, logged, sink.place))
    durable.write_file(store / OUTPUTS, records.encode(noted))


def noted_outputs(store: Path) -> dict[str, Place]:
    """What `note_outputs` wrote; nothing if no driver has come so far."""
    path = store / OUTPUTS
    if not durable.exists(path):
        return {}
    places: dict[str, Place] = {}
    for name, noted in records.decode_object(durable.read_bytes(path), str(path)).items():
        data = records.mapping(noted)
        folder = None if data["folder"] is None else str(data["folder"])
        logged, place = bool(data.get("logged", True)), str(data.get("place", ""))  # older stores know nothing else
        written = bool(data.get("written", True))
        places[name] = Place(records.integer(data, "partitions"), folder, logged, place, written)
    return places


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
    places = noted_outputs(store)
    outputs = {name: (sink, place.partitions) for name, place in places.items() if (sink := place.sink()) is not None}
    for name, folder in (folders or {}).items():
        outputs[name] = (ParquetSink(folder), places[name].partitions if name in places else 1)
    findings.not_read = tuple(f"output {name!r} in {places[name].place}" for name in places if name not in outputs)
    left = {name: [ALL] * place.partitions for name, place in places.items() if not place.written}
    try:
        standings = look(store, outputs, {**moved_results(journal.read(store / CHANGES)), **left}, read=True)
    except DamagedStore as error:
        findings.add(str(error), STOPS)
        return findings
    findings.batches = standings.logged[1] - standings.logged[0] + 1
    then = PASSED_OVER if usable or standings.logged[0] == 1 else STOPS
    for problem in (problem for _, problems in checkpoints for problem in problems):
        findings.add(problem, then)
    contradiction = contradicts(standings)
    if contradiction is not None:
        findings.add(contradiction, STOPS)
    identity = records.text(about, "identity")
    for name, (sink, _) in outputs.items():
        _judge(findings, standings, name, sink, ended=name in left, repair=repair and contradiction is None)
    if accept_losses and contradiction is None:
        _accept(store, standings, outputs, identity, left)
        findings.problems = [
            Finding(problem.what, ACCEPTED) if problem.then == GONE else problem for problem in findings.problems
        ]
    return findings


def _judge(
    findings: Findings, standings: Standings, output: str, sink: LoggedSink, *, ended: bool, repair: bool
) -> None:
    """What is wrong with the results of an output, and what can be done; nobody makes those that have `ended` again."""
    survey = standings.surveys[output]
    findings.results += len(survey.final)
    findings.bytes += survey.bytes
    for path in survey.unexplained:
        findings.add(f"{path}: a file among the results of output {output!r}", STRANGE)
    oldest = ALL if ended else oldest_remade(standings)
    for key, wrong in sorted(survey.damaged.items()):
        if key[0] < oldest:
            findings.add(wrong, GONE)
            continue
        findings.add(wrong, MADE_AGAIN if repair else CAN_BE_MADE)
        if repair:
            sink.give_up(output, key)


def _accept(
    store: Path,
    standings: Standings,
    outputs: Mapping[str, tuple[LoggedSink, int]],
    identity: str,
    ended: Collection[str],
) -> None:
    """Enter results that cannot be made again as lost."""
    epoch = claim(store)
    for output, (sink, _) in outputs.items():
        survey, oldest = standings.surveys[output], ALL if output in ended else oldest_remade(standings)
        log, entries = Journal.open(sink.log_of(output, store), epoch)
        final = Ledger.of(entries).final
        lost: list[Committed] = [final[key] for key in sorted(survey.damaged) if key[0] < oldest]
        try:
            for part in lost:
                entry: JsonObject = commit_entry(identity, output, LOST, epoch, part.batch, [part])
                log.append(entry)
                sink.give_up(output, part.key)
        finally:
            log.close()
    Journal.open(store / "batches", epoch)[0].close()
