"""Where new owners of tasks have their states from: the store, or what the tasks before them retain."""

from __future__ import annotations

from tenax.application.application import Application
from tenax.model.elasticity import Handover
from tenax.model.protection import Backups, Strategy
from tenax.model.settings import Settings


def with_handover(application: Application, settings: Settings) -> Settings:
    """The settings with the protection that an elastic run goes by (Chang, Li, Xu: their two methods).

    - By `checkpoint` nothing changes: states are stored, and lost tasks begin with what the store has.
    - By `replay` a state that a few batches decide is never stored while all is well, and all tasks retain their
      outputs: a lost one is rebuilt by stepping these again, or from the log of the sources if those before it are lost
      as well. What was said of checkpoints of single operators, or of backups, holds; other states are stored as ever.

    At a rescale all tasks are stored, this once: the states of many tasks become those of others only there.
    """
    elastic, protection = settings.elastic, settings.protection
    if not elastic.elastic or elastic.handover != Handover.REPLAY:
        return settings
    never = {
        name: Strategy.NONE.value
        for name, computation in application.computations.items()
        if computation.bounded and not computation.stateless and name not in protection.checkpoints
    }
    words: dict[str, object] = {"checkpoints": {**protection.checkpoints, **never}}
    if protection.backups is None and protection.recovery_latency is None:
        words["backups"] = Backups.ALL.value
    return settings.but(**words)
