"""How an application meets the loss of nodes: the record of its protection, and the words that it knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tenax.errors import InvalidRequest
from tenax.model.durations import Span, seconds
from tenax.model.options import (
    batches_or_time,
    by_operator,
    check_fields,
    choice,
    choice_or_tasks,
    count,
    number,
    option,
    plain,
    tasks,
    time,
)

BETWEEN_CHECKPOINTS = 10  # batches
OPERATOR_CENTRIC = "operator-centric"
ORDERS = ("best-density", "exact", "dp", OPERATOR_CENTRIC)


class Recovery(StrEnum):
    """What goes on while tasks are missing."""

    INCREMENTAL = "incremental"
    """Live passes go on with what is left; missing tasks come back in the background."""
    BLOCKING = "blocking"
    """No live pass runs until everything is back."""
    AUTO = "auto"
    """Blocking for few losses that are predicted to be over within a batch interval, else incremental."""


class Outputs(StrEnum):
    """What outputs show that depend on missing tasks."""

    TENTATIVE = "tentative"
    HOLD = "hold"


class Strategy(StrEnum):
    """When the states of tasks are stored."""

    ALIGNED = "aligned"
    """All at one batch."""
    SYNCHRONOUS = "synchronous"
    """All of a node together, every node by its own timer; nothing runs meanwhile."""
    INDIVIDUAL = "individual"
    """Every task by its own timer."""
    SWEEPING = "sweeping"
    """The last tasks by a timer, the others when their consumers have let go of what they had sent."""
    NONE = "none"
    """Never: their state follows from a few batches, and is rebuilt by stepping these again."""


class Backups(StrEnum):
    """Which tasks retain their outputs."""

    SOURCE = "source"
    """None: sources have their log."""
    PLANNED = "planned"
    """Those that a plan names."""
    ADAPTIVE = "adaptive"
    """Those, and all from a correlated failure to the next checkpoint."""
    ALL = "all"


class Standby(StrEnum):
    """What stands by for the tasks of an operator."""

    NONE = "none"
    """Neither replicas nor stored states: lost ones are rebuilt."""
    PASSIVE = "passive"
    """Stored states, and no replica."""
    ACTIVE = "active"
    """A replica of every task."""
    ACTIVE_ACTIVE = "active-active"
    """Replicas that send as well: consumers drop what they get twice."""


@dataclass(frozen=True, slots=True)
class OperatorProtection:
    """How the loss of the tasks of one operator is met, where it is not as for the others."""

    checkpoint: str | None = option(choice(Strategy), None, "How its states are stored.", if_none="as for all")
    standby: str | None = option(choice(Standby), None, "What stands by for its tasks.", if_none="as `replicas` says")

    def __post_init__(self) -> None:
        check_fields(self)

    def words(self, operator: str) -> dict[str, dict[str, str]]:
        """The same as settings of a protection, for an operator of that name."""
        said = {"checkpoints": self.checkpoint, "standby": self.standby}
        return {name: {operator: word} for name, word in said.items() if word is not None}


@dataclass(frozen=True, slots=True)
class Protection:
    """How an application meets the loss of nodes.

    - Sources need no replicas: what they read is logged, so they go on anywhere.
    - What is said for single operators (`checkpoints`, `standby`) wins over what is said for all.
    - Spans of time are kept as text; the properties that end in `_s` have them in seconds.
    """

    replicas: int | str | tuple[str, ...] = option(
        tasks(),
        0,
        "Tasks that run twice: the best N, all, or those named.",
        details="They run on another node, of another rack if there are racks, and take over at once. A list is "
        '`["jams[0]", "speed[*]"]`. Sources need none, and operators with a `standby` of their own are not counted.',
    )
    recovery_latency: Span | None = option(
        time(),
        None,
        "Plan the fewest backups so that lost tasks are back within it, singly and with their node.",
        details="Reckoned with a second per task at first, see `tenax plan backups`; then with what is measured: every "
        "`measure_every` batches backups are planned anew, and the run says when it cannot be kept, and by whom.",
        example="5s",
    )
    backups: str | tuple[str, ...] | None = option(
        choice_or_tasks(Backups),
        None,
        "Who retains outputs: source, planned, adaptive, all, or the tasks named.",
        details="`source`: nobody, unless checkpoints are `synchronous`, `individual` or not the same for neighbours: "
        "lost tasks replay from the sources. `planned`: those that keep `recovery_latency`. `adaptive`: these, and all "
        'from a correlated failure to the next checkpoint. A list is `["speed[*]", "jams[0]"]`: these and '
        "no others; sources need none, for they have their log.",
        if_none="`planned` with a `recovery_latency`, else `source`",
    )
    recovery: str = option(
        choice(Recovery),
        Recovery.INCREMENTAL,
        "incremental: go on with what is left; blocking: wait for all; auto: wait if that is soon over.",
        details="`auto` waits for fewer than `correlated_losses` nodes if everything is predicted to be back within a "
        "batch interval, by measured times.",
    )
    outputs: str = option(
        choice(Outputs), Outputs.TENTATIVE, "Of outputs that miss tasks: tentative results, or hold them."
    )
    order: str = option(
        choice(ORDERS),
        ORDERS[0],
        "Who comes back first while nodes are short: best-density, exact, dp or operator-centric.",
    )
    tentative_delay: Span = option(time(positive=False), "0s", "Time before the first tentative result.")
    checkpoint_every: int | Span = option(
        batches_or_time(), BETWEEN_CHECKPOINTS, "Batches or time between checkpoints.", unit="batches"
    )
    checkpoint: str = option(
        choice(Strategy),
        Strategy.ALIGNED,
        "How states are stored: aligned, synchronous, individual or sweeping; none: lost ones are rebuilt. Differently "
        "for some: sweeping,join=none.",
        details="`aligned`: all at one batch. `synchronous`: all of a node together, every node by its own timer, "
        "nothing runs meanwhile. `individual`: every task by its own timer. `sweeping`: the last operators by a timer, "
        "the others when their consumers have let go of what they had sent. `none`: never; a state that windows bound "
        "is rebuilt from the batches that it depends on, see below.",
        single="checkpoints",
    )
    checkpoints: Mapping[str, str] = option(
        by_operator(choice(Strategy), "checkpoint"), {}, "How states of single operators are stored."
    )
    failure_every: Span | None = option(
        time(),
        None,
        "Mean time between failures: the best interval follows.",
        details="Checkpoints are as far apart as is best for it, by Young's formula and what they turn out to cost.",
        example="1h",
    )
    standby: Mapping[str, str] = option(
        by_operator(choice(Standby), "standby"),
        {},
        "none, passive, active, or active-active: replicas that send as well. Several: join=active,speed=passive.",
        details="For single operators. `none`: no replicas, and `checkpoint` none. `passive`: no replicas. `active`: "
        "replicas of all its tasks. `active-active`: these send as well, and consumers drop what they get twice.",
    )
    follow_load: float = option(
        number(0, 1),
        0.05,
        "Move replicas when others would keep so much more of the outputs, by measured rates; 1 never does. Backups "
        "that follow `recovery_latency` leave so much of it free.",
        details="With a number of `replicas`: rates are measured while the application runs, and every "
        "`measure_every` batches replicas are planned anew. New ones start from a checkpoint and catch up, then the "
        "old ones end; `events.jsonl` has both plans and the reason (`ReplicasMoved`).",
    )
    storage_patience: Span = option(
        time(positive=False),
        "5m",
        "How long the run waits for a sink or store that is full, read-only or away, before it ends.",
    )
    correlated_losses: int = option(
        count(), 2, "So many nodes lost since the last checkpoint make a failure correlated.", unit="nodes"
    )
    cutover_lag: int = option(
        count(),
        2,
        "Lost tasks that are at most so far behind are waited for: the cutover.",
        details="Nothing is tentative while live passes wait. Nobody waits for a state that takes longer to read than "
        "the time between batches.",
        unit="batches",
    )
    patience: int = option(
        count(), 3, "Live passes wait for lost tasks that have not come closer in so many rounds.", unit="rounds"
    )
    max_outage_bytes: int = option(
        count(), 4 << 30, "Outputs since tasks were lost, past which live passes wait for them.", unit="bytes"
    )
    max_attempts: int = option(
        count(),
        3,
        "How often in a row something is tried that fails for a passing cause.",
        details="A pass that still fails is tried from the newest checkpoint, then from the one before it; then the "
        "run stops.",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        for name, mode in self.standby.items():
            if mode == Standby.NONE and self.checkpoints.get(name, Strategy.NONE) != Strategy.NONE:
                raise InvalidRequest(
                    f"operator {name!r}: standby none stores no state, found checkpoint "
                    f"{plain(self.checkpoints[name])!r} beside it: leave one of the two out"
                )
        if self.recovery_latency is not None and _unplanned(self.backups):
            raise InvalidRequest(
                f"a recovery_latency is what planned backups keep, found {self.recovery_latency!r} beside backups "
                f"{plain(self.backups)!r}: leave one of the two out"
            )
        if self.recovery_latency is None and self.backups == Backups.PLANNED:
            raise InvalidRequest("planned backups need a recovery_latency, found none: write recovery_latency='5s'")
        if self.tentative_delay_s and (self.outputs != Outputs.TENTATIVE or self.recovery == Recovery.BLOCKING):
            raise InvalidRequest(
                "a tentative_delay needs tentative outputs and recovery that does not block, found "
                f"{self.tentative_delay!r} beside {self.outputs} and {self.recovery}: leave it out"
            )

    @property
    def recovery_latency_s(self) -> float | None:
        """Within how many seconds a lost task shall be back; None if nothing is asked for."""
        return None if self.recovery_latency is None else seconds(self.recovery_latency)

    @property
    def checkpoint_every_s(self) -> float | None:
        """The time between checkpoints; None if it is counted in batches."""
        return None if isinstance(self.checkpoint_every, int) else seconds(self.checkpoint_every)

    @property
    def checkpoint_every_batches(self) -> int:
        """The batches between checkpoints; if it is a time, as long as nobody knows how long a batch takes."""
        return self.checkpoint_every if isinstance(self.checkpoint_every, int) else BETWEEN_CHECKPOINTS

    @property
    def failure_every_s(self) -> float | None:
        """The mean time between failures; None if it is not known."""
        return None if self.failure_every is None else seconds(self.failure_every)

    @property
    def storage_patience_s(self) -> float:
        """How many seconds a run waits for a sink or store that refuses something."""
        return seconds(self.storage_patience)

    @property
    def tentative_delay_s(self) -> float:
        """How many seconds outputs wait before the first tentative result."""
        return seconds(self.tentative_delay)

    @property
    def follows(self) -> bool:
        """Whether replicas follow the load: if so many are asked for, and it is not said that they stay."""
        return isinstance(self.replicas, int) and self.replicas > 0 and self.follow_load < 1

    @property
    def backups_follow(self) -> bool:
        """Whether backups follow what is measured: if there is a latency to keep, and it is not said that they stay."""
        return self.recovery_latency is not None and self.follow_load < 1

    @property
    def strategies(self) -> dict[str, Strategy]:
        """How states are stored, by operator, where it is not as for the others."""
        single = {name: Strategy(word) for name, word in self.checkpoints.items()}
        return single | {name: Strategy.NONE for name, mode in self.standby.items() if mode == Standby.NONE}

    @property
    def all_strategies(self) -> frozenset[Strategy]:
        """All ways in which states are stored."""
        return frozenset({Strategy(self.checkpoint), *self.strategies.values()})

    @property
    def backups_or_default(self) -> Backups:
        """Who retains outputs; planned ones if there is a latency to keep and nothing else is said."""
        if isinstance(self.backups, str):
            return Backups(self.backups)
        if self.backups is not None:
            return Backups.PLANNED  # by whoever has named them
        return Backups.SOURCE if self.recovery_latency is None else Backups.PLANNED

    def strategy_of(self, operator: str) -> Strategy:
        """How the states of an operator are stored."""
        return self.strategies.get(operator, Strategy(self.checkpoint))

    def but(self, **words: Any) -> Protection:
        """With these words in place of its own; what they leave no room for goes, single operators are added."""
        own = self
        for name in ("checkpoints", "standby"):
            if isinstance(words.get(name), Mapping):
                words[name] = {**getattr(own, name), **words[name]}
        if _unplanned(words.get("backups")) and "recovery_latency" not in words:
            own = replace(own, recovery_latency=None, backups=None)  # what planned backups were to keep
        if "recovery_latency" in words and "backups" not in words and _unplanned(own.backups):
            own = replace(own, backups=None)
        if words.get("outputs") == Outputs.HOLD or words.get("recovery") == Recovery.BLOCKING:
            words.setdefault("tentative_delay", "0s")  # nothing will be tentative
        return replace(own, **words)


def _unplanned(backups: object) -> bool:
    """Whether what is said of backups leaves nothing to be planned: these words, or a list of tasks."""
    return isinstance(backups, list | tuple) or backups in (Backups.SOURCE, Backups.ALL)
