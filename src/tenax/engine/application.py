"""An application: a topology with what its operators compute, where rows come from and where results go."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tenax.engine.sinks.sink import Sink
from tenax.engine.sources.source import Source
from tenax.errors import InvalidTopology
from tenax.model.files import topology_data
from tenax.model.topology import Topology
from tenax.operators.computation import Computation


def late_output(source: str) -> str:
    """The name under which the late rows of a source are committed."""
    return f"{source}-late"


@dataclass(frozen=True, slots=True)
class Application:
    """Everything that a run needs to know of a user's program.

    - Every operator of the topology has a source or a computation.
    - `sinks` are by output operator, and by `late_output(source)` where late rows are kept.
    - `keys` are the columns by which an operator's input is spread over its tasks, for each (producer, consumer).
    - It is shipped to the workers once per run and never changes.
    """

    topology: Topology
    sources: Mapping[str, Source]
    computations: Mapping[str, Computation]
    sinks: Mapping[str, Sink]
    keys: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, computation in self.computations.items():
            if not computation.deterministic:
                raise InvalidTopology(
                    f"operator {name!r}: exact replay needs deterministic operators, found one that says it is not: "
                    "make it a function of its rows"
                )

    def fingerprint(self) -> dict[str, object]:
        """What must be the same for a store to be resumed: plain data, so that a difference can be named."""
        shape = json.dumps(topology_data(self.topology), sort_keys=True)
        return {
            "topology": self.topology.name,
            "operators": {
                operator.name: {
                    "parallelism": operator.parallelism,
                    "inputs": [f"{one.operator} ({one.partitioning})" for one in operator.inputs],
                    "computes": type(self.sources.get(operator.name) or self.computations[operator.name]).__name__,
                }
                for operator in self.topology.operators
            },
            "shape": hashlib.sha256(shape.encode()).hexdigest(),
        }
