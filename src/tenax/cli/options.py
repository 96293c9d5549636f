"""The arguments and options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from tenax.errors import InvalidFile

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="Topology in YAML or JSON. [dim]'tenax examples' lists some.[/dim]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
Picture = Annotated[
    Path | None,
    typer.Option("--picture", metavar="FILE", help="Also draw it: a .svg or .png file.", show_default=False),
]
Failed = Annotated[
    str,
    typer.Option("--failed", metavar="TASKS", help="Failed tasks, like 'a[0],b[1]'; 'a[*]' means all tasks of a."),
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="SECONDS", help="How long exact may search before it settles.", min=0.01),
]

StandbyNodes = Annotated[
    int, typer.Option("--standby-nodes", metavar="N", help="So many of the nodes hold replicas only.", min=0)
]
HeartbeatEvery = Annotated[
    str, typer.Option("--heartbeat", metavar="TIME", help="How often a node reports; one that hangs misses that.")
]
MissedHeartbeats = Annotated[
    int, typer.Option("--missed", metavar="N", help="So many missed heartbeats, and a node is given up.", min=1)
]
AcceptChanges = Annotated[
    str | None,
    typer.Option(
        "--accept-changes",
        metavar="NAMES",
        help="Operators whose code has changed on the same store and that may start empty, like 'speed,jams'; "
        "'totals=keep' lets one of your own go on with its state; outputs that go elsewhere from now on.",
    ),
]
Replicas = Annotated[
    str | None,
    typer.Option("--replicas", metavar="N|all|TASKS", help="Tasks that run twice: the best N, all, or those named."),
]
RecoveryLatency = Annotated[
    str | None,
    typer.Option("--recovery-latency", metavar="TIME", help="Plan backups so that a lost task is back within it."),
]
BackupsBy = Annotated[
    str | None,
    typer.Option("--backups", metavar="WHO", help="Who retains outputs: source, planned, adaptive or all."),
]
RecoveryMode = Annotated[
    str | None,
    typer.Option("--recovery", metavar="HOW", help="incremental: go on with what is left; blocking: wait for all."),
]
OutputMode = Annotated[
    str | None,
    typer.Option("--outputs", metavar="WHAT", help="Of outputs that miss tasks: tentative results, or hold them."),
]
RecoveryOrder = Annotated[
    str | None, typer.Option("--order", metavar="NAME", help="Who comes back first: best-density, exact, ...")
]
TentativeDelay = Annotated[
    str | None, typer.Option("--tentative-delay", metavar="TIME", help="Time before the first tentative result.")
]
CheckpointBy = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="HOW",
        help="How states are stored: aligned, synchronous, individual or sweeping; none: lost ones are rebuilt. "
        "Differently for some: sweeping,join=none.",
    ),
]
CheckpointEvery = Annotated[
    str | None, typer.Option("--checkpoint-every", metavar="N|TIME", help="Batches or time between checkpoints.")
]
StandbyBy = Annotated[
    str | None,
    typer.Option(
        "--standby",
        metavar="OPERATOR=MODE",
        help="none, passive, active, or both: active, and both copies send. Several: join=active,speed=passive.",
    ),
]
FailureEvery = Annotated[
    str | None,
    typer.Option("--failure-every", metavar="TIME", help="Mean time between failures: the best interval follows."),
]
FollowLoad = Annotated[
    float | None,
    typer.Option(
        "--follow-load",
        metavar="GAIN",
        help="Move replicas when others would keep so much more of the outputs, by measured rates; 1 never does.",
    ),
]

StoragePatience = Annotated[
    str | None,
    typer.Option(
        "--storage-patience",
        metavar="TIME",
        help="How long the run waits for a sink or store that is full, read-only or away, before it ends.",
    ),
]

PROTECTION: Mapping[str, object] = {
    "replicas": Replicas,
    "recovery_latency": RecoveryLatency,
    "backups": BackupsBy,
    "recovery": RecoveryMode,
    "outputs": OutputMode,
    "order": RecoveryOrder,
    "tentative_delay": TentativeDelay,
    "checkpoint": CheckpointBy,
    "checkpoint_every": CheckpointEvery,
    "standby": StandbyBy,
    "failure_every": FailureEvery,
    "follow_load": FollowLoad,
    "storage_patience": StoragePatience,
}
"""What a command line can say of a protection, by the names of its fields."""

Given = Mapping[str, str | float | None]
"""What it has said."""


def protecting(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of a protection after its own; it gets them together, as `given`."""

    @functools.wraps(command)
    def wrapped(**words: object) -> None:
        given = {name: words.pop(name) for name in PROTECTION}
        command(**words, given=given)

    own = inspect.signature(command).parameters.values()
    hints = {name: kind for name, kind in get_type_hints(command, include_extras=True).items() if name != "given"}
    parameters = [one.replace(annotation=hints[one.name]) for one in own if one.name != "given"]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)
        for name, kind in PROTECTION.items()
    ]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    wrapped.__annotations__ = {**hints, **PROTECTION}
    return wrapped


def made(folder: Path) -> Path:
    """The folder for results, made before the work begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"--out is a folder, {folder} cannot be made ({error.strerror}): name another") from None
    return folder
