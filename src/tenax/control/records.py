"""Events, instructions and notices as plain JSON data, for logs and screens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from tenax.control.versions import PassId, RebuildPoint, Version
from tenax.model.tasks import Task
from tenax.model.topology_versions import TopologyVersion

Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]


def plain(value: object) -> Data:
    """Any value of the coordinator as JSON data; dataclasses name themselves under `type`.

    Tasks, passes, versions and rebuild points become their text (`speed[2]@40/3.17`), which their `parse` reads back.
    """
    match value:
        case Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case TopologyVersion():
            return {"number": value.number, "after": value.after, "parallelism": dict(value.parallelism)}
        case Task() | PassId() | Version() | RebuildPoint():
            return str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case frozenset():
            return [plain(item) for item in sorted(value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            named: dict[str, Data] = {"type": type(value).__name__}
            return named | {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    raise TypeError(f"only events, instructions and their parts are plain data, found {type(value).__name__}")
