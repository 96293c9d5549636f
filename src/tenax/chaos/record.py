"""The timeline of a run: what happened when, and how every fault was met."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tenax.chaos.reference import Judgement
from tenax.control import events, instructions, notices
from tenax.control.coordinator import Coordinator
from tenax.control.copies import Role
from tenax.control.narrator import Happening, sentence
from tenax.control.records import Data, plain
from tenax.engine.observer import Observer
from tenax.engine.queries import Interval
from tenax.engine.worker.orders import Report


class What(StrEnum):
    """What a moment is about; beside it, what its detail holds: where the narrator has words for it, also `text`."""

    STARTED = "started"
    RESCALED = "rescaled"
    """A driver: `epoch`, `nodes`, and the `racks` of those."""
    FAULT = "fault"
    """A fault is about to be made: `number` in its schedule, `fault` as written, `kind`, `nodes`."""
    LOST = "lost"
    """Nodes are known to be gone: `nodes`, and whether tasks are missing now (`outage`)."""
    JOINED = "joined"
    """Nodes have come: `nodes`, `racks`."""
    PASS_BEGUN = "pass begun"
    """`pass`, `kind` (live or round), `first`, `last`, `steps`, of them `tentative`, `replicas`, `replay_copies`."""
    PASS_ENDED = "pass ended"
    """`pass`, `kind`, `first`, `last`, `seconds`."""
    PASS_FAILED = "pass failed"
    """`pass`, `cause`."""
    PUBLISHED = "published"
    """`tentative`, `first`, `last`, and `outputs`: of each the worst `quality` and how many `partitions`."""
    CHECKPOINT_BEGUN = "checkpoint begun"
    """`number`."""
    CHECKPOINT_STORED = "checkpoint stored"
    """`number`, `bytes`."""
    OUTAGE_BEGUN = "outage begun"
    """Tasks are missing: `missing` (without a node or behind), `affected` (those and all that depend on them)."""
    OUTAGE_ENDED = "outage ended"
    """All tasks are accurate and up to date again."""
    NOTED = "noted"
    """Something worth telling: `text`."""
    STOPPED = "stopped"
    """The driver has ended: `outcome`, `reason`."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, so many seconds after the run began; `detail` is plain data."""

    at_s: float
    what: What
    detail: Mapping[str, Data] = field(default_factory=dict)

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps({"at_s": round(self.at_s, 4), "what": self.what.value, "detail": self.detail})

    @classmethod
    def from_line(cls, line: str) -> Moment:
        """The moment of a line."""
        data = json.loads(line)
        return cls(float(data["at_s"]), What(data["what"]), data["detail"])


