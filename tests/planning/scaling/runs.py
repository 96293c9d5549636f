"""A run in a few lines of arithmetic: passes take what tasks take, batches wait when these are late.

It is told what the policy decides, and does it; so a test sees what becomes of a whole day in a second.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from planning.scaling.demands import GROUPS, demand, roads

from tenax.model.elasticity import Elasticity
from tenax.model.graph import TaskGraph
from tenax.planning.scaling import Demand, Direction, Keep, Rescale
from tenax.planning.scaling.policy import Decision, Observation, Scope, Waits, Watch, decide
from tenax.planning.scaling.prediction import PassModel

COSTS = {"rows": 10e-6, "parse": 40e-6, "speed": 300e-6, "jams": 150e-6, "top": 5e-6}  # seconds for a row


@dataclass
class SimulatedRun:
    """One run of `roads`, a batch a second.

    - `rate` says how many rows come in a second; a task takes its `costs` for each, and up to `noise` more or less from
      one period to the next; `skew` is how much busier the first task of an operator is than the others.
    - A rescale is there after `switch_s` and stops the run for `pause_s`. A pass really takes `slower` times what busy
      tasks say.
    - With `knows_arrival` off, a run that is behind cannot say how fast rows come.
    """

    rate: Callable[[float], float]
    settings: Elasticity = field(default_factory=lambda: Elasticity(True))
    costs: dict[str, float] = field(default_factory=lambda: dict(COSTS))
    noise: float = 0.0
    skew: float = 1.0
    slower: float = 1.0
    fixed_s: float = 0.02
    switch_s: float = 3.0
    pause_s: float = 0.5
    knows_arrival: bool = False
    seed: int = 0
    nodes: int = 2
    tasks: tuple[int, int] = (2, 2)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.watch = Watch()
        self.at_s = 0.0
        self.waiting = 0.0  # rows
        self.most_waiting = 0.0  # batches
        self.decisions: list[tuple[float, Decision]] = []
        self.history: list[tuple[float, int]] = []
        self.pending: tuple[float, Rescale] | None = None
        self.measured_s = 0.0  # since the shape is there
        self.known: dict[tuple[int, tuple[int, int]], tuple[int, float]] = {}

    @property
    def graph(self) -> TaskGraph:
        return roads(*self.tasks)

    @property
    def rescales(self) -> list[Rescale]:
        return [each for _, each in self.decisions if isinstance(each, Rescale)]

    @property
    def directions(self) -> list[Direction]:
        return [each.direction for each in self.rescales]

    def run(self, seconds: float) -> SimulatedRun:
        period = round(self.settings.period_s)
        end_s = self.at_s + seconds
        while self.at_s < end_s:
            came = taken = 0.0
            for _ in range(period):
                arrived, took = self._second()
                came, taken = came + arrived, taken + took
            self._period(came / period, taken / period)
        return self

    def _second(self) -> tuple[float, float]:
        """One second: what came, what was taken."""
        self.at_s += 1.0
        self.measured_s += 1.0
        room_s = 1.0
        if self.pending is not None and self.at_s >= self.pending[0]:
            plan, self.pending = self.pending[1], None
            self.nodes = plan.shape.nodes
            self.tasks = plan.shape.parallelism["speed"], plan.shape.parallelism["jams"]
            self.measured_s, room_s = 0.0, 1.0 - self.pause_s
        arrived = self.rate(self.at_s)
        levels, each_s = self._pass()
        most = max(0.0, room_s - levels * self.fixed_s) / each_s
        took = min(self.waiting + arrived, most)
        self.waiting += arrived - took
        if self.waiting < 1e-6:
            self.waiting = 0.0
        self.most_waiting = max(self.most_waiting, self.waiting / max(arrived, 1e-9))
        return arrived, took

    def _pass(self) -> tuple[int, float]:
        """The levels of a pass, and how long it takes for a row."""
        shape = self.nodes, self.tasks
        if shape not in self.known:
            model = PassModel(self._demand(1000.0, noise=0.0))
            levels = len(model.levels(model.present))
            self.known[shape] = levels, model.pass_s(model.present, self.nodes) * self.slower / 1000.0
        return self.known[shape]

    def _demand(self, rows: float, noise: float) -> Demand:
        """What tasks are busy with a batch of so many rows."""
        busy: dict[str, float | tuple[float, ...]] = {}
        for operator in self.graph.operators:
            count = operator.parallelism
            weights = [self.skew if index == 0 and count > 1 else 1.0 for index in range(count)]
            each = [self.costs[operator.name] * rows * weight / sum(weights) for weight in weights]
            busy[operator.name] = tuple(seconds * (1 + self.draw.uniform(-noise, noise)) for seconds in each)
        return demand(self.graph, busy, nodes=self.nodes)

    def _period(self, came: float, taken: float) -> None:
        behind = self.waiting > 0
        rows = max(taken, 1.0)
        seen = self._demand(rows, self.noise)
        _, each_s = self._pass()
        observation = Observation(
            self.at_s,
            self.graph,
            self.nodes,
            seen.rows,
            seen.busy_s,
            batch_rows=rows,
            taken_per_s=taken,
            arrival_per_s=came if self.knows_arrival or not behind else None,
            backlog=self.waiting / rows,
            fixed_s=self.fixed_s,
            moving_s=each_s * rows * (1 + self.draw.uniform(-self.noise, self.noise)),
            measured=self.measured_s >= 5,
        )
        self.watch, decision = decide(self.watch, Scope(self.settings, GROUPS, 1.0), observation)
        assert isinstance(decision, Keep | Waits | Rescale)
        self.decisions.append((self.at_s, decision))
        if isinstance(decision, Rescale):
            self.pending = self.at_s + self.switch_s, decision
        self.history.append((self.at_s, self.nodes))
