"""Seeded runs of the coordinator under faults of its driver, and the judges of what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from random import Random

from tenax.control.events import Event
from tenax.control.instructions import Decided, Outcome, Stop
from tenax.control.notices import RecoveryBegun
from tenax.model.generators import Style, TopologySpec, random_topology
from tenax.model.graph import TaskGraph
from tenax.model.protection import ORDERS, Backups, Outputs, Recovery, Strategy
from tenax.model.settings import Settings
from tenax.model.topology import Input, Operator, Output, Partitioning, Topology
from tenax.simulation import keyed
from tenax.simulation.chances import Chances, Fault
from tenax.simulation.driver import Driver
from tenax.simulation.judges import judge_end, judge_results
from tenax.simulation.kernel import Group, Kernel, Steps
from tenax.simulation.keyed import KeyedToy
from tenax.simulation.loads import VirtualLoad
from tenax.simulation.rescaling import RescalingDriver
from tenax.simulation.store import Store
from tenax.simulation.toy import Toy
from tenax.simulation.unrest import Unrest
from tenax.simulation.versions import VersionedStore
from tenax.simulation.world import World

MAX_TIME_S = 1_000.0
MAX_EVENTS = 200_000
MAX_DRIVERS = 200
TOY_NODES, RANDOM_NODES = 5, 8  # at most
MAX_NODES = 100  # more than there ever are
RANDOM_OPERATORS = 4, 9


class Shape(StrEnum):
    """Which graphs are run, on how many nodes; a seed means another run with each."""

    TOY = "toy"
    """One of five small ones, on up to 5 nodes."""
    RANDOM = "random"
    """Any of 4 to 9 operators, on up to 8 nodes."""
    SHORT = "short"
    """The same, where tasks cost something, rows come by the clock, and nodes have room for so much only."""
    RESCALED = "rescaled"
    """Small ones whose states are of key groups: their tasks and nodes become more and fewer while they run."""


class SimulationFailed(AssertionError):
    """A seed for which a judge found something wrong; the text says how to see it again."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What a simulated run did."""

    batches: int
    drivers: int
    superseded: int
    lost: int
    tentative: int
    waited: int
    """How often lost tasks found no room."""
    events: int
    time_s: float
    switches: int = 0
    """How often it went over to another version of its topology."""


@dataclass(slots=True)
class _Tally:
    """What happened so far."""

    moments: int = 0
    lost: int = 0
    waited: int = 0
    events: int = 0
    drivers: list[Driver] = field(default_factory=list)


class Draws:
    """Random numbers, apart for what was added later: seeds that once failed still fail in the same way."""

    def __init__(self, seed: int) -> None:
        self.events = Random(seed)
        self.strategies, self.memories, self.plans, self.graphs, self.refusals, self.promises, self.loads = (
            Random(f"{what} {seed}")
            for what in ("strategies", "memory", "plans", "graphs", "refusals", "backups", "loads")
        )
        self.rescales = Random(f"rescales {seed}")


def simulate(seed: int, trace: Callable[[str], None] | None = None, shape: Shape | str = Shape.TOY) -> Outcomes:
    """One run to the end of its sources, with drivers killed, paused, stopped and restarted; judged at every step."""
    shape = Shape(shape)
    try:
        return _simulate(Draws(seed), trace, shape)
    except Exception as error:
        argument = "" if shape is Shape.TOY else f", '{shape}'"
        again = f'python -c "from tenax.simulation.runs import simulate; simulate({seed}, print{argument})"'
        raise SimulationFailed(f"seed {seed} fails: {type(error).__name__}: {error}; see it again: {again}") from error


