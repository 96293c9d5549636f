"""The settings of a run: one frozen record per concern, whose fields say what they may be, what they mean and why.

    record           concern                                        in a settings file   said by
    ---------------  ---------------------------------------------  -------------------  ---------------------------
    Protection       how the loss of nodes is met                   [protection]         application, file, options
    Bounds           how much is under way at a time, how long      [bounds]             file, options
    Batches          what a batch takes in                          [batches]            file, options
    ClusterSettings  the nodes that the run asks for                [cluster]            file, options
    Elasticity       how tasks and nodes follow the load            [elastic]            application, file, options
    Start            what one start of a run does beside going on   [start]              options

`Settings` has one of each. Whatever else speaks of settings (`topology.protect` and `elastic`, options of commands,
settings files, the table in docs/running.md, the JSON of a run) derives from these declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tenax.errors import InvalidRequest
from tenax.model.cluster import Node
from tenax.model.durations import Span, seconds
from tenax.model.elasticity import Elasticity
from tenax.model.options import (
    Option,
    check_fields,
    count,
    names,
    number,
    option,
    options_of,
    plain,
    switch,
    text,
    time,
)
from tenax.model.protection import Protection
from tenax.model.topology import suggestion

PER_PASS = 8  # batches: being behind makes passes longer, up to here
FIRST_ROWS = 100_000  # of a batch, before the speed of a run is known
PARTITION_MIB = 16  # of a batch in each partition of a source: larger ones were slower, see docs/decisions.md


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a run is under way at a time, and how long it may take.

    What is None follows from how far checkpoints are apart, see `Settings`.
    """

    max_batches_per_pass: int | None = option(
        count(),
        None,
        "The most batches of a pass: being behind makes passes longer.",
        if_none=f"{PER_PASS}, or as many as lie between checkpoints",
        unit="batches",
        example=PER_PASS,
    )
    max_batches_ahead: int | None = option(
        count(2),
        None,
        "Batches logged beyond the finished ones: being behind does not make the log longer.",
        if_none="2 × `max_batches_per_pass` + 1",
        unit="batches",
        example=2 * PER_PASS + 1,
    )
    max_unpublished: int | None = option(
        count(),
        None,
        "Batches finished beyond the published ones.",
        if_none="2 × `max_batches_per_pass` + 1",
        unit="batches",
        example=2 * PER_PASS + 1,
    )
    max_batches_per_round: int | None = option(
        count(),
        None,
        "The most batches of a round, in which lost tasks catch up.",
        if_none="as `max_batches_per_pass`, so that it can follow",
        unit="batches",
        example=PER_PASS,
    )
    pass_deadline: Span = option(
        time(),
        "1m",
        "The n-th attempt of a pass may take n times that; nodes that do not end their part of it are lost.",
    )
    measure_every: int = option(
        count(), 20, "So often the rates of tasks are measured, for quality and replicas.", unit="batches"
    )
    log_length: int = option(count(), 1000, "The coordinator remembers so many events.", unit="events")

    def __post_init__(self) -> None:
        check_fields(self)
        per_pass, ahead = self.max_batches_per_pass, self.max_batches_ahead
        if per_pass is not None and ahead is not None and ahead <= per_pass:
            raise InvalidRequest(
                f"max_batches_ahead is above max_batches_per_pass ({per_pass}), so that batches are logged while a "
                f"pass runs, found {ahead}: raise it"
            )

    @property
    def pass_deadline_s(self) -> float:
        """How many seconds the first attempt of a pass may take."""
        return seconds(self.pass_deadline)