@dataclass(frozen=True, slots=True)
class FaultImpact:
    """A fault and how it was met; a time is none if that never happened.

    - `detection_s`: from the fault to the moment at which the run knew of all nodes that are gone.
    - `first_output_s`: from the fault to the next publication, final or tentative, of a batch that was not finished.
    - `recovered_s`: from the fault to the moment at which no task was missing any more.
    """

    fault: str
    at_s: float
    nodes: tuple[str, ...]
    detection_s: float | None
    first_output_s: float | None
    recovered_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What chaos found: whether the final results are those of a run without failures, and how failures were met.

    - `held`: both judges say so, the replay of the same batches and the reference, of all outputs that it could judge.
    - `final_equals_failure_free` to `corrected_results` are the replay's; `reference` is what the other says.

    Times are those of the worst fault; none if there was none, or if that never happened.
    """

    held: bool
    final_equals_failure_free: bool
    lost: int
    duplicated: int
    different: int
    final_results: int
    tentative_results: int
    corrected_results: int
    detection_s: float | None
    first_output_after_failure_s: float | None
    all_recovered_s: float | None
    median_batch_s: float | None
    batches: int
    drivers: int
    schedule: tuple[str, ...]
    unreached: tuple[str, ...]
    seed: int | None
    faults: tuple[FaultImpact, ...]
    findings: str
    """What both say, in words."""
    reference: Judgement = field(default_factory=Judgement)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the run was set to, as `Settings.to_data` gives it."""

    def to_json(self) -> str:
        """As an indented JSON object."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """What `to_json` wrote."""
        data = json.loads(text)
        faults = tuple(FaultImpact(**{**fault, "nodes": tuple(fault["nodes"])}) for fault in data.pop("faults"))
        schedule, unreached = tuple(data.pop("schedule")), tuple(data.pop("unreached"))
        judged = data.pop("reference")
        examples, not_judged = tuple(judged.pop("examples")), tuple(judged.pop("not_judged"))
        reference = Judgement(**judged, examples=examples, not_judged=not_judged)
        return cls(**data, schedule=schedule, unreached=unreached, faults=faults, reference=reference)


class Recorder(Observer):
    """Writes down what happens in a run, as an observer of its driver.

    - Every moment goes to `write` as soon as it is known; `also` are other observers that are told the same.
    - `origin_s` is when the run began, on the monotonic clock, which all processes of a machine share.
    - `coordinator` is the one of the run, as soon as there is one.
    """

    def __init__(
        self,
        write: Callable[[Moment], None] = lambda _: None,
        origin_s: float | None = None,
        also: Sequence[Observer] = (),
    ) -> None:
        self._write = write
        self._origin_s = time.monotonic() if origin_s is None else origin_s
        self._also = also
        self._lock = threading.Lock()
        self._begun: dict[str, tuple[float, instructions.RunPass]] = {}
        self._publishing: dict[tuple[str, bool], instructions.Publish] = {}
        self._outage = False
        self.coordinator: Coordinator | None = None
        self.moments: list[Moment] = []

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._origin_s

    def note(self, what: What, **detail: Data) -> None:
        """Write down that something happens now."""
        with self._lock:  # faults are noted by another thread than the run's
            moment = Moment(self.now_s, what, detail)
            self.moments.append(moment)
            self._write(moment)

    def passed(self, first: int, last: int, reports: list[Report], seconds: float) -> None:
        """A live pass has finished; `handled` has written it down."""
        for observer in self._also:
            observer.passed(first, last, reports, seconds)

    def said(self, message: str) -> None:
        """Something happened that a user should know."""
        self.note(What.NOTED, text=message)
        for observer in self._also:
            observer.said(message)

    def published(self, last: int, latencies_s: list[float]) -> None:
        """All final results up to a batch are committed; `handled` has written it down."""
        for observer in self._also:
            observer.published(last, latencies_s)

    def queried(self, interval: Interval) -> None:
        """An interval has ended; the store's events have it."""
        for observer in self._also:
            observer.queried(interval)

    def handled(self, coordinator: Coordinator, event: events.Event, then: Sequence[instructions.Decided]) -> None:
        """Write down what an event means, then what follows from it."""
        self.coordinator = coordinator
        self._note_event(event, outage=coordinator.state.outage is not None)
        self._note_outage(coordinator)
        for instruction in then:
            self._note_instruction(instruction)
        for observer in self._also:
            observer.handled(coordinator, event, then)

    def _note_event(self, event: events.Event, *, outage: bool) -> None:
        match event:
            case events.Started(passes=passes) if passes:
                self.note(What.RESCALED, text=_words(event))
            case events.Started():
                nodes = {node.name: node.rack for node in event.nodes}
                self.note(
                    What.STARTED, epoch=event.epoch, nodes=list(nodes), racks=list(nodes.values()), text=_words(event)
                )
            case events.NodesLost():
                self.note(What.LOST, nodes=list(event.nodes), outage=outage, text=_words(event))
            case events.NodesJoined():
                nodes = {node.name: node.rack for node in event.nodes}
                self.note(What.JOINED, nodes=list(nodes), racks=list(nodes.values()), text=_words(event))
            case events.PassFinished():
                self._note_finished(str(event.pass_id))
            case events.PassFailed():
                self._begun.pop(str(event.pass_id), None)
                self.note(What.PASS_FAILED, cause=plain(event.failure), **{"pass": str(event.pass_id)})
            case events.Published():
                self._note_published(str(event.pass_id), event.tentative)
            case events.CheckpointStored():
                self.note(What.CHECKPOINT_STORED, number=event.number, bytes=event.written_bytes)
            case events.CheckpointFailed():
                self.note(What.NOTED, text=_words(event))
            case _:
                pass

    def _note_finished(self, pass_id: str) -> None:
        begun = self._begun.pop(pass_id, None)
        if begun is None:  # a cancelled pass that ended all the same
            return
        at_s, instruction = begun
        self.note(What.PASS_ENDED, seconds=self.now_s - at_s, **_batches(instruction))

    def _note_published(self, pass_id: str, tentative: bool) -> None:
        publish = self._publishing.pop((pass_id, tentative), None)
        if publish is None:
            return
        outputs: dict[str, Data] = {}
        for name in sorted({part.task.operator for part in publish.parts}):
            parts = [part for part in publish.parts if part.task.operator == name]
            outputs[name] = {"quality": min(part.quality for part in parts), "partitions": len(parts)}
        first, last = min(part.first for part in publish.parts), max(part.last for part in publish.parts)
        self.note(What.PUBLISHED, tentative=tentative, first=first, last=last, outputs=outputs)

    def _note_outage(self, coordinator: Coordinator) -> None:
        outage = coordinator.state.outage is not None
        if outage is self._outage:
            return
        self._outage = outage
        if not outage:
            self.note(What.OUTAGE_ENDED)
            return
        standing = coordinator.standing
        unplaced = sum(task.primary is None for task in coordinator.state.tasks)
        missing = max(unplaced, int(standing.behind.sum()))
        self.note(What.OUTAGE_BEGUN, missing=missing, affected=int(standing.degraded.sum()))

    def _note_instruction(self, instruction: instructions.Decided) -> None:
        match instruction:
            case instructions.RunPass():
                self._begun[str(instruction.pass_id)] = (self.now_s, instruction)
                self.note(What.PASS_BEGUN, **_batches(instruction), **_steps(instruction))
            case instructions.CancelPass():
                self._begun.pop(str(instruction.pass_id), None)
            case instructions.Publish():
                self._publishing[str(instruction.pass_id), instruction.tentative] = instruction
            case instructions.StoreCheckpoint():
                self.note(What.CHECKPOINT_BEGUN, number=instruction.cut.number)
            case notices.RolledBack() | notices.BackupsMoved() | notices.PromiseMeasured():
                self.note(What.NOTED, text=_words(instruction))
            case notices.RescalePlanned() | notices.RescalePostponed() | notices.RescaleGivenUp():
                self.note(What.NOTED, text=_words(instruction))
            case instructions.Stop():
                outcome, reason = instruction.outcome.value, instruction.reason
                self.note(What.STOPPED, outcome=outcome, reason=reason, text=_words(instruction))
            case _:
                pass