def _simulate(draws: Draws, trace: Callable[[str], None] | None, shape: Shape) -> Outcomes:
    random, plans = draws.events, draws.plans
    kernel, tally, outside = Kernel(), _Tally(), Group()
    toy = _toy(draws, shape)
    if shape is Shape.SHORT:
        toy = Toy(TaskGraph(_with_priorities(draws.loads, toy.graph.topology)))
    memories = _memories(draws.memories, toy)
    toy = replace(toy, memory=memories)
    batches = random.randint(1, 20 if shape is Shape.RESCALED else 40) + (20 if shape is Shape.SHORT else 0)
    settings = _settings(draws, per_pass=random.randint(1, 5))
    faults = {
        random.randint(1, 20 * batches + 10): random.choice([Fault.KILL, Fault.PAUSE])
        for _ in range(random.randint(0, 6))
    }
    store = VersionedStore(toy.outputs, versions=[toy.version()]) if isinstance(toy, KeyedToy) else Store(toy.outputs)
    pace, chances = 1.0, Chances()
    if shape is Shape.RESCALED:
        pace = draws.rescales.choice([1.0, 1.0, 20.0])
        if draws.rescales.random() < 0.3:
            chances, settings = Chances(pass_fails=0.25, other_fails=0.15), settings.but(storage_patience="5m")
    unrest: Unrest | None = None

    def next_fault() -> Fault | None:
        tally.moments += 1
        return faults.get(tally.moments)

    def on_fault(driver: Driver, fault: Fault) -> None:
        if trace is not None:
            trace(f"{kernel.now_s:8.3f} epoch {driver.epoch}: {fault}")
        if fault is Fault.KILL:
            kernel.kill(driver.group)
        else:
            kernel.pause(driver.group)
            kernel.start(outside, later(lambda: kernel.resume(driver.group)), random.random() * 20.0)
        begin()

    def on_stop(driver: Driver, stop: Stop) -> None:
        kernel.kill(driver.group)
        # Only the owner of the store is missed: a paused driver that ends by itself has been replaced.
        if stop.outcome in {Outcome.STOPPED, Outcome.FAILED} and driver.epoch == store.epoch:
            begin()

    def on_entry(driver: Driver, event: Event, decided: list[Decided]) -> None:
        tally.events += 1
        if unrest is not None:
            unrest.look(driver, event, decided, outside)
        tally.waited += any(isinstance(each, RecoveryBegun) and bool(each.waiting) for each in decided)
        if trace is not None:
            trace(f"{kernel.now_s:8.3f} epoch {driver.epoch}: {event} -> {decided}")

    def begin() -> None:
        if len(tally.drivers) >= MAX_DRIVERS:
            raise AssertionError(f"more than {MAX_DRIVERS} drivers were needed")
        stored = memories if draws.memories.random() < 0.2 else ()  # the next driver may see it otherwise
        how = settings.but(checkpoints={**strategies, **dict.fromkeys(stored, Strategy.ALIGNED)})
        given = replace(world, settings=how)
        tally.drivers.append(RescalingDriver(given, pace=pace) if shape is Shape.RESCALED else Driver(given))
        tally.drivers[-1].start(random.random() * 5.0)

    retained = random.choice([0.0, 0.0, 0.5, 1.0])
    retain = tuple(task for task in toy.tasks if random.random() < retained)
    replicated = random.choice([0.0, 0.3, 1.0])
    replicas = tuple(task for task in toy.tasks if random.random() < replicated)
    strategies = {**_strategies(draws.strategies, toy), **dict.fromkeys(memories, Strategy.NONE)}
    nodes = random.randint(1, TOY_NODES if shape in {Shape.TOY, Shape.RESCALED} else RANDOM_NODES)
    tight = -(-len(toy.tasks) // nodes)
    slots = random.choice([None, tight, tight + 1, 2 * tight])
    load = None
    if shape is Shape.RESCALED:
        slots = random.choice([None, None, tight + 1, 2 * tight])
    if shape is Shape.SHORT:
        slots, settings = None, _with_limits(draws.loads, settings, nodes)
        load = VirtualLoad.drawn(draws.loads, toy, nodes, settings.cluster.node_limit)
    world = World(
        kernel,
        store,
        toy,
        random,
        draws.memories,
        settings,
        retain,
        replicas,
        slots,
        settings.cluster.executors if load is not None else nodes,
        batches,
        chances,
        next_fault,
        on_fault,
        on_stop,
        on_entry,
        plans,
        draws.promises,
        draws.refusals,
        draws.rescales,
        load,
    )
    begin()

    def ask_newest_to_stop() -> None:
        tally.drivers[-1].ask_to_stop()

    for _ in range(random.choice([0, 0, 1, 2])):
        kernel.start(outside, later(ask_newest_to_stop), random.random() * 3.0 * batches)

    def lose_nodes() -> None:
        lose(tally.drivers[-1], random.choice([1, 1, 2, nodes]))

    def lose(driver: Driver, count: int) -> None:
        lost = driver.lose(count) if driver.group.alive and driver.epoch else 0
        tally.lost += lost
        if trace is not None:
            trace(f"{kernel.now_s:8.3f} epoch {driver.epoch}: {lost} nodes die")
        for _ in range(lost):

            def back(driver: Driver = driver) -> None:
                if driver.group.alive:
                    driver.gain(1)

            kernel.start(outside, later(back), random.choice([0.0, random.random() * 10.0, random.random() * 40.0]))

    for _ in range(random.choice([0, 1, 2, 3, 5])):
        kernel.start(outside, later(lose_nodes), random.random() * 2.0 * batches)
    for _ in range(draws.memories.choice([0, 2, 6]) if memories else 0):  # while states are rebuilt, more are lost
        kernel.start(outside, later(lose_nodes), draws.memories.random() * 2.0 * batches)
    if isinstance(toy, KeyedToy):
        troubles: dict[str, Callable[[Driver], None]] = {
            "kill": lambda driver: on_fault(driver, Fault.KILL),
            "pause": lambda driver: on_fault(driver, Fault.PAUSE),
            "stop": lambda driver: driver.ask_to_stop(),
            "lose one": lambda driver: lose(driver, 1),
            "lose two": lambda driver: lose(driver, 2),
            "lose all": lambda driver: lose(driver, MAX_NODES),
            "gain": lambda driver: driver.gain(1),
        }
        unrest = Unrest(draws.rescales, kernel, toy, nodes, batches, lambda: tally.drivers[-1], troubles)
        unrest.begin(outside)
    kernel.run(MAX_TIME_S, MAX_EVENTS)
    judge_results(toy, store, batches)
    judge_end(toy, store, tally.drivers, batches)
    switches = sum(driver.switches for driver in tally.drivers if isinstance(driver, RescalingDriver))
    superseded = sum(driver.stop is not None and driver.stop.outcome is Outcome.SUPERSEDED for driver in tally.drivers)
    tentative = sum(driver.tentative for driver in tally.drivers)
    return Outcomes(
        *(batches, len(tally.drivers), superseded, tally.lost, tentative, tally.waited, tally.events, kernel.now_s),
        switches=switches,
    )


def later(action: Callable[[], None]) -> Steps:
    """A process that does one thing."""
    action()
    yield 0.0


def _settings(draws: Draws, per_pass: int) -> Settings:
    """How failures are met, and how much is under way at a time."""
    random, plans = draws.events, draws.plans
    drawn: dict[str, object] = {
        "checkpoint_every": random.choice([random.randint(1, 12), 20]),
        "max_batches_per_pass": per_pass,
        "max_batches_ahead": per_pass + random.randint(1, 4),
        "max_unpublished": random.randint(1, 6),
        "max_attempts": random.randint(2, 4),
        "recovery": random.choice([Recovery.INCREMENTAL] * 3 + [Recovery.BLOCKING]),
        "outputs": random.choice([Outputs.TENTATIVE] * 3 + [Outputs.HOLD]),
        "backups": random.choice([Backups.SOURCE, Backups.ADAPTIVE, Backups.ALL]),
        "max_batches_per_round": random.randint(1, 5),
        "cutover_lag": random.randint(1, 3),
        "patience": random.randint(1, 4),
        "tentative_delay": random.choice(["0s", "0s", "0s", "2s"]),
        "measure_every": plans.choice([1, 6]),
        "replicas": 1,
        "follow_load": plans.choice([1.0, 0.05]),
        "storage_patience": draws.refusals.choice(["200ms", "1s", "5m"]),
        "max_rows": 100,  # sizes are drawn, not measured
    }
    if drawn["backups"] is not Backups.ALL and draws.promises.random() < 0.5:
        drawn["recovery_latency"] = "1s"
        if drawn["backups"] is Backups.SOURCE:
            drawn["backups"] = None
    if (drawn["recovery"], drawn["outputs"]) != (Recovery.INCREMENTAL, Outputs.TENTATIVE):
        del drawn["tentative_delay"]  # nothing will be tentative
    return Settings.of(**drawn)


def _toy(draws: Draws, shape: Shape) -> Toy:
    match shape:
        case Shape.TOY:
            return draws.events.choice(_toys())
        case Shape.RESCALED:
            return keyed.drawn(draws.graphs)
    return _random_toy(draws.graphs)


def _with_priorities(random: Random, topology: Topology) -> Topology:
    """The same topology with other priorities of its output tasks."""
    operators = (
        operator
        if operator.output is None
        else replace(operator, output=Output(tuple(float(random.randint(1, 9)) for _ in range(operator.parallelism))))
        for operator in topology.operators
    )
    return replace(topology, operators=tuple(operators))


def _with_limits(random: Random, settings: Settings, nodes: int) -> Settings:
    """How full nodes may be, how many more there may be, and who comes back first."""
    pool = random.choice([0, 0, 1, 2])
    return settings.but(
        batch="1s",
        node_limit=random.choice([0.5, 0.8, 1.0]),
        order=random.choice(ORDERS),
        recovery=random.choice([settings.protection.recovery, Recovery.AUTO]),
        nodes=nodes,
        pool=pool,
        max_nodes=nodes + pool + random.choice([0, 0, 2]),
    )


def _strategies(random: Random, toy: Toy) -> Mapping[str, Strategy]:
    """How states are stored: in half of the runs all aligned, else all alike, or every operator in its own way."""
    names = [operator.name for operator in toy.graph.operators]
    stored = [strategy for strategy in Strategy if strategy is not Strategy.NONE]
    for_all, kind = random.choice(stored), random.random()
    if kind < 0.5:
        return {}
    return {name: for_all if kind < 0.8 else random.choice(stored) for name in names}


def _memories(random: Random, toy: Toy) -> Mapping[str, int]:
    """The operators that are never stored: in half of the runs none, else all or some; and how long their memory is."""
    names = [operator.name for operator in toy.graph.operators if operator.inputs]
    part = random.choice([0.0, 0.0, 0.5, 1.0])
    return {name: random.choice([0, 1, 2, 3, 5, 9]) for name in names if random.random() < part}


def _random_toy(random: Random) -> Toy:
    """Any graph of a few operators, of one to three outputs; some that others read are outputs as well."""
    spec = TopologySpec(
        operators=RANDOM_OPERATORS,
        parallelism=(1, random.randint(1, 3)),
        joins=random.choice([0.0, 0.25, 0.5]),
        style=random.choice(list(Style)),
        sinks=random.randint(1, 3),
    )
    drawn = random_topology(spec, random.getrandbits(32))
    read = random.choice([0.0, 0.0, 0.2])
    operators = tuple(
        replace(operator, output=Output())
        if operator.inputs and operator.output is None and random.random() < read
        else operator
        for operator in drawn.operators
    )
    return Toy(TaskGraph(replace(drawn, operators=operators)))


@lru_cache(maxsize=1)
def _toys() -> tuple[Toy, ...]:
    single, split, merge = Partitioning.ONE_TO_ONE, Partitioning.SPLIT, Partitioning.MERGE
    chain = (Operator("a"), Operator("b", inputs=(Input("a", single),)))
    wide = (
        Operator("a", 2),
        Operator("b", 2, (Input("a", single),)),
        Operator("c", 3, (Input("b"),)),
        Operator("d", 1, (Input("c", merge),)),
    )
    diamond = (
        Operator("a"),
        Operator("b", 2, (Input("a", split),)),
        Operator("c", 2, (Input("a", split),)),
        Operator("d", 2, (Input("b", single), Input("c", single)), correlated=True),
    )
    two = (
        Operator("a"),
        Operator("b", 2),
        Operator("c", 2, (Input("b"), Input("a", split))),
        Operator("d", 1, (Input("b", merge),)),
    )
    long = (
        Operator("a", 2),
        Operator("b", 2, (Input("a"),)),
        Operator("c", 2, (Input("b", single),)),
        Operator("d", 2, (Input("c"),)),
        Operator("e", 1, (Input("d", merge),)),
        Operator("f", 2, (Input("e", split), Input("b", single))),
    )
    named = (
        ("line", chain),
        ("wide", wide),
        ("diamond", diamond),
        ("two-outputs", two),
        ("long", long),
    )
    return tuple(Toy(TaskGraph(Topology(name, operators))) for name, operators in named)
