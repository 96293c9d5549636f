"""What a setting is, said once where it is declared: its kind, default, unit and help; all else derives from that.

A record of settings is a frozen dataclass whose fields are made by `option(kind, default, help)`. Checks, the options
of the command line, settings files, the table of the documentation and the JSON of a run read these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tenax.errors import InvalidRequest
from tenax.model.durations import PART, Span, microseconds, span
from tenax.model.topology import suggestion

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ALL = "all"
SPAN = {"type": "string", "pattern": f"^({PART.pattern})+$"}
TEXTS = {"type": "array", "items": {"type": "string"}}
_KEY = "option"


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a setting may be.

    - `rule` completes "max_attempts is ...", `remedy` the message about a wrong value; `metavar` stands for a value in
      the help of a command.
    - `kept` is a value as the record keeps it; a value that breaks the rule is a ValueError.
    - `parsed` reads a word of the command line; what it cannot read it hands on, to be refused by `kept`.
    - `words` are all that it may be, if that is a choice; `by_operator` if it is said for single operators.
    - `schema` says the same as JSON Schema, as far as that can.
    """

    rule: str
    metavar: str
    kept: Callable[[object], object]
    parsed: Callable[[str], object] = str
    remedy: str | None = None
    words: tuple[str, ...] = ()
    by_operator: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting.

    - `help` is for the help of a command and the documentation, `details` for the documentation alone.
    - A setting whose default is None may be left open; `if_none` says what holds then.
    - `example` is what a message about a wrong value advises to write.
    - `single` names the field that says the same for single operators: a command line says both with one option.
    - A setting that is not `lasting` belongs to one start of a run, and stands in no settings file; one that is
      `hidden` is for programs alone.
    """

    kind: Kind
    default: object
    help: str
    details: str = ""
    unit: str = ""
    if_none: str = "none"
    example: object = None
    single: str | None = None
    lasting: bool = True
    hidden: bool = False


def option(kind: Kind, default: object, help: str, **others: Any) -> Any:  # noqa: A002
    """A field of a record of settings, with all that is to be known of it; `others` are fields of `Option`."""
    declared = {_KEY: Option(kind, default, help, **others)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=declared)
    return field(default=default, metadata=declared)


def options_of(record: type[DataclassInstance]) -> Mapping[str, Option]:
    """The settings that a record declares, by name."""
    return {each.name: each.metadata[_KEY] for each in fields(record)}


def check_fields(record: DataclassInstance) -> None:
    """Check every field of a record that is being made, and let it keep each value in its own form."""
    for name, declared in options_of(type(record)).items():
        object.__setattr__(record, name, checked(name, declared, getattr(record, name)))


def checked(name: str, declared: Option, value: object) -> object:
    """The value as a record keeps it; if it is wrong, an error in one line: rule, value found, remedy."""
    if value is None and declared.default is None:
        return None
    example = declared.default if declared.example is None else declared.example
    return _checked(name, declared.kind, value, example)


def _checked(name: str, kind: Kind, value: object, example: object) -> object:
    try:
        return kind.kept(value)
    except ValueError:
        unknown = kind.words and not kind.by_operator
        remedy = suggestion(str(value), kind.words) if unknown else f": {kind.remedy or f'write {example!r}'}"
        raise InvalidRequest(f"{name} is {kind.rule}, found {value!r}{remedy}") from None


def plain(value: object) -> object:
    """A value of a setting as plain data."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value


