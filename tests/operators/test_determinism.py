"""Same input, same bytes: in another process, and after every batch restored from bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from operators.step_runs import run, scenarios

from tenax.operators.chunks import encode
from tenax.operators.computation import END_WATERMARK_US, StepInput
from tenax.operators.windows import windows

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"


def test_two_processes_give_the_same_bytes_for_every_computation() -> None:
    digests = []
    for seed in ("1", "2"):
        environment = {**os.environ, "POLARS_MAX_THREADS": "1", "PYTHONHASHSEED": seed, "PYTHONPATH": str(SOURCES)}
        script = [sys.executable, str(HERE / "step_runs.py")]
        digests.append(subprocess.run(script, env=environment, capture_output=True, text=True, check=True).stdout)
    assert digests[0] == digests[1]
    assert len(digests[0].splitlines()) == len(scenarios())


@pytest.mark.parametrize("name", sorted(scenarios()))
def test_a_run_restored_from_bytes_after_every_batch_gives_the_same_bytes(name: str) -> None:
    computation, batches = scenarios()[name]
    straight, restored = run(computation, batches), run(computation, batches, restore=True)
    assert straight.digest() == restored.digest()
    assert straight.rows.height > 0
    assert computation.stateless == (not any(straight.states))


def test_float_sums_of_a_thousand_rows_are_the_same_in_every_call() -> None:
    # Polars adds them in a changing order between 1,000 and some more rows unless it is told not to
    random = np.random.default_rng(1)
    rows = pl.DataFrame({"key": random.integers(0, 250, 1_100), "value": random.random(1_100) * 100})
    rows = rows.with_columns(ts=pl.lit(0).cast(pl.Datetime("us")))
    computation = windows("ts", ["key"], "1s", None, [pl.col("value").sum()])
    given = StepInput((rows,), END_WATERMARK_US, 1)
    chunks = {encode(computation.step({}, given).rows, 0) for _ in range(100)}
    assert len(chunks) == 1
