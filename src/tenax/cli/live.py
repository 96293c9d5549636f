"""The live view of a run: progress, lag, sizes and costs while it goes on, and a summary at its end."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tenax.application.application import Application
from tenax.cli import availability, render
from tenax.cli.load_view import load_facts, waiting_text
from tenax.cli.measures import Holds, Lags, SizeMeter
from tenax.cli.outage_view import output_text
from tenax.cli.outages import Outages
from tenax.cli.stopping import ASKED
from tenax.cli.versions_view import Rescaled, version_facts
from tenax.control.coordinator import Coordinator
from tenax.control.events import CheckpointStored, Event, PassFailed, StopRequested
from tenax.control.instructions import Decided, Outcome, Stop
from tenax.control.load import Load
from tenax.control.narrator import promise_words
from tenax.control.recovery.failures import OperatorRaised
from tenax.engine.costs import Costs
from tenax.engine.driver.latecomers import Latecomers
from tenax.engine.observer import Observer
from tenax.engine.queries import QUERIES, Interval, Phase
from tenax.engine.worker.orders import Report
from tenax.model.graph import TaskGraph
from tenax.model.topology_versions import TopologyVersion
from tenax.planning.promises import Promise

RECENT_S = 5.0  # over how long rates are taken
MAX_LATENCIES = 10_000


class LiveView(Observer):
    """Watches a run: batches, rows, latency, lag, sizes. In a pipe it prints a line per pass instead of drawing."""

    def __init__(self, application: Application, store: Path) -> None:
        self._graph = TaskGraph(application.topology)
        self._name = application.topology.name
        self._sources = {number for number, operator in enumerate(self._graph.operators) if operator.is_source}
        self._outputs = {
            number: operator.name
            for number, operator in enumerate(self._graph.operators)
            if operator.name in application.sinks
        }
        self._store = store
        self._console = Console(stderr=True, highlight=False)
        self._started = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque()
        self._latencies: deque[float] = deque(maxlen=MAX_LATENCIES)
        self._batch = self._published = self._rows = 0
        self._written: dict[str, int] = dict.fromkeys(self._outputs.values(), 0)
        self._pass_s = 0.0
        self._outages = Outages(self._graph, self._outputs.values(), lambda: time.monotonic() - self._started)
        self._lags = Lags(application)
        self._holds = Holds(application)
        self._latecomers = Latecomers(application, self._graph)
        self._meter = SizeMeter(store)
        self._costs = Costs()
        self._queries: Interval | None = None
        self._checkpoint_interval = 0
        self._load, self._busy_parts, self._waiting = Load(), dict[str, float](), ""
        self._promise: Promise | None = None
        self._version: TopologyVersion | None = None
        self._rescaled: Rescaled | None = None
        self.trace = ""  # of the user's code that ended the run
        self._first_s: float | None = None
        self._last_s = 0.0
        self._live = Live(console=self._console, refresh_per_second=4, get_renderable=self.drawn, transient=True)

    def __enter__(self) -> LiveView:
        self._console.print(f"[dim]starting[/dim] {self._name}")
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begun(self, application: Application, version: TopologyVersion) -> None:
        """The tasks are those of a version of the topology from now on."""
        self._graph = graph = TaskGraph(application.topology)
        self._outages.begun(graph)
        self._lags.graph = self._holds.graph = graph
        self._load, self._busy_parts = Load(), {}
        self._version = version

    def follow(self, latecomers: Latecomers) -> None:
        """Show the late rows that the driver counts."""
        self._latecomers = latecomers

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A pass has finished."""
        now = time.monotonic()
        self._first_s = self._first_s or now - seconds
        self._last_s = now
        self._batch, self._pass_s = last, seconds
        self._costs.passed(reports)
        rows = 0
        for report in reports:
            operator = int(self._graph.operator_of[report.task])
            if operator in self._sources:
                rows += report.rows_in
            if operator in self._outputs:
                name = self._outputs[operator]
                self._written[name] += sum(result.rows for result in report.staged if result.output == name)
        self._rows += rows
        self._lags.passed(last, reports)
        self._holds.passed(reports)
        self._recent.append((now, rows))
        while self._recent and self._recent[0][0] < now - RECENT_S:
            self._recent.popleft()
        if not self._console.is_terminal:
            behind = ", ".join(f"{name} {_lag(lag)}" for name, lag in self._lags.seconds().items())
            sizes = self._meter.sizes()
            said = [f"late rows {notice.short}" for notice in self._latecomers.said()] + self._holds.lines()
            self._console.print(
                f"batches {first} to {last}: {rows:,} rows in {seconds:.2f} s; lag {behind}; "
                f"{''.join(f'{words}; ' for words in said)}"
                f"state {render.size(sizes.state_bytes)}, store {render.size(sizes.store_bytes)}; "
                f"protection {render.percent(self._costs.share)} of the processor time",
                soft_wrap=True,
                markup=False,
            )

    def said(self, message: str) -> None:
        """Something happened that a user should know."""
        style = "bold red" if message.startswith("LATE") else "yellow"
        self._console.print(Text(message, style=style), soft_wrap=True)

    def handled(self, coordinator: Coordinator, event: Event, then: Sequence[Decided]) -> None:
        """Tell of nodes that come and go, and of what that means for the outputs."""
        self._costs.handled(event)
        if isinstance(event, PassFailed) and isinstance(event.failure, OperatorRaised):
            self.trace = event.failure.trace
        self._checkpoint_interval = coordinator.checkpoint_interval
        self._load, self._busy_parts = coordinator.state.load, coordinator.busy_parts or self._busy_parts
        self._waiting = waiting_text(coordinator.state.placement.waiting, then, self._waiting)
        self._promise = coordinator.state.promises.promise
        self._rescaled = next((each for each in reversed(then) if isinstance(each, Rescaled)), self._rescaled)
        said = self._outages.handled(coordinator, event, then)
        if isinstance(event, StopRequested):
            self.said(ASKED)
        for text in () if isinstance(event, CheckpointStored) else said:
            self.said(text)

    def published(self, last: int, latencies_s: list[float]) -> None:
        """Results up to a batch are committed, so long after their rows were known."""
        self._published = last
        self._latencies += latencies_s
        self._lags.published(last)

    def queried(self, interval: Interval) -> None:
        """An interval has ended, or nodes were lost: how late the results of every query are."""
        self._queries = interval

    def summary(self, stop: Stop) -> None:
        """What happened, after the end."""
        style = {Outcome.FINISHED: "green", Outcome.STOPPED: "green", Outcome.SUPERSEDED: "yellow"}.get(
            stop.outcome, "red"
        )
        seconds = self._last_s - (self._first_s or 0.0)
        lags, sizes = self._lags.seconds(), self._meter.sizes(now=True)
        pairs: list[tuple[str, str | Text]] = [
            ("outcome", Text(f"{stop.outcome}: {stop.reason}", style=style)),
            ("batches", f"{self._batch:,}, published up to {self._published:,}"),
            ("rows read", f"{self._rows:,}" + (f", {self._rows / seconds:,.0f}/s" if seconds > 0 else "")),
            *self._late_facts(),
            *((f"output {name}", f"{self._written[name]:,} rows, lag {_lag(lag)}") for name, lag in lags.items()),
        ]
        if len(self._latencies) > 1:
            cuts = statistics.quantiles(self._latencies, n=100, method="inclusive")
            pairs.append(("latency", f"p50 {render.seconds(cuts[49])}, p99 {render.seconds(cuts[98])}"))
        if self._queries is not None:
            pairs += availability.facts(availability.numbers(self._queries.to_data()[QUERIES]))
        pairs += cost_facts(self._costs, self._checkpoint_interval)
        pairs += promise_facts(self._promise)
        pairs += version_facts(self._version, None)
        pairs += load_facts(self._load, self._graph, self._busy_parts)
        pairs.append(("state on the nodes", render.size(sizes.state_bytes)))
        pairs.append(("store", f"{self._store}, {render.size(sizes.store_bytes)}"))
        render.console().print(render.facts(f"Run of {self._name}", pairs))

    def drawn(self) -> Group:
        """What is seen now."""
        now = time.monotonic()
        rate = sum(rows for at, rows in list(self._recent) if at > now - RECENT_S) / RECENT_S
        sizes = self._meter.sizes()
        grid, costs, states = (Table.grid(padding=(0, 2)) for _ in range(3))
        grid.add_row("[dim]batch[/dim]", f"{self._batch:,}", "[dim]published[/dim]", f"{self._published:,}")
        grid.add_row("[dim]rows/s[/dim]", f"{rate:,.0f}", "[dim]rows[/dim]", f"{self._rows:,}")
        latency = render.seconds(self._latencies[-1]) if self._latencies else "-"
        grid.add_row("[dim]latency[/dim]", latency, "[dim]last pass[/dim]", render.seconds(self._pass_s))
        state_size, store_size = render.size(sizes.state_bytes), render.size(sizes.store_bytes)
        grid.add_row("[dim]state[/dim]", state_size, "[dim]store[/dim]", store_size)
        for name, text in cost_facts(self._costs, self._checkpoint_interval):
            costs.add_row(f"[dim]{name}[/dim]", text)
        for name, text in load_facts(self._load, self._graph, self._busy_parts):
            costs.add_row(f"[dim]{name}[/dim]", text)
        for name, words in promise_facts(self._promise):
            costs.add_row(f"[dim]{name}[/dim]", words)
        for name, text in version_facts(self._version, self._rescaled):
            costs.add_row(f"[dim]{name}[/dim]", Text(text))
        for name, lag in self._lags.seconds().items():
            written = f"{self._written[name]:,}"
            state = output_text(self._outages, name)
            states.add_row("[dim]output[/dim]", Text(name), state, f"{written} [dim]rows, lag[/dim] {_lag(lag)}")
        title = Text.assemble(
            (self._name, "bold"), ("  running for ", "dim"), render.seconds(round(now - self._started))
        )
        late = [Text(notice.text, style="bold red" if notice.lost else "") for notice in self._latecomers.said()]
        holds = [Text(line, style="yellow") for line in self._holds.lines()]
        queries = self._queries
        lost = [Text(queries.text, style="yellow")] if queries is not None and queries.phase is Phase.LASTS else []
        waiting = [Text(self._waiting, style="bold yellow")] if self._waiting else []
        return Group(title, grid, costs, states, *waiting, *lost, *late, *holds)

    def _late_facts(self) -> list[tuple[str, str | Text]]:
        """The late rows of each source and operator that has any, loudly where they are in no result."""
        said = self._latecomers.said()
        rows = [("late rows", Text(notice.text, style="bold red" if notice.lost else "")) for notice in said]
        return [*rows] or [("late rows", "0")]


