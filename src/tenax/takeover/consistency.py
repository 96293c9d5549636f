"""Before a driver takes a store over: checkpoints, logs and results are held against each other.

Nothing is claimed, written or moved here. What does not fit is refused by name, so that a file that was lost can still
be put back: once a driver has taken over, it goes on with logs of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.application.application import Application, late_output
from tenax.connectors.sink import Key, Sink, Survey
from tenax.errors import DamagedStore
from tenax.store import cuts, journal, records, topology_versions
from tenax.store.checkpoints import Checkpoint, Manifests
from tenax.store.store import CHANGES

MAX_CHECKPOINTS = 1_000  # that are looked at; a store keeps a few
MAX_NAMED = 3  # damaged results that a text names


@dataclass(frozen=True, slots=True)
class Standings:
    """How far a run has come, by what it left behind.

    - `checkpoints` are those whose files are all there, newest first, with the newest batch of each.
    - `logged` are the first and the newest batch of the batch log; (1, 0) if it has none.
    - `surveys` are by output, of those sinks that can tell; `elsewhere` are the newest batches of its partitions in a
      folder that it had before, or before the version of the topology that is the newest.
    - `begun` is the checkpoint that the newest code which states depend on began from: what was before, it cannot make.
    """

    checkpoints: tuple[tuple[Checkpoint, int], ...]
    surveys: Mapping[str, Survey]
    elsewhere: Mapping[str, Sequence[int]]
    logged: tuple[int, int]
    begun: int = 0


def check_takeover(
    store: Path, application: Application, elsewhere: Mapping[str, Sequence[int]], changed: bool
) -> None:
    """Refuse to take over a store whose parts contradict each other, or whose lost results cannot be made again.

    Also beside a driver that still runs: what it adds meanwhile is read in an order in which it contradicts nothing.
    Results up to `elsewhere`, of every partition of an output, are in a folder that it had before. Code that has
    `changed` cannot make again what the old one has made.
    """
    if not (store / "store.json").exists():
        return
    standings = look(store, outputs_of(application), elsewhere)
    contradiction = contradicts(standings)
    if contradiction is not None:
        raise DamagedStore(f"{store}: {contradiction}")
    damaged = [why for survey in standings.surveys.values() for why in survey.damaged.values()]
    if damaged and changed:
        raise DamagedStore(
            f"{_some(damaged)}: lost results are made again by the code that made them, found other code: run that of "
            "the store once, then change it"
        )
    oldest = oldest_remade(standings)
    gone = [why for survey in standings.surveys.values() for key, why in survey.damaged.items() if key[0] < oldest]
    if gone:
        raise DamagedStore(
            f"{_some(gone)}: results are as they were committed, and what this code can make again begins with "
            f"batch {oldest}, so they cannot be made again: restore them from a copy, or let the run go on "
            f"without them by `tenax verify {store} --accept-losses`"
        )


def _some(damage: Sequence[str]) -> str:
    more = f" and {len(damage) - MAX_NAMED} more" if len(damage) > MAX_NAMED else ""
    return f"{'; '.join(damage[:MAX_NAMED])}{more}"


def outputs_of(application: Application) -> dict[str, tuple[Sink, int]]:
    """The sinks of an application by output, with their partitions."""
    return {
        name: (application.sinks[name], operator.parallelism)
        for operator in application.topology.operators
        for name in (operator.name, late_output(operator.name))
        if name in application.sinks
    }


def look(
    store: Path,
    outputs: Mapping[str, tuple[Sink, int]],
    elsewhere: Mapping[str, Sequence[int]],
    *,
    read: bool = False,
) -> Standings:
    """How far a run has come; `outputs` are its sinks, with their partitions. With `read` every result is read.

    Checkpoints are looked at before commit logs, and these before the batch log: a driver that runs meanwhile only
    adds to what is read later.
    """
    whole = Manifests(store).newest_whole(count=MAX_CHECKPOINTS)
    checkpoints = tuple((checkpoint, newest_batch(checkpoint)) for checkpoint in whole)
    answers = {name: sink.survey(name, store, read=read) for name, (sink, _) in outputs.items()}
    surveys = {name: survey for name, survey in answers.items() if survey is not None}
    content = journal.read_content(store / "batches")
    logged = content.dropped + 1, content.dropped + len(content.entries)
    after = topology_versions.begun_after(store)  # all results before a version of the topology are committed
    before = {
        name: [max(after, batch) for batch in (*elsewhere.get(name, ()), *[0] * count)][:count]
        for name, (_, count) in outputs.items()
    }
    changes = journal.read(store / CHANGES)
    begun = max((records.integer(change, "checkpoint") for change in changes if change["states"]), default=0)
    return Standings(checkpoints, surveys, before, logged, begun)


def contradicts(standings: Standings) -> str | None:
    """What does not fit together, in words; None if all does."""
    stored = max((newest for _, newest in standings.checkpoints), default=0)
    logged = standings.logged[1]
    for output, before in standings.elsewhere.items():
        survey = standings.surveys.get(output)
        if survey is None:
            continue
        known = (*survey.final, *survey.lost)
        last = min((max(_last(known, number), least) for number, least in enumerate(before)), default=0)
        highest = max((batch for batch, _ in known), default=0)
        if last < stored:
            return (
                f"a checkpoint is stored when its results are committed, found one of batch {stored} and the "
                f"commit log of output {output!r} ends at batch {last}: entries are missing, restore it from a copy"
            )
        if highest > logged:
            return (
                f"results are of logged batches, found one of output {output!r} of batch {highest} and the "
                f"batch log ends at batch {logged}: entries are missing, restore the log from a copy"
            )
    first = standings.logged[0]
    if first > 1 and not any(checkpoint.batch + 1 >= first for checkpoint, _ in standings.checkpoints):
        return (
            f"a run goes on from a checkpoint or from batch 1, found a batch log from batch {first} on and no whole "
            "checkpoint before it: restore the checkpoints and their segments from a copy"
        )
    if stored > logged:
        return (
            f"a checkpoint is of logged batches, found one of batch {stored} and the batch log ends at batch "
            f"{logged}: entries are missing, restore the log from a copy"
        )
    return None


def oldest_remade(standings: Standings) -> int:
    """The oldest batch whose results can be made again: from a checkpoint and the batches after it, by this code."""
    first, logged = standings.logged
    if first == 1 and not standings.begun:
        return 1
    starts = [
        newest + 1
        for checkpoint, newest in standings.checkpoints
        if checkpoint.batch + 1 >= first and checkpoint.number >= standings.begun
    ]
    return min(starts, default=logged + 1)


def newest_batch(checkpoint: Checkpoint) -> int:
    """The batch of a checkpoint's newest state."""
    return cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes)).newest_batch


def _last(known: Iterable[Key], partition: int) -> int:
    return max((batch for batch, number in known if number == partition), default=0)