@dataclass(frozen=True, slots=True)
class Batches:
    """What a batch takes in."""

    batch: Span = option(time(positive=False), "1s", "Time between batches.")
    max_rows: int | None = option(
        count(),
        None,
        "The most rows of a batch, per source.",
        if_none=f"by measured speed, {FIRST_ROWS:,} at first",
        unit="rows",
        example=FIRST_ROWS,
    )
    max_bytes: int | None = option(
        count(),
        None,
        "The most bytes of a batch, per source, about as rows lie in memory.",
        if_none=f"{PARTITION_MIB} MiB for each partition of a source; no bound with `max_rows`",
        unit="bytes",
        example=64 << 20,
    )
    strict_lateness: bool = option(switch(), False, "Stop at the first batch with late rows, before it is published.")
    keep_batches: bool = option(switch(), False, "Keep the whole batch log, so that the run can be replayed.")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def partition_bytes(self) -> int | None:
        """The most bytes of a batch in each partition of a source, where no bound is said; none with a fixed size."""
        return PARTITION_MIB << 20 if self.max_rows is None and self.max_bytes is None else None

    @property
    def batch_s(self) -> float:
        """How many seconds are between batches."""
        return seconds(self.batch)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The nodes that a run asks for, and when one of them is given up.

    A node that starts up or waits for a busy processor misses heartbeats, too, and is given up all the same: with 3 of
    0.5 s, on a machine with ten times as much to do as it can, no node lived long enough to be of use. A node that has
    died is known at once, whatever this says.
    """

    nodes: int = option(count(), 2, "Nodes of the embedded cluster.", unit="nodes")
    master: str | None = option(
        text("URL"), None, "A Spark master instead, like spark://host:7077.", if_none="an embedded cluster"
    )
    pool: int = option(
        count(0),
        0,
        "So many nodes more, which hold nothing and take over lost tasks first.",
        details="Nodes that come in place of lost ones fill the pool again.",
        unit="nodes",
    )
    max_nodes: int | None = option(
        count(),
        None,
        "The most nodes that the run asks the cluster for when lost tasks find no room.",
        if_none="`nodes` and `pool` together",
        unit="nodes",
        example=8,
    )
    node_limit: float = option(
        number(0.01, 100),
        0.8,
        "How busy a node may be: the part of a batch interval that it has for tasks.",
        details="By what tasks are measured to cost at the rate at which rows come. Lost tasks that find no room wait, "
        "the best queries come back first (`order`). It binds nothing where rows do not come by the clock, and nothing "
        "before they were measured; `slots` says it in tasks instead.",
    )
    racks: int | None = option(count(), None, "Deal the nodes out among so many racks.", example=2)
    slots: int | None = option(count(), None, "The most tasks of a node.", if_none="no bound", unit="tasks", example=8)
    standby_nodes: int = option(count(0), 0, "So many of the nodes hold replicas only.", unit="nodes")
    standby_slots: int | None = option(
        count(), None, "The most replicas of a standby node.", if_none="no bound", unit="tasks", example=8
    )
    heartbeat: Span = option(time(), "5s", "How often a node reports; one that hangs misses that.")
    missed: int = option(count(), 3, "So many missed heartbeats, and a node is given up.", unit="heartbeats")
    memory_mb: int = option(count(256), 1024, "Memory of each node of the embedded cluster.", unit="MB")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_nodes is not None and self.max_nodes < self.nodes + self.pool:
            raise InvalidRequest(
                f"max_nodes is at least nodes and pool together ({self.executors}), found {self.max_nodes}: raise it"
            )
        if self.master is None and self.standby_nodes and self.standby_nodes >= self.nodes:
            raise InvalidRequest(
                f"some nodes are not standby, found standby_nodes {self.standby_nodes} of nodes {self.nodes}: lower it"
            )

    @property
    def executors(self) -> int:
        """How many nodes the run begins with, those of the pool included."""
        return self.nodes + self.pool

    @property
    def most_nodes(self) -> int:
        """How many nodes there may be."""
        return self.max_nodes or self.executors

    @property
    def heartbeat_s(self) -> float:
        """How many seconds are between the heartbeats of a node."""
        return seconds(self.heartbeat)

    def node(self, name: str, place: int) -> Node:
        """The node of that name at a place, counted from 0: the first so many are standby, and racks take turns."""
        standby = place < self.standby_nodes
        slots = self.standby_slots if standby else self.slots
        return Node(name, rack=self.rack(place), slots=slots, standby=standby)

    def rack(self, place: int) -> str | None:
        """The rack of a place."""
        return None if self.racks is None else f"rack{place % self.racks + 1}"


@dataclass(frozen=True, slots=True)
class Start:
    """What one start of a run does beside going on where the last one ended."""

    accept_changes: tuple[str, ...] = option(
        names(),
        (),
        "Operators whose code has changed on the same store and that may start empty, like 'speed,jams'; 'totals=keep' "
        "lets one of your own go on with its state; outputs that go elsewhere from now on.",
        lasting=False,
    )
    upgrade: bool = option(
        switch(),
        False,
        "Let other code take the store over: operators that are unchanged keep their states, all others start empty, "
        "come or go; what becomes of each is said.",
        lasting=False,
    )
    drain: bool = option(switch(), False, "Read what the sources have now, close every window and end.", lasting=False)
    replay: bool = option(
        switch(), False, "Run what is logged, and ask the sources for nothing more.", lasting=False, hidden=True
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run, concern by concern.

    - Every setting has one name, in whichever record it is: `but(max_rows=500, replicas=2)` needs no more.
    - `to_data` is what events, `inspect` and other programs see; `from_data` reads it.
    """

    protection: Protection = field(default_factory=Protection)
    bounds: Bounds = field(default_factory=Bounds)
    batches: Batches = field(default_factory=Batches)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    elastic: Elasticity = field(default_factory=Elasticity)
    start: Start = field(default_factory=Start)

    @classmethod
    def of(cls, **words: Any) -> Settings:
        """Settings of which these differ from the defaults: `Settings.of(max_rows=500, checkpoint_every=4)`."""
        return cls().but(**words)

    def but(self, **words: Any) -> Settings:
        """With these words in place of its own."""
        changes: dict[str, dict[str, Any]] = {}
        for word, value in words.items():
            if word not in CONCERNS:
                raise InvalidRequest(f"there is no setting {word!r}{suggestion(word, CONCERNS)}")
            changes.setdefault(CONCERNS[word], {})[word] = value
        protection = self.protection.but(**changes.pop("protection", {}))
        others: dict[str, Any] = {name: replace(getattr(self, name), **changed) for name, changed in changes.items()}
        return replace(self, protection=protection, **others)

    @property
    def max_batches_per_pass(self) -> int:
        """The bound, if it is given; else a pass spans no more than lies between two checkpoints."""
        ahead, every = self.bounds.max_batches_ahead or PER_PASS + 1, self.protection.checkpoint_every_batches
        return self.bounds.max_batches_per_pass or min(PER_PASS, every, ahead - 1)

    @property
    def max_batches_ahead(self) -> int:
        """The bound, if it is given; else as many as keep passes busy."""
        return self.bounds.max_batches_ahead or 2 * self.max_batches_per_pass + 1

    @property
    def max_unpublished(self) -> int:
        """The bound, if it is given; else as many as keep passes busy."""
        return self.bounds.max_unpublished or 2 * self.max_batches_per_pass + 1

    @property
    def max_batches_per_round(self) -> int:
        """The bound, if it is given; else as much as a live pass, or lost tasks could not follow."""
        return self.bounds.max_batches_per_round or self.max_batches_per_pass

    def resolved(self) -> Settings:
        """With every bound that was left open as it follows from the others."""
        open_bounds = ("max_batches_per_pass", "max_batches_ahead", "max_unpublished", "max_batches_per_round")
        return self.but(**{name: getattr(self, name) for name in open_bounds})

    def to_data(self) -> dict[str, dict[str, Any]]:
        """As plain data, by record and field; spans as text."""
        return {
            section: {name: plain(getattr(getattr(self, section), name)) for name in options_of(record)}
            for section, record in RECORDS.items()
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Mapping[str, Any]]) -> Settings:
        """What `to_data` gave."""
        return cls(**{section: RECORDS[section](**words) for section, words in data.items()})


RECORDS: Mapping[str, type[Any]] = {
    "protection": Protection,
    "bounds": Bounds,
    "batches": Batches,
    "cluster": ClusterSettings,
    "elastic": Elasticity,
    "start": Start,
}
"""The record of every concern."""

CONCERNS: Mapping[str, str] = {each.name: section for section, record in RECORDS.items() for each in fields(record)}
"""The concern that every setting belongs to."""


def declared(word: str) -> Option:
    """What is declared of a setting."""
    return options_of(RECORDS[CONCERNS[word]])[word]