def cost_facts(costs: Costs, interval: int) -> list[tuple[str, str]]:
    """What protection has cost so far."""
    rows = []
    if costs.checkpoints:
        each_s, each = costs.checkpoint_s / costs.checkpoints, costs.held_bytes // costs.checkpoints
        rows.append(
            (
                "checkpoints",
                f"{costs.checkpoints:,} of {render.size(each)} and {render.seconds(each_s)} on average, "
                f"{render.size(costs.written_bytes)} written; now every {_batches(interval)}",
            )
        )
    if costs.queue_bytes:
        rows.append(("retained outputs", render.size(costs.queue_bytes)))
    if costs.messages:
        replicas = f", of these {costs.replica_messages:,} and {render.size(costs.replica_bytes)} for replicas"
        rows.append(("sent between nodes", f"{costs.messages:,} messages, {render.size(costs.bytes)}{replicas}"))
    return [*rows, ("protection", f"{render.percent(costs.share)} of the processor time of steps and checkpoints")]


def promise_facts(promise: Promise | None) -> list[tuple[str, Text]]:
    """How soon a lost task is back, once that is measured; loudly if that is too late."""
    if promise is None:
        return []
    return [("promise", Text(promise_words(promise), style="" if promise.holds else "bold red"))]


def _batches(count: int) -> str:
    return "batch" if count == 1 else f"{count:,} batches"


def _lag(seconds: float | None) -> str:
    return "-" if seconds is None else render.seconds(seconds)
