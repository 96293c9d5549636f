"""The two queries whose tentative results are judged: small seeded inputs, what is known of streams, replica plans.

Q1  requests (4) --> slices (8) --> pages (4) --> top of every task (4) --> top of all (1) --> top (1)

Q2  locations (4) --> speed (4) ------+
                                      +--> join (4) --> filter (4) --> jams (4)
    reports (2) ----> incidents (2) --+
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tenax.application.application import Application
from tenax.connectors.generators import Generator, Pace
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import incident_reports, page_views, traffic_locations
from tenax.engine.loading import load_application
from tenax.errors import InvalidRequest, InvalidSource
from tenax.examples import app_path
from tenax.model.graph import Bools, TaskGraph
from tenax.model.plans import Metric
from tenax.model.tasks import Task
from tenax.model.topology import Topology
from tenax.planning.fidelity import completeness, completeness_weights, fidelity, losses
from tenax.planning.rates import Rows, with_rates
from tenax.planning.replicas import check_replicas, plan_replicas
from tenax.store.records import Json

PARALLELISM = 4
WINDOW_BATCHES = 2  # how many batches a window spans
CLOCK = Pace(paced=True)  # rows come as a clock goes that `Metered` turns


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the evaluation: its output, the columns that tell a result from another, the time of a batch."""

    name: str
    title: str
    output: str
    identity: tuple[str, ...]
    batch_us: int


TOP_PAGES = Query("Q1", "Q1, top 100 pages", "top", ("page",), 1_000_000)
INCIDENTS = Query("Q2", "Q2, incidents with jams", "jams", ("segment", "incident"), 120_000_000)
QUERIES: Mapping[str, Query] = {query.name: query for query in (TOP_PAGES, INCIDENTS)}

PAGE_RATE, SERVERS, PAGES = 4_000.0, 48, 2_000
LOCATION_RATE, USERS, SEGMENTS = 40.0, 10_000, 1_000
"""The paper has 500 times as many locations a second and ten times as many users; an incident every 2 s is as there."""


class Metered(Source):
    """A generator in batches of equal event time, whatever the clock says: the same run on every machine.

    - Batch n holds the rows of the n-th span of time. One without rows is planned all the same, so that the sources of
      a query stay together.
    - After so many batches it ends.
    """

    def __init__(self, rows: Generator, span_us: int, batches: int) -> None:
        self.time = rows.time
        self.lateness_us = rows.lateness_us
        self.bounded = True
        self._rows = rows
        self._span_us = span_us
        self._batches = batches

    def plan(self, position: Json, partitions: int, limits: Limits, now_us: int) -> Planned | NothingNew:  # noqa: ARG002
        """The rows of the next span."""
        batch, first = (0, 0) if position is None else _position(position)
        if batch >= self._batches:
            return NothingNew(ended=True)
        planned = self._rows.plan([first, 0], partitions, limits, (batch + 1) * self._span_us - 1)
        ended = batch + 1 >= self._batches
        if isinstance(planned, NothingNew):
            return Planned(tuple([first, first, partitions] for _ in range(partitions)), [batch + 1, first], 0, ended)
        end, _ = _position(planned.position)
        return Planned(planned.ranges, [batch + 1, end], planned.rows, ended)

    def schema(self) -> pl.Schema | None:
        """That of its generator."""
        return self._rows.schema()

    def read(self, partition: int, planned: Json) -> pl.DataFrame:
        """The rows of a range."""
        return self._rows.read(partition, planned)


def _position(position: Json) -> tuple[int, int]:
    match position:
        case [int() as first, int() as second]:
            return first, second
    raise InvalidSource(f"a position is two whole numbers, found {position!r}: is it another source's?")


