"""Events and instructions as plain JSON data, for logs and screens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from tenax.control.versions import PassId, Version
from tenax.model.tasks import Task

Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]


def plain(value: object) -> Data:
    """Any value of the coordinator as JSON data; dataclasses name themselves under `type`.

    Tasks, passes and versions become their text (`speed[2]@40/3.17`), which their `parse` reads back.
    """
    match value:
        case Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case Task() | PassId() | Version():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case tuple() | list():
            return [plain(one) for one in value]
        case frozenset():
            return [plain(one) for one in sorted(value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            named: dict[str, Data] = {"type": type(value).__name__}
            return named | {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    raise TypeError(f"only events, instructions and their parts are plain data, found {type(value).__name__}")
