"""When the rows of batches came, where they come as the clock goes: whoever asks for them late finds more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenax.control import events
from tenax.errors import ClusterFailed
from tenax_lab.recorder import RunRecorder

HEADROOM = 2  # so many intervals of rows a batch may take: else rows that come while it is planned are one of their own
WARM = 2  # batches before rows come by the clock


class Arrivals:
    """Follows the batches of a run; `came_s` has, once rows have come, when the last row of each was there.

    Times are on the clock of the recorder. Rows come at an even rate, or row n so many seconds after the first as
    `after_s(n)` says. So the batch that was logged soonest after its last row tells when that was, and so does its
    number of rows for all others. The first `there` rows, if any, were there before the clock began.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        rate: float = 1.0,
        after_s: Callable[[float], float] | None = None,
        there: int = 0,
    ) -> None:
        self._recorder = recorder
        self._after_s = after_s or (lambda rows: rows / rate)
        self._there = there
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
    def began_s(self) -> float:
        """When the clock began."""
        return min(at_s - self._after_s(rows - self._there) for at_s, rows in self._known.values())

    @property
    def came_s(self) -> Mapping[int, float]:
        """By batch; those of the warm-up are left out."""
        began_s = self.began_s
        return {batch: began_s + self._after_s(rows - self._there) for batch, (_, rows) in self._known.items()}

    @property
    def rows(self) -> Mapping[int, float]:
        """How many rows came up to and with each batch."""
        return {batch: rows - self._there for batch, (_, rows) in self._known.items()}

    @property
    def _known(self) -> Mapping[int, tuple[float, float]]:
        known = {
            batch: (at_s, rows)
            for batch, (at_s, rows) in self._logged.items()
            if (rows > self._there if self._there else batch > WARM)
        }
        if not known:
            raise ClusterFailed("rows come while a run is measured, found none: see spark.log")
        return known
