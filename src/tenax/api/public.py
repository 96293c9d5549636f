"""The names that `import tenax as tx` offers to those who write topologies."""

from __future__ import annotations

from tenax.api.streams import Stream, Topology, Windowed, apply
from tenax.connectors.delivery import callback, console
from tenax.connectors.files import files
from tenax.connectors.generators import Pace
from tenax.connectors.parquet import parquet, read_committed, read_latest
from tenax.connectors.workloads import elements, incident_reports, page_views, traffic_locations, tweets
from tenax.operators.computation import Computation, State, StepInput, StepOutput
from tenax.operators.custom import Changes, KeyedComputation

__all__ = [
    "Changes",
    "Computation",
    "KeyedComputation",
    "Pace",
    "State",
    "StepInput",
    "StepOutput",
    "Stream",
    "Topology",
    "Windowed",
    "apply",
    "callback",
    "console",
    "elements",
    "files",
    "incident_reports",
    "page_views",
    "parquet",
    "read_committed",
    "read_latest",
    "traffic_locations",
    "tweets",
]
