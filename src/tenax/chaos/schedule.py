"""Which faults happen when: written by a user, or drawn at random from a seed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from tenax.chaos.record import Moment, What
from tenax.errors import InvalidRequest
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task
from tenax.model.topology_versions import Target, parse_tasks

ALL = "all"
NODES = "nodes"  # in a rescale: not an operator, but how many nodes there are to be
MAX_FAULTS = 3  # of a random schedule
MAX_TASKS = 6  # that a random rescale gives an operator


class Kind(StrEnum):
    """What a fault does."""

    KILL = "kill"
    """Executors end at once, and are not replaced."""
    HANG = "hang"
    """Executors stop answering; they are ended for good once the run has given them up."""
    HANG_WORKERS = "hang-workers"
    """The Python workers of executors stop, and what forks them; the executors go on, and report that they live."""
    RETURN = "return"
    """The cluster gives as many nodes more, up to those it began with."""
    RESCALE = "rescale"
    """Operators are asked to have other numbers of tasks, the run another number of nodes: what faults fall into."""
    DRIVER = "driver"
    """The driver and its virtual machine end at once; a new driver goes on from the store."""


class Unit(StrEnum):
    """What the time of a fault counts."""

    SECONDS = "s"
    """Since the first result was published."""
    BATCHES = "b"
    """Finished."""
    ROUNDS = "r"
    """Rounds of recovery begun."""
    CHECKPOINTS = "c"
    """Checkpoints begun."""


@dataclass(frozen=True, slots=True)
class When:
    """The moment of a fault; `12b` is when batch 12 is finished."""

    amount: float
    unit: Unit

    def __str__(self) -> str:
        return f"{self.amount:g}{self.unit}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `what` is a number of nodes, `all`, a rack, or tasks whose nodes are meant (`a[0]+b[1]`).

    Of a rescale it is numbers of tasks, and of nodes: `speed=4,nodes=6`.
    """

    kind: Kind
    what: str
    when: When

    @property
    def target(self) -> Target:
        """What a rescale is to lead to."""
        tasks = parse_tasks([self.what])
        nodes = tasks.pop(NODES, None)
        return Target(tasks, nodes, "asked for by chaos")

    def __str__(self) -> str:
        return f"--kill-driver {self.when}" if self.kind is Kind.DRIVER else f"--{self.kind} {self.what}@{self.when}"


Schedule = tuple[Fault, ...]

_WHEN = re.compile(r"(\d+(?:\.\d+)?)([sbrc])")
_WHAT = re.compile(r"\d+|all|rack\d+|[\w-]+\[\d+\](?:\+[\w-]+\[\d+\])*")


def parse_fault(kind: Kind, text: str) -> Fault:
    """A fault as written: WHAT@WHEN, for the driver WHEN alone."""
    if kind is Kind.DRIVER:
        return Fault(kind, "", parse_when(text))
    what, sign, when = text.partition("@")
    if kind is Kind.RESCALE:
        if not sign or not parse_tasks([what]):
            raise InvalidRequest(
                f"a rescale is written OPERATOR=TASKS@WHEN, found {text!r}: write it like speed=4,nodes=6@10s"
            )
        return Fault(kind, what, parse_when(when))
    if not sign or not _WHAT.fullmatch(what) or what == "0":
        raise InvalidRequest(
            "a fault is written WHAT@WHEN, where WHAT is a number of nodes, all, a rack (rack1) or tasks (speed[0]+"
            f"join[1]), found {text!r}: write for example 2@10s"
        )
    if kind is Kind.RETURN and not (what == ALL or what.isdigit()):
        raise InvalidRequest(f"nodes return by number, found {text!r}: write for example 1@60s or all@60s")
    return Fault(kind, what, parse_when(when))


def parse_when(text: str) -> When:
    """A moment as written: `10s`, `12b`, `1r`, `2c`."""
    match = _WHEN.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            "the time of a fault is 10s (seconds after the first result), 12b (batches finished), 1r (rounds of "
            f"recovery begun) or 2c (checkpoints begun), found {text!r}: write it so"
        )
    return When(float(match[1]), Unit(match[2]))


def check(schedule: Schedule, nodes: int, racks: int | None) -> None:
    """Refuse faults of what a cluster does not have."""
    for fault in schedule:
        if fault.what.isdigit() and int(fault.what) > nodes:
            raise InvalidRequest(f"a cluster of {nodes} nodes loses at most those, found {fault}: raise --nodes")
        rack = re.fullmatch(r"rack(\d+)", fault.what)
        if rack is not None and not 1 <= int(rack[1]) <= (racks or 0):
            raise InvalidRequest(f"there are {racks or 0} racks, counted from rack1, found {fault}: raise --racks")