def count(least: int = 1) -> Kind:
    """A whole number of at least so much."""

    def kept(value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError
        return value

    whole = {"type": "integer", "minimum": least}
    return Kind(f"a whole number of at least {least}", "N", kept, _number_or_text, schema=whole)


def pair(least: int = 1) -> Kind:
    """Two whole numbers, the fewest and the most of something; written 2..8 on the command line."""

    def kept(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError
        fewest, most = (count(least).kept(each) for each in value)
        if fewest > most:  # type: ignore[operator]  # both are whole numbers
            raise ValueError
        return fewest, most

    def parsed(text: str) -> object:
        parts = text.replace("..", ",").split(",")
        return tuple(_number_or_text(part.strip()) for part in parts)

    two = {"type": "array", "items": count(least).schema, "minItems": 2, "maxItems": 2}
    rule = f"two whole numbers of at least {least}, the first not above the second"
    return Kind(rule, "N..N", kept, parsed, "write [2, 8], or 2..8 as an option", schema=two)


def number(least: float, most: float) -> Kind:
    """A number between two others."""

    def kept(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError
        return value

    between = {"type": "number", "minimum": least, "maximum": most}
    return Kind(f"a number from {least:g} to {most:g}", "NUMBER", kept, _number_or_text, schema=between)


def time(*, positive: bool = True) -> Kind:
    """A span of time: "5s" or a timedelta; kept as text."""

    def kept(value: object) -> object:
        if not isinstance(value, Span):
            raise ValueError
        try:
            us = microseconds(value)
        except InvalidRequest:
            raise ValueError from None
        if positive and not us:
            raise ValueError
        return span(us) if isinstance(value, timedelta) else value

    return Kind("a time above 0" if positive else "a time of at least 0", "TIME", kept, schema=SPAN)


def batches_or_time() -> Kind:
    """A number of batches, or a span of time."""

    def kept(value: object) -> object:
        return (time() if isinstance(value, Span) else count()).kept(value)

    either = {"anyOf": [count().schema, SPAN]}
    return Kind("a number of batches of at least 1 or a time above 0", "N|TIME", kept, _number_or_text, schema=either)


def choice(known: type[StrEnum] | tuple[str, ...]) -> Kind:
    """One of some words; that of an enumeration is kept as its member."""
    words = tuple(str(word) for word in known)

    def kept(value: object) -> object:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value if isinstance(known, tuple) else known(value)

    return Kind(f"one of {', '.join(words)}", "WORD", kept, words=words, schema={"enum": list(words)})


def choice_or_tasks(known: type[StrEnum]) -> Kind:
    """One of some words, or which tasks."""
    word = choice(known)

    def kept(value: object) -> object:
        return (names() if isinstance(value, list | tuple) else word).kept(value)

    def parsed(text: str) -> object:
        return names().parsed(text) if "[" in text else text

    either = {"anyOf": [word.schema, names().schema]}
    return Kind(f"{word.rule} or a list of tasks", "WORD|TASKS", kept, parsed, words=word.words, schema=either)


def by_operator(word: Kind, what: str) -> Kind:
    """A word for each of some operators; `what` is what it says of one."""

    def kept(value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError
        return {name: _checked(f"the {what} of operator {name!r}", word, each, None) for name, each in value.items()}

    remedy, each_word = f"write {{'join': {word.words[0]!r}}}", {"type": "object", "additionalProperties": word.schema}
    return Kind(
        "said by operator", "OPERATOR=WORD", kept, remedy=remedy, words=word.words, by_operator=True, schema=each_word
    )


def tasks() -> Kind:
    """How many tasks, all of them, or which."""

    def kept(value: object) -> object:
        if isinstance(value, list | tuple):
            return names().kept(value)
        return value if isinstance(value, str) and value == ALL else count(0).kept(value)

    def parsed(text: str) -> object:
        return names().parsed(text) if "[" in text else _number_or_text(text)

    rule, remedy = f"a number of at least 0, {ALL!r} or a list of tasks", f"write 6, {ALL!r} or ['speed[0]']"
    either = {"anyOf": [count(0).schema, {"const": ALL}, names().schema]}
    return Kind(rule, "N|all|TASKS", kept, parsed, remedy, schema=either)


def names() -> Kind:
    """Some names, with commas between them on the command line."""

    def kept(value: object) -> object:
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            raise ValueError
        return tuple(value)

    def parsed(text: str) -> object:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    return Kind("a list of names", "NAMES", kept, parsed, "write ['speed']", schema=TEXTS)


def text(metavar: str) -> Kind:
    """Any text."""

    def kept(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError
        return value

    return Kind("a text", metavar, kept, schema={"type": "string"})


def switch() -> Kind:
    """Yes or no."""

    def kept(value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Kind("true or false", "", kept, remedy="write true or leave it out", schema={"type": "boolean"})


def _number_or_text(word: str) -> object:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
