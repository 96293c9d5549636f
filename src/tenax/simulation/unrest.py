"""What befalls a run that is rescaled: when other versions are asked for, and what happens just then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tenax.control.events import Event, NodesLost, RescaleFailed, Started
from tenax.control.instructions import Decided, Rescale, StoreCheckpoint
from tenax.control.notices import RescalePlanned
from tenax.control.state import Stage
from tenax.model.topology_versions import Target
from tenax.simulation.driver import Driver
from tenax.simulation.kernel import Group, Kernel, Steps
from tenax.simulation.keyed import MOST_TASKS, KeyedToy
from tenax.simulation.rescaling import RescalingDriver

ASKED = 1, 2, 3, 4
EARLIEST_S = 2.0  # before that hardly any driver has begun
TWICE = 0.3  # how often the same moment has a second one
INTERFERES = 0.35  # how often something happens beside a step of a rescale
ASKED_IN_NEED = 0.2  # how often a loss of nodes is a reason to rescale


@dataclass(slots=True)
class Unrest:
    """Asks for rescales at random, and interferes with them: bounded, so that a run comes to its end.

    `troubles` are what may befall a driver: they take it, and say nothing.
    """

    random: Random
    kernel: Kernel
    toy: KeyedToy
    nodes: int
    batches: int
    newest: Callable[[], Driver]
    troubles: dict[str, Callable[[Driver], None]]
    left: int = 0

    def begin(self, outside: Group) -> None:
        """Ask now and then."""
        self.left = self.random.choice([0, 2, 4, 6])
        for _ in range(self.random.choice(ASKED)):
            at_s = EARLIEST_S + self.random.random() * self.batches
            self.kernel.start(outside, self._ask(), at_s)
            if self.random.random() < TWICE:
                self.kernel.start(outside, self._ask(), at_s + self.random.random() * 2.0)

    def look(self, driver: Driver, event: Event, decided: list[Decided], outside: Group) -> None:
        """Interfere with what is being done, or rescale because of what happened."""
        if self.left <= 0:
            return
        rescaling = driver.coordinator.state.rescaling
        pausing = rescaling is not None and rescaling.stage is Stage.PAUSED
        step = any(
            isinstance(each, Rescale | RescalePlanned) or (pausing and isinstance(each, StoreCheckpoint))
            for each in decided
        )
        begins = isinstance(event, RescaleFailed) or (isinstance(event, Started) and event.passes > 0)
        if (step or begins) and self.random.random() < INTERFERES:
            self._interfere(driver, outside)
        elif isinstance(event, NodesLost) and self.random.random() < ASKED_IN_NEED:
            self.left -= 1
            self.kernel.start(outside, self._ask(), self._soon_s())

    def _interfere(self, driver: Driver, outside: Group) -> None:
        self.left -= 1
        name = self.random.choice([*sorted(self.troubles), "ask"])

        def happen() -> Steps:
            if name == "ask":
                yield from self._ask()
            elif driver.group.alive and driver is self.newest():
                self.troubles[name](driver)
            yield 0.0

        self.kernel.start(outside, happen(), self._soon_s())

    def _soon_s(self) -> float:
        return self.random.choice([0.0, self.random.random() * 0.5, self.random.random() * 4.0])

    def _ask(self) -> Steps:
        driver = self.newest()
        assert isinstance(driver, RescalingDriver)
        if driver.group.alive:
            driver.ask(self._target())
        yield 0.0

    def _target(self) -> Target:
        """Other tasks for some chains, other nodes, or both."""
        scalable, parallelism = self.toy.scalable, dict[str, int]()
        for chain in self.random.sample(scalable, self.random.randint(0, min(2, len(scalable)))):
            named = chain if self.random.random() < 0.7 else chain[:1]
            parallelism |= dict.fromkeys(named, self.random.randint(1, MOST_TASKS))
        nodes = self.random.choice([None, None, self.random.randint(1, self.nodes + 2)])
        return Target(parallelism, nodes, cause=f"request {self.random.getrandbits(20)}")
