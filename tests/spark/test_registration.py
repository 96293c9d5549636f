"""Nodes say their names when a run begins, and are asked again if that takes too long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenax.engine.driver.jobs import JobRunner
from tenax.engine.session import Session


class Overdue:
    """A timer whose time is over when it starts."""

    def __init__(self, after_s: float, call: Callable[[str], None], words: list[str]) -> None:
        del after_s
        self._call, self._words = call, words

    def start(self) -> None:
        self._call(*self._words)

    def cancel(self) -> None:
        """It is too late for that."""


def test_nodes_whose_registration_was_cancelled_are_asked_again(
    cluster: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = JobRunner(cluster.context, cluster.context.broadcast(b"shipped"))
    with monkeypatch.context() as hurried:
        hurried.setattr("tenax.engine.driver.jobs.threading.Timer", Overdue)
        with pytest.raises(Exception, match="cancelled"):
            runner.names_of(cluster.live_nodes())
    nodes = cluster.live_nodes()
    assert len(set(runner.names_of(nodes))) == len(nodes)
