"""What standbys send from node to node over the rate of elements, and what checkpoints cost in throughput."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tenax.control.state import Strategy
from tenax.engine.application import ACTIVE, BOTH, Protection
from tenax.engine.peers.sides import Series, Step, serve
from tenax.engine.session import Session
from tenax.engine.store.records import JsonObject, integer, text
from tenax.experiments.element_chain import (
    NODES,
    PATIENT,
    PROTECTED,
    SELDOM,
    Load,
    chain,
    chain_settings,
    run_chain,
)
from tenax.experiments.processes import run_side
from tenax.experiments.results import Cell, Claim, Findings, Progress, Table
from tenax.pictures.figures import Curve, Panel, Reference

DEADLINE_S = 3_600.0
NONE, ONE_SIDE, BOTH_SIDES, PASSIVE = "none", "active, output off", "active, both send", "passive, sweeping"
SIDES = (NONE, ONE_SIDE, BOTH_SIDES, PASSIVE)
WITHOUT, AGAIN = "no checkpoints", "no checkpoints, again"
STRATEGIES = {
    "aligned": Strategy.ALIGNED,
    "sweeping": Strategy.SWEEPING,
}
PASSIVE_GOAL_PERCENT = 10.0
THROUGHPUT_GOAL_PERCENT = 5.0
CONFIDENCE = 0.95
BATCHES_PER_S = 6  # of event time: a batch of 500 stands for 3,000 elements/s


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    - Bytes: for each rate so many `batches` of every side; passive ones for `intervals` of `interval` batches.
    - Throughput: a run that is not counted, then `rounds`, a checkpoint every `every` batches of `busy`, the first
      `warmup` of which are not counted either. A round begins and ends without checkpoints.
    """

    rates: tuple[int, ...]
    batches: int
    interval: int
    intervals: int
    busy: Load
    every: int
    warmup: int
    rounds: int

    def load(self, side: str, rate: int) -> Load:
        """What a side runs at a rate."""
        batches = self.interval * self.intervals if side == PASSIVE else self.batches
        return Load(batches, rate // BATCHES_PER_S)

    @property
    def steps(self) -> int:
        """How many runs there are."""
        return len(self.rates) * len(SIDES) + 1 + self.rounds * len(in_turn(0))


FULL = Plan((1_500, 6_000, 24_000), 12, 20, 3, Load(25, 100_000), 10, 5, 15)
QUICK = Plan((3_000,), 4, 6, 2, Load(8, 2_000), 4, 2, 1)
PLANS = {"full": FULL, "quick": QUICK}


def in_turn(number: int) -> tuple[str, ...]:
    """The sides of a round: strategies between two runs without checkpoints, in every other round the other way."""
    between = tuple(STRATEGIES)
    return (WITHOUT, *(between[::-1] if number % 2 else between), AGAIN)


def run(seed: int, quick: bool, progress: Progress) -> Findings:
    """Run all sides in one session, in a process of its own."""
    plan = QUICK if quick else FULL
    progress.total(plan.steps)
    with tempfile.TemporaryDirectory(prefix="tenax-standby-costs-") as folder:
        found = run_side(
            "tenax.experiments.standby_costs",
            {"work": folder, "seed": seed, "plan": "quick" if quick else "full"},
            deadline_s=DEADLINE_S,
            step=progress.advance,
        ).series
    return findings(plan, found)


def protection(side: str, interval: int) -> Protection:
    """What a side asks for: all elements but the source are protected alike."""
    if side == PASSIVE:
        return Protection(checkpoint=Strategy.SWEEPING.value, checkpoint_every=interval)
    mode = {ONE_SIDE: ACTIVE, BOTH_SIDES: BOTH}.get(side)
    return Protection(checkpoint_every=SELDOM, standby=dict.fromkeys(PROTECTED, mode) if mode else {})


def measure(arguments: JsonObject, step: Step) -> Series:
    """Bytes of all sides at all rates, then rows per second with and without checkpoints, in turn."""
    plan, work = PLANS[text(arguments, "plan")], Path(text(arguments, "work"))
    seed = integer(arguments, "seed")
    session = Session(work / "cluster", NODES, heartbeat=PATIENT)
    found: Series = {}
    try:
        for rate, side in product(plan.rates, SIDES):
            load, folder = plan.load(side, rate), work / f"bytes-{rate}-{SIDES.index(side)}"
            application = chain(seed, load, folder / "results", rate=rate)
            settings = chain_settings(application, protection(side, plan.interval), load)
            found |= run_chain(application, folder / "store", settings, session).series(f"{side} {rate}")
            step(f"{side}, {rate:,} elements/s")
        # Code is compiled for batches of this size: nobody's cost.
        _throughput(plan, seed, session, work / "warm", WITHOUT)
        step("throughput, a run that is not counted")
        for number in range(plan.rounds):
            for name in in_turn(number):
                rows_per_s, share = _throughput(plan, seed, session, work / f"busy-{number}-{name}", name)
                found.setdefault(f"{name} rows/s", []).append(rows_per_s)
                found.setdefault(f"{name} share", []).append(share)
                step(f"throughput, {name}, round {number + 1}")
    finally:
        session.stop()
    return found


def _throughput(plan: Plan, seed: int, session: Session, folder: Path, name: str) -> tuple[float, float]:
    """Rows per second of the chain with a part of every element on each node, and protection's share of its work."""
    application = chain(seed, plan.busy, folder / "results", parallelism=NODES)
    strategy = STRATEGIES.get(name)
    asked = Protection(checkpoint_every=SELDOM)
    if strategy is not None:
        asked = Protection(checkpoint=strategy.value, checkpoint_every=plan.every)
    settings = chain_settings(application, asked, plan.busy, cut=False)
    ledger = run_chain(application, folder / "store", settings, session)
    return ledger.rows_per_s(plan.busy, plan.warmup), ledger.costs.share


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
    costs = {name: _costs(found, name) for name in (*STRATEGIES, AGAIN)}
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024], 8 tasks, 2 on each node",
            "state, elements": Load(1, 1).groups,
            "batches for each element/s": f"a batch stands for 1/{BATCHES_PER_S} s",
            "passive": f"a sweep every {plan.interval} batches",
            "throughput": f"{NODES} tasks of each element, {plan.busy.batch_rows:,} elements a batch, "
            f"a checkpoint every {plan.every} batches, {plan.busy.batches - plan.warmup} batches measured",
            "rounds": plan.rounds,
        },
        tables=(_sent_table(plan, sent), _throughput_table(found, costs)),
        claims=_claims(plan, sent, costs),
        remarks=_remarks(plan, sent, costs[AGAIN]),
        panels=_panels(plan, sent, costs),
        panel_columns=3,
    )