def application(query: Query, seed: int, batches: int) -> Application:
    """The example application with seeded inputs of so many batches; of Q2 only the output that the paper has."""
    length_s = WINDOW_BATCHES * query.batch_us // 1_000_000
    options: dict[str, object] = {"parallelism": PARALLELISM, "length": f"{length_s}s"}
    sources: dict[str, Generator]
    if query is TOP_PAGES:
        example = load_application(app_path("top_pages"), options)
        sources = {"requests": page_views(seed, PAGE_RATE, servers=SERVERS, pages=PAGES, pace=CLOCK)}
    else:
        options["every"] = f"{query.batch_us // 1_000_000}s"
        example = _without(load_application(app_path("traffic"), options), "speed")
        locations = traffic_locations(seed, LOCATION_RATE, users=USERS, segments=SEGMENTS, pace=CLOCK)
        sources = {
            "locations": locations,
            "reports": incident_reports(seed, users=USERS, segments=SEGMENTS, pace=CLOCK),
        }
    metered = {name: Metered(rows, query.batch_us, batches) for name, rows in sources.items()}
    return replace(example, sources=metered)


def _without(application: Application, output: str) -> Application:
    """The application without one of its outputs."""
    topology = application.topology
    return replace(
        application,
        topology=Topology(topology.name, tuple(each for each in topology.operators if each.name != output)),
        computations={name: each for name, each in application.computations.items() if name != output},
        sinks={name: each for name, each in application.sinks.items() if name != output},
    )


def declared(application: Application) -> Topology:
    """What the application says of itself: no rate is known. Sources are safe."""
    operators = (replace(each, safe=True) if each.is_source else each for each in application.topology.operators)
    return Topology(application.topology.name, tuple(operators))


def measured(application: Application, rows: Rows) -> Topology:
    """The same with the rates of a run."""
    return with_rates(declared(application), rows)


STRUCTURE_AWARE, DYNAMIC, GREEDY = "structure-aware", "dp", "greedy"
FOR_COMPLETENESS, MOST_COMPLETE = "structure-aware for completeness", "exact for completeness"
ALGORITHMS: Mapping[str, tuple[str, Metric]] = {
    STRUCTURE_AWARE: ("structure-aware", Metric.FIDELITY),
    FOR_COMPLETENESS: ("structure-aware", Metric.COMPLETENESS),
    MOST_COMPLETE: ("exact", Metric.COMPLETENESS),
    DYNAMIC: ("dp", Metric.FIDELITY),
    GREEDY: ("greedy", Metric.FIDELITY),
}
"""What plans are made by, and what they maximise."""


def replicas_of(query: Query, topology: Topology, ratio: float, name: str) -> tuple[Task, ...]:
    """The plan of an algorithm for a budget, passed by the validator; the same on every call.

    Completeness knows no joins, so plans for it are made as if there were none.
    """
    algorithm, metric = ALGORITHMS[name]
    if metric is Metric.COMPLETENESS:
        topology = Topology(topology.name, tuple(replace(each, correlated=False) for each in topology.operators))
    graph = TaskGraph(topology)
    budget = round(ratio * int((~graph.safe).sum()))
    plan = plan_replicas(graph, budget, algorithm, metric)
    check_replicas(graph, plan, budget)
    if not plan.replicas:
        raise InvalidRequest(
            f"a plan has replicas, or no batch would follow the failure, found none for {query.name} at {ratio:g}: "
            "raise the ratio"
        )
    return plan.replicas


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is expected of results when every task without a replica has failed.

    `processed` is the completeness of the tasks that can fail: sources live on, and count in `completeness`.
    """

    fidelity: float
    completeness: float
    processed: float


def predicted(topology: Topology, replicas: Sequence[Task]) -> Predicted:
    """The predictions for a plan, by what a topology says of rates and streams."""
    graph = TaskGraph(topology)
    failed = ~graph.safe & ~graph.mask(replicas)
    return Predicted(float(fidelity(graph, failed)), float(completeness(graph, failed)), _processed(graph, failed))


def _processed(graph: TaskGraph, failed: Bools) -> float:
    rates = np.where(graph.safe, 0.0, completeness_weights(graph))
    kept = 1.0 - losses(graph, failed, correlated=False)
    return float((kept * rates).sum() / rates.sum())
