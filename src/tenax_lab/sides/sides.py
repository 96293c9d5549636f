"""How a side of a comparison learns what to measure, and how it says what it observed: one line of JSON each."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tenax.store.records import JsonObject
from tenax_lab.lab import Row

Step: TypeAlias = Callable[[str], None]
"""Called after each part of the work, with its name."""
ROWS, PEAK, STEP = "rows", "peak_mb", "step"


def serve(measure: Callable[[JsonObject, Step], Iterable[Row]]) -> None:
    """Measure what the command line asks for and print, as the last line, the rows and the most memory held here."""
    arguments: JsonObject = json.loads(sys.argv[1])
    rows = list(measure(arguments, lambda label: print(json.dumps({STEP: label}), flush=True)))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({ROWS: rows, PEAK: peak_mb}), flush=True)


def latencies(appeared_s: Sequence[float], batch_rows: int, done: Sequence[tuple[float, int]]) -> list[float]:
    """From the moment that each input batch was complete until its results were committed.

    `done` has, for each commit in order, when it was and how many rows were read by then. Batches that were never
    committed are left out. O(batches + commits).
    """
    waited = []
    commits = iter(done)
    when, rows = next(commits, (0.0, -1))
    for number, complete_s in enumerate(appeared_s, start=1):
        while 0 <= rows < number * batch_rows:
            when, rows = next(commits, (0.0, -1))
        if rows < 0:
            break
        waited.append(when - complete_s)
    return waited
