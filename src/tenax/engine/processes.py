"""Processes of this machine: who started which, which are stopped, and which carry a mark in their environment.

A process may end at any moment: one that ends while it is looked at is as if it had never been there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

import psutil

from tenax.errors import ClusterFailed

POLL_S = 0.02
END_DEADLINE_S = 30.0
STOPPED = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP})  # by a signal, or by a debugger
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DEAD = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})


def parent(pid: int) -> int | None:
    """The process that has started a process; None if that has ended."""
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def ancestors(pid: int) -> list[int]:
    """The processes that a process descends from, nearest first; none if it has ended."""
    try:
        return [process.pid for process in psutil.Process(pid).parents()]
    except psutil.Error:
        return []


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that live."""
    try:
        started = psutil.Process(pid).children()
    except psutil.Error:
        return []
    return sorted(process.pid for process in started if _status(process.pid) not in {None, *DEAD})


def workers_of(executor: int) -> dict[int, list[int]]:
    """The daemons of an executor, each with its Python workers."""
    return {daemon: children(daemon) for daemon in children(executor)}


def stopped(pids: Iterable[int]) -> list[int]:
    """Which of these processes are stopped."""
    return sorted(pid for pid in pids if _status(pid) in STOPPED)


def started(pid: int) -> str:
    """When a process was started, in ticks of the machine's clock since that was; empty if it has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() in DEAD:
            return ""
        while True:  # ends: psutil counts by the clock of the machine, which is set now and then
            boot_s, started_s = psutil.boot_time(), psutil.Process(pid).create_time()
            if psutil.boot_time() == boot_s:
                return str(round((started_s - boot_s) * TICKS_PER_S))
    except psutil.Error:
        return ""


def marked(mark: str, value: str) -> list[int]:
    """The processes of this user in whose environment a name has a value, but this one."""
    carriers = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or is of another user
            if pid != os.getpid() and psutil.Process(pid).environ().get(mark) == value:
                carriers.append(pid)
    return carriers


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


def _status(pid: int) -> str | None:
    try:
        return psutil.Process(pid).status()
    except psutil.Error:
        return None
