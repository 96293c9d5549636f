"""The settings of a run as tables for docs/running.md, made of their declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenax.model.options import Option, options_of, plain
from tenax.model.protection import OperatorProtection
from tenax.model.settings import RECORDS
from tenax.model.settings_files import OPERATORS

BEGIN, END = "<!-- settings: made by `python -m tenax.model.settings_table` -->", "<!-- end of settings -->"


def tables() -> str:
    """A table for every concern, and one for single operators; between the lines that mark them in the document."""
    sections = {section: options_of(record) for section, record in RECORDS.items()}
    sections[f"{OPERATORS}.NAME"] = options_of(OperatorProtection)
    return "\n".join([BEGIN, *(line for section, known in sections.items() for line in _table(section, known)), END])


def _table(section: str, known: Mapping[str, Option]) -> Iterator[str]:
    yield f"\n| `[{section}]` | what it says | may be | default |"
    yield "| --- | --- | --- | --- |"
    for word, option in known.items():
        if option.hidden:
            continue
        mark = "" if option.lasting else " (no file)"
        says = f"{option.help} {option.details}".strip()
        yield f"| `{word}`{mark} | {says} | {_values(option)} | {_default(option)} |"
    yield ""


def _values(option: Option) -> str:
    kind = option.kind
    rule = ", ".join(f"`{word}`" for word in kind.words) if kind.words else kind.rule
    if kind.words and "tasks" in kind.rule:
        rule = f"{rule} or a list of tasks"
    if kind.by_operator:
        return f"{kind.rule}: {rule}"
    return f"{rule}, in {option.unit}" if option.unit and "batches" not in kind.rule else rule


def _default(option: Option) -> str:
    value = plain(option.default)
    if value is None:
        return option.if_none
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in ({}, []) else f"`{value}`"


if __name__ == "__main__":
    print(tables())
