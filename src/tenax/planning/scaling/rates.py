"""The fewest nodes and tasks with which a pass keeps a bound, by the true processing rates of all tasks.

After Kalavri et al. 2018: a task's true processing rate is its rows over its busy time, whatever else it waits for, and
one decision for the whole topology follows from it. They reckon the rows of an operator from those of the operators
before it; here all tasks take the same batches, so rows that were measured belong together already, and all of them
scale with the rate that is wanted. They ask that every operator keeps up by itself; here a pass has to, whose levels
wait for each other, so nodes count as well as tasks.

A scale-out only splits and a scale-in only merges, so that no more state moves than has to; `Room` says what is left to
choose from. Nodes are tried from few to many. For each number all parallelisms are tried by their tasks, the fewest
first, from the fewest that each group needs even if the others took no more than their share of all nodes. So the first
that is enough is the smallest. After `MAX_TRIES` predictions the search settles for one of which no group can give a
task back; it is not proven to be the smallest then. O(tries × levels), little beside the 128^groups shapes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenax.planning.scaling.bound import LeastTime
from tenax.planning.scaling.prediction import Parallelism, PassModel

MAX_TRIES = 2_000  # predictions for one number of nodes
MULTIPLES = (1, 2, 4)  # tasks of each group on a node, where the search has settled
SLACK = 1e-9  # what sums of floats may be off
NEAR = 1.01  # times the shortest pass there can be is as good


@dataclass(frozen=True, slots=True)
class Room:
    """The shapes to choose from: from so many nodes to so many, and the fewest and the most tasks of every group."""

    nodes: tuple[int, int]
    fewest: tuple[int, ...]
    most: tuple[int, ...]

    @classmethod
    def allowed(cls, model: PassModel) -> Room:
        """Whatever the demand allows."""
        groups = model.demand.groups
        return cls(model.demand.bounds, tuple(each.fewest for each in groups), tuple(each.most for each in groups))

    @classmethod
    def larger(cls, model: PassModel) -> Room:
        """What covers the present shape, if that is allowed."""
        whole = cls.allowed(model)
        return cls((model.demand.nodes, whole.nodes[1]), model.group_tasks, whole.most)

    @classmethod
    def smaller(cls, model: PassModel) -> Room:
        """What the present shape covers, if that is allowed."""
        whole = cls.allowed(model)
        return cls((whole.nodes[0], model.demand.nodes), whole.fewest, model.group_tasks)


@dataclass(frozen=True, slots=True)
class Choice:
    """A shape, what a pass takes with it, and whether it is proven that no smaller one is enough."""

    parallelism: Parallelism
    nodes: int
    pass_s: float
    proven: bool

    def keeps(self, limit_s: float) -> bool:
        """Whether a pass keeps a limit."""
        return within(self.pass_s, limit_s)


def smallest(model: PassModel, limit_s: float, room: Room) -> Choice:
    """The smallest shape with which a pass keeps the limit; where none does, one of the shortest pass."""
    fewest, most = room.nodes
    proven = True
    shortest: list[Choice] = []
    for nodes in range(fewest, most + 1):
        search = _Search(model, nodes, limit_s, room)
        choice = search.first()
        if choice.keeps(limit_s):
            return Choice(choice.parallelism, nodes, choice.pass_s, proven and choice.proven)
        proven = proven and choice.proven
        shortest.append(choice)
    least_s = min(choice.pass_s for choice in shortest)
    return next(
        Choice(choice.parallelism, choice.nodes, choice.pass_s, proven=False)
        for choice in shortest
        if choice.pass_s <= least_s * NEAR
    )


def within(seconds: float, limit_s: float) -> bool:
    """Whether so many seconds are at most a limit."""
    return seconds <= limit_s * (1 + SLACK)


class _Search:
    """The search for the fewest tasks on one number of nodes."""

    def __init__(self, model: PassModel, nodes: int, limit_s: float, room: Room) -> None:
        self.model = model
        self.nodes = nodes
        self.limit_s = limit_s
        self.room = room
        self.least = LeastTime(model, nodes, room.fewest)
        self.fewest = [self._needed(number) for number in range(len(room.fewest))]
        self.tries = 0

    def first(self) -> Choice:
        """The fewest tasks that keep the limit; if it is proven that none do, or not found, the shortest pass known."""
        if all(few <= most for few, most in zip(self.fewest, self.room.most, strict=True)):
            for total in range(sum(self.fewest), sum(self.room.most) + 1):
                best: Choice | None = None
                for tasks in _sums(self.fewest, self.room.most, total):
                    choice = self._choice(tasks, proven=True)
                    if choice.keeps(self.limit_s) and (best is None or choice.pass_s < best.pass_s * (1 - SLACK)):
                        best = choice
                    if self.tries > MAX_TRIES:
                        return best or self._shortest(proven=False)
                if best is not None:
                    return best
        return self._shortest(proven=True)

    def _shortest(self, *, proven: bool) -> Choice:
        """Of so many tasks of every group for each node, those of the shortest pass; and no more than that takes."""
        bounds = list(zip(self.room.fewest, self.room.most, strict=True))
        choices = [
            self._choice([min(max(times * self.nodes, fewest), most) for fewest, most in bounds], proven=proven)
            for times in MULTIPLES
        ]
        best = min(choices, key=lambda choice: choice.pass_s)
        return self._lean(best, self.limit_s if best.keeps(self.limit_s) else best.pass_s * NEAR)

    def _lean(self, choice: Choice, limit_s: float) -> Choice:
        """Take tasks from one group after the other as long as a pass keeps the limit; ends when none can give any."""
        tasks = [choice.parallelism[group[0]] for group in self.model.groups]
        changed = True
        while changed:  # tasks only become fewer
            changed = False
            for number, fewest in enumerate(self.room.fewest):
                for fewer in range(fewest, tasks[number]):
                    tried = [*tasks[:number], fewer, *tasks[number + 1 :]]
                    if self._choice(tried, proven=False).keeps(limit_s):
                        tasks, changed = tried, True
                        break
        return self._choice(tasks, proven=choice.proven)

    def _choice(self, tasks: Sequence[int], *, proven: bool) -> Choice:
        self.tries += 1
        parallelism = self.model.with_groups(tasks)
        return Choice(parallelism, self.nodes, self.model.pass_s(parallelism, self.nodes), proven)

    def _needed(self, number: int) -> int:
        """The fewest tasks that a group may have if a pass keeps the limit; one above the most if there are none."""
        for tasks in range(self.room.fewest[number], self.room.most[number] + 1):
            if within(self.least.seconds(number, tasks), self.limit_s):
                return tasks
        return self.room.most[number] + 1


def _sums(fewest: Sequence[int], most: Sequence[int], total: int) -> Iterator[list[int]]:
    """All numbers of tasks between these bounds that add up to a total, in order."""
    if not fewest:
        if total == 0:
            yield []
        return
    rest_fewest, rest_most = sum(fewest[1:]), sum(most[1:])
    for first in range(max(fewest[0], total - rest_most), min(most[0], total - rest_fewest) + 1):
        for others in _sums(fewest[1:], most[1:], total - first):
            yield [first, *others]
