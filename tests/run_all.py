"""Every check and test of `make test`, in parts side by side: those on Spark wait half of their time.

A part writes to a file of its own. When all have ended, these are shown in order, then the ten slowest tests of all and
the time that everything took together. The exit code is 1 if any part failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "test"
BIN = Path(sys.executable).parent
SLOWEST = 10
DEADLINE_S = 3_600.0  # of a part: on a machine that is five times slower none takes as long
GRACE_S = 60.0  # for a part that is interrupted to end what it has started
POLL_S = 0.2


@dataclass(slots=True)
class Part:
    """Commands that run one after the other until one fails, and what they have said."""

    name: str
    commands: Sequence[Sequence[str]]
    patience: int = 0  # how far it gives way: to the longest part, and to those that are paced by the clock
    started_s: float = 0.0
    seconds: float = 0.0
    failed: bool = False
    process: subprocess.Popen[bytes] | None = None
    waiting: list[Sequence[str]] = field(default_factory=list)
    log: IO[bytes] | None = None

    def start(self) -> None:
        self.log = (OUT / f"{self.name}.log").open("wb")
        self.started_s = time.monotonic()
        self.waiting = list(self.commands)
        self._next()

    def _next(self) -> None:
        command = ["nice", "-n", str(self.patience), *self.waiting.pop(0)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log, start_new_session=True)

    def runs(self) -> bool:
        """Whether it still runs; begins its next command if one has ended well."""
        if self.process is None:
            return False
        code = self.process.poll()
        self.seconds = time.monotonic() - self.started_s
        if code is None:
            if self.seconds > DEADLINE_S:
                self.end()
                self._fail(f"did not end within {DEADLINE_S:g} s")
        elif code != 0:
            self._fail(f"ended with {code}")
        elif self.waiting:
            self._next()
        else:
            self.process = None
        return self.process is not None

    def _fail(self, why: str) -> None:
        assert self.process is not None
        assert self.log is not None
        self.log.write(f"{' '.join(map(str, self.process.args))} {why}\n".encode())  # type: ignore[arg-type]
        self.log.flush()
        self.failed, self.process = True, None

    def end(self) -> None:
        """Interrupt it, and end what is left of it after a while."""
        if self.process is None:
            return
        for number, patience_s in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, None)):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                try:
                    self.process.wait(patience_s)
                except subprocess.TimeoutExpired:
                    continue


def tested(name: str, *arguments: str) -> list[str]:
    """Pytest on some files; what took how long goes to a file that this one reads."""
    command = [sys.executable, "-m", "pytest", "-m", "not long", "--durations=1", "--durations-min=1000"]
    return [*command, *report(name), *arguments]


def report(name: str) -> list[str]:
    return [f"--junitxml={OUT / name}.xml", "-o", "junit_duration_report=total"]


def parts() -> list[Part]:
    """What there is to do, the longest first."""
    return [
        Part("chaos", [tested("chaos", "tests/spark", "--on=four")]),
        Part("clusters", [tested("clusters", "tests/spark", "--on=own")], patience=2),
        Part("spark", [tested("spark", "tests/spark", "--on=two")], patience=2),
        Part("pure", [tested("pure", "tests", "--ignore=tests/spark")], patience=5),
        Part(
            "static",
            [[str(BIN / "ruff"), "check", "."], [str(BIN / "ruff"), "format", "--check", "."], [str(BIN / "mypy")]],
            patience=5,
        ),
    ]


def slowest() -> list[tuple[float, str]]:
    """Tests by the seconds they took with what they set up."""
    cases = [case for path in OUT.glob("*.xml") for case in ElementTree.parse(path).iter("testcase")]
    taken = [(float(case.attrib["time"]), f"{case.attrib['classname']}::{case.attrib['name']}") for case in cases]
    return sorted(taken, reverse=True)[:SLOWEST]


def main() -> int:
    # Whoever runs this in the background may have it ignored, and tests of signals would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    OUT.mkdir(parents=True, exist_ok=True)
    for path in OUT.iterdir():
        path.unlink()
    begun_s = time.monotonic()
    everything = parts()
    running = list(everything)
    try:
        for part in everything:
            part.start()
        while running:
            time.sleep(POLL_S)
            for part in [part for part in running if not part.runs()]:
                running.remove(part)
                print(f"{part.name} {'failed' if part.failed else 'passed'} after {part.seconds:.0f} s", flush=True)
    finally:
        for part in running:
            part.end()
    for part in reversed(everything):
        print(f"\n===== {part.name}: {part.seconds:.0f} s =====")
        print((OUT / f"{part.name}.log").read_text(errors="replace").strip())
    print(f"\n===== the {SLOWEST} slowest tests =====")
    for seconds, name in slowest():
        print(f"{seconds:7.1f} s  {name}")
    failed = [part.name for part in everything if part.failed]
    print(f"\n{time.monotonic() - begun_s:.0f} s in all; {'failed: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
