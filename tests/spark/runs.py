"""Running applications on a cluster in tests: load an example, run it to its end, read its committed results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import polars as pl
from pyspark import cloudpickle
from spark.oracles import Results

from tenax.application.application import Application
from tenax.connectors.generators import Generator
from tenax.connectors.parquet import ParquetSink
from tenax.control.instructions import Outcome, Stop
from tenax.engine.driver import Driver
from tenax.engine.loading import load_application
from tenax.engine.observer import Observer
from tenax.engine.session import Session
from tenax.model.settings import Settings

EXAMPLES = Path(__file__).parents[2] / "examples" / "apps"


@dataclass(slots=True)
class Watcher(Observer):
    """Remembers what a run did; `on_published` may act on it, in the driver's own thread."""

    on_published: Callable[[int], None] = lambda _: None
    batches: list[int] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def said(self, message: str) -> None:
        self.messages.append(message)

    def published(self, last: int, latencies_s: list[float]) -> None:  # noqa: ARG002
        self.batches.append(last)
        self.on_published(last)


def ship(module: ModuleType) -> None:
    """Send the classes and functions of a module by value: executors do not find test modules."""
    cloudpickle.register_pickle_by_value(module)


def example(name: str, **options: object) -> Application:
    """An example application, loaded as the command line does it."""
    return load_application(EXAMPLES / f"{name}.py", options)


FEW = Settings.of(max_batches_per_pass=4, max_batches_ahead=8, max_unpublished=8)
"""Not many batches under way at a time."""


def settings(batch_rows: int, *, checkpoint_every: int = 4, nodes: int = 2) -> Settings:
    """Batches of so many rows, checkpoints after so many batches."""
    return FEW.but(nodes=nodes, max_rows=batch_rows, checkpoint_every=checkpoint_every)


def run(
    application: Application,
    store: Path,
    how: Settings,
    session: Session | None,
    watcher: Watcher | None = None,
) -> Stop:
    """Run to whatever end."""
    return Driver(application, store, how, watcher or Watcher(), session).run()


def finish(
    application: Application,
    store: Path,
    how: Settings,
    session: Session | None,
    watcher: Watcher | None = None,
) -> Results:
    """Run to the good end; the committed results."""
    stop = run(application, store, how, session, watcher)
    assert stop.outcome is Outcome.FINISHED, stop
    return results(application)


def results(application: Application) -> Results:
    """What is committed so far, by output."""
    sinks = {name: sink for name, sink in application.sinks.items() if isinstance(sink, ParquetSink)}
    return {name: committed(sink.folder) for name, sink in sinks.items()}


def committed(folder: Path) -> pl.DataFrame:
    """All files of an output, as any reader of Parquet sees them."""
    # by Arrow: the reader of Polars is a pool of threads, and the tests leave little room for those
    frames = [pl.read_parquet(path, use_pyarrow=True) for path in sorted(folder.glob("*.parquet"))]
    return pl.concat(frames) if frames else pl.DataFrame()


def whole_input(application: Application) -> dict[str, pl.DataFrame]:
    """All rows of every generator, read as one range."""
    rows = {}
    for name, source in application.sources.items():
        assert isinstance(source, Generator)
        rows[name] = source.read(0, [0, source.pace.rows, 1])
    return rows
