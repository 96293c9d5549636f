"""The arguments and options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tenax.cli.arguments import flag, parsed
from tenax.errors import InvalidFile
from tenax.model.plan_files import read_plan
from tenax.model.settings import CONCERNS, Settings, declared
from tenax.model.settings_files import with_file
from tenax.model.topology import Topology

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Topology in YAML or JSON, or an application in Python. [dim]'tenax examples' lists some.[/dim]",
    ),
]
AppOptions = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments for an application's build(...).")
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
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A settings file (TOML); options win over it.", show_default=False),
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="SECONDS", help="How long exact may search before it settles.", min=0.01),
]


Plan = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="Replicas and backups as planned, by 'tenax plan all APP.PY ... --json'; they stay as they are.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Given:
    """What a command line says of settings: its options, and files that they win over; a plan stands beside them."""

    words: Mapping[str, str | bool]
    config: Path | None = None
    plan: Path | None = None

    def over(self, settings: Settings, topology: Topology) -> Settings:
        """Settings with those of the file in place of their own, and with those of the options in place of both."""
        if self.config is not None:
            settings = with_file(settings, self.config)
        planned = {} if self.plan is None else read_plan(self.plan, topology, beside=self.words)
        return settings.but(**parsed(self.words), **planned)


def configured(base: Settings, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with an option for every setting after its own; it gets them together, as `given`.

    `base` is what the command sets unless something else is said; `without` names what it has no option for.
    """
    kinds = {word: _option(word, base) for word in CONCERNS if not (word in without or _folded(word))}

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**words: Any) -> None:
            said = {word: words.pop(word) for word in kinds}
            given = Given(
                {word: text for word, text in said.items() if text is not None}, words.pop("config"), words.pop("plan")
            )
            command(**words, given=given)

        own = inspect.signature(command).parameters.values()
        hints = {name: kind for name, kind in get_type_hints(command, include_extras=True).items() if name != "given"}
        added = {"config": Config, "plan": Plan, **kinds}
        parameters = [each.replace(annotation=hints[each.name]) for each in own if each.name != "given"]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)
            for name, kind in added.items()
        ]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        wrapped.__annotations__ = {**hints, **added}
        return wrapped

    return wrap


def command_line(settings: Settings, base: Settings) -> list[str]:
    """The options that make these settings of what a command sets by itself."""
    words: list[str] = []
    for word, section in CONCERNS.items():
        value, usual = (getattr(getattr(each, section), word) for each in (settings, base))
        if value == usual or _folded(word):
            continue
        if isinstance(value, bool):
            words.append(flag(word) if value else f"--no{flag(word)[1:]}")
        elif isinstance(value, Mapping):
            words += [flag(word), ",".join(f"{name}={each}" for name, each in value.items())]
        else:
            words += [flag(word), ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    single = settings.protection.checkpoints
    if single != base.protection.checkpoints:
        words += [
            flag("checkpoint"),
            ",".join([str(settings.protection.checkpoint), *(f"{name}={how}" for name, how in single.items())]),
        ]
    return words


def _folded(word: str) -> bool:
    """Whether a setting has no option of its own: it is for programs, or said with that for all operators."""
    return declared(word).hidden or word in {declared(each).single for each in CONCERNS}


def _option(word: str, base: Settings) -> object:
    """The option of a setting, as typer wants it."""
    known = declared(word)
    value = getattr(getattr(base, CONCERNS[word]), word)
    usual = known.if_none.replace("`", "") if value is None else shown(value)
    panel = f"Settings: {CONCERNS[word]}"
    text = f"{known.help} [dim]Default: {usual}.[/dim]" if usual else known.help
    both = f"{flag(word)}/--no{flag(word)[1:]}"
    if isinstance(known.default, bool):
        return Annotated[
            bool | None,
            typer.Option(both, help=text, rich_help_panel=panel, show_default=False),
        ]
    return Annotated[str | None, typer.Option(flag(word), metavar=known.kind.metavar, help=text, rich_help_panel=panel)]


def shown(value: object) -> str:
    """The value of a setting for people; empty if there is nothing to show."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | Mapping):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def made(folder: Path) -> Path:
    """The folder for results, made before the work begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"--out is a folder, {folder} cannot be made ({error.strerror}): name another") from None
    return folder
