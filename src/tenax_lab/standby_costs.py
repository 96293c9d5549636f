"""What standbys send: bytes with none, with active ones on one side or both, and with passive ones by sweeping."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tenax.engine.session import Session
from tenax.model.protection import Protection, Standby, Strategy
from tenax.pictures.figures import Curve, Panel
from tenax.store.records import JsonObject, integer, text
from tenax_lab.element_chain import (
    NODES,
    PATIENT,
    PROTECTED,
    SELDOM,
    Load,
    chain,
    chain_settings,
    run_chain,
)
from tenax_lab.processes import run_apart
from tenax_lab.results import Claim, Findings, Progress, Table
from tenax_lab.sides.sides import Series, Step, serve

DEADLINE_S = 3_600.0
NONE, ONE_SIDE, BOTH_SIDES, PASSIVE = "none", "active, output off", "active, both send", "passive, sweeping"
SIDES = (NONE, ONE_SIDE, BOTH_SIDES, PASSIVE)
PASSIVE_GOAL_PERCENT = 10.0
BATCHES_PER_S = 6  # of event time: a batch of 500 stands for 3,000 elements/s


@dataclass(frozen=True, slots=True)
class Plan:
    """For each rate so many `batches` of every side; passive ones for `intervals` of `interval` batches."""

    rates: tuple[int, ...]
    batches: int
    interval: int
    intervals: int

    def load(self, side: str, rate: int) -> Load:
        """What a side runs at a rate."""
        batches = self.interval * self.intervals if side == PASSIVE else self.batches
        return Load(batches, rate // BATCHES_PER_S)

    @property
    def steps(self) -> int:
        """How many runs there are."""
        return len(self.rates) * len(SIDES)


FULL = Plan((1_500, 6_000, 24_000), 12, 20, 3)
QUICK = Plan((3_000,), 4, 6, 2)
PLANS = {"full": FULL, "quick": QUICK}


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Run all sides in one session, in a process of its own."""
    plan = QUICK if quick else FULL
    progress.total(plan.steps)
    return findings(plan, run_apart(__name__, seed, quick=quick, deadline_s=DEADLINE_S, step=progress.advance))


def protection(side: str, interval: int) -> Protection:
    """What a side asks for: all elements but the source are protected alike."""
    if side == PASSIVE:
        return Protection(checkpoint=Strategy.SWEEPING.value, checkpoint_every=interval)
    mode = {ONE_SIDE: Standby.ACTIVE, BOTH_SIDES: Standby.ACTIVE_ACTIVE}.get(side)
    return Protection(checkpoint_every=SELDOM, standby=dict.fromkeys(PROTECTED, mode) if mode else {})


def measure(arguments: JsonObject, step: Step) -> Series:
    """Bytes of all sides at all rates."""
    plan, work = PLANS[text(arguments, "plan")], Path(text(arguments, "work"))
    seed = integer(arguments, "seed")
    session = Session(work / "cluster", PATIENT)
    found: Series = {}
    try:
        for rate, side in product(plan.rates, SIDES):
            load, folder = plan.load(side, rate), work / f"bytes-{rate}-{SIDES.index(side)}"
            application = chain(seed, load, folder / "results", rate=rate)
            settings = chain_settings(protection(side, plan.interval), load)
            found |= run_chain(application, folder / "store", settings, session).series(f"{side} {rate}")
            step(f"{side}, {rate:,} elements/s")
    finally:
        session.stop()
    return found


@dataclass(frozen=True, slots=True)
class Sent:
    """What a side sent for each element: messages in a batch, bytes from node to node, and bytes to the store."""

    messages: float
    message_bytes: float
    checkpoint_bytes: float

    @property
    def bytes(self) -> float:
        """All of it, for each element."""
        return self.message_bytes + self.checkpoint_bytes


def sent_by(plan: Plan, side: str, rate: int, found: Mapping[str, Sequence[float]]) -> Sent:
    """What a side sent after its first batch; a passive one after its first interval, without the last checkpoint."""
    load, name = plan.load(side, rate), f"{side} {rate}"
    first = plan.interval if side == PASSIVE else 1

    def column(what: str) -> Sequence[float]:
        return found[f"{name} {what}"]

    passes = [place for place, last in enumerate(column("last")) if last > first]
    batches = load.batches - first
    stored = 0.0
    if side == PASSIVE:
        kept = [place for place, batch in enumerate(column("batch")) if first <= batch < load.batches]
        stored = sum(column("state bytes")[place] + column("queue bytes")[place] for place in kept)
    elements = batches * load.batch_rows
    return Sent(
        sum(column("messages")[place] for place in passes) / batches,
        sum(column("sent bytes")[place] for place in passes) / elements,
        stored / elements,
    )


