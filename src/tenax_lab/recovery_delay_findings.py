"""Losses of a node as cases, and what they say: tables, the paper's claims beside ours, pictures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenax.chaos.schedule import Kind
from tenax.model.settings import PER_PASS, ClusterSettings
from tenax.pictures.figures import Curve, Panel
from tenax.store.records import Json, JsonObject, integer, number, text
from tenax_lab.element_chain import NODES, Load
from tenax_lab.results import Claim, Findings, Table

ACTIVE, PASSIVE = "active", "passive"
PARTS = ("detection s", "redeployment s", "replay s", "new pass s")


@dataclass(frozen=True, slots=True)
class Case:
    """A loss: the standby, whether the node is killed or hangs, its heartbeats, and batches between checkpoints."""

    standby: str
    fault: str
    heartbeat_s: float
    interval: int
    repeat: int

    @property
    def name(self) -> str:
        """For those who wait, and as the name of its measurements."""
        told = f"{self.standby}, {self.fault}, heartbeat {self.heartbeat_s:g} s, every {self.interval} batches"
        return f"{told}, run {self.repeat + 1}"

    @property
    def struck_at(self) -> int:
        """The batch after which the node is struck: the next one but one would bring its next checkpoint."""
        return 2 * self.interval - 1

    def to_json(self) -> dict[str, Json]:
        """As plain data for the process that measures."""
        return {
            "standby": self.standby,
            "fault": self.fault,
            "heartbeat_s": self.heartbeat_s,
            "interval": self.interval,
            "repeat": self.repeat,
        }

    @classmethod
    def from_json(cls, data: JsonObject) -> Case:
        """What `to_json` made plain."""
        return cls(
            text(data, "standby"),
            text(data, "fault"),
            number(data, "heartbeat_s"),
            integer(data, "interval"),
            integer(data, "repeat"),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    - Elements come at `rate` a second in batches of `batch_s`, and go on for `after` batches after a strike.
    - Killed nodes are compared over `intervals` with heartbeats every `heartbeat_s`, hung ones over `heartbeats_s`
      with a checkpoint every `interval` batches; everything `repeats` times.
    """

    rate: int
    batch_s: float
    after: int
    interval: int
    intervals: tuple[int, ...]
    heartbeats_s: tuple[float, ...]
    heartbeat_s: float
    repeats: int

    def cases(self) -> tuple[Case, ...]:
        """All losses, each once."""
        found: list[Case] = []
        for repeat in range(self.repeats):
            found += self.compared(repeat)
            found += [Case(PASSIVE, Kind.KILL.value, self.heartbeat_s, one, repeat) for one in self.intervals]
            found += [Case(PASSIVE, Kind.HANG.value, one, self.interval, repeat) for one in self.heartbeats_s]
        return tuple(dict.fromkeys(found))

    def compared(self, repeat: int) -> tuple[Case, Case]:
        """An active and a passive standby through the same kill."""
        active, passive = (
            Case(one, Kind.KILL.value, self.heartbeat_s, self.interval, repeat) for one in (ACTIVE, PASSIVE)
        )
        return active, passive

    def killed(self, interval: int) -> list[Case]:
        """The runs with a passive standby whose node was killed."""
        return [
            one
            for one in self.cases()
            if (one.standby, one.fault, one.interval) == (PASSIVE, Kind.KILL.value, interval)
        ]

    def hung(self, heartbeat_s: float) -> list[Case]:
        """The runs with a passive standby whose node hung."""
        return [one for one in self.cases() if (one.fault, one.heartbeat_s) == (Kind.HANG.value, heartbeat_s)]


@dataclass(frozen=True, slots=True)
class Delay:
    """What a loss took, in seconds, part after part; whether the results were exact."""

    parts: tuple[float, ...]
    replayed: int
    exact: bool

    @property
    def total_s(self) -> float:
        """From the strike to the first new result."""
        return sum(self.parts)


