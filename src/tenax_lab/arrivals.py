"""When the rows of batches came, where they come as the clock goes: whoever asks for them late finds more of them."""

from __future__ import annotations

from collections.abc import Mapping

from tenax.control import events
from tenax.errors import ClusterFailed
from tenax_lab.recorder import RunRecorder

HEADROOM = 2  # so many intervals of rows a batch may take: else rows that come while it is planned are one of their own
WARM = 2  # batches before rows come by the clock


class Arrivals:
    """Follows the batches of a run; `came_s` has, once rows have come, when the last row of each was there.

    Times are on the clock of the recorder. Rows come at an even rate, so the batch that was logged soonest after its
    last row tells when that was, and so does its number of rows for all others.
    """

    def __init__(self, recorder: RunRecorder, rate: float) -> None:
        self._recorder = recorder
        self._rate = rate
        self._logged: dict[int, tuple[float, float]] = {}
        self._rows = 0.0
        recorder.after_event.append(self.learn)

    def learn(self, event: events.Event) -> None:
        """Batches may be logged together: then each has as many of their rows."""
        if not isinstance(event, events.BatchesLogged) or event.last < event.first:
            return
        each = event.rows / (event.last - event.first + 1)
        for batch in range(event.first, event.last + 1):
            self._rows += each
            self._logged[batch] = (self._recorder.now_s, self._rows)

    @property
    def came_s(self) -> Mapping[int, float]:
        """By batch; those of the warm-up are left out."""
        known = {batch: logged for batch, logged in self._logged.items() if batch > WARM}
        if not known:
            raise ClusterFailed("rows come while a run is measured, found none: see spark.log")
        began_s = min(at_s - rows / self._rate for at_s, rows in known.values())
        return {batch: began_s + rows / self._rate for batch, (_, rows) in known.items()}
