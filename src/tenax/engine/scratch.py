"""The scratch folder of a cluster: all that its processes keep for a while, private to the user, and how both end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tenax.errors import ClusterFailed

MARK = "TENAX_SCRATCH"  # in the environment of every process of a cluster: its scratch folder
OWNER = "owner.json"
PROC = Path("/proc")
POLL_S = 0.02
END_DEADLINE_S = 30.0
SOCKET_NAME = 43  # bytes of the name of a socket, and the slash before it
MAX_SOCKET_PATH = 100  # bytes; some systems take no more than 104
NAME = 24  # bytes of the name of a scratch folder, at most
ABANDONED_S = 3600.0  # an empty folder of that age is what a driver left that died as it began

_held: list[Scratch] = []  # by this process


class Scratch:
    """A folder in which all processes of a cluster keep sockets, shuffle files and whatever else is temporary.

    - Nobody but the user may look into it: the sockets of Python workers ask for no secret.
    - It says who owns it. When its owner is dead, whoever starts a cluster next ends the processes that still carry its
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
    for one in _held[:]:
        one.end()
        for path in one.also:
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path | None = None) -> None:
    """End and delete what dead drivers of this user have left, among all scratch folders or in the one given."""
    for found in [folder] if folder is not None else sorted(_base().glob(f"{_prefix()}*")):
        if _is_ours(found) and _is_abandoned(found):
            with contextlib.suppress(ClusterFailed):  # of another run: it is tried again at the next start
                _end(found)


def marked(mark: str, value: str) -> list[int]:
    """The processes of this user in whose environment a name has a value, but this one."""
    wanted = f"{mark}={value}".encode()
    found = []
    for pid in _pids():
        try:
            words = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is of another user
            continue
        if wanted in words and pid != os.getpid():
            found.append(pid)
    return found


def kill_marked(mark: str, value: str) -> None:
    """End all processes that carry a mark, and see to it that none is left."""
    deadline = time.monotonic() + END_DEADLINE_S
    while left := marked(mark, value):
        if time.monotonic() > deadline:
            raise ClusterFailed(f"what a run has started ends with it, found processes {left}: end them")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def _end(folder: Path) -> None:
    kill_marked(MARK, str(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):  # a system that does not list its processes
        for entry in PROC.iterdir():
            if entry.name.isdigit():
                yield int(entry.name)


def _base() -> Path:
    """Where scratch folders are: where temporary files go, unless that is too deep for the name of a socket."""
    base = Path(tempfile.gettempdir())
    deep = len(os.fsencode(base)) + NAME + SOCKET_NAME > MAX_SOCKET_PATH
    return Path("/tmp") if deep and os.access("/tmp", os.W_OK) else base


def _prefix() -> str:
    return f"tenax-{os.getuid()}-"


def _is_ours(folder: Path) -> bool:
    """Whether it is a scratch folder of this user, and not a link that somebody has put there."""
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
    try:
        boot = (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        space = str((PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        boot = space = ""
    return {"host": socket.gethostname(), "boot": boot, "space": space, "pid": pid, "started": started(pid)}


def started(pid: int) -> str:
    """When a process was started, as far as this system tells; empty if there is none."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        if PROC.is_dir():
            return ""
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "alive"
    return "" if fields[0] in "ZX" else fields[19]
