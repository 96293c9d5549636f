"""The names that `import tenax as tx` offers to those who write topologies."""

from __future__ import annotations

from tenax.api.running import RunResult, collect, run, stop_cluster
from tenax.api.streams import Stream, Topology, Windowed, apply
from tenax.connectors.delivery import callback, console
from tenax.connectors.files import files
from tenax.connectors.generators import Pace
from tenax.connectors.logged import LoggedCommitter, LoggedSink
from tenax.connectors.parquet import parquet, read_committed, read_latest
from tenax.connectors.sink import Committer, Plain, Results, Sink, Staged, Survey
from tenax.connectors.source import Limits, NothingNew, Planned, Source
from tenax.connectors.workloads import elements, incident_reports, page_views, traffic_locations, tweets
from tenax.errors import (
    ChangedSource,
    ConflictingResults,
    DamagedStore,
    EpochLost,
    InvalidSource,
    RunFailed,
    SinkFailed,
    SourceFailed,
    TenaxError,
    UnreadableSource,
)
from tenax.operators.computation import Computation, Splits, State, StepInput, StepOutput
from tenax.operators.custom import Changes, KeyedComputation
from tenax.operators.groups import Groups
from tenax.store.records import Json

__all__ = [
    "ChangedSource",
    "Changes",
    "Committer",
    "Computation",
    "ConflictingResults",
    "DamagedStore",
    "EpochLost",
    "Groups",
    "InvalidSource",
    "Json",
    "KeyedComputation",
    "Limits",
    "LoggedCommitter",
    "LoggedSink",
    "NothingNew",
    "Pace",
    "Plain",
    "Planned",
    "Results",
    "RunFailed",
    "RunResult",
    "Sink",
    "SinkFailed",
    "Source",
    "SourceFailed",
    "Splits",
    "Staged",
    "State",
    "StepInput",
    "StepOutput",
    "Stream",
    "Survey",
    "TenaxError",
    "Topology",
    "UnreadableSource",
    "Windowed",
    "apply",
    "callback",
    "collect",
    "console",
    "elements",
    "files",
    "incident_reports",
    "page_views",
    "parquet",
    "read_committed",
    "read_latest",
    "run",
    "stop_cluster",
    "traffic_locations",
    "tweets",
]
