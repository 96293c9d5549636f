"""Settings files: TOML with a section per concern, and one for every operator that is protected in its own way.

    [protection]
    replicas = 6
    checkpoint = "sweeping"

    [cluster]
    nodes = 4

    [operators.join]
    checkpoint = "none"

Options of a command win over the file, and the file wins over what the application says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenax.errors import InvalidFile, InvalidRequest
from tenax.model.options import checked, options_of, plain
from tenax.model.protection import OperatorProtection
from tenax.model.settings import CONCERNS, RECORDS, Settings
from tenax.model.topology import suggestion

OPERATORS = "operators"


def with_file(settings: Settings, path: Path) -> Settings:
    """Settings with those of a file in place of their own; mistakes are told with the file's name."""
    words = read_settings(path)
    try:
        return settings.but(**words)
    except InvalidRequest as error:
        raise InvalidFile(f"{path}: {error}") from None


def read_settings(path: Path) -> dict[str, Any]:
    """What a file says, by the names of the settings."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidFile(f"a settings file can be read, {path} cannot ({error.strerror}): name another") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path}: a settings file is TOML, found {error}: correct it") from None
    words: dict[str, Any] = {}
    for section, content in data.items():
        if not isinstance(content, Mapping):
            home = f"[{CONCERNS[section]}]" if section in CONCERNS else "a section like [protection]"
            raise InvalidFile(f"{path}: settings stand in sections, found {section!r} outside: put it below {home}")
        if section == OPERATORS:
            for operator, said in content.items():
                _add(words, _of_operator(path, operator, said))
        else:
            _add(words, _of_section(path, section, content))
    return words


def settings_schema() -> dict[str, Any]:
    """The JSON Schema of a settings file."""
    sections = {section: _section_schema(record) for section, record in RECORDS.items()}
    single = {"type": "object", "additionalProperties": _section_schema(OperatorProtection)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tenax settings",
        "type": "object",
        "additionalProperties": False,
        "properties": {**sections, OPERATORS: single},
    }


def _section_schema(record: type[Any]) -> dict[str, Any]:
    known = {word: option for word, option in options_of(record).items() if option.lasting and not option.hidden}
    return {
        "type": "object",
        "description": (record.__doc__ or "").splitlines()[0],
        "additionalProperties": False,
        "properties": {
            word: {**option.kind.schema, "description": option.help, "default": plain(option.default)}
            for word, option in known.items()
        },
    }


def _add(words: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Beside what is said already: words for single operators come together."""
    for word, value in more.items():
        words[word] = {**words.get(word, {}), **value} if isinstance(value, Mapping) else value


def _of_section(path: Path, section: str, content: Mapping[str, object]) -> dict[str, Any]:
    if section not in RECORDS:
        raise InvalidFile(f"{path}: there is no section [{section}]{suggestion(section, [*RECORDS, OPERATORS])}")
    known = options_of(RECORDS[section])
    words = {}
    for word, value in content.items():
        if word not in known:
            elsewhere = f": it belongs below [{CONCERNS[word]}]" if word in CONCERNS else suggestion(word, known)
            raise InvalidFile(f"{path}: [{section}] has no setting {word!r}{elsewhere}")
        if not known[word].lasting:
            flag = word.replace("_", "-")
            raise InvalidFile(
                f"{path}: {word} is for one start of a run, found it in a file: use the option --{flag} instead"
            )
        words[word] = _value(f"{path}: [{section}] {word}", known[word], value)
    return words


def _of_operator(path: Path, operator: str, said: object) -> dict[str, Any]:
    where, known = f"{path}: [{OPERATORS}.{operator}]", options_of(OperatorProtection)
    if not isinstance(said, Mapping):
        raise InvalidFile(f"{where} is a section, found {said!r}: write it as [{OPERATORS}.{operator}]")
    for word in said:
        if word not in known:
            raise InvalidFile(f"{where} has no setting {word!r}{suggestion(word, known)}")
    single = {word: _value(f"{where} {word}", known[word], value) for word, value in said.items()}
    return OperatorProtection(**single).words(operator)


def _value(name: str, declared: Any, value: object) -> Any:
    try:
        return checked(name, declared, value)
    except InvalidRequest as error:
        raise InvalidFile(str(error)) from None
