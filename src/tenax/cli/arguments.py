"""What words of the command line mean for an application: its own options, and its protection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tenax.errors import InvalidRequest

if TYPE_CHECKING:
    from tenax.application.application import Protection


def name_values(words: list[str]) -> dict[str, object]:
    """`rows=1000 out=results` as keyword arguments; whole numbers and decimals become numbers."""
    options: dict[str, object] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.isidentifier():
            raise InvalidRequest(f"options are written name=value, found {word!r}: correct it")
        options[name] = _value(value)
    return options


def names(text: str | None) -> tuple[str, ...]:
    """`speed,jams` as names."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_standby(standby: int, nodes: int) -> None:
    """Refuse a cluster with nothing but standby nodes."""
    if standby >= nodes:
        raise InvalidRequest(
            f"some nodes are not standby, found --standby-nodes {standby} of --nodes {nodes}: lower it"
        )


def overridden(protection: Protection, given: Mapping[str, str | float | None]) -> Protection:
    """The protection of an application with what was given on the command line in place of its own."""
    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    every = changes.get("checkpoint_every")
    if isinstance(every, str) and every.removeprefix("-").isdigit():
        changes["checkpoint_every"] = int(every)
    replicas = changes.get("replicas")
    if isinstance(replicas, str):
        changes["replicas"] = _replicas(replicas)
    checkpoint, standby = changes.pop("checkpoint", None), changes.pop("standby", None)
    if isinstance(checkpoint, str):
        whole, single = _by_operator(checkpoint)
        changes |= {"checkpoint": whole or protection.checkpoint, "checkpoints": {**protection.checkpoints, **single}}
    if isinstance(standby, str):
        whole, single = _by_operator(standby)
        if whole is not None:
            raise InvalidRequest(f"standbys are written OPERATOR=MODE, found {whole!r}: name the operator before it")
        changes["standby"] = {**protection.standby, **single}
    if changes.get("backups") in {"source", "all"} and "recovery_latency" not in changes:
        protection = replace(protection, recovery_latency=None, backups=None)  # what planned backups were to keep
    if "recovery_latency" in changes and "backups" not in changes and protection.backups in {"source", "all"}:
        protection = replace(protection, backups=None)
    if changes.get("outputs") == "hold" or changes.get("recovery") == "blocking":
        changes.setdefault("tentative_delay", "0s")  # nothing will be tentative
    return replace(protection, **changes)  # type: ignore[arg-type]  # checked by what it makes


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


def _replicas(text: str) -> int | str | tuple[str, ...]:
    if text.removeprefix("-").isdigit():
        return int(text)
    return tuple(part.strip() for part in text.split(",")) if "[" in text else text
