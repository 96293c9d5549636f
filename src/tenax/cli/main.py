"""The `tenax` command: what it offers, and how its errors look."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated

import typer

import tenax
from tenax.cli.stopping import INTERRUPTED
from tenax.errors import EpochLost, Superseded, TenaxError

FAILED = 2  # a mistake of the user's, or a run that could not go on
SUPERSEDED = 3  # a newer driver has the store
GROUPS = ("plan", "experiment")

COMMANDS: Mapping[str, str] = {
    "plan": "plan.app",
    "experiment": "experiment.app",
    "run": "run.run_command",
    "rescale": "rescale.rescale_command",
    "chaos": "chaos.chaos_command",
    "inspect": "stores.inspect_command",
    "verify": "stores.verify_command",
    "fidelity": "inspection.fidelity_command",
    "latency": "inspection.latency_command",
    "describe": "inspection.describe_command",
    "schema": "inspection.schema_command",
    "examples": "inspection.examples_command",
    "demo": "demo.demo_command",
    "gallery": "gallery.gallery_command",
    "prepare": "prepare.prepare_command",
}
"""Where each command is: that of a command line is imported alone, for all of them take half a second."""


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"tenax {tenax.__version__}\n")
        raise typer.Exit


HELP = """
    Fault-tolerant stream processing: outputs keep coming when machines fail, many at once.

    Run an application, or describe a topology in a file and plan how to protect it:

      tenax demo                                          half of a cluster is killed, outputs go on

      tenax run app.py --store out/run                    run it; again: go on

      tenax examples                                      topologies to plan with

      tenax plan all traffic.yaml --latency 4 --budget 5  how to protect it

      tenax fidelity traffic.yaml --failed 'speed[0]'     what a loss costs
"""


def tenax_command(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and end.")
    ] = False,
) -> None:
    """What may be said before the command; the version acts as soon as it is read."""


def made_app(words: Sequence[str]) -> typer.Typer:
    """The command line with the command that these words begin with, or with all if they begin with none."""
    app = typer.Typer(
        name="tenax",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help=HELP,
    )
    app.callback()(tenax_command)
    for name in [words[0]] if words and words[0] in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(".")
        command = getattr(import_module(f"tenax.cli.{module}"), attribute)
        if name in GROUPS:
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def main() -> None:
    """Run the command line of this process."""
    words = sys.argv[1:]
    if not _starts_spark(words):
        sys.exit(run(words))
    from tenax.engine.virtual_machine import end_ahead, start_ahead

    start_ahead()
    try:
        code = run(words)
    finally:
        end_ahead()
    sys.exit(code)


def _starts_spark(words: Sequence[str]) -> bool:
    """Whether a command will most likely start an embedded cluster: its virtual machine then starts right away."""
    other = any(word.split("=", 1)[0] in {"--master", "--help", "-h"} for word in words)
    return len(words) > 1 and words[0] == "run" and not other


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; a user's mistake is one line on standard error."""
    words = list(arguments)
    if not words or (len(words) == 1 and words[0] in GROUPS):
        words.append("--help")
    app = made_app(words)
    try:
        result = typer.main.get_command(app).main(words, prog_name="tenax", standalone_mode=False)
    except TenaxError as error:
        return _fail(str(error), getattr(error, "details", ""), exit_code(error))
    except typer.TyperException as error:
        return _fail(f"{_explained(error, words)}: see 'tenax {_command_of(app, words)}--help'")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has left; Python would complain again while it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def exit_code(error: TenaxError) -> int:
    """What a command that ended with an error tells those who called it."""
    return SUPERSEDED if isinstance(error, Superseded | EpochLost) else FAILED


def _explained(error: typer.TyperException, words: Sequence[str]) -> str:
    """A usage error with the value found, which the library leaves out."""
    message = error.format_message().rstrip(".").removeprefix("Invalid value for ")
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    option = re.match(r"'(--[a-z-]+)'", message)
    for word, following in itertools.pairwise([*words, ""]):
        if option is not None and word == option[1]:
            return f"{message}, found {following!r}"
        if option is not None and word.startswith(f"{option[1]}="):
            return f"{message}, found {word.split('=', 1)[1]!r}"
    return message


_WORDS = {
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be": "must be",
    "Value error, ": "",
}


def _command_of(app: typer.Typer, words: Sequence[str]) -> str:
    """The leading words that name a command, for the hint at its help."""
    command = ""
    here = typer.main.get_command(app)
    for word in words:
        children = getattr(here, "commands", {})
        if word not in children:
            break
        command, here = f"{command}{word} ", children[word]
    return command


def _fail(message: str, details: str = "", code: int = FAILED) -> int:
    """Say what went wrong in one line; what belongs to it, such as a traceback of the user's code, below it."""
    sys.stdout.flush()
    sys.stderr.write(f"tenax: {' '.join(message.split())}\n")
    if details:
        sys.stderr.write(f"{details}\n")
    return code
