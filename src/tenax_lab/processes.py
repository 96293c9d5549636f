"""A side of a comparison in a process of its own; the memory and the processor time of a process tree."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import psutil

from tenax.errors import TenaxError
from tenax.store.records import Json
from tenax_lab.lab import Row
from tenax_lab.sides.sides import PEAK, ROWS, STEP

SAMPLE_S = 0.5
STOP_S = 10.0  # how long a process that has said all its rows may take to end


class SideFailed(TenaxError):
    """A process that measured something ended without saying what it observed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a side observed, and the most memory that it and its children held together."""

    rows: list[Row]
    peak_mb: float


def run_side(
    module: str, arguments: Mapping[str, Json], *, deadline_s: float, step: Callable[[str], None] = lambda _: None
) -> Measured:
    """Run `python -m module <arguments>` to its end; past the deadline it is ended, with all that it started."""
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", module, json.dumps(arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        said: list[Measured] = []
        reader = threading.Thread(target=_read, args=(process.stdout, said, step), daemon=True)
        reader.start()
        deadline = time.monotonic() + deadline_s
        peak_mb, seen = 0.0, {process.pid}
        while process.poll() is None and time.monotonic() < deadline:
            members = tree(process.pid)
            seen |= set(members)
            peak_mb = max(peak_mb, memory_mb(members))
            time.sleep(SAMPLE_S)
        late = process.poll() is None
        _end(seen, process)
        reader.join(STOP_S)
        if late or process.returncode or not said:
            reason = f"no end after {deadline_s:g} s" if late else f"exit code {process.returncode}"
            raise SideFailed(f"{module} says what it measured, found {reason}: {_last_line(errors)}")
    return Measured(said[-1].rows, max(peak_mb, said[-1].peak_mb))  # a short side ends before its second sample


def tree(root: int) -> list[int]:
    """A process and all that descend from it, as they are now."""
    try:
        return [root, *(child.pid for child in psutil.Process(root).children(recursive=True))]
    except psutil.Error:
        return [root]


def memory_mb(pids: Iterable[int]) -> float:
    """The memory of processes; pages that several share are counted once."""
    total = 0
    for process in _living(pids):
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


def cpu_s(pids: Iterable[int]) -> float:
    """The processor time of processes, and of those children that they have outlived."""
    total = 0.0
    for process in _living(pids):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # in user and in system mode, its own and that of ended children
    return total


def _living(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """Those that have not ended: of one that has, its parent counts the time."""
    for pid in pids:
        with suppress(psutil.Error):
            yield psutil.Process(pid)


def _read(lines: IO[str], said: list[Measured], step: Callable[[str], None]) -> None:
    """Take in what a side prints; a virtual machine below it may print other things."""
    for line in lines:
        try:
            words = json.loads(line)
        except ValueError:
            continue
        if isinstance(words, dict) and STEP in words:
            step(words[STEP])
        elif isinstance(words, dict) and ROWS in words:
            said.append(Measured(words[ROWS], words[PEAK]))


def _end(seen: set[int], process: subprocess.Popen[str]) -> None:
    """End what is left of a process tree: executors of a side that was ended do not notice at once."""
    if process.poll() is None:
        for member in _living(sorted(seen)):
            with suppress(psutil.Error):
                if member.pid == process.pid or member.ppid() in seen | {1}:
                    member.kill()
    process.wait()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed no error"
