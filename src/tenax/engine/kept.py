"""The embedded cluster that runs of one process share: it stays up between them, and ends with the process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenax.engine.session import Session
from tenax.errors import InvalidRequest
from tenax.model.settings import ClusterSettings


@dataclass(slots=True)
class _Kept:
    """A session with what it was started for."""

    session: Session
    settings: ClusterSettings
    folder: Path
    used: bool = False


_kept: list[_Kept] = []  # none or one
_registered: list[bool] = []  # whether it ends with the process


@contextmanager
def session(settings: ClusterSettings, stop_asked: Callable[[], bool]) -> Iterator[Session]:
    """The cluster of this process, if it is as asked for and up, or a new one in its place; for one run at a time.

    A run that is left by an exception may have left work on it: then it ends, and the next run starts another.
    """
    if any(cluster.used for cluster in _kept):
        raise InvalidRequest(
            "a process runs one topology at a time, found a second run: wait for the first, or start a "
            "process of its own"
        )
    if _kept and not _fits(_kept[0], settings):
        end()
    if not _kept:
        _start(settings, stop_asked)
    cluster = _kept[0]
    cluster.used = True
    try:
        yield cluster.session
    except BaseException:
        end()
        raise
    finally:
        cluster.used = False


def end() -> None:
    """End the cluster of this process, if there is one."""
    while _kept:
        cluster = _kept.pop()
        cluster.session.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def _start(settings: ClusterSettings, stop_asked: Callable[[], bool]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tenax-cluster-"))
    try:
        started = Session(folder, settings, stop_asked)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    started.scratch.also.append(folder)
    if not _registered:
        atexit.register(end)
        _registered.append(True)
    _kept.append(_Kept(started, settings, folder))


def _fits(cluster: _Kept, settings: ClusterSettings) -> bool:
    """Whether a cluster is as asked for, and all its nodes are up."""
    if cluster.settings != settings:
        return False
    try:
        return len(cluster.session.live_nodes()) == settings.nodes
    except Exception:  # its virtual machine may have died meanwhile
        return False
