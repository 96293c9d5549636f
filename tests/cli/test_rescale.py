"""`tenax rescale`: what it asks a store for, what it refuses at once, what it tells of the answer."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tenax.cli.main import run
from tenax.cli.versions_view import changes, version_facts, version_rows
from tenax.control.notices import RescalePostponed
from tenax.model.topology_versions import Target, TopologyVersion
from tenax.store import topology_versions
from tenax.store.store import Store
from tenax.store.topology_versions import answer, open_request, record_version

FIRST = TopologyVersion(1, 0, {"rows": 1, "sums": 2})
SECOND = TopologyVersion(2, 17, {"rows": 1, "sums": 4}, {}, 6, "by hand")
DEADLINE_S = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store on which a driver has begun."""
    opened = Store.open(tmp_path / "store", {})
    record_version(opened, FIRST)
    opened.close()
    return opened.folder


def test_it_asks_the_store_and_ends(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rescale", str(store), "sums=4", "--nodes", "6", "--wait", "0s"]) == 0
    assert "asked for sums to 4 tasks, 6 nodes" in capsys.readouterr().out
    assert open_request(store) == Target({"sums": 4}, 6, "asked for by hand", 1)


@pytest.mark.parametrize(("done", "words", "code"), [(True, "from batch 18 on", 0), (False, "tasks are missing", 2)])
def test_it_tells_what_became_of_it(
    store: Path, capsys: pytest.CaptureFixture[str], done: bool, words: str, code: int
) -> None:
    def driver() -> None:
        deadline = time.monotonic() + DEADLINE_S
        while open_request(store) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        answer(store, 1, done=done, words=words)

    thread = threading.Thread(target=driver)
    thread.start()
    assert run(["rescale", str(store), "sums=4"]) == code
    thread.join()
    said = capsys.readouterr()
    assert words in said.out + said.err
    assert len(said.err.splitlines()) == (code != 0)


def test_without_an_answer_the_request_stays(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rescale", str(store), "--nodes", "3", "--wait", "300ms"]) == 0
    assert "the request stays" in capsys.readouterr().out
    assert open_request(store) is not None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "names operators or nodes, found neither"),
        (["sums"], "written OPERATOR=TASKS, found 'sums'"),
        (["sums=0"], "written OPERATOR=TASKS, found 'sums=0'"),
        (["sums=2,sums=3"], "named once, found 'sums' twice"),
        (["sms=3"], "did you mean 'sums'?"),
        (["sums=3", "--wait", "soon"], "soon"),
    ],
)
def test_mistakes_are_told_in_one_line_and_nothing_is_asked(
    store: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert run(["rescale", str(store), *words]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert len(said.splitlines()) == 1
    assert open_request(store) is None


def test_a_store_on_which_nothing_has_begun_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store.open(tmp_path / "store", {}).close()
    assert run(["rescale", str(tmp_path / "store"), "sums=2"]) == 2
    assert "start the run first" in capsys.readouterr().err


def test_versions_are_told_by_what_they_change(store: Path) -> None:
    assert changes(FIRST, SECOND) == "sums 2 → 4 tasks, 6 nodes"
    assert version_rows((FIRST, SECOND)) == [("2", "17", "sums 2 → 4 tasks, 6 nodes", "by hand")]
    assert version_facts(FIRST, None) == []
    facts = dict(version_facts(SECOND, RescalePostponed(Target({"sums": 4}), "tasks are missing")))
    assert facts["topology"] == "version 2, since batch 18, 6 nodes: by hand"
    assert facts["elasticity"] == "the rescale waits: tasks are missing"
    assert topology_versions.read_versions(store) == (FIRST,)