def findings(plan: Plan, found: Mapping[str, Sequence[float]]) -> Findings:
    """Tables, claims and pictures of recorded series."""
    sent = {(side, rate): sent_by(plan, side, rate, found) for rate, side in product(plan.rates, SIDES)}
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024], 8 tasks, 2 on each node",
            "state, elements": Load(1, 1).groups,
            "batches for each element/s": f"a batch stands for 1/{BATCHES_PER_S} s",
            "passive": f"a sweep every {plan.interval} batches",
        },
        tables=(_sent_table(plan, sent),),
        claims=_claims(plan, sent),
        remarks=_remarks(plan, sent),
        panels=_panels(plan, sent),
        panel_columns=2,
    )


def _sent_table(plan: Plan, sent: Mapping[tuple[str, int], Sent]) -> Table:
    return Table(
        "What is sent for each element",
        ("elements/s", "standby", "messages a batch", "bytes between nodes", "bytes to the store", "times none"),
        tuple(
            (rate, side, one.messages, one.message_bytes, one.checkpoint_bytes, one.bytes / sent[NONE, rate].bytes)
            for rate in plan.rates
            for side, one in ((side, sent[side, rate]) for side in SIDES)
        ),
    )


def _times(plan: Plan, sent: Mapping[tuple[str, int], Sent], side: str) -> list[float]:
    return [sent[side, rate].bytes / sent[NONE, rate].bytes for rate in plan.rates]


def _claims(plan: Plan, sent: Mapping[tuple[str, int], Sent]) -> tuple[Claim, ...]:
    over = f"median over {len(plan.rates)} rates"
    added = [100 * (one - 1) for one in _times(plan, sent, PASSIVE)]
    spread = f"{min(added):.3g} to {max(added):.3g} % over {len(added)} rates"
    return (
        *(
            Claim(
                f"bytes sent, {what}, for one without a standby",
                paper,
                _middle(_times(plan, sent, side)),
                "times",
                over,
            )
            for side, what, paper in (
                (ONE_SIDE, "active on one side", "about 2"),
                (BOTH_SIDES, "active on both sides", "about 4"),
            )
        ),
        Claim("bytes that passive standby by sweeping adds", "about 10 %", _middle(added), "%", spread),
        Claim(
            "bytes that passive standby by sweeping adds",
            f"at most {PASSIVE_GOAL_PERCENT:g} %",
            max(added),
            "%",
            f"the most of {len(added)} rates; {_met(max(added) <= PASSIVE_GOAL_PERCENT)}",
            "we aim at",
        ),
    )


def _remarks(plan: Plan, sent: Mapping[tuple[str, int], Sent]) -> tuple[str, ...]:
    fastest = plan.rates[-1]
    none, passive = sent[NONE, fastest], sent[PASSIVE, fastest]
    return (
        "all elements but the source are protected alike, so every stream between nodes is counted; the paper counts "
        "one part of its chain",
        "with the output of standbys off, whoever sends does so to both copies; with both copies sending, each of them "
        "does. The paper's None-AS counts what the second copy sends as well; here a copy that lies on the node of its "
        "producer costs no message",
        "a standby reads the log of the source itself, which costs no messages",
        f"at {fastest:,} elements/s passive standby writes {passive.checkpoint_bytes:.3g} bytes an element to the "
        f"store beside {passive.message_bytes:.3g} between nodes (none: {none.message_bytes:.3g})",
    )


def _panels(plan: Plan, sent: Mapping[tuple[str, int], Sent]) -> tuple[Panel, ...]:
    rates = tuple(float(rate) for rate in plan.rates)
    bytes_sent = tuple(
        Curve(side, rates, tuple(sent[side, rate].bytes * rate / 1_000 for rate in plan.rates), look)
        for look, side in enumerate(SIDES)
    )
    times = tuple(Curve(side, rates, tuple(_times(plan, sent, side)), look) for look, side in enumerate(SIDES))
    return (
        Panel(
            "Bytes sent", "elements/s", "KB/s", bytes_sent, claim="none, × 2, × 4, + 10 % (Figure 5)", logarithmic=True
        ),
        Panel(
            "Bytes sent, times those without a standby",
            "elements/s",
            "times",
            times,
            claim="1, 2, 4, 1.1",
            y_range=(0.0, 1.6 * max(max(curve.y) for curve in times)),
        ),
    )


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def _met(met: bool) -> str:
    return "met" if met else "not met"


if __name__ == "__main__":
    serve(measure)
