"""`tenax inspect`: what a run has left in its store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tenax.cli import render
from tenax.cli.options import AsJson
from tenax.errors import InvalidFile


def inspect_command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a run, as given to --store.")],
    as_json: AsJson = False,
    events: Annotated[int, typer.Option("--events", metavar="N", help="Also show the last N events.", min=0)] = 0,
) -> None:
    """Checkpoints, batches, changes of code and events of a run; it may be running or ended.

    Example: tenax inspect out/traffic/store --events 20
    """
    from tenax.engine.store import journal
    from tenax.engine.store.checkpoints import Manifests
    from tenax.engine.store.events import read_events
    from tenax.engine.store.records import decode_object, integer, items, mapping
    from tenax.engine.store.store import CHANGES

    file = store / "store.json"
    if not file.is_file():
        raise InvalidFile(f"{store}: a store has a file store.json, found none: name the folder given to --store")
    about = decode_object(file.read_bytes(), str(file))
    batches = [integer(record, "batch") for record in journal.read(store / "batches")]
    manifests = Manifests(store)
    checkpoints = [manifests.read(key) for key in manifests.known()]
    epochs = len(list((store / "epochs").glob("*.json")))
    recorded = read_events(store)[-events:] if events else []
    changes = journal.read(store / CHANGES)
    topology = mapping(changes[-1]["topology"] if changes else about["topology"])
    if as_json:
        render.print_json(
            {
                "topology": topology,
                "epochs": epochs,
                "batches": [batches[0], batches[-1]] if batches else [],
                "checkpoints": [
                    {"number": one.number, "batch": one.batch, "epoch": one.epoch, "files": len(one.files)}
                    for one in checkpoints
                ],
                "changes": [{name: one for name, one in change.items() if name != "topology"} for change in changes],
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
            ],
        )
    )
    out.print()
    rows = [
        (f"{one.batch:,}", f"{one.epoch}", f"{len(one.files):,}", f"{_bytes(one):,}") for one in reversed(checkpoints)
    ]
    out.print(render.table("Checkpoints", ("after batch", "epoch", "files", "bytes"), rows))
    if changes:
        out.print()
        told = [
            (f"{integer(one, 'batch'):,}", f"{integer(one, 'epoch')}", escape(str(words)))
            for one in reversed(changes)
            for words in items(one["words"])
        ]
        out.print(render.table("Changes of code", ("after batch", "epoch", "what"), told))
    for event in recorded:
        out.print(str(event), soft_wrap=True, markup=False)


def _bytes(checkpoint: object) -> int:
    segments = getattr(checkpoint, "segments", {})
    return sum(part.bytes for parts in segments.values() for part in parts)
