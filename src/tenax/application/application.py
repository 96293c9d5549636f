"""An application: a topology with what its operators compute, where rows come from and where results go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from tenax.application.fingerprints import fingerprint
from tenax.connectors.sink import Sink
from tenax.connectors.source import Source
from tenax.errors import InvalidRequest, InvalidTopology
from tenax.model.elasticity import Elasticity
from tenax.model.protection import Protection, Strategy
from tenax.model.topology import Topology
from tenax.model.topology_versions import Table
from tenax.operators.computation import Computation
from tenax.store.records import Json


def late_output(source: str) -> str:
    """The name under which the late rows of a source are committed."""
    return f"{source}-late"


@dataclass(frozen=True, slots=True)
class Application:
    """Everything that a run needs to know of a user's program.

    - Every operator of the topology has a source or a computation.
    - `sinks` are by output operator, and by `late_output(source)` where late rows are kept.
    - `keys` are the columns by which an operator's input is spread over its tasks, for each (producer, consumer).
    - `protection` may change from one run on a store to the next; of all else `fingerprint` tells what has changed.
    - `elastic` says how tasks and nodes follow the load, `bounds` the fewest and the most tasks of the operators that
      name them; both may change like `protection`.
    - `places` are the lines of the user's file that made the operators, for messages.
    - `schemas` are the columns that each operator gives, derived by `with_schemas`; of what lies behind a source that
      cannot tell its columns yet there are none.
    - `paired` are the edges (producer, consumer) along which the rows of a task are all for its partner, however many
      tasks there are: both are rescaled together. A consumer that has one task by its nature is nobody's partner.
    - `tables` say which task owns each key group, of operators that were rescaled; of the others their weights do.
    - It is shipped to the workers once per run and never changes.
    """

    topology: Topology
    sources: Mapping[str, Source]
    computations: Mapping[str, Computation]
    sinks: Mapping[str, Sink]
    keys: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    protection: Protection = field(default_factory=Protection)
    places: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, pl.Schema] = field(default_factory=dict)
    elastic: Elasticity = field(default_factory=Elasticity)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    paired: frozenset[tuple[str, str]] = frozenset()
    tables: Mapping[str, Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, computation in self.computations.items():
            if not computation.deterministic:
                raise InvalidTopology(
                    f"operator {name!r}: exact replay needs deterministic operators, found one that says it is not: "
                    "make it a function of its rows"
                )

    def has_state(self, operator: str) -> bool:
        """Whether tasks of an operator keep anything from batch to batch; sources have their log."""
        return operator in self.computations and not self.computations[operator].stateless

    def fingerprint(self) -> dict[str, Json]:
        """What a store remembers of it, so that a difference can be named, operator by operator."""
        return fingerprint(self)


def check_rebuilt(application: Application, protection: Protection) -> None:
    """Refuse to leave a state unstored that cannot be rebuilt from a few batches."""
    for name, computation in application.computations.items():
        if protection.strategy_of(name) is Strategy.NONE and not (computation.stateless or computation.bounded):
            raise InvalidRequest(
                f"operator {name!r}: checkpoint none is for states that a few batches decide (windows, joins, top), "
                f"found {type(computation).__name__}, which may keep its state for ever: protect it with "
                f"checkpoints={{{name!r}: {Strategy.ALIGNED.value!r}}}"
            )
