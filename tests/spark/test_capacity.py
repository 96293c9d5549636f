"""Capacity that is really missing: tasks wait as calls to a service do, so that nodes count on any number of cores.

cars (1) --+--> ask0 (1) --> reports0 (1)
           +--> ask1 (1) --> reports1 (1)
           +--> ... six queries, each of which is busy for 0.3 s of a batch of 1 s
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import polars as pl
import pytest

import tenax as tx
from tenax.application.application import Application
from tenax.chaos.runs import Around, Trial, run_and_judge
from tenax.chaos.schedule import Kind, Schedule, parse_fault
from tenax.chaos.settings import CHAOS
from tenax.control.coordinator import Coordinator
from tenax.control.events import Event, NodesLost
from tenax.control.instructions import Decided, RequestNodes
from tenax.control.notices import RecoveryBegun
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.model.protection import ORDERS
from tenax.model.settings import ClusterSettings, Settings
from tenax.simulation.loads import judge_room
from tenax.simulation.toy import Toy

LONG = pytest.mark.long  # runs in `make chaos`
QUERIES = 6
RATE, WAIT_S = 100, 0.003
BATCHES = 24
DEADLINE_S = 120.0


def asking(folder: Path, priorities: Sequence[float]) -> Application:
    """Queries that ask a service for every row."""
    topology = tx.Topology("asking")
    pace = tx.Pace(rows=RATE * BATCHES, paced=True)
    cars = topology.source("cars", tx.traffic_locations(rate=RATE, users=100, segments=10, pace=pace))

    def asked(rows: pl.DataFrame) -> pl.DataFrame:
        time.sleep(rows.height * WAIT_S)
        return rows

    for number, priority in enumerate(priorities):
        answers = cars.map(asked, schema=cars.schema, name=f"ask{number}")
        answers.output(f"reports{number}", tx.parquet(folder / f"reports{number}"), priority=priority)
    return topology.build()


class RoomWatch(Observer):
    """Holds every decision against the room that nodes have, and remembers who waited and what was asked for."""

    def __init__(self, application: Application) -> None:
        from tenax.model.graph import TaskGraph

        self._toy = Toy(TaskGraph(application.topology))
        self.waited: list[RecoveryBegun] = []
        self.requests: list[RequestNodes] = []
        self.held: list[set[str]] = []
        """The nodes that held something, whenever nodes were lost."""
        self.knew_costs = False
        """Whether costs were known when nodes were lost: a machine may be too slow for that."""

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:
        costs = coordinator.state.load.busy_s(coordinator.settings.batches.batch_s)
        judge_room(coordinator, self._toy, costs, event, then)
        self.waited += [each for each in then if isinstance(each, RecoveryBegun) and each.waiting]
        self.requests += [each for each in then if isinstance(each, RequestNodes)]
        if isinstance(event, NodesLost):
            self.knew_costs = costs is not None
            copies = (copy for task in coordinator.state.tasks for copy in (task.primary, task.replica) if copy)
            self.held.append({copy.node for copy in copies})


def faults(text: str) -> Schedule:
    return tuple(parse_fault(Kind(kind), what) for kind, what in (fault.split() for fault in text.split(", ")))


def settings(**words: object) -> Settings:
    return CHAOS.but(**{"nodes": 4, "racks": 2, "batch": "1s", "checkpoint_every": 4, **words})


def tried(four: Session, out: Path, schedule: str, priorities: Sequence[float], how: Settings) -> RoomWatch:
    """Run the queries under faults; both judges agree, and no decision was against the room."""
    application = asking(out / "asked", priorities)
    watch = RoomWatch(application)
    around = Around(observers=(watch,))
    outcome = run_and_judge(application, out, Trial(how, faults(schedule)), four, around=around)
    print(outcome.to_json())
    assert outcome.held, outcome.findings
    assert (outcome.lost, outcome.duplicated, outcome.different) == (0, 0, 0)
    assert outcome.corrected_results == outcome.tentative_results
    return watch


def test_with_half_of_the_nodes_gone_the_best_queries_come_back_and_the_others_wait(
    four: Session, tmp_path: Path
) -> None:
    # 1.8 s of work; two nodes take 1.6 s at most, and never two thirds of a query
    watch = tried(four, tmp_path, "kill 2@11b, return 1@15b, return 1@18b", [1, 6, 2, 5, 3, 4], settings())
    assert watch.requests[-1].total <= 4
    assert watch.waited or not watch.knew_costs
    for notice in watch.waited[:1]:
        assert "busy for" in notice.reason
        assert "ask1" not in {task.operator for task in notice.waiting}  # it has the highest priority


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=LONG) for number in range(1, 6))])
def test_random_losses_of_capacity_in_every_order_change_no_result_and_invert_no_priority(
    number: int, four: Session, tmp_path: Path
) -> None:
    seed = int(os.environ.get("TENAX_SEED", "7")) + number
    dice = Random(seed)
    priorities = [dice.randint(1, 9) for _ in range(QUERIES)]
    killed = dice.choice([2, 3])
    back = [f"return 1@{dice.randint(13, 20)}b" for _ in range(dice.randint(0, killed))]
    schedule = ", ".join([f"kill {killed}@{dice.randint(10, 12)}b", *back])
    how = settings(order=ORDERS[seed % len(ORDERS)], outputs=dice.choice(["tentative", "hold"]))
    print(f"seed {seed}: {schedule}; {priorities}; {how.protection.order}")
    watch = tried(four, tmp_path, schedule, priorities, how)
    assert watch.waited or not watch.knew_costs


def test_a_node_of_the_pool_holds_nothing_until_it_takes_over(four: Session, tmp_path: Path) -> None:
    watch = tried(four, tmp_path, "kill 1@8b, return 1@14b", [1.0] * QUERIES, settings(nodes=3, pool=1, node_limit=100))
    (after,) = watch.held
    assert len(after) == 3  # two that are left, and the one of the pool
    assert not watch.waited


def test_nodes_that_are_asked_for_come_and_what_the_cluster_does_not_give_does_not(tmp_path: Path) -> None:
    session = Session(tmp_path, ClusterSettings(nodes=1, max_nodes=3))
    try:
        session.limit_nodes(1)
        session.request_nodes(2)
        time.sleep(3.0)  # as long as a node takes to come
        assert len(session.live_nodes()) == 1
        session.limit_nodes(3)
        awaited(lambda: len(session.live_nodes()) == 2)
    finally:
        session.stop()


def awaited(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