def check_tasks(schedule: Schedule, graph: TaskGraph) -> None:
    """Refuse faults of tasks that a topology does not have."""
    for fault in schedule:
        graph.numbers(Task.parse(text) for text in fault.what.split("+") if "[" in text)
        for name in fault.target.parallelism if fault.kind is Kind.RESCALE else ():
            graph.topology.operator(name)


@dataclass(slots=True)
class Progress:
    """How far a run has come, as its moments tell; over all of its drivers."""

    first_result_s: float | None = None
    batches: int = 0
    rounds: int = 0
    checkpoints: int = 0

    def learn(self, moments: Iterable[Moment]) -> None:
        """Take in what happened next."""
        for moment in moments:
            match moment.what, moment.detail:
                case What.PUBLISHED, _ if self.first_result_s is None:
                    self.first_result_s = moment.at_s
                case What.PASS_ENDED, {"kind": "live", "last": int(last)}:
                    self.batches = max(self.batches, last)
                case What.PASS_BEGUN, {"kind": "round"}:
                    self.rounds += 1
                case What.CHECKPOINT_BEGUN, _:
                    self.checkpoints += 1
                case _:
                    pass

    def reached(self, when: When, now_s: float) -> bool:
        """Whether it is time."""
        match when.unit:
            case Unit.SECONDS:
                return self.first_result_s is not None and now_s >= self.first_result_s + when.amount
            case Unit.BATCHES:
                return self.batches >= when.amount
            case Unit.ROUNDS:
                return self.rounds >= when.amount
            case Unit.CHECKPOINTS:
                return self.checkpoints >= when.amount


def random_schedule(seed: int, nodes: int, racks: int | None, within: int, *, driver: bool = True) -> Schedule:
    """One to three faults in the first `within` batches, and nodes that return one by one, most of the time.

    The same arguments give the same schedule.
    """
    dice = Random(seed)
    faults: list[Fault] = []
    latest = max(2, within - 2)
    for at in sorted(dice.randint(2, latest) for _ in range(dice.randint(1, MAX_FAULTS))):
        faults += _fault(dice, at, nodes, racks, latest, driver=driver)
    return tuple(sorted(faults, key=lambda fault: fault.when.amount))


def random_rescales(seed: int, operators: Sequence[str], count: int, within: int, nodes: int) -> Schedule:
    """So many rescales in the first `within` batches, of one operator each, some with another number of nodes.

    They are drawn apart from faults: a seed gives the same faults with and without them.
    """
    dice = Random(f"rescales {seed}")
    schedule = []
    for _ in range(count if operators else 0):
        what = f"{dice.choice(operators)}={dice.randint(1, MAX_TASKS)}"
        if dice.random() < 0.3:
            what += f",{NODES}={dice.randint(2, max(2, nodes))}"
        schedule.append(Fault(Kind.RESCALE, what, When(dice.randint(1, max(2, within - 2)), Unit.BATCHES)))
    return tuple(sorted(schedule, key=lambda fault: fault.when.amount))


def _fault(dice: Random, at: int, nodes: int, racks: int | None, latest: int, *, driver: bool) -> list[Fault]:
    """A fault at a batch, and the returns that belong to it."""
    when = When(at, Unit.BATCHES)
    roll = dice.random()
    if driver and roll < 0.15:
        return [Fault(Kind.DRIVER, "", when)]
    if racks and roll < 0.35:
        what, count = f"rack{dice.randint(1, racks)}", -(-nodes // racks)
    elif roll < 0.45:
        what, count = ALL, nodes
    else:
        count = dice.choice([1, 1, 2, dice.randint(1, nodes)])
        count = min(count, nodes)
        what = str(count)
    hangs = count == 1 and dice.random() < 0.3  # several at once would take the machine, not the cluster
    hung = dice.choice([Kind.HANG, Kind.HANG_WORKERS])
    back = [Fault(hung if hangs else Kind.KILL, what, when)]
    later = at
    for _ in range(dice.randint(0, count)):  # some never return, and the rest must do
        later = min(latest, later + dice.randint(0, 4))
        back.append(Fault(Kind.RETURN, "1", When(later, Unit.BATCHES)))
    return back
