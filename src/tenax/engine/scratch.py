"""The scratch folder of a cluster: all that its processes keep for a while, private to the user, and how both end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import time
from pathlib import Path

from tenax.engine.processes import kill_marked, started
from tenax.errors import ClusterFailed

MARK = "TENAX_SCRATCH"  # in the environment of every process of a cluster: its scratch folder
OWNER = "owner.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PROCESS_SPACE = Path("/proc/self/ns/pid")
SOCKET_NAME = 43  # bytes of the name of a socket, and the slash before it
MAX_SOCKET_PATH = 100  # bytes; some systems take no more than 104
NAME = 24  # bytes of the name of a scratch folder, at most
ABANDONED_S = 3600.0  # an empty folder of that age is what a driver left that died as it began

_held: list[Scratch] = []  # by this process


class Scratch:
    """A folder in which all processes of a cluster keep sockets, shuffle files and whatever else is temporary.

    - Only the user may look into it: the sockets of Python workers ask for no secret.
    - It says who owns it. When its owner is dead, the next start of a cluster ends the processes that still carry its
      mark, and deletes it; a folder that does not say so, or of another machine, is left alone.
    - `also` are folders and links that go with it, should all end at once; else their owners see to them.
    """

    def __init__(self) -> None:
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=_base()))  # mode 0700
        (self.folder / OWNER).write_text(json.dumps(_identity(os.getpid())))
        self.also: list[Path] = []
        _held.append(self)

    def end(self) -> None:
        """End the processes that carry its mark, and leave nothing of it behind."""
        _end(self.folder)
        if self in _held:  # only now: a signal may end all while this is under way
            _held.remove(self)


def end_all() -> None:
    """End every cluster of this process at once; only calls that a handler of a signal may make."""
    for scratch in _held[:]:
        scratch.end()
        for path in scratch.also:
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path | None = None) -> None:
    """End and delete what dead drivers of this user have left, among all scratch folders or in the one given."""
    for candidate in [folder] if folder is not None else sorted(_base().glob(f"{_prefix()}*")):
        if _is_ours(candidate) and _is_abandoned(candidate):
            with contextlib.suppress(ClusterFailed):  # of another run: it is tried again at the next start
                _end(candidate)


def _end(folder: Path) -> None:
    kill_marked(MARK, str(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _base() -> Path:
    """Where scratch folders are: where temporary files go, unless that is too deep for the name of a socket."""
    base = Path(tempfile.gettempdir())
    deep = len(os.fsencode(base)) + NAME + SOCKET_NAME > MAX_SOCKET_PATH
    return Path("/tmp") if deep and os.access("/tmp", os.W_OK) else base


def _prefix() -> str:
    return f"tenax-{os.getuid()}-"


def _is_ours(folder: Path) -> bool:
    """Whether it is a scratch folder of this user, and not a link that another user has put there."""
    try:
        return (
            re.fullmatch(rf"{_prefix()}\w+", folder.name) is not None
            and not folder.is_symlink()
            and folder.is_dir()
            and folder.stat().st_uid == os.getuid()
        )
    except OSError:
        return False


def _is_abandoned(folder: Path) -> bool:
    """Whether its owner is known to be dead."""
    try:
        said = json.loads((folder / OWNER).read_text())
        pid = int(said["pid"])
    except FileNotFoundError:
        with contextlib.suppress(OSError):  # one that is not empty stays
            if time.time() - folder.stat().st_mtime > ABANDONED_S:
                folder.rmdir()
        return False
    except (OSError, ValueError, TypeError, KeyError):
        return False
    if said.get("host") != socket.gethostname():
        return False
    now = _identity(pid)
    if said.get("boot") != now["boot"]:
        return True
    return bool(said.get("space") == now["space"] and said.get("started") != now["started"])


def _identity(pid: int) -> dict[str, str | int]:
    """What tells a process from any other, also from a later one of the same number; `started` is empty if it is dead.

    The machine, since when it runs, who sees which numbers there, the number, and when the process was started.
    """
    try:  # which no library tells
        boot = BOOT_ID.read_text().strip()
        space = str(PROCESS_SPACE.readlink())
    except OSError:  # a system without them
        boot = space = ""
    return {"host": socket.gethostname(), "boot": boot, "space": space, "pid": pid, "started": started(pid)}
