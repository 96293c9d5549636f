"""Rescales as a driver sees them: requests in its store, what was made ready for them, and what became of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tenax.control import events
from tenax.control.instructions import Decided
from tenax.control.notices import RescaleGivenUp, RescalePlanned
from tenax.engine.driver.switching import Prepared
from tenax.model.topology_versions import Target
from tenax.store import topology_versions
from tenax.store.store import Store


class Rescales:
    """Looks for requests, remembers what is ready, and answers.

    - A request is open until it is answered; the next driver finds it again. A newer one overtakes those before it.
    - One that the coordinator has no use for now, because another rescale is under way, is asked again later.
    """

    def __init__(self, store: Store, tell: Callable[[str], None]) -> None:
        self._store = store
        self._tell = tell
        self._looked_at = 0
        self._published_s: float | None = None
        self._since_s: float | None = None
        self._ready: Prepared | None = None
        self._lock = threading.Lock()

    def next_request(self) -> Target | None:
        """A request that the coordinator does not know of yet."""
        target = topology_versions.open_request(self._store.folder)
        with self._lock:
            if target is None or target.request == self._looked_at:
                return None
            done = {version.request for version in topology_versions.read_versions(self._store.folder)}
            if target.request in done:  # a driver that died as it switched could not say so
                topology_versions.answer(self._store.folder, target.request, done=True, words="by an earlier driver")
                return None
            self._looked_at = target.request
        topology_versions.overtake(self._store.folder, target.request)
        return target

    def prepared(self, ready: Prepared) -> None:
        """What a rescale needs is ready."""
        with self._lock:
            self._ready = ready

    def ready(self, target: Target, present: int) -> Prepared | None:
        """What was made ready for a rescale of the present version; None if it was not, or for an earlier version."""
        with self._lock:
            known = self._ready
        if known is None or known.target != target:
            return None
        return known if target.version is not None or known.version.number == present + 1 else None

    def refused(self, target: Target, why: str) -> None:
        """A rescale cannot be."""
        self._tell(f"no rescale ({target.words}): {why}")
        topology_versions.answer(self._store.folder, target.request, done=False, words=why)

    def needless(self, target: Target) -> None:
        """A rescale would change nothing."""
        self._tell(f"no rescale ({target.words}): that is what there is")
        topology_versions.answer(self._store.folder, target.request, done=True, words="to what there was already")

    def handled(self, event: events.Event, decided: Sequence[Decided]) -> None:
        """The coordinator has handled an event: a request that it ignored is looked at again, one given up answered.

        After a switch it is told how long there were no results.
        """
        asked = isinstance(event, events.RescaleAsked) and event.target.request
        if asked and not any(isinstance(each, RescalePlanned) for each in decided):
            with self._lock:
                self._looked_at = 0
        for each in decided:
            if isinstance(each, RescaleGivenUp):
                topology_versions.answer(self._store.folder, each.target.request, done=False, words=each.reason)
        match event:
            case events.Started(passes=passes) if passes:
                self._since_s = self._published_s
            case events.Published(tentative=False):
                self._published(time.monotonic())

    def _published(self, now_s: float) -> None:
        if self._since_s is not None:
            gap_s, self._since_s = now_s - self._since_s, None
            text = f"first results after the switch, {gap_s:.2f} s after the last before it"
            self._store.record_event({"switch": {"gap_s": round(gap_s, 3)}, "text": text})
            self._tell(text)
        self._published_s = now_s
