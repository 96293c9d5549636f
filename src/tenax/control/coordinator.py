"""The coordinator: events in, instructions and notices out.

One table says it all. `learn` (transitions.py) turns an event into knowledge, `decide` (decisions.py) turns knowledge
into instructions and notices; both are pure. Events that answer nothing that was asked (late, repeated, unknown, of a
cancelled pass) are ignored and logged as such.

    event                         knowledge                                       what may follow; notices in (...)
    ----------------------------  ----------------------------------------------  ---------------------------------
    Started                       copies of all tasks, at the checkpoint if any   RunPass live, LogBatches
    Started, store inconsistent                                                   Stop failed
    BatchesLogged(.., ended)      logged grows, maybe ended                       RunPass live, LogBatches; wrap-up
    LoggingFailed                 attempt + 1; a pause if the store refused it    LogBatches | Stop failed
    PassFinished, live            heads or forks move, finished grows             Publish, RunPass, StoreCheckpoint,
                                                                                  PlanReplicas, PlanBackups
    PassFinished, round           heads of what was behind move; maybe all are    Publish, RunPass, (TasksMoved)
                                  back, maybe those that move change places
    PassFinished, report missing  as PassFailed                                   RunPass
    PassFailed, operator          passes end before that batch; then wrap-up      RunPass live; (below), Stop failed
    PassFailed, source                                                            Stop failed
    PassFailed, storage refused   a pause, longer each time                       RunPass, new id | Stop failed
    PassFailed, passing cause     attempt + 1; then all at the checkpoint, then   RunPass, new id; (RolledBack) |
                                  at the one before it                            Stop failed
    Published                     published grows                                 Publish, RunPass, StoreCheckpoint
    PublishFailed                 attempt + 1; a pause if the sink refused it     Publish | Stop failed
    CheckpointStored              two newest are kept, lacking replicas start;    Trim, RunPass round
                                  tasks begin to move to nodes that have come
    CheckpointFailed              a pause; none if nodes were lost meanwhile      StoreCheckpoint | Stop failed
    NodesLost                     passes are over; replicas become primaries,     CancelPass, CancelCheckpoint,
                                  the other tasks there are at their checkpoint   (ReplicaPromoted), RequestNodes,
                                                                                  (RecoveryBegun), Wake, RunPass
    NodesJoined                   lost tasks may find room                        (RecoveryBegun), RunPass round
    Woken                         tentative results are shown from now on         RunPass live
    ReplicasPlanned               others should run twice, if it is worth it      (ReplicasMoved)
    BackupsPlanned                others retain outputs from the next pass on     (BackupsMoved), (PromiseMeasured)
    PlanningFailed                replicas and backups stay as they are           PlanReplicas, PlanBackups, later
    StopRequested                 wrap-up                                         (below)
    RescaleAsked                  the run is to have other tasks or nodes         (RescalePlanned), then as
                                                                                  rescaling.py says: RequestNodes,
                                                                                  StoreCheckpoint, Rescale
    RescaleFailed                 attempt + 1; the version that there is goes on  RunPass, (RescaleGivenUp)
    EpochLost                                                                     CancelPass, Stop superseded

While tasks are missing (behind, or without a node), what depends on them steps tentatively in live passes, on forks of
its state, or is held. All that is not affected goes on as always. What is behind catches up in rounds (rounds.py),
beside the live passes; when its lag is small, live passes pause until it has caught up: the cutover. Results of
rounds are final, and take back the tentative ones.

Tasks that are never stored are on a checkpoint as rebuild points: from which batch on they are stepped again, without
output, until they are rebuilt. Until then they are behind, like all others that catch up.

Wrap-up (asked to stop, an operator raised, or sources ended and all finished): the live pass ends; results are
published, a last checkpoint is stored unless tasks are missing and the end was asked for or forced, Trim, Stop.

Invariants (invariants.py): only versions of finished passes are cited; every task's head is at or before `finished`;
tentative versions exist only of degraded tasks; final results of a task are published in order, up to its head at
most; a checkpoint is of published batches, and from it and the outputs beside it all that follows can be made again;
nothing is trimmed that a kept checkpoint, an unpublished result or a task that catches up needs; every pass id is new;
at most one live pass and one round; no pass spans two versions of the topology, and one begins where all tasks are
stored and all results committed; nothing follows Stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from tenax.control import invariants
from tenax.control.checkpoints import strategies as checkpoints
from tenax.control.contradictions import ImpossibleTransition, InvariantBroken, concerned, stories_of
from tenax.control.decisions import decide
from tenax.control.events import Event
from tenax.control.instructions import Decided
from tenax.control.learned import Ignored
from tenax.control.narrator import Entry, Line, story
from tenax.control.placement.capacity import busy_parts
from tenax.control.placement.spreading import place_tasks
from tenax.control.recovery.standing import Standing, standing
from tenax.control.run import Place, Run
from tenax.control.state import RunState
from tenax.control.transitions import learn
from tenax.model.graph import TaskGraph
from tenax.model.settings import Settings
from tenax.model.tasks import Task
from tenax.planning.scaling import Group


class Coordinator:
    """Decides what a run does next.

    - `handle` takes one event and returns what follows, in order: instructions, which the driver carries out, and
      notices, which it only records; the same events give the same ones.
    - It reads no clock, draws nothing at random and does no I/O; deadlines are the driver's to keep.
    - At most one live pass, one round, one publication, one checkpoint and one logging request are under way at a time,
      each until its answer comes; what fails for a passing cause is asked again a bounded number of times.
    - Should it contradict itself, the error carries the story of the tasks concerned (contradictions.py).
    - `state` is a frozen value; `log` holds the last events with what followed; `story` tells them for one task.
    """

    def __init__(
        self,
        graph: TaskGraph,
        settings: Settings | None = None,
        retain: Iterable[Task] = (),
        replicas: Iterable[Task] = (),
        publishers: Iterable[Task] | None = None,
        place: Place | None = None,
        groups: Sequence[Group] = (),
    ) -> None:
        outputs = graph.tasks(np.flatnonzero(graph.is_output)) if publishers is None else publishers
        named = (frozenset(graph.tasks(graph.numbers(tasks))) for tasks in (retain, replicas, outputs))
        retained, replicated, published = named
        self._run = Run(
            graph,
            settings or Settings(),
            place or partial(place_tasks, retain=retained),
            retained,
            replicated,
            published,
            tuple(groups),
        )
        self._state = RunState()
        self._log: deque[Entry] = deque(maxlen=self._run.settings.bounds.log_length)
        self._handled = 0

    def handle(self, event: Event) -> list[Decided]:
        """Learn from an event, and say what is to be done now (instructions) and what that means (notices)."""
        decided: list[Decided] = []
        ignored = ""
        try:
            learned = learn(self._run, self._state, event)
            if isinstance(learned, Ignored):
                ignored = learned.reason
            else:
                self._state, decided = decide(self._run, learned)
        except Exception as error:
            tasks = concerned(self._state, event)
            raise ImpossibleTransition(event, error, stories_of(self._log, tasks)) from error
        self._handled += 1
        self._log.append(Entry(self._handled, event, tuple(decided), ignored))
        return decided

    @property
    def state(self) -> RunState:
        """All that is known now."""
        return self._state

    @property
    def settings(self) -> Settings:
        """How the run is protected and bounded."""
        return self._run.settings

    @property
    def checkpoint_interval(self) -> int:
        """Batches from one checkpoint to the next; it follows the pace of the run unless it was given in batches."""
        return checkpoints.interval(self._run, self._state)

    @property
    def busy_parts(self) -> dict[str, float]:
        """The part of the time in which every node is busy, as measured."""
        return busy_parts(self._run, self._state)

    @property
    def log(self) -> tuple[Entry, ...]:
        """The last events and what followed, oldest first."""
        return tuple(self._log)

    def story(self, task: Task) -> list[Line]:
        """What happened to a task and why, as far back as the log reaches."""
        self._run.graph.number(task)
        return story(self._log, task)

    @property
    def standing(self) -> Standing:
        """How the tasks stand now."""
        return standing(self._run, self._state)

    def check_invariants(self) -> None:
        """Raise if the coordinator contradicts itself; for tests and simulations, after every event."""
        broken = invariants.broken(self._run, self._state)
        if broken:
            tasks = [task for claim in broken for task in claim.tasks] or self._run.tasks
            raise InvariantBroken("; ".join(claim.text for claim in broken), stories_of(self._log, tasks))
