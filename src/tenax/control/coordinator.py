"""The coordinator: events in, instructions out.

One table says it all. `learn` (transitions.py) turns an event into knowledge, `decide` (decisions.py) turns knowledge
into instructions; both are pure. Events that answer nothing that was asked (late, repeated, unknown, of a cancelled
pass) are ignored and logged as such.

    phase      event                          knowledge                                 instructions that may follow
    ---------  -----------------------------  ----------------------------------------  --------------------------------
    waiting    Started, no checkpoint         running; heads initial, placement         RunPass if logged, LogBatches
    waiting    Started, checkpoint c          restoring; heads of c, finished = c       Restore, LogBatches
    waiting    Started, store inconsistent                                              Stop failed
    waiting    StopRequested                                                            Stop stopped
    restoring  Restored                       running                                   RunPass
    restoring  RestoreFailed                  attempt + 1                               Restore | Stop failed
    any        BatchesLogged(.., ended)       logged rises, maybe ended                 RunPass, LogBatches; wrap-up
    any        LoggingFailed                  attempt + 1                               LogBatches | Stop failed
    running    PassFinished, all reports      heads move, results wait, maybe due       Publish, RunPass, LogBatches
    running    PassFinished, report missing   as PassFailed                             RunPass
    running    PassFailed, operator or source                                           Stop failed
    running    PassFailed, node gone                                                    Stop failed
    running    PassFailed, passing cause      attempt + 1, same batches and heads       RunPass with a new id | Stop
    any        Published                      published rises                           Publish, RunPass, a checkpoint
    any        PublishFailed                  attempt + 1                               Publish | Stop failed
    any        CheckpointStored               two newest are kept                       Trim, StoreCheckpoint
    any        CheckpointFailed               attempt + 1                               StoreCheckpoint | Stop failed
    any        StopRequested                  wrap-up                                   (below)
    any        NodesJoined                    nodes known, placement stays
    any        NodesLost, tasks placed there                                            CancelPass, Stop failed
    any        EpochLost                                                                CancelPass, Stop superseded
    stopped    anything                                                                 none

Wrap-up (asked to stop, or sources ended and all finished): the live pass ends, a failed one is not tried again if a
stop was asked for; results are published, a last checkpoint is stored, Trim, Stop.

Invariants (invariants.py): heads of all tasks at one batch; only versions of finished passes are cited; published ≤
finished ≤ logged, but for results that an earlier driver published and this one replays; a checkpoint is of finished
and published batches; nothing is trimmed that a kept checkpoint, an unpublished result or the live pass needs; every
pass id is new; at most one live pass; nothing is instructed after Stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tenax.control import invariants
from tenax.control.decisions import decide
from tenax.control.events import Event
from tenax.control.instructions import Instruction
from tenax.control.placement import place_tasks
from tenax.control.state import RunState, Settings
from tenax.control.stories import Entry, Line, tell
from tenax.control.transitions import Ignored, Place, Run, learn
from tenax.model.graph import TaskGraph
from tenax.model.tasks import Task


class Coordinator:
    """Decides what a run does next.

    - `handle` takes one event and returns the instructions that follow; the same events give the same instructions.
    - It reads no clock, draws nothing at random and does no I/O; deadlines are the driver's to keep.
    - At most one pass, one publication, one checkpoint and one logging request are under way at a time, each until its
      answer comes; what fails for a passing cause is asked again a bounded number of times.
    - `state` is a frozen value; `log` holds the last events with what followed; `story` tells them for one task.
    """

    def __init__(
        self,
        graph: TaskGraph,
        settings: Settings | None = None,
        retain: Iterable[Task] = (),
        place: Place = place_tasks,
    ) -> None:
        tasks = graph.tasks(range(len(graph)))
        retaining = graph.tasks(graph.number(task) for task in set(retain))
        self._run = Run(graph, tasks, retaining, settings or Settings(), place)
        self._state = RunState()
        self._log: deque[Entry] = deque(maxlen=self._run.settings.log_length)
        self._handled = 0

    def handle(self, event: Event) -> list[Instruction]:
        """Learn from an event, and say what is to be done now."""
        learned = learn(self._run, self._state, event)
        instructions: list[Instruction] = []
        ignored = ""
        if isinstance(learned, Ignored):
            ignored = learned.reason
        else:
            self._state, instructions = decide(self._run, learned)
        self._handled += 1
        self._log.append(Entry(self._handled, event, tuple(instructions), ignored))
        return instructions

    @property
    def state(self) -> RunState:
        """All that is known now."""
        return self._state

    @property
    def log(self) -> tuple[Entry, ...]:
        """The last events and what followed, oldest first."""
        return tuple(self._log)

    def story(self, task: Task) -> list[Line]:
        """What happened to a task and why, as far back as the log reaches."""
        self._run.graph.number(task)
        return tell(self._log, task)

    def check_invariants(self) -> None:
        """Raise if the coordinator contradicts itself; for tests and simulations, after every event."""
        invariants.check(self._state)