def _words(happening: Happening) -> str:
    return sentence(happening) or ""


def _batches(instruction: instructions.RunPass) -> dict[str, Data]:
    return {
        "pass": str(instruction.pass_id),
        "kind": instruction.kind.value,
        "first": instruction.first,
        "last": instruction.last,
    }


def _steps(instruction: instructions.RunPass) -> dict[str, Data]:
    return {
        "steps": len(instruction.steps),
        "tentative": sum(step.tentative for step in instruction.steps),
        "replicas": sum(step.role is Role.REPLICA for step in instruction.steps),
        "replay_copies": sum(step.role is Role.REPLAY for step in instruction.steps),
    }


def impacts(moments: Sequence[Moment]) -> tuple[FaultImpact, ...]:
    """Every fault that took nodes or the driver away, and how it was met."""
    measured = []
    for position, moment in enumerate(moments):
        if moment.what is What.FAULT and moment.detail["kind"] in TAKING_AWAY:
            measured.append(_impact(moment, finished_through(moments[:position]), moments[position + 1 :]))
    return tuple(measured)


TAKING_AWAY = ("kill", "hang", "hang-workers", "driver")  # the kinds of faults that take something away


def finished_through(moments: Iterable[Moment]) -> int:
    """The newest batch that a live pass is through."""
    last = 0
    for moment in moments:
        match moment.what, moment.detail:
            case What.PASS_ENDED, {"kind": "live", "last": int(batch)}:
                last = max(last, batch)
            case _:
                pass
    return last


