"""An application: a topology with what its operators compute, where rows come from and where results go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import polars as pl

from tenax.application.fingerprints import fingerprint
from tenax.connectors.sink import Sink
from tenax.connectors.source import Source
from tenax.control.state import Outputs, Recovery, Strategy
from tenax.errors import InvalidRequest, InvalidTopology
from tenax.model.durations import microseconds
from tenax.model.topology import Topology, suggestion
from tenax.operators.computation import Computation
from tenax.store.records import Json

ALL = "all"
SOURCE, PLANNED = "source", "planned"
BACKUPS = (SOURCE, PLANNED, "adaptive", ALL)
NONE, PASSIVE, ACTIVE, BOTH = "none", "passive", "active", "both"
STANDBYS = (NONE, PASSIVE, ACTIVE, BOTH)
ORDERS = ("best-density", "exact", "dp", "operator-centric")


def late_output(source: str) -> str:
    """The name under which the late rows of a source are committed."""
    return f"{source}-late"


@dataclass(frozen=True, slots=True)
class Protection:
    """How an application meets the loss of nodes, in the words of its user.

    - `replicas` run a second time elsewhere: the best so many, all, or those named (`speed[0]`, `speed[*]`). Sources
      need none: what they read is logged, so they go on anywhere.
    - `backups` says who retains outputs, so that a lost task need not be replayed from its sources: nobody but the
      sources' log, the fewest tasks that keep `recovery_latency`, these and all others after a correlated failure, or
      all. None means planned if there is a `recovery_latency`, and source otherwise.
    - `recovery` goes on with what is left, or waits for everything. `outputs` that depend on missing tasks show
      tentative results, `tentative_delay` after the loss at the soonest, or are held.
    - `order` chooses who comes back first while nodes are short.
    - `checkpoint` is how states are stored, or `none` if they are rebuilt instead; `checkpoints` says it for single
      operators. They are `checkpoint_every` batches apart, or so much time; or as far as is best if a node fails every
      `failure_every`, by what they cost.
    - `standby` says for single operators that nothing stands by, neither replicas nor stored states (`none`: lost ones
      are rebuilt); that none of their tasks has a replica (`passive`), that all have (`active`), or that all have and
      these send as well, so that consumers drop what they get twice (`both`).
    - `storage_patience` is how long a run waits in all for a sink or a store that refuses something: full, read-only,
      away. Then it ends, and can be started again.
    - `follow_load`: if `replicas` is a number, rates are measured while the application runs, and replicas move when
      others would keep so much more of the outputs (a part of 1, as fidelity is). 1 lets them stay.
    """

    replicas: int | str | tuple[str, ...] = 0
    recovery_latency: str | None = None
    backups: str | None = None
    recovery: str = Recovery.INCREMENTAL.value
    outputs: str = Outputs.TENTATIVE.value
    order: str = ORDERS[0]
    tentative_delay: str = "0s"
    checkpoint_every: int | str = 10
    checkpoint: str = Strategy.ALIGNED.value
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    failure_every: str | None = None
    standby: Mapping[str, str] = field(default_factory=dict)
    follow_load: float = 0.05
    storage_patience: str = "5m"

    def __post_init__(self) -> None:
        wrong_count = not isinstance(self.replicas, str | tuple) and not _counts(self.replicas, 0)
        wrong_task = isinstance(self.replicas, tuple) and not all(isinstance(one, str) for one in self.replicas)
        if wrong_count or wrong_task or (isinstance(self.replicas, str) and self.replicas != ALL):
            raise InvalidRequest(
                f"replicas are a number of at least 0, {ALL!r} or a list of tasks, found {self.replicas!r}: write 6, "
                f"{ALL!r} or ['speed[0]']"
            )
        if self.backups is not None:
            _check_choice("backups", self.backups, BACKUPS)
        _check_choice("recovery", self.recovery, [one.value for one in Recovery])
        _check_choice("outputs", self.outputs, [one.value for one in Outputs])
        _check_choice("order", self.order, ORDERS)
        for what, single in (("checkpoints", self.checkpoints), ("standby", self.standby)):
            if not isinstance(single, Mapping):
                raise InvalidRequest(f"{what} are said by operator, found {single!r}: write {what}={{'join': ...}}")
        for name, strategy in [("checkpoint", self.checkpoint), *self.checkpoints.items()]:
            what = name if name == "checkpoint" else f"the checkpoint of operator {name!r}"
            _check_choice(what, strategy, [one.value for one in Strategy])
        for name, mode in self.standby.items():
            _check_choice(f"the standby of operator {name!r}", mode, STANDBYS)
            if mode == NONE and self.checkpoints.get(name, Strategy.NONE) != Strategy.NONE:
                raise InvalidRequest(
                    f"operator {name!r}: standby none stores no state, found checkpoint {self.checkpoints[name]!r} "
                    "beside it: leave one of the two out"
                )
        load = self.follow_load
        if isinstance(load, bool) or not isinstance(load, int | float) or not 0.0 <= load <= 1.0:
            raise InvalidRequest(f"follow_load is a number from 0 to 1, found {self.follow_load!r}: write 0.05")
        self._check_interval()
        self._check_latency()
        microseconds(self.storage_patience)
        if self.tentative_delay_s and (self.outputs, self.recovery) != (Outputs.TENTATIVE, Recovery.INCREMENTAL):
            raise InvalidRequest(
                f"a tentative_delay needs tentative outputs and incremental recovery, found {self.tentative_delay!r} "
                f"beside {self.outputs} and {self.recovery}: leave it out"
            )

    def _check_interval(self) -> None:
        every = self.checkpoint_every
        if not (_counts(every, 1) or (isinstance(every, str) and microseconds(every) > 0)):
            raise InvalidRequest(
                f"checkpoint_every is a number of batches of at least 1 or a time above 0, found {every!r}: write 10 "
                "or '5s'"
            )
        if self.failure_every is not None and not microseconds(self.failure_every):
            raise InvalidRequest(f"failure_every is a time above 0, found {self.failure_every!r}: write '1h'")

    def _check_latency(self) -> None:
        retains = self.backups in {PLANNED, "adaptive", None}
        if self.recovery_latency is not None and not retains:
            raise InvalidRequest(
                f"a recovery_latency is what planned backups keep, found {self.recovery_latency!r} beside backups "
                f"{self.backups!r}: leave one of the two out"
            )
        if self.recovery_latency is None and self.backups == PLANNED:
            raise InvalidRequest("planned backups need a recovery_latency, found none: write recovery_latency='5s'")
        if self.recovery_latency_s == 0.0:
            raise InvalidRequest(f"a recovery_latency is above 0, found {self.recovery_latency!r}: raise it")

    @property
    def recovery_latency_s(self) -> float | None:
        """Within how many seconds a lost task shall be back; None if nothing is asked for."""
        return None if self.recovery_latency is None else microseconds(self.recovery_latency) / 1e6

    @property
    def checkpoint_every_s(self) -> float | None:
        """The time between checkpoints; None if it is counted in batches."""
        return microseconds(self.checkpoint_every) / 1e6 if isinstance(self.checkpoint_every, str) else None

    @property
    def failure_every_s(self) -> float | None:
        """The mean time between failures; None if it is not known."""
        return None if self.failure_every is None else microseconds(self.failure_every) / 1e6

    @property
    def storage_patience_s(self) -> float:
        """How many seconds a run waits for a sink or store that refuses something."""
        return microseconds(self.storage_patience) / 1e6

    @property
    def tentative_delay_s(self) -> float:
        """How many seconds outputs wait before the first tentative result."""
        return microseconds(self.tentative_delay) / 1e6


def _counts(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_choice(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise InvalidRequest(f"{name} is one of {', '.join(known)}, found {value!r}{suggestion(str(value), known)}")


@dataclass(frozen=True, slots=True)
class Application:
    """Everything that a run needs to know of a user's program.

    - Every operator of the topology has a source or a computation.
    - `sinks` are by output operator, and by `late_output(source)` where late rows are kept.
    - `keys` are the columns by which an operator's input is spread over its tasks, for each (producer, consumer).
    - `protection` may change from one run on a store to the next; of all else `fingerprint` tells what has changed.
    - `places` are the lines of the user's file that made the operators, for messages.
    - `schemas` are the columns that each operator gives, derived by `with_schemas`; of what lies behind a source that
      cannot tell its columns yet there are none.
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


def check_rebuilt(application: Application, everywhere: Strategy, strategies: Mapping[str, Strategy]) -> None:
    """Refuse to leave a state unstored that cannot be rebuilt from a few batches."""
    for name, computation in application.computations.items():
        how = strategies.get(name, everywhere)
        if how is Strategy.NONE and not (computation.stateless or computation.bounded):
            raise InvalidRequest(
                f"operator {name!r}: checkpoint none is for states that a few batches decide (windows, joins, top), "
                f"found {type(computation).__name__}, which may keep its state for ever: protect it with "
                f"checkpoints={{{name!r}: {Strategy.ALIGNED.value!r}}}"
            )
