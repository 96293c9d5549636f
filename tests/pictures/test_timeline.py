"""Timelines of runs under failures are saved as pictures and refuse what they cannot draw."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from tenax.errors import InvalidRequest
from tenax.pictures.timeline import History, Landmark, NodeBar, Result, save_timeline, timeline_svg

RESULTS = (
    Result("jams", 1.0, "final", 1.0, 0.5),
    Result("jams", 2.0, "tentative", 0.4, None),
    Result("jams", 5.0, "corrected", 1.0, 4.0),
)
NODES = (NodeBar("rack1", "node 1", 0.0, 1.5), NodeBar("rack1", "node 2", 3.0, None))
HISTORY = History("A title", 6.0, RESULTS, NODES, (Landmark(1.5, "killed", is_fault=True),), ((1.5, 5.0),))


@pytest.mark.parametrize("name", ["timeline.png", "new/timeline.svg"])
def test_a_history_becomes_one_picture(tmp_path: Path, name: str) -> None:
    save_timeline(HISTORY, tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5_000


def test_a_picture_is_as_wide_as_a_page(tmp_path: Path) -> None:
    save_timeline(HISTORY, tmp_path / "timeline.png")
    height, width = imread(tmp_path / "timeline.png").shape[:2]
    assert width > height > 400


def test_the_element_for_a_page_has_no_header_of_a_file() -> None:
    assert timeline_svg(HISTORY).startswith("<svg")


def test_other_endings_and_runs_without_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"\.png or \.svg file, found 'a\.pdf'"):
        save_timeline(HISTORY, tmp_path / "a.pdf")
    with pytest.raises(InvalidRequest, match="1 to 8 outputs, found 0"):
        timeline_svg(History("A title", 1.0, (), (), ()))
