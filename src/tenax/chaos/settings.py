"""What a run under faults is set to, unless something else is said."""

from __future__ import annotations

from tenax.model.settings import Settings

CHAOS = Settings.of(nodes=4, racks=2, keep_batches=True)  # the oracle replays the whole batch log
