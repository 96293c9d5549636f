"""A driver in a process of its own, so that it can be killed; the next one goes on from its store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tenax.chaos.record import Moment, Outcome, Timeline, What
from tenax.chaos.runs import TIMELINE, Around, Trial, run_and_judge
from tenax.chaos.schedule import Fault, Kind, Progress, Unit, When
from tenax.control.records import Data
from tenax.engine.loading import load_application
from tenax.engine.processes import children, kill_marked, marked
from tenax.errors import ClusterFailed, TenaxError
from tenax.model.settings import Settings

POLL_S = 0.02
DEADLINE_S = 1_800.0
GRACE_S = 1.0  # for executors to notice that their driver is gone
PARENT_LOOK_S = 0.5
OUTCOME, LOG = "outcome.json", "driver.log"
MARK = "TENAX_TRIAL"


@dataclass(frozen=True, slots=True)
class Child:
    """A driver in a process of its own, and the mark by which all that it starts is known."""

    process: subprocess.Popen[bytes]
    mark: str


@dataclass(frozen=True, slots=True)
class Command:
    """What a child is told: the application's file and its options, the trial, where to put it, when it began."""

    file: str
    options: Mapping[str, object]
    out: str
    trial: Trial
    origin_s: float

    def to_json(self) -> str:
        """For the command line of the child."""
        data = asdict(self)
        data["trial"]["settings"] = self.trial.settings.to_data()
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Command:
        """What `to_json` wrote."""
        data = json.loads(text)
        trial = data.pop("trial")
        schedule = tuple(
            Fault(Kind(fault["kind"]), fault["what"], When(fault["when"]["amount"], Unit(fault["when"]["unit"])))
            for fault in trial.pop("schedule")
        )
        return cls(trial=Trial(Settings.from_data(trial["settings"]), schedule, trial["seed"]), **data)


def run_in_processes(
    file: Path,
    options: Mapping[str, object],
    out: Path,
    trial: Trial,
    tell: Callable[[Moment], None] = lambda _: None,
) -> Outcome:
    """Run an application under faults in child processes, a new one after every death of the driver, and judge it.

    `tell` is called with every moment, soon after it was.
    """
    out.mkdir(parents=True, exist_ok=True)
    origin_s = time.monotonic()
    command = Command(str(file), options, str(out.resolve()), trial, origin_s)
    watch = _Watch(Timeline(out / TIMELINE), origin_s, tell)
    kills = [(number, fault) for number, fault in enumerate(trial.schedule) if fault.kind is Kind.DRIVER]
    for _ in range(len(kills) + 1):  # every driver but the last is killed
        with _child(command, out / LOG) as child:
            if not _killed_in_time(child, watch, kills):
                return _told(child.process, out)
    raise ClusterFailed(f"the last driver is not killed, found {len(kills)} kills of it: see {out / LOG}")


class _Watch:
    """Follows a timeline that another process writes."""

    def __init__(self, timeline: Timeline, origin_s: float, tell: Callable[[Moment], None]) -> None:
        self.timeline = timeline
        self.origin_s = origin_s
        self.progress = Progress()
        self.over = False
        self._tell = tell
        self._seen = 0
        self._size = 0

    def look(self) -> None:
        size = self.timeline.path.stat().st_size if self.timeline.path.exists() else 0
        if size == self._size:
            return
        self._size = size
        new = self.timeline.read()[self._seen :]
        self._seen += len(new)
        self.progress.learn(new)
        for moment in new:
            self.over = self.over or moment.what is What.STOPPED
            self._tell(moment)

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.origin_s


def _killed_in_time(child: Child, watch: _Watch, kills: list[tuple[int, Fault]]) -> bool:
    """Wait until a kill of the driver is due and carry it out; false if the driver ends by itself before."""
    deadline = time.monotonic() + DEADLINE_S
    while child.process.poll() is None:
        if time.monotonic() > deadline:
            raise ClusterFailed(
                f"a run under faults ends within {DEADLINE_S:g} s, found it going on: shorten its input"
            )
        watch.look()
        due = next(((number, kill) for number, kill in kills if watch.progress.reached(kill.when, watch.now_s)), None)
        if due is not None and not watch.over:  # then only the judges are at work
            kills.remove(due)
            number, fault = due
            detail: dict[str, Data] = {"number": number, "fault": str(fault), "kind": fault.kind.value, "nodes": []}
            watch.timeline.append(Moment(watch.now_s, What.FAULT, detail))
            end_driver(child.process, child.mark)
            return True
        time.sleep(POLL_S)
    watch.look()
    return False


@contextlib.contextmanager
def _child(command: Command, log: Path) -> Iterator[Child]:
    """A driver that no signal of the terminal reaches, and that ends with this, as does all that it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}  # of another cluster
    mark = uuid.uuid4().hex
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tenax.chaos.process", command.to_json()],
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield Child(process, mark)
        finally:
            end_driver(process, mark)


def end_driver(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill a driver with its virtual machine, if they live, and make sure that nothing they started goes on.

    Executors end by themselves when they miss the driver; those that have not done so after a while are killed, too:
    all processes below a driver carry its mark in their environment.
    """
    for pid in [process.pid, *children(process.pid)]:
        _kill(pid)
    process.wait()
    grace = time.monotonic() + GRACE_S
    while marked(MARK, mark) and time.monotonic() < grace:
        time.sleep(POLL_S)
    kill_marked(MARK, mark)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _told(process: subprocess.Popen[bytes], out: Path) -> Outcome:
    """What a driver that has ended left behind."""
    if process.returncode == 0:
        return Outcome.from_json((out / OUTCOME).read_text())
    lines = (out / LOG).read_text(errors="replace").strip().splitlines()
    said = lines[-1] if lines else f"exit code {process.returncode}"
    raise ClusterFailed(f"{said.removeprefix('tenax: ')}: see {out / LOG}")


def main() -> int:
    """The child: run what the command says, with the faults that no earlier driver has met, then ask both judges."""
    command = Command.from_json(sys.argv[1])
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    out, trial = Path(command.out), command.trial
    try:
        application = load_application(Path(command.file), command.options)
        result = run_and_judge(application, out, trial, around=Around(origin_s=lambda: command.origin_s))
    except TenaxError as error:
        sys.stderr.write(f"tenax: {' '.join(str(error).split())}\n")
        return 1
    (out / OUTCOME).write_text(result.to_json())
    return 0


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: its outcome would be read by nothing."""
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main())