def _costs(found: Mapping[str, Sequence[float]], name: str) -> list[float]:
    """Percent of throughput that a side costs, round by round.

    Compared with the two runs without checkpoints around it, so that a machine that becomes faster or slower meanwhile
    counts for nobody; the second of them with the first.
    """
    before, after = found[f"{WITHOUT} rows/s"], found[f"{AGAIN} rows/s"]
    pairs = zip(before, before if name == AGAIN else after, strict=True)
    return [
        100 * (1 - one / statistics.harmonic_mean(pair))
        for one, pair in zip(found[f"{name} rows/s"], pairs, strict=True)
    ]


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


def _throughput_table(found: Mapping[str, Sequence[float]], costs: Mapping[str, Sequence[float]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name in (WITHOUT, *costs):
        percent = costs.get(name)
        spread = (None, None, None) if percent is None else (_middle(percent), *_likely(percent))
        rows.append((name, _middle(found[f"{name} rows/s"]), *spread, 100 * _middle(found[f"{name} share"])))
    return Table(
        "Throughput without failures",
        ("checkpoints", "elements/s", "costs %", "likely from %", "to %", "processor time of protection %"),
        tuple(rows),
    )


def _times(plan: Plan, sent: Mapping[tuple[str, int], Sent], side: str) -> list[float]:
    return [sent[side, rate].bytes / sent[NONE, rate].bytes for rate in plan.rates]


def _claims(
    plan: Plan, sent: Mapping[tuple[str, int], Sent], costs: Mapping[str, Sequence[float]]
) -> tuple[Claim, ...]:
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
        *(
            Claim(
                f"throughput that {name} checkpoints cost",
                f"at most {THROUGHPUT_GOAL_PERCENT:g} %",
                _middle(costs[name]),
                "%",
                f"likely {_range(costs[name])} by {len(costs[name])} rounds; "
                f"{_verdict(costs[name], THROUGHPUT_GOAL_PERCENT)}",
                "we aim at",
            )
            for name in STRATEGIES
        ),
    )


def _remarks(plan: Plan, sent: Mapping[tuple[str, int], Sent], equal: Sequence[float]) -> tuple[str, ...]:
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
        "throughput is measured in one session, with a part of every element on each node; costs are against the two "
        "runs without checkpoints that begin and end a round",
        f"two equal sides, those without checkpoints, differ by {_middle(equal):.2g} % (likely {_range(equal)}): what "
        "is smaller than that, this machine cannot tell. The likely range of a median is where the true one lies with "
        f"{CONFIDENCE:.0%} confidence; of fewer than 6 rounds, all that was seen",
        "swept tasks keep no outputs while nothing fails: a sweep stores consumers before their producers, which can "
        "make again whatever a lost consumer asks for",
    )


def _panels(
    plan: Plan, sent: Mapping[tuple[str, int], Sent], costs: Mapping[str, Sequence[float]]
) -> tuple[Panel, ...]:
    rates = tuple(float(rate) for rate in plan.rates)
    bytes_sent = tuple(
        Curve(side, rates, tuple(sent[side, rate].bytes * rate / 1_000 for rate in plan.rates), look)
        for look, side in enumerate(SIDES)
    )
    times = tuple(Curve(side, rates, tuple(_times(plan, sent, side)), look) for look, side in enumerate(SIDES))
    rounds = tuple(
        Curve(name, tuple(float(one + 1) for one in range(len(percent))), tuple(percent), look)
        for look, (name, percent) in enumerate(costs.items())
        if name in STRATEGIES
    )
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
        Panel(
            "Throughput that checkpoints cost",
            "round",
            "% of that without",
            rounds,
            references=(Reference(f"goal: {THROUGHPUT_GOAL_PERCENT:g} %", THROUGHPUT_GOAL_PERCENT),),
        ),
    )


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def _likely(values: Sequence[float]) -> tuple[float, float]:
    """Between what the true median lies: values whose ranks a fair coin makes unlikely to be all on one side of it."""
    ordered, count, rank = sorted(values), len(values), 0
    tail = 1 / 2**count
    while tail <= (1 - CONFIDENCE) / 2:  # ends: half of all at the latest
        rank += 1
        tail += math.comb(count, rank) / 2**count
    rank = max(rank, 1)
    return ordered[rank - 1], ordered[-rank]


def _range(values: Sequence[float]) -> str:
    low, high = _likely(values)
    return f"{low:.2g} to {high:.2g} %"


def _verdict(values: Sequence[float], goal: float) -> str:
    """Whether a goal is kept, if the likely range of the median leaves no doubt."""
    low, high = _likely(values)
    return "met" if high <= goal else "not met" if low > goal else "neither shown nor refuted"


def _met(met: bool) -> str:
    return "met" if met else "not met"


if __name__ == "__main__":
    serve(measure)
