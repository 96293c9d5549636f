"""`tx.run` and `tx.collect` in programs of users: scripts, and what is typed in; run after run, and interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
DEADLINE_S = 400.0

HELPERS = """
import polars as pl

def doubled(rows):
    return rows.with_columns(double=pl.col("value") * 2)
"""

SCRIPT = """
import polars as pl
import tenax as tx
from polars.testing import assert_frame_equal
from tenax.errors import RunFailed

import helpers

FACTOR = 3

def tripled(rows):
    return helpers.doubled(rows).with_columns(triple=pl.col("value") * FACTOR)

topology = tx.Topology("numbers")
numbers = topology.source("numbers", tx.elements(rate=100.0, pace=tx.Pace(rows=1000)), partitions=2)
mapped = numbers.map(tripled)
counts = mapped.with_columns(group=pl.col("sequence") % 3).key_by("group").window("1s").aggregate(
    n=pl.len(), total=pl.col("triple").sum()
)
counts.output("counts", tx.parquet("out/counts"))

rows = tx.collect(mapped)  # a stream that is no output
assert rows.columns == ["ts", "sequence", "value", "double", "triple"], rows.columns
assert rows["sequence"].to_list() == list(range(1000))

frames = tx.collect(topology, max_rows=300, batch="10ms", quiet=True)  # on the cluster that is up
assert list(frames) == ["counts"]
assert_frame_equal(frames["counts"], tx.testing.run(topology)["counts"])

nothing = tx.collect(mapped.filter(pl.col("value") < -1), quiet=True)
assert nothing.is_empty() and nothing.columns == rows.columns

result = tx.run(topology, store="out/store", max_rows=300, batch="10ms")
assert (result.outcome, result.batches, result.rows) == ("finished", 4, 1000), result
assert tx.read_committed(result.outputs["counts"])["n"].sum() == 1000
again = tx.run(topology, store="out/store", quiet=True)
assert (again.outcome, again.rows) == ("finished", 0), again

def broken(rows):
    return rows.with_columns(x=pl.lit(1 // 0 if rows.height else 1))

try:
    tx.collect(numbers.map(broken), quiet=True)
except RunFailed as error:
    assert "operator 'map-2' raised" in str(error) and "ZeroDivisionError" in str(error), error
    assert "\\n" not in str(error)
else:
    raise AssertionError("it raises")
print("all good")
"""

TYPED = """
import sys
import polars as pl
import tenax as tx
topology = tx.Topology("numbers")
numbers = topology.source("numbers", tx.elements(rate=50.0, pace=tx.Pace(paced=True)))
def negated(rows): return rows.with_columns(pl.col("value") * -1)
numbers.map(negated).output("out", tx.callback(lambda batch, partition, rows: print("result", flush=True)))
result = tx.run(topology, nodes=1, batch="100ms")
assert result.outcome == "stopped" and result.store is None, result
print("stopped", flush=True)
bounded = tx.Topology("bounded").source("numbers", tx.elements(rate=50.0, pace=tx.Pace(rows=5)))
print("rows", tx.collect(bounded.map(negated), nodes=1).height, flush=True)
"""


def test_a_script_collects_runs_and_goes_on_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all good"
    assert "numbers: finished: 4 batches, 1,000 rows" in done.stderr
    assert "the store is temporary" not in done.stderr
    assert len(done.stderr.splitlines()) < 20, done.stderr


def test_what_is_typed_in_runs_until_it_is_interrupted_and_then_runs_again(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+b") as output, (tmp_path / "err").open("w+b") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", TYPED],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stdout=output,
            stderr=errors,
        )
        try:
            deadline_s = time.monotonic() + DEADLINE_S
            while b"result" not in (tmp_path / "out").read_bytes() and process.poll() is None:
                assert time.monotonic() < deadline_s, (tmp_path / "err").read_text()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            code = process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
    said = (tmp_path / "err").read_text()
    assert code == 0, said
    assert (tmp_path / "out").read_text().splitlines()[-2:] == ["stopped", "rows 5"]
    assert "the store is temporary: pass store=... to be able to go on" in said
    assert not list(tmp_path.glob("**/spark.log"))
