"""Whether an application may run on a store that other code has left, and what that changes; see `changes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tenax.application.application import Application
from tenax.errors import InvalidRequest, UnsuitableStore
from tenax.model.topology import suggestion
from tenax.store import journal, records
from tenax.store.journal import Journal
from tenax.store.records import Json
from tenax.store.store import CHANGES, about
from tenax.takeover.changes import Changes
from tenax.takeover.comparisons import Comparison, behind, compared, placed
from tenax.takeover.judging import OPTION, Judge
from tenax.takeover.upgrades import UPGRADE, first_of, versions_of
from tenax.takeover.words import KEEP


def admitted(
    application: Application,
    folder: Path,
    fingerprint: Mapping[str, Json],
    accept: Sequence[str],
    *,
    upgrade: bool = False,
) -> Changes:
    """What an application changes on a store; refuses, in one line, what it must not. It reads, and writes nothing.

    `accept` names operators whose changed state is given up, `NAME=keep` those whose state is good for the new code
    too, sources that go on in something else, and outputs that go elsewhere. An `upgrade` gives up whatever state is
    not the new code's, and lets operators come and go.
    """
    given = placed(fingerprint, application.sinks, folder)
    accepted = _accepted(application, accept)
    known_store = about(folder)
    if known_store is None:
        _refuse_unchanged(accepted, (), ())
        return Changes(application, given)
    known = journal.read(folder / CHANGES)
    stored = records.mapping(known[-1]["topology"] if known else known_store["topology"])
    versions = versions_of(folder, known)
    present = versions[-1] if versions else first_of(application, stored)
    comparison = compared(application, stored, given, present.parallelism)
    if comparison.reshaped and not upgrade:
        # the log of a source is by partition, whatever takes it over
        remedy = "or use another folder" if comparison.repartitioned else f"or go on with this one by {UPGRADE}"
        raise UnsuitableStore(
            f"{folder}: a store belongs to one topology, found another: {'; '.join(comparison.reshaped)}: run the "
            f"topology that made it, {remedy}"
        )
    repeated = [str(record) for record in records.items(known[-1]["accepted"])] if known else []
    if comparison.is_empty and all(word in repeated for word in accept):
        return Changes(application, given, known)
    accepted = _newly_accepted(application, comparison, accepted, repeated)
    identity = records.text(known_store, "identity")
    judge = Judge(application, folder, identity, comparison, accepted, stored, given, known, versions, present, upgrade)
    return judge.changes(tuple(accept))


def fence(changes: Changes, folder: Path, epoch: int) -> None:
    """Let no driver commit any more where outputs went before."""
    for log in changes.left:
        if (folder / log).exists():
            Journal.open(folder / log, epoch)[0].close()


def _accepted(application: Application, accept: Sequence[str]) -> dict[str, str]:
    """Names and what was said of each, if there are such operators or outputs."""
    known = list(dict.fromkeys([*(operator.name for operator in application.topology.operators), *application.sinks]))
    answers: dict[str, str] = {}
    for word in accept:
        name, sign, how = (part.strip() for part in word.partition("="))
        if name not in known:
            raise InvalidRequest(f"{OPTION} names operators and outputs, found {name!r}{suggestion(name, known)}")
        if sign and how != KEEP:
            raise InvalidRequest(f"{OPTION} is NAME or NAME={KEEP}, found {word!r}: write {name} to start it empty")
        answers[name] = how
    return answers


def _newly_accepted(
    application: Application, comparison: Comparison, accepted: Mapping[str, str], repeated: Sequence[str]
) -> dict[str, str]:
    """What is accepted of these differences: a command that is given again repeats what it accepted before."""
    changed = [*comparison.changed, *comparison.sinks]
    touched = [name for name in behind(application.topology, comparison.changed) if application.has_state(name)]
    before = {word.partition("=")[0] for word in repeated}
    _refuse_unchanged(
        {name: how for name, how in accepted.items() if name not in before}, [*changed, *touched], changed
    )
    return {name: how for name, how in accepted.items() if name in changed or name in touched}


def _refuse_unchanged(accepted: Mapping[str, str], may: Sequence[str], changed: Sequence[str]) -> None:
    for name in accepted:
        if name not in may:
            others = f"{', '.join(changed)} changed" if changed else "nothing has"
            raise InvalidRequest(f"{OPTION} names what has changed, found {name!r}, but {others}: leave it out")
