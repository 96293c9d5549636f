"""How a side of a comparison is told what to measure, and how it tells what it found: one line of JSON each."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tenax.store.records import JsonObject
from tenax_lab.lab import Row

Series: TypeAlias = dict[str, list[float]]
"""Measurements by name."""
Step: TypeAlias = Callable[[str], None]
"""Called after each part of the work, with its name."""

FOUND = "found"
PEAK = "peak_mb"
STEP = "step"


def serve(measure: Callable[[JsonObject, Step], Series | Iterable[Row]]) -> None:
    """Measure what the command line asks for and print, as the last line, the rows and the most memory held here."""
    arguments: JsonObject = json.loads(sys.argv[1])
    found = measure(arguments, lambda label: print(json.dumps({STEP: label}), flush=True))
    told = found if isinstance(found, dict) else list(found)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({FOUND: told, PEAK: peak_mb}), flush=True)


def latencies(appeared_s: Sequence[float], batch_rows: int, done: Sequence[tuple[float, int]]) -> list[float]:
    """From the moment that each input batch was complete until its results were committed.

    `done` has, for each commit in order, when it was and how many rows were read by then. Batches that were never
    committed are left out. O(batches + commits).
    """
    found = []
    commits = iter(done)
    when, rows = next(commits, (0.0, -1))
    for number, complete_s in enumerate(appeared_s, start=1):
        while 0 <= rows < number * batch_rows:
            when, rows = next(commits, (0.0, -1))
        if rows < 0:
            break
        found.append(when - complete_s)
    return found
