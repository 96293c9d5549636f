"""What a pass of a simulated driver does on its nodes: it reads states and outputs, and steps tasks."""

from __future__ import annotations

from dataclasses import dataclass

from tenax.control.instructions import PassKind, RunPass, Step
from tenax.control.versions import NO_PASS
from tenax.model.tasks import Task
from tenax.simulation.nodes import VirtualNode
from tenax.simulation.store import StoreMisused
from tenax.simulation.toy import INITIAL, MISSING, Digest, Toy
from tenax.simulation.world import World


@dataclass(frozen=True, slots=True)
class Stepping:
    """The means of one pass: the nodes there are, and the computation as it was when the pass began."""

    world: World
    epoch: int
    nodes: dict[str, VirtualNode]
    toy: Toy

    def check_room(self, order: RunPass) -> None:
        """No node runs more than it has room for; sources run anywhere."""
        slots = self.world.slots
        if slots is None or order.kind is not PassKind.LIVE:
            return
        held: dict[str, int] = {}
        for step in order.steps:
            if self.toy.inputs[self.toy.number[step.task]]:
                held[step.node] = held.get(step.node, 0) + 1
        if held and max(held.values()) > slots:
            raise StoreMisused(f"nodes have {slots} slots, found {held}")

    def start_of(self, step: Step) -> Digest | None:
        """The state that a step begins with; None if its node is gone."""
        node = self.nodes.get(step.node)
        if node is None:
            return None
        if not self.toy.inputs[self.toy.number[step.task]]:
            return INITIAL
        if step.start.pass_id == NO_PASS:
            memory = self.toy.memory_of(self.toy.number[step.task])
            if step.start.batch and step.rebuilding is None and memory:
                raise StoreMisused(f"a task with a memory is rebuilt before it goes on, found {step}")
            return INITIAL
        if step.stored:
            return self.world.store.fetch(self.epoch, step.start)
        if step.start not in node.versions:
            raise StoreMisused(f"a pass starts from versions that are there, found {step.start} missing on {node.name}")
        return node.versions[step.start]

    def read(self, order: RunPass, batch: int) -> dict[int, Digest] | None:
        """The retained outputs of a batch that a pass needs; None if a node is gone."""
        chunks = {}
        for reading in order.readings:
            if not reading.first <= batch <= reading.last:
                continue
            node = self.nodes.get(reading.node)
            if node is None:
                return None
            key = reading.task, batch, reading.pass_id
            if reading.stored:
                chunks[self.toy.number[reading.task]] = self.world.store.fetch_outputs(self.epoch, key)
                continue
            if key not in node.outputs:
                raise StoreMisused(f"retained outputs are there until they are trimmed, found {key} missing")
            chunks[self.toy.number[reading.task]] = node.outputs[key]
        return chunks

    def step(self, step: Step, state: Digest, batch: int, chunks: dict[int, Digest]) -> tuple[Digest, Digest]:
        """One task through one batch: its state after it and what it sends."""
        number = self.toy.number[step.task]
        given = dict(chunks)
        for producer in self.toy.inputs[number]:
            if producer not in given:
                if not step.tentative:
                    raise StoreMisused(
                        f"accurate steps have all inputs, found {step} without {self.toy.tasks[producer]}"
                    )
                given[producer] = MISSING
        return self.toy.step(number, state, self.world.store.read(self.epoch, batch), given)

    def rebuild_from(self, task: Task, batch: int) -> int:
        """From where on a state can be rebuilt; tasks may say that more is needed than is."""
        first = self.toy.rebuild_from(self.toy.number[task], batch)
        return max(1, first - self.world.vague.choice([0, 0, 0, 1, 3])) if first else 0
