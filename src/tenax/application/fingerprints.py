"""The fingerprint of an application: all that decides what its states and logged ranges mean, as plain data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tenax.application.descriptions import (
    CLASS,
    CODE,
    EXPRESSION,
    FORMS,
    FUNCTION,
    LABELS,
    canonical,
    code_of,
    described,
)
from tenax.operators.parameters import attributes
from tenax.store.records import Json, JsonObject, mapping

if TYPE_CHECKING:
    from tenax.application.application import Application

PARAMETERS, OWN, KEYS = "parameters", "code", "keys"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def fingerprint(application: Application) -> dict[str, Json]:
    """What a store remembers of the application that runs on it.

    - `shape`: of every operator its parallelism and where its rows come from.
    - `operators`: what each computes or reads, with which parameters, by which keys its rows are shared, and the user's
      code in it.
    - `sinks`: what kind each is; where its commit log lies is added by the driver, who knows the store.
    - The versions of Python and Polars, whose forms of code and expressions are compared with their own kind only.

    The protection is no part of it, nor are priorities: they may change from run to run.
    """
    topology = application.topology
    shape: dict[str, Json] = {}
    operators: dict[str, Json] = {}
    for operator in topology.operators:
        source = application.sources.get(operator.name)
        made = application.computations[operator.name] if source is None else source
        shape[operator.name] = {
            "parallelism": operator.parallelism,
            "inputs": [f"{stream.operator} ({stream.partitioning})" for stream in operator.inputs],
            "weights": None if operator.weights is None else list(operator.weights),
            "source": source is not None,
        }
        described_operator: dict[str, Json] = {
            "computes": type(made).__name__,
            "stateless": source is None and application.computations[operator.name].stateless,
            # a class of a user's may have an attribute of that name
            PARAMETERS: described(made.parameters() if callable(made.parameters) else attributes(made)),
            KEYS: {
                stream.operator: list(application.keys.get((stream.operator, operator.name), ()))
                for stream in operator.inputs
            },
        }
        code = code_of(made)
        operators[operator.name] = described_operator if code is None else {**described_operator, OWN: code}
    return {
        "topology": topology.name,
        "python": PYTHON,
        "polars": pl.__version__,
        "shape": shape,
        "operators": operators,
        "sinks": {name: {"writes": type(sink).__name__} for name, sink in application.sinks.items()},
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was: where, and in words what it was and is."""

    path: str
    words: str


def differences(stored: JsonObject, given: JsonObject, *, lenient: bool = False) -> list[Difference]:
    """What differs between the fingerprints of one operator, parameter by parameter.

    `lenient`: they come from different versions of Python or Polars, whose forms of code and expressions differ: then
    of an expression its columns and its name count, and of code what it reads.
    """
    differing: list[Difference] = []
    for part in sorted({*stored, *given} - {"stateless"}):
        differing += _compared(stored.get(part), given.get(part), "" if part == PARAMETERS else part, lenient)
    return differing


def _compared(stored: Json, given: Json, path: str, lenient: bool) -> list[Difference]:
    if _canonical(stored, lenient) == _canonical(given, lenient):
        return []
    if isinstance(stored, Mapping) and isinstance(given, Mapping) and not _is_expression(stored, given):
        differing: list[Difference] = []
        for name in [label for label in {**given, **stored} if label not in LABELS]:
            differing += _compared(stored.get(name), given.get(name), _joined(path, name), lenient)
        return differing
    if isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given):
        alone = len(stored) == 1
        return [
            difference
            for number, (left, right) in enumerate(zip(stored, given, strict=True))
            for difference in _compared(left, right, path if alone else f"{path}[{number}]", lenient)
        ]
    return [Difference(path or PARAMETERS, _words(path or PARAMETERS, stored, given))]


def _words(path: str, stored: Json, given: Json) -> str:
    parts = path.split(".")
    where = ".".join(
        part.lstrip("_") for part in parts if not part.startswith("(")
    )  # how a description is put together is our matter
    if parts[-1] == CODE:
        return (
            "its code has changed" if where in {"", OWN} else f"the code of {where.removeprefix('code.')} has changed"
        )
    before, now = shown(stored), shown(given)
    if before == now:
        return f"{where} {now} has changed in a way that its text does not show"
    return f"{where} was {before}, is {now}"


def shown(value: Json) -> str:
    """Plain data in few words."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        for label in (EXPRESSION, FUNCTION, CLASS, "(text)", "(library)", "(enum)", "(module)"):
            if isinstance(value.get(label), str):
                return str(value[label])
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items() if name != "(type)") + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return repr(value) if not isinstance(value, str) else value


def same_versions(stored: JsonObject, given: JsonObject) -> bool:
    """Whether two fingerprints were made by the same versions of Python and Polars."""
    return all(stored.get(library) == given.get(library) for library in ("python", "polars"))


def operator_of(whole: JsonObject, name: str) -> JsonObject:
    """What a fingerprint says of an operator."""
    return mapping(mapping(whole["operators"])[name])


def _canonical(value: Json, lenient: bool) -> str:
    return canonical(_without_forms(value) if lenient else value)


def _without_forms(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _without_forms(item) for name, item in value.items() if name not in FORMS}
    return [_without_forms(item) for item in value] if isinstance(value, list | tuple) else value


def _is_expression(stored: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    return EXPRESSION in stored or EXPRESSION in given


def _joined(path: str, name: str) -> str:
    if not path:
        return name
    return f"{path}.{name}"
