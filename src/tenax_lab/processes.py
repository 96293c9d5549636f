"""A side of a comparison in a process of its own; the memory and the processor time of a process tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tenax.errors import TenaxError
from tenax.store.records import Json
from tenax_lab.lab import Row
from tenax_lab.sides.sides import FOUND, PEAK, STEP, Series

SAMPLE_S = 0.5
STOP_S = 10.0  # how long a process that has told its findings may take to end
PROC = Path("/proc")


class SideFailed(TenaxError):
    """A process that measured something ended without telling what it found."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a side found, and the most memory that it and its children held together."""

    told: Any
    peak_mb: float

    @property
    def rows(self) -> list[Row]:
        """Its observations."""
        return list(self.told)

    @property
    def series(self) -> Series:
        """What a side tells that is not yet declared by column."""
        return dict(self.told)


def run_apart(module: str, seed: int, *, quick: bool, deadline_s: float, step: Callable[[str], None]) -> Series:
    """What a module measures in a process of its own, because it needs a cluster of its own; its files go after it."""
    with tempfile.TemporaryDirectory(prefix=f"tenax-{module.rpartition('.')[2].replace('_', '-')}-") as folder:
        given: dict[str, Json] = {"work": folder, "seed": seed, "plan": "quick" if quick else "full"}
        return run_side(module, given, deadline_s=deadline_s, step=step).series


def run_side(
    module: str, arguments: Mapping[str, Json], *, deadline_s: float, step: Callable[[str], None] = lambda _: None
) -> Measured:
    """Run `python -m module <arguments>` to its end; past the deadline it is ended, with all that it started."""
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", module, json.dumps(arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        told: list[Measured] = []
        reader = threading.Thread(target=_read, args=(process.stdout, told, step), daemon=True)
        reader.start()
        deadline = time.monotonic() + deadline_s
        peak, seen = 0.0, {process.pid}
        while process.poll() is None and time.monotonic() < deadline:
            members = tree(process.pid)
            seen |= set(members)
            peak = max(peak, memory_mb(members))
            time.sleep(SAMPLE_S)
        late = process.poll() is None
        _end(seen, process)
        reader.join(STOP_S)
        if late or process.returncode or not told:
            reason = f"no end after {deadline_s:g} s" if late else f"exit code {process.returncode}"
            raise SideFailed(f"{module} tells what it measured, found {reason}: {_last_line(errors)}")
    return Measured(told[-1].told, max(peak, told[-1].peak_mb))  # a short side ends before its second sample


def tree(root: int) -> list[int]:
    """A process and all that descend from it, as they are now. O(processes of the machine)."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    found = [root]
    for pid in found:  # grows while it is read, by each process once
        found += children.get(pid, [])
    return found


def memory_mb(pids: list[int]) -> float:
    """The memory of processes; pages that several share are counted once."""
    total = 0
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def cpu_s(pids: Iterable[int]) -> float:
    """The processor time of processes, and of those children that they have outlived."""
    ticks = 0
    for pid in pids:
        try:
            fields = (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended: whoever waited for it counts its time
        ticks += sum(map(int, fields[11:15]))  # in user and in system mode, its own and that of ended children
    return ticks / os.sysconf("SC_CLK_TCK")


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def _read(lines: IO[str], told: list[Measured], step: Callable[[str], None]) -> None:
    """Take in what a side prints; a virtual machine below it may print other things."""
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and STEP in said:
            step(said[STEP])
        elif isinstance(said, dict) and FOUND in said:
            told.append(Measured(said[FOUND], said[PEAK]))


def _end(seen: set[int], process: subprocess.Popen[str]) -> None:
    """End what is left of a process tree: executors of a side that was ended do not notice at once."""
    mine = {pid for pid in seen if pid == process.pid or _parent(PROC / str(pid)) in seen | {1}}
    for pid in sorted(mine) if process.poll() is None else ():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    process.wait()


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed no error"
