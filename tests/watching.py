"""Progress of an experiment, remembered for tests."""

from __future__ import annotations


class Watched:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.steps = 0
        self.labels: list[str] = []

    def total(self, steps: int) -> None:
        self.steps = steps

    def advance(self, label: str) -> None:
        self.labels.append(label)
