"""One embedded cluster of two nodes for all tests of a process: it takes longer to start than most tests to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenax.engine.session import Session
from tenax.model.settings import ClusterSettings


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session with two nodes."""
    session = Session(tmp_path_factory.mktemp("cluster"), ClusterSettings(2))
    yield session
    session.stop()