def findings(plan: Plan, found: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, claims and pictures of recorded series."""
    delays = {
        case: Delay(
            tuple(found[f"{case.name} {part}"][0] for part in PARTS),
            int(found[f"{case.name} replayed batches"][0]),
            found[f"{case.name} exact"][0] == 1.0,
        )
        for case in plan.cases()
    }
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024], 8 tasks, 2 on each node",
            "elements/s": plan.rate,
            "batch s": plan.batch_s,
            "state, elements": Load(1, 1).groups,
            "missed heartbeats": ClusterSettings().missed,
            "heartbeat s where a node is killed": plan.heartbeat_s,
            "interval where a node hangs": f"{plan.interval} batches",
            "runs of each": plan.repeats,
        },
        tables=(_table(delays),),
        claims=_claims(plan, delays),
        remarks=_remarks(plan, delays),
        panels=_panels(plan, found, delays),
        panel_columns=3,
    )


def _table(delays: Mapping[Case, Delay]) -> Table:
    return Table(
        "From the loss of a node to the first new result, in seconds",
        (
            "standby",
            "fault",
            "heartbeat s",
            "interval",
            "detection",
            "redeployment",
            "replay",
            "new pass",
            "in all",
            "batches replayed",
            "exact",
        ),
        tuple(
            (
                case.standby,
                case.fault,
                case.heartbeat_s,
                case.interval,
                *one.parts,
                one.total_s,
                one.replayed,
                "yes" if one.exact else "NO",
            )
            for case, one in delays.items()
        ),
    )


def _mean(delays: Mapping[Case, Delay], cases: Sequence[Case], part: int) -> float:
    return statistics.fmean(delays[one].parts[part] for one in cases)


def _claims(plan: Plan, delays: Mapping[Case, Delay]) -> tuple[Claim, ...]:
    pairs = [[delays[one].total_s for one in plan.compared(repeat)] for repeat in range(plan.repeats)]
    active_s, passive_s = map(statistics.fmean, zip(*pairs, strict=True))
    hung = [delays[case] for heartbeat_s in plan.heartbeats_s for case in plan.hung(heartbeat_s)]
    killed = [delays[case] for interval in plan.intervals for case in plan.killed(interval)]
    last = plan.heartbeats_s[-1]
    return (
        Claim(
            "silence at the output with an active standby, for one second with a passive one",
            "almost none: the failure is almost transparent",
            active_s / passive_s,
            "s",
            f"{active_s:.2f} s and {passive_s:.2f} s after a kill, means of {plan.repeats}",
        ),
        Claim(
            "redeployment",
            "about 500 ms",
            1000 * statistics.median(one.parts[1] for one in (*hung, *killed)),
            "ms",
            f"median of {len(hung) + len(killed)} losses with a passive standby",
        ),
        Claim(
            "the largest part of the delay where heartbeats must miss a node",
            "detection, growing linearly with the heartbeat interval",
            100 * statistics.fmean(delays[one].parts[0] / delays[one].total_s for one in plan.hung(last)),
            "% is detection",
            f"a hung node, heartbeats every {last:g} s",
        ),
        Claim(
            "replay from the shortest to the longest checkpoint interval",
            "tends to increase; the whole delay does not change much",
            _mean(delays, plan.killed(plan.intervals[-1]), 2)
            / max(1e-9, _mean(delays, plan.killed(plan.intervals[0]), 2)),
            "times",
            f"every {plan.intervals[0]} and every {plan.intervals[-1]} batches, means of {plan.repeats} kills each",
        ),
        Claim(
            "runs whose final results are those of a run without failures, to the byte",
            "all",
            100 * statistics.fmean(one.exact for one in delays.values()),
            "% of runs",
            f"{len(delays)} runs, all judged by the oracle",
            "we aim at",
        ),
    )


def _remarks(plan: Plan, delays: Mapping[Case, Delay]) -> tuple[str, ...]:
    killed = [one for case, one in delays.items() if case.fault == Kind.KILL.value]
    return (
        "detection ends when the run knows of the loss; redeployment when it begins to run what was lost on other "
        "nodes, whose workers run already; replay reads the checkpoint and steps through what came after it; new pass "
        "is the first one with new elements, to its published results. The paper counts the last two as one",
        f"a killed node is known after {statistics.median(one.parts[0] for one in killed):.2f} s (median), whatever "
        f"the heartbeats; a hung one is given up after {ClusterSettings().missed} missed ones",
        "an active standby is silent while the loss is noticed and for one pass: results come pass by pass, and what "
        "was running when the node died is run again. In the paper its copy goes on sending element by element",
        "nodes are struck just before the lost tasks would be stored again, so that replay is as long as it gets for "
        "an interval; the paper strikes at random",
        f"a round of replay is a Spark job through at most {PER_PASS} batches, and no more than an "
        "interval: time follows the number of jobs rather than of batches, and a longer interval need not cost more",
        f"the paper's intervals are 0.1 to 0.9 s and its heartbeats 0.1 to 0.5 s; ours are as long as batches of "
        f"{plan.batch_s:g} s and {NODES} virtual machines on one computer ask for",
    )


def _panels(plan: Plan, found: Mapping[str, Sequence[float]], delays: Mapping[Case, Delay]) -> tuple[Panel, ...]:
    last = plan.compared(plan.repeats - 1)  # the first ones meet a cluster that has just started
    shown = tuple(
        Curve(
            f"{case.standby} standby",
            tuple(found[f"{case.name} shown s"]),
            tuple(found[f"{case.name} shown sequence"]),
            look,
        )
        for look, case in enumerate(last)
    )
    return (
        Panel(
            "Results at the output; a node is killed at 0 s",
            f"seconds (run {plan.repeats} of each)",
            "sequence number",
            shown,
            claim="active: almost transparent; passive: a silent period (Figure 6)",
        ),
        _stacked(
            "A hung node over the heartbeat interval",
            "heartbeat interval in s",
            {one: plan.hung(one) for one in plan.heartbeats_s},
            delays,
            "detection grows linearly and dominates (Figure 7)",
        ),
        _stacked(
            "A killed node over the checkpoint interval",
            "interval in batches",
            {float(one): plan.killed(one) for one in plan.intervals},
            delays,
            "replay tends to grow, the whole does not change much (Figure 8)",
        ),
    )


def _stacked(
    title: str, x_label: str, cases: Mapping[float, Sequence[Case]], delays: Mapping[Case, Delay], claim: str
) -> Panel:
    """The parts on top of each other, mean over the runs; each band is a part."""
    places = tuple(cases)
    levels = [tuple(0.0 for _ in places)]
    for part in range(len(PARTS)):
        levels.append(tuple(low + _mean(delays, cases[at], part) for low, at in zip(levels[-1], places, strict=True)))
    curves = tuple(
        Curve(
            ("detection", "+ redeployment", "+ replay", "+ new pass: all")[part],
            places,
            levels[part + 1],
            part,
            spread=tuple(zip(levels[part], levels[part + 1], strict=True)),
        )
        for part in reversed(range(len(PARTS)))
    )
    room = 0.0, 1.5 * max(levels[-1])  # for the legend
    return Panel(title, x_label, "seconds since the loss", curves, claim=claim, y_range=room)
