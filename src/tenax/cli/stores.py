"""`tenax inspect` and `tenax verify`: what a run has left in its store, and whether it is as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from tenax.cli import availability, render
from tenax.cli.options import AsJson
from tenax.errors import InvalidFile, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenax.control.load import Load
    from tenax.store.checkpoints import Checkpoint
    from tenax.store.records import JsonObject


def inspect_command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a run, as given to --store.")],
    as_json: AsJson = False,
    events: Annotated[int, typer.Option("--events", metavar="N", help="Also show the last N events.", min=0)] = 0,
) -> None:
    """Checkpoints, batches, changes of code and events of a run; it may be running or ended.

    Example: tenax inspect out/traffic/store --events 20
    """
    from tenax.cli.load_view import load_rows
    from tenax.cli.versions_view import version_rows
    from tenax.engine.queries import QUERIES
    from tenax.store import cuts, journal, topology_versions
    from tenax.store.checkpoints import Manifests
    from tenax.store.events import newest_event, read_events
    from tenax.store.records import decode_object, integer, items, mapping
    from tenax.store.store import CHANGES
    from tenax.takeover.changes import shown

    file = store / "store.json"
    check_store(store)
    about = decode_object(file.read_bytes(), str(file))
    batches = [integer(record, "batch") for record in journal.read(store / "batches")]
    manifests = Manifests(store)
    checkpoints = [manifests.read(key) for key in manifests.known()]
    epochs = len(list((store / "epochs").glob("*.json")))
    recorded = read_events(store)[-events:] if events else []
    changes = journal.read(store / CHANGES)
    topology = mapping(changes[-1]["topology"] if changes else about["topology"])
    known = newest_event(store, "settings")
    settings = mapping(known["settings"]) if known is not None else {}
    load = _load(checkpoints)
    versions = topology_versions.read_versions(store)
    queried = newest_event(store, QUERIES)
    queries = mapping(queried[QUERIES]) if queried is not None else {}
    if as_json:
        render.print_json(
            {
                "topology": topology,
                "settings": settings,
                "epochs": epochs,
                "batches": [batches[0], batches[-1]] if batches else [],
                "checkpoints": [
                    {
                        "number": checkpoint.number,
                        "batch": checkpoint.batch,
                        "epoch": checkpoint.epoch,
                        "files": len(checkpoint.files),
                    }
                    for checkpoint in checkpoints
                ],
                "versions": [topology_versions.to_record(version) for version in versions],
                "load": {} if load is None else load.to_data(),
                "changes": [shown(change) for change in changes],
                "queries": queries,
                "events": recorded,
            }
        )
        return
    out = render.console()
    kept = f"{batches[0]:,} to {batches[-1]:,}" if batches else "none"
    out.print(
        render.facts(
            f"Store of {topology['topology']}",
            [
                ("operators", ", ".join(mapping(topology["operators"]))),
                ("drivers so far", f"{epochs:,}"),
                ("logged batches kept", kept),
                ("settings", _unusual(settings)),
                *availability.facts(availability.numbers(queries.get(QUERIES))),
            ],
        )
    )
    out.print()
    rows = [
        (f"{checkpoint.batch:,}", f"{checkpoint.epoch}", f"{len(checkpoint.files):,}", f"{_bytes(checkpoint):,}")
        for checkpoint in reversed(checkpoints)
    ]
    out.print(render.table("Checkpoints", ("after batch", "epoch", "files", "bytes"), rows))
    if load is not None:
        out.print()
        newest = cuts.from_record(checkpoints[-1].number, mapping(checkpoints[-1].notes))
        tasks = [str(point.task) for point in newest.points]
        columns = ("task", "rows in", "rows out", "busy", "state")
        rate = load.arrival.rows_per_s
        come = "as fast as they are read" if rate is None else f"{rate:,.0f} rows/s"
        title = f"Load of a batch of {load.rows:,.0f} rows, {come}; a pass takes {render.seconds(load.pass_s)}"
        out.print(render.table(title, columns, load_rows(load, tasks)))
    if len(versions) > 1:
        out.print()
        heads = ("version", "after batch", "what", "why")
        out.print(render.table("Versions of the topology", heads, version_rows(versions)))
    if changes:
        out.print()
        changed = [
            (f"{integer(change, 'batch'):,}", f"{integer(change, 'epoch')}", escape(str(words)))
            for change in map(shown, reversed(changes))
            for words in (*_upgrade(change), *items(change["words"]))
        ]
        out.print(render.table("Changes of code", ("after batch", "epoch", "what"), changed))
    for event in recorded:
        # in words where the narrator had some when it happened, else as it was recorded
        words = f"driver {event['epoch']}: {event['text']}" if "text" in event else str(event)
        out.print(words, soft_wrap=True, markup=False)


def _upgrade(change: JsonObject) -> list[str]:
    """That other operators took over, if they did."""
    version = change.get("version")
    return [] if version is None else [f"upgrade: version {version} of the topology begins"]


def _load(checkpoints: Sequence[Checkpoint]) -> Load | None:
    """What the run had measured when it stored its newest checkpoint."""
    from tenax.control.load import LOAD, Load
    from tenax.store.records import mapping

    notes = mapping(checkpoints[-1].notes) if checkpoints else {}
    return Load.from_data(mapping(notes[LOAD])) if LOAD in notes else None


def _unusual(settings: JsonObject) -> str:
    """The settings of a run that are not as they are by themselves."""
    from tenax.model.settings import Settings
    from tenax.store.records import mapping

    usual = Settings().resolved().to_data()
    words = (
        f"{word} {value}"
        for section, said in settings.items()
        for word, value in mapping(said).items()
        if value != usual.get(section, {}).get(word)
    )
    return ", ".join(words) or ("as they are by themselves" if settings else "not known")


def verify_command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a run, as given to --store.")],
    as_json: AsJson = False,
    look_only: Annotated[bool, typer.Option("--look-only", help="Say what is damaged, and move nothing.")] = False,
    accept_losses: Annotated[
        bool,
        typer.Option(
            "--accept-losses",
            help="Take damaged or deleted results that cannot be made again for lost, so that the run can go on. "
            "A driver that still runs ends.",
        ),
    ] = False,
    results: Annotated[
        list[str] | None,
        typer.Option("--results", metavar="OUTPUT=DIR", help="Where the results of an output are that were moved."),
    ] = None,
) -> None:
    """Read all that a run has left: checkpoints, logs, every byte of every result. Exit code 1 if anything is damaged.

    A damaged result that can be made again, because a checkpoint or the beginning of the batch log lies before it, is
    set aside (nothing is deleted), and the next start of the run makes it again. One that cannot is named: restore it
    from a copy, or let the run go on without it by [bold]--accept-losses[/bold], which also is how to remove old
    results on purpose. Damaged checkpoints are passed over by the next start.

    Starting a run compares only names and sizes of results with the log; this reads them.

    Example: tenax verify out/traffic/store
    """
    from tenax.takeover.verification import verify

    check_store(store)
    folders = {}
    for word in results or []:
        name, sign, folder = word.partition("=")
        if not sign:
            raise InvalidRequest(f"results are written OUTPUT=DIR, found {word!r}: name the output before the folder")
        folders[name] = Path(folder)
    if accept_losses and look_only:
        raise InvalidRequest("--look-only moves nothing, found --accept-losses beside it: leave one of the two out")
    out = render.console()
    with out.status("reading") as status:
        findings = verify(
            store.resolve(),
            repair=not look_only,
            accept_losses=accept_losses,
            folders=folders,
            progress=lambda what: status.update(f"reading {what}"),
        )
    if as_json:
        damaged = [{"what": problem.what, "then": problem.then} for problem in findings.problems]
        read = {"checkpoints": findings.checkpoints, "batches": findings.batches, "results": findings.results}
        render.print_json({"whole": not damaged, "read": read, "not_read": list(findings.not_read), "damaged": damaged})
    else:
        out.print(
            f"read {findings.checkpoints:,} checkpoints, {findings.batches:,} logged batches, "
            f"{findings.results:,} results ({findings.bytes:,} bytes)"
        )
        for place in findings.not_read:
            out.print(f"{place}: not read, only the application's own sink can", markup=False, soft_wrap=True)
        for problem in findings.problems:
            out.print(f"[bold red]{'lost' if problem.is_lost else 'damaged'}[/bold red] ", end="")
            out.print(f"{problem.what}\n        {problem.then}", markup=False, soft_wrap=True)
        out.print("all as it was written" if not findings.problems else f"{len(findings.problems):,} damaged")
    if findings.problems:
        raise typer.Exit(1)


def check_store(store: Path) -> None:
    """Refuse a folder that is no store."""
    if not (store / "store.json").is_file():
        raise InvalidFile(f"{store}: a store has a file store.json, found none: name the folder given to --store")


def _bytes(checkpoint: object) -> int:
    segments = getattr(checkpoint, "segments", {})
    return sum(part.bytes for parts in segments.values() for part in parts)
