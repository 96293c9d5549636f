"""Fifteen aggregates in layers, each a query of its own, as Su, Zhou 2021 fail them; their operators wait.

    tweets --> parser --> o0, o1, o2, o3
               parser + o0 --> o4     o0 + o1 --> o5     o1 + o2 --> o6     o2 + o3 --> o7
    o4 + o5 --> o8     o5 + o6 --> o9     o6 + o7 --> o10     o4 + o7 --> o11
    o8 + o9 --> o12    o9 + o10 --> o13   o10 + o11 --> o14

Who reads whom is that of the example `hashtag-aggregates`, which says what the paper tells and what is ours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.application.schemas import with_schemas
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import elements
from tenax.errors import Infeasible
from tenax.examples import example_path
from tenax.model.cluster import Node
from tenax.model.files import read_topology
from tenax.model.graph import TaskGraph
from tenax.model.plans import Placement
from tenax.model.tasks import Task
from tenax.model.topology import Output, Topology
from tenax.operators.computation import Computation, State, StepInput, StepOutput
from tenax.operators.stateless import Select, Stateless
from tenax.store.records import Json
from tenax_lab.loads.tree import two_numbers

EXAMPLE = "hashtag-aggregates"
SOURCE, PARSER = "source", "parser"
QUERIES = 15
HIGHEST_PRIORITY = 10
KEYS = 50
SENT = 2  # one row in so many goes on: two inputs together give as many rows as the first aggregates get
MICROSECONDS = 1_000_000
NOT_YET = -1  # when the clock of rows began: their tap is closed


@dataclass(frozen=True, slots=True)
class Load:
    """Rows a second, as the clock goes, and how long an aggregate waits for each of them, as for a service.

    The aggregate that reads the parser as well gets a half more of them and waits as much less for each: all cost the
    same.
    """

    rate: int
    wait_us: int

    @property
    def busy(self) -> float:
        """The part of the time for which an aggregate waits."""
        return self.rate * self.wait_us / MICROSECONDS


class Waiting(Computation):
    """Counts rows by key, and waits for each of them.

    - It sends the new count of every second row on. So a wrong state anywhere changes the results behind it.
    - While it waits it needs no processor: nodes can be lost on a machine with fewer cores than nodes, and what they
      could take is lost with them.
    """

    def __init__(self, wait_us: int) -> None:
        self.wait_us = wait_us

    def schema(self, inputs: Sequence[pl.Schema]) -> pl.Schema:  # noqa: ARG002
        """Declared: one that follows from a step would wait."""
        return pl.Schema({"key": pl.Int64(), "count": pl.Int64()})

    def step(self, state: State, given: StepInput) -> StepOutput:
        """Wait for the rows of the batch, and count them."""
        keys = np.concatenate([frame["key"].to_numpy() for frame in given.frames])
        time.sleep(len(keys) * self.wait_us / MICROSECONDS)
        before = next((part["count"].to_numpy() for part in state.values()), np.zeros(KEYS, dtype=np.int64))
        counts = before + np.bincount(keys, minlength=KEYS)
        sent = keys[::SENT]
        emitted = pl.DataFrame({"key": sent, "count": counts[sent]})
        return StepOutput({f"counts/{given.batch}": pl.DataFrame({"count": counts})}, emitted)


def layered_topology(seed: int, queries: int = QUERIES) -> Topology:
    """The first so many queries, each with a priority of 1 to 10 that is drawn by the seed."""
    dice = Random(seed)
    known = read_topology(example_path(EXAMPLE))
    others = tuple(operator for operator in known.operators if operator.output is None)
    chosen = [operator for operator in known.operators if operator.output is not None][:queries]
    priorities = [Output(float(dice.randint(1, HIGHEST_PRIORITY))) for _ in chosen]
    outputs = (replace(operator, output=output) for operator, output in zip(chosen, priorities, strict=True))
    return Topology(known.name, (*others, *outputs))


def aggregates(topology: Topology) -> tuple[str, ...]:
    """The names of the aggregates, in topological order."""
    return tuple(operator.name for operator in topology.operators if operator.output is not None)


@dataclass(frozen=True, slots=True)
class Tap:
    """Rows come from when it is opened until it is closed: two files, which the source looks for."""

    folder: Path

    def open(self) -> None:
        """Let rows come, as the clock goes from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "open").touch()

    def close(self) -> None:
        """Let the source end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "closed").touch()

    @property
    def is_open(self) -> bool:
        """Whether rows come."""
        return (self.folder / "open").exists()

    @property
    def is_closed(self) -> bool:
        """Whether no more rows come."""
        return (self.folder / "closed").exists()


class TappedRows(Source):
    """Elements that come as the clock goes while a tap is open; a first second of them is there before.

    - With the first second a run warms up: what takes long on a busy machine is over before others come, and leaves
      nothing to catch up with.
    - However slow a machine is, what is to happen to a run happens before its rows end.
    """

    def __init__(self, seed: int, rate: int, tap: Tap) -> None:
        self._rate, self._tap = rate, tap
        self._rows = elements(seed, rate, pace=Pace(paced=True, idle_after=None))
        self.time, self.lateness_us, self.bounded = self._rows.time, self._rows.lateness_us, False

    def schema(self) -> pl.Schema | None:
        """That of its rows."""
        return self.read(0, [0, 0, 1]).schema

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:
        """The rows that have come since."""
        if position is None:
            warm = self._rows.plan([0, now_us - MICROSECONDS], partitions, limits, now_us)
            assert isinstance(warm, Planned)
            return replace(warm, position=[warm.rows, NOT_YET], more=False)
        if self._tap.is_closed:
            return NothingNew(ended=True)
        if not self._tap.is_open:
            return NothingNew()
        first, began_us = two_numbers(position)
        if began_us == NOT_YET:
            began_us = now_us - first * MICROSECONDS // self._rate
        return self._rows.plan([first, began_us], partitions, limits, now_us)

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        return self._rows.read(partition, planned)


def layered(seed: int, load: Load, tap: Tap, queries: int = QUERIES) -> Application:
    """The first so many queries over rows that come while a tap is open; the run says where results go."""
    topology = layered_topology(seed, queries)
    names = aggregates(topology)
    rows = TappedRows(seed, load.rate, tap)
    parser = Stateless((Select(((pl.col("sequence") % KEYS).alias("key"),)),))
    computations: dict[str, Computation] = {PARSER: parser}
    for name in names:
        sent = sum(1.0 if stream.operator == PARSER else 1.0 / SENT for stream in topology.operator(name).inputs)
        computations[name] = Waiting(round(load.wait_us / sent))
    sinks = {name: parquet(Path(name)) for name in names}
    return with_schemas(Application(topology, {SOURCE: rows}, computations, sinks))


@dataclass(frozen=True, slots=True)
class Places:
    """Where tasks begin: the source and the parser on the first node, aggregates in topological order on the others.

    Every host takes as many of them as the next, the last one what is left. Further nodes hold nothing.
    """

    hosts: int

    def groups(self, graph: TaskGraph) -> list[list[Task]]:
        """The aggregates of every host."""
        tasks = [graph.task(number) for number in range(len(graph)) if graph.is_output[number]]
        each = -(-len(tasks) // self.hosts)
        return [tasks[first : first + each] for first in range(0, len(tasks), each)]

    def __call__(self, graph: TaskGraph, nodes: Sequence[Node], _limits: Mapping[str, float]) -> Placement:
        """The node of every task, whatever nodes take."""
        groups = self.groups(graph)
        if len(nodes) <= len(groups):
            raise Infeasible(f"{len(groups)} hosts and one more node are needed, found {len(nodes)}: add nodes")
        names = [node.name for node in nodes]
        homes: Mapping[Task, str] = {
            task: name for name, group in zip(names[1:], groups, strict=False) for task in group
        }
        tasks = graph.tasks(range(len(graph)))
        return Placement({task: homes.get(task, names[0]) for task in tasks}, {})