def _impact(fault: Moment, finished: int, after: Sequence[Moment]) -> FaultImpact:
    nodes = names(fault.detail.get("nodes"))
    known = _known(nodes, after)
    # what was computed before the fault says nothing of how it was met
    output = next((later for later in after if later.what is What.PUBLISHED and _last(later) > finished), None)
    return FaultImpact(
        fault=str(fault.detail["fault"]),
        at_s=fault.at_s,
        nodes=nodes,
        detection_s=None if known is None else after[known].at_s - fault.at_s,
        first_output_s=None if output is None else output.at_s - fault.at_s,
        recovered_s=None if known is None else _recovered_s(fault, after[known:]),
    )


def _known(nodes: Iterable[str], after: Sequence[Moment]) -> int | None:
    """The position of the moment at which the run knew of the last of the nodes; a new driver knows at once."""
    unknown = set(nodes)
    for position, moment in enumerate(after):
        if moment.what is What.LOST:
            unknown -= set(names(moment.detail["nodes"]))
        if moment.what is What.STARTED or (moment.what is What.LOST and nodes and not unknown):
            return position
    return None


def _last(published: Moment) -> int:
    last = published.detail["last"]
    return last if isinstance(last, int) else 0


def _recovered_s(fault: Moment, after: Sequence[Moment]) -> float | None:
    """When all was back: at the end of the outage, or at once if none came of it.

    A new driver is back when it publishes, for until then it runs what its predecessor has published.
    """
    if after[0].what is What.LOST and not after[0].detail["outage"]:
        return after[0].at_s - fault.at_s
    started = False
    for moment in after:
        started = started or moment.what is What.STARTED
        if moment.what is (What.PUBLISHED if started else What.OUTAGE_ENDED):
            return moment.at_s - fault.at_s
    return None


def names(value: Data) -> tuple[str, ...]:
    """The texts of a list in a detail."""
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def median_batch_s(moments: Iterable[Moment]) -> float | None:
    """The median time of a batch in live passes."""
    spent = []
    for moment in moments:
        match moment.what, moment.detail:
            case What.PASS_ENDED, {"kind": "live", "seconds": float(seconds), "first": int(first), "last": int(last)}:
                spent.append(seconds / (last - first + 1))
            case _:
                pass
    return statistics.median(spent) if spent else None


def worst(times: Iterable[float | None]) -> float | None:
    """The longest; none if there is none, or if one of them never ended."""
    known = list(times)
    if not known or any(at_s is None for at_s in known):
        return None
    return max(at_s for at_s in known if at_s is not None)


class Timeline:
    """A file of moments, one line each; several processes may append to it, one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, moment: Moment) -> None:
        """Add a moment."""
        with self.path.open("a") as file:
            file.write(moment.to_line() + "\n")

    def read(self) -> list[Moment]:
        """All moments so far; a line that a death has torn is left out."""
        if not self.path.exists():
            return []
        moments = []
        for line in self.path.read_text().splitlines():
            try:
                moments.append(Moment.from_line(line))
            except (ValueError, KeyError):
                continue
        return moments
