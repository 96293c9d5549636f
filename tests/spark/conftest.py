"""Embedded clusters of two sizes, shared by all tests of a process: to start one takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenax.engine.session import Session
from tenax.model.settings import ClusterSettings


class Clusters:
    """At most one cluster at a time, for Spark has one a process; what a test kills in it has returned before the next.

    Tests on two nodes come before those on four, so each size is started once.
    """

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._sessions: dict[int, Session] = {}

    def of(self, nodes: int) -> Session:
        """The cluster with so many nodes."""
        if nodes not in self._sessions:
            self.stop()
            self._sessions[nodes] = Session(self._folders.mktemp("cluster"), ClusterSettings(nodes))
        return self._sessions[nodes]

    def stop(self) -> None:
        """End the one that runs."""
        while self._sessions:
            self._sessions.popitem()[1].stop()


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Where tests get their cluster from."""
    shared = Clusters(tmp_path_factory)
    yield shared
    shared.stop()


@pytest.fixture
def cluster(clusters: Clusters) -> Session:
    """A session with two nodes."""
    return clusters.of(2)


@pytest.fixture
def four(clusters: Clusters) -> Session:
    """A session with four nodes."""
    return clusters.of(4)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--on` chooses tests by the cluster they need."""
    words = "tests on clusters of their own, or on the shared ones of two or four nodes"
    parser.getgroup("clusters").addoption("--on", choices=list(PLACES), default=None, help=words)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """First what starts clusters of its own, then tests on two nodes, then tests on four; otherwise in their order."""
    items.sort(key=place)
    wanted = config.getoption("--on", None)
    if wanted is not None:
        config.hook.pytest_deselected(items=[item for item in items if place(item) != PLACES[wanted]])
        items[:] = [item for item in items if place(item) == PLACES[wanted]]


PLACES = {"own": 0, "two": 1, "four": 2}


def place(item: pytest.Item) -> int:
    """When a test comes in a process that runs all: a cluster that is up must not be in the way of others."""
    needed = getattr(item, "fixturenames", ())
    return 2 if four.__name__ in needed else 1 if cluster.__name__ in needed else 0
