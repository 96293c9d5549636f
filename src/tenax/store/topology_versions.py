"""Versions of a run's topology, and requests for others, as a store keeps them: small records made by exclusive create.

versions/00000002.json        the second version; from then on every driver goes on with it
requests/00000001.json        somebody wants other numbers of tasks or nodes; numbered as they come
requests/00000001-done.json   what became of that
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tenax.errors import DamagedStore, EpochLost, StoreFailed
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.operators.keys import KEY_GROUPS
from tenax.store import durable, records
from tenax.store.records import Json, JsonObject

VERSIONS, REQUESTS = "versions", "requests"
VERSION = "version"  # in the notes of a checkpoint: the version of the topology that its tasks are of
MAX_REQUESTS = 100_000  # in a store; one more is refused
_NUMBERED = re.compile(r"(\d{8})\.json")


def read_versions(store: Path) -> tuple[TopologyVersion, ...]:
    """All versions of a store, the first one first; none if it has none yet."""
    versions = tuple(_version(store / VERSIONS / f"{number:08d}.json") for number in _numbers(store / VERSIONS))
    for number, version in enumerate(versions, start=1):
        if version.number != number:
            raise DamagedStore(
                f"{store / VERSIONS}: versions of a topology are numbered without gaps, found {version.number} in "
                f"place of {number}: restore the missing file from a copy"
            )
    return versions


def begun_after(store: Path) -> int:
    """The batch behind which the newest version begins: all results up to it are committed."""
    numbers = _numbers(store / VERSIONS)
    return _version(store / VERSIONS / f"{numbers[-1]:08d}.json").after if numbers else 0


def record_version(store: Path, version: TopologyVersion, check_epoch: Callable[[], None]) -> None:
    """Make a version count; repeated after it was refused half-way, it is found there.

    Raises EpochLost if a newer driver has made another one of this number.
    """
    check_epoch()
    durable.make_folder(store / VERSIONS, below=store)
    path = store / VERSIONS / f"{version.number:08d}.json"
    try:
        durable.create_exclusively(path, records.encode(to_record(version)))
    except FileExistsError:
        check_epoch()
        if _version(path) != version:
            raise EpochLost(
                f"{path}: a version of a topology is recorded once, found another one: let this driver end"
            ) from None
    check_epoch()


def ask(store: Path, target: Target) -> int:
    """Ask the driver of a store, the one that runs or the next, for other numbers of tasks or nodes: the request."""
    folder = store / REQUESTS
    durable.make_folder(folder, below=store)
    for number in range(max(_numbers(folder), default=0) + 1, MAX_REQUESTS):
        wanted: JsonObject = {
            "parallelism": dict(target.parallelism),
            "nodes": target.nodes,
            "cause": target.cause,
        }
        try:
            durable.create_exclusively(folder / f"{number:08d}.json", records.encode(wanted))
        except FileExistsError:
            continue
        return number
    raise StoreFailed(f"{folder}: a store takes {MAX_REQUESTS} requests, found as many: delete the folder")


def open_request(store: Path) -> Target | None:
    """The newest request, if it is not answered; earlier ones are overtaken by it."""
    folder = store / REQUESTS
    numbers = _numbers(folder)
    if not numbers or durable.exists(folder / _done(numbers[-1])):
        return None
    return request(store, numbers[-1])


def request(store: Path, number: int) -> Target:
    """A request by its number."""
    path = store / REQUESTS / f"{number:08d}.json"
    record = records.decode_object(durable.read_bytes(path), str(path))
    nodes = record["nodes"]
    return Target(
        _counts(record["parallelism"]),
        None if nodes is None else records.integer(record, "nodes"),
        records.text(record, "cause"),
        number,
    )


def answer(store: Path, number: int, done: bool, words: str) -> None:
    """Say what became of a request, if there is such a one; the first answer counts."""
    if not durable.exists(store / REQUESTS / f"{number:08d}.json"):
        return  # the run decided by itself, or this is a replay of what was asked of another store
    try:
        durable.create_exclusively(store / REQUESTS / _done(number), records.encode({"done": done, "words": words}))
    except FileExistsError:
        return


def overtake(store: Path, number: int) -> None:
    """Answer the open requests just before this one: it has taken their place."""
    while (number := number - 1) > 0 and answered(store, number) is None:
        answer(store, number, done=False, words="a newer request has taken its place")


def answered(store: Path, number: int) -> tuple[bool, str] | None:
    """Whether a request was done, and what there is to say of it; None as long as it is open."""
    path = store / REQUESTS / _done(number)
    if not durable.exists(path):
        return None
    record = records.decode_object(durable.read_bytes(path), str(path))
    return record["done"] is True, records.text(record, "words")


def _done(number: int) -> str:
    return f"{number:08d}-done.json"


def _numbers(folder: Path) -> list[int]:
    matches = (_NUMBERED.fullmatch(name) for name in durable.names(folder))
    return [int(match[1]) for match in matches if match]


def to_record(version: TopologyVersion) -> JsonObject:
    """A version as plain data."""
    return {
        "number": version.number,
        "after": version.after,
        "parallelism": dict(version.parallelism),
        "tables": {name: list(table) for name, table in version.tables.items()},
        "nodes": version.nodes,
        "cause": version.cause,
        "request": version.request,
    }


def from_record(record: JsonObject, where: str) -> TopologyVersion:
    """What `to_record` made; `where` names it in errors."""
    parallelism, nodes = _counts(record["parallelism"]), record["nodes"]
    tables = {
        name: tuple(_table(where, name, table, parallelism))
        for name, table in records.mapping(record["tables"]).items()
    }
    return TopologyVersion(
        records.integer(record, "number"),
        records.integer(record, "after"),
        parallelism,
        tables,
        None if nodes is None else records.integer(record, "nodes"),
        records.text(record, "cause"),
        records.integer(record, "request"),
    )


def _version(path: Path) -> TopologyVersion:
    return from_record(records.decode_object(durable.read_bytes(path), str(path)), str(path))


def _counts(value: Json) -> Mapping[str, int]:
    given = records.mapping(value)
    return {name: records.integer(given, name) for name in given}


def _table(where: str, name: str, value: Json, parallelism: Mapping[str, int]) -> list[int]:
    owners = [owner for owner in records.items(value) if isinstance(owner, int)]
    if len(owners) != KEY_GROUPS or not all(0 <= owner < parallelism.get(name, 0) for owner in owners):
        raise DamagedStore(
            f"{where}: a table has an owner among its tasks for each of {KEY_GROUPS} key groups, found another one of "
            f"{name!r}: restore it from a copy"
        )
    return owners
