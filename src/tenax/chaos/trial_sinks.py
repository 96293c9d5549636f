"""Where the results of a trial go: below its own folder, and where they can be read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tenax.application.application import Application
from tenax.connectors.parquet import ParquetSink


def with_results_in(application: Application, folder: Path) -> Application:
    """The same application with all results below a folder, each output in one of its own.

    Its own sinks go there if they can be read back; as Parquet files go the results of those that cannot.
    """
    sinks = {
        name: sink.for_trial(folder / name) or ParquetSink(folder / name) for name, sink in application.sinks.items()
    }
    return replace(application, sinks=sinks)


def replaced_outputs(application: Application, folder: Path) -> tuple[str, ...]:
    """The outputs whose own sinks cannot be read back, so that Parquet files take their place in a trial."""
    return tuple(name for name, sink in application.sinks.items() if sink.for_trial(folder / name) is None)
