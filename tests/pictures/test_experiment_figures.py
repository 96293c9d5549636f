"""Figures of experiments are saved as PNGs and refuse what they cannot draw."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from tenax.errors import InvalidRequest
from tenax.pictures.figures import Curve, Panel, Reference, draw_figure

CURVE = Curve("exact", (1.0, 2.0, 3.0), (0.5, 0.7, 0.9), spread=((0.4, 0.6), (0.6, 0.8), (0.8, 1.0)))
PANEL = Panel("a subject", "budget", "fidelity", (CURVE,), "it grows", (Reference("guarantee", 0.6),))


def test_panels_become_one_png(tmp_path: Path) -> None:
    path = tmp_path / "new" / "figure.png"
    draw_figure([PANEL] * 4, path, title="Subject", columns=3)
    height, width = imread(path).shape[:2]
    assert width > height > 500


def test_other_endings_and_empty_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"\.png file, found 'figure\.svg'"):
        draw_figure([PANEL], tmp_path / "figure.svg", title="Subject")
    with pytest.raises(InvalidRequest, match="1 to 24 panels, found 0"):
        draw_figure([], tmp_path / "figure.png", title="Subject")
