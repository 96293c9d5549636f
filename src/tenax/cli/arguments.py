"""What words of the command line mean for an application: its own options, and its protection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenax.errors import InvalidRequest
from tenax.model.options import checked
from tenax.model.protection import Protection
from tenax.model.settings import declared


def name_values(words: list[str]) -> dict[str, object]:
    """`rows=1000 out=results` as keyword arguments; whole numbers and decimals become numbers."""
    options: dict[str, object] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.isidentifier():
            raise InvalidRequest(f"options are written name=value, found {word!r}: correct it")
        options[name] = _value(value)
    return options


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def overridden(protection: Protection, given: Mapping[str, str | float | None]) -> Protection:
    """The protection of an application with what was given on the command line in place of its own."""
    return protection.but(**parsed({word: text for word, text in given.items() if text is not None}))


def flag(word: str) -> str:
    """The option that says a setting."""
    return f"--{word.replace('_', '-')}"


def parsed(given: Mapping[str, object]) -> dict[str, Any]:
    """Words of the command line as values of settings."""
    words: dict[str, Any] = {}
    for word, text in given.items():
        known, name = declared(word), flag(word)
        if not isinstance(text, str):
            words[word] = text
        elif known.kind.by_operator:
            whole, single = _by_operator(text)
            if whole is not None:
                raise InvalidRequest(f"{word}s are written OPERATOR=MODE, found {whole!r}: name the operator before it")
            words[word] = checked(name, known, single)
        elif known.single is not None:
            whole, single = _by_operator(text)
            words |= {} if whole is None else {word: checked(name, known, whole)}
            words |= {known.single: checked(name, declared(known.single), single)} if single else {}
        else:
            words[word] = checked(name, known, known.kind.parsed(text))
    return words


def _by_operator(text: str) -> tuple[str | None, dict[str, str]]:
    """`sweeping,join=none`: what is said for all, and what for single operators; a later word wins."""
    whole, single = None, {}
    for word in text.split(","):
        name, sign, value = (part.strip() for part in word.partition("="))
        if sign:
            single[name] = value
        else:
            whole = name
    return whole, single
