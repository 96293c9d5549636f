"""Comparisons of the engine: what their tables say of recorded measurements, and the processes that measure."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from observing import rows_of, written

from tenax_lab import lab, overhead, peers
from tenax_lab.findings import Findings
from tenax_lab.processes import SideFailed, memory_mb, run_side, tree
from tenax_lab.sides.inputs import KINDS, Shape, write_inputs
from tenax_lab.sides.plain_polars import windowed
from tenax_lab.sides.sides import latencies

SHAPE = Shape(batches=3, batch_rows=40, segments=4)


def measured(what: str, side: str, number: int | None = None, **measures: lab.Value) -> lab.Row:
    return {"what": what, "side": side, "round": number, **measures}


SPEEDS = {
    (1, "means"): (900.0, 100.0),
    (1, "joined"): (100.0, 50.0),
    (2, "means"): (800.0, 100.0),
    (2, "joined"): (300.0, 100.0),
    (3, "means"): (400.0, 100.0),
    (3, "joined"): (100.0, 100.0),
}
LATENCIES = {peers.TENAX: (9.0, 0.1, 0.2, 0.3), peers.STRUCTURED: (9.0, 1.0, 2.0, 3.0)}
MEMORY = {peers.TENAX: (1_000.0, 1_200.0, 1_100.0), peers.STRUCTURED: (2_000.0, 2_000.0, 2_500.0)}
KEPT = {"means": 2, "joined": 4}
COMPARED: list[lab.Row] = [
    *(
        measured(peers.SPEED, peers.POLARS, query=query, rows_per_s=rows_per_s)
        for query, rows_per_s in (("means", 8_000.0), ("joined", 1_000.0))
    ),
    measured(peers.MEMORY, peers.POLARS, peak_mb=300.0),
    *(
        measured(peers.SPEED, side, number, query=query, rows_per_s=speed, shuffle_partitions=KEPT[query])
        for (number, query), speeds in SPEEDS.items()
        for side, speed in zip((peers.TENAX, peers.STRUCTURED), speeds, strict=True)
    ),
    *(
        measured(peers.MEMORY, side, number, peak_mb=peak_mb)
        for side, peaks in MEMORY.items()
        for number, peak_mb in enumerate(peaks, start=1)
    ),
    *(measured(peers.EQUAL, peers.TENAX, 1, query=query, rows=rows) for query, rows in (("means", 70), ("joined", 60))),
]
PACED: list[lab.Row] = [
    measured(peers.LATENCY, side, 1, query="means", place=place, latency_s=latency_s)
    for side, latencies_s in LATENCIES.items()
    for place, latency_s in enumerate(latencies_s)
]
TUNED: list[lab.Row] = [
    measured(peers.TUNED, peers.STRUCTURED, query=query, shuffle_partitions=count, rows_per_s=rows_per_s)
    for query, count, rows_per_s in (("means", 1, 10.0), ("means", 2, 30.0), ("joined", 2, 10.0), ("joined", 4, 20.0))
]


def comparison(*rows: lab.Row) -> Findings:
    return peers.report(peers.EXPERIMENT.full, lab.frame(rows))


def seen(part: str, side: str = "", number: int = 1, **measures: float) -> lab.Row:
    return {"part": part, "side": side, "round": number, **measures}


OVERHEAD = lab.frame(
    [
        *(seen(overhead.PASS, seconds=seconds, steps_s=0.2, empty_s=0.4) for seconds in (0.4, 0.5, 0.6)),
        *(seen(overhead.EMPTY, overhead.DEFAULTS, seconds=seconds) for seconds in (0.7, 0.8, 0.9)),
        seen(overhead.LONG_PASS, seconds=0.2),
        *(
            seen(part, side, seconds=seconds)
            for part, plain, larger in (("keys", 0.1, 0.12), ("window", 0.1, 0.8), ("rows", 0.1, 1.0))
            for side, seconds in ((overhead.PLAIN, plain), (overhead.LARGER, larger))
        ),
        *(
            seen(part, side, number, rows_per_s=rows_per_s)
            for part, with_rates in ((overhead.FULL_BATCHES, (98.0, 97.0)), (overhead.SMALL_BATCHES, (90.0, 80.0)))
            for number, rate in enumerate(with_rates, start=1)
            for side, rows_per_s in ((overhead.WITH, rate), (overhead.WITHOUT, 100.0))
        ),
        *(
            seen(overhead.SOAK, soak_s=place, batches=100 * place, memory_mb=memory, files=files, store_mb=store)
            for place, memory, files, store in (
                (0, 900.0, 10, 1.0),
                (1, 1000.0, 50, 2.0),
                (2, 1000.0, 50, 2.0),
                (3, 1000.0, 60, 2.0),
                (4, 1000.0, 70, 2.0),
            )
        ),
    ]
)


def test_the_ratio_to_structured_streaming_is_a_median_of_rounds_with_its_spread() -> None:
    means, joined = rows_of(comparison(*COMPARED), "Sustained")
    assert (means["ratio"], means["spread"], means["met"]) == (8.0, "4.00 to 9.00", "yes")
    assert (joined["ratio"], joined["spread"], joined["met"]) == (2.0, "1.00 to 3.00", "no")
    assert means["share"] == 0.1


def test_latencies_leave_the_first_quarter_out_and_show_both_sides() -> None:
    ours, theirs = rows_of(comparison(*COMPARED, *PACED), "Latency")
    assert (ours["side"], ours["p50"], ours["p99"]) == ("Tenax", 0.2, 0.3)
    assert (theirs["side"], theirs["p50"], theirs["p99"]) == ("Structured Streaming", 2.0, 3.0)


def test_the_table_says_which_shuffle_partitions_were_kept() -> None:
    rows = rows_of(comparison(*COMPARED, *TUNED), "Structured")
    kept = [row["shuffle partitions"] for row in rows if row["kept"]]
    assert kept == [2, 4]


def test_a_comparison_without_latencies_or_tuning_is_written_too(tmp_path: Path) -> None:
    written(comparison(*COMPARED, *PACED, *TUNED), tmp_path / "all")
    written(comparison(*COMPARED), tmp_path / "less")


def test_every_overhead_stands_beside_its_goal() -> None:
    goals = {goal["what"]: goal for goal in overhead.goals(OVERHEAD).iter_rows(named=True)}
    assert goals["a pass against an equally tuned empty job"]["measured"] == pytest.approx(1.25)
    assert goals["a pass against an empty job with PySpark's defaults"]["measured"] == pytest.approx(0.625)
    assert goals["ten times the keys in state: batch time"]["met"]
    assert not goals["a window ten times as long: batch time"]["met"]
    assert goals["checkpoints every 10 full batches: throughput"]["measured"] == pytest.approx(2.5)
    assert goals["checkpoints every 10 small batches: throughput"]["measured"] == pytest.approx(15.0)
    assert goals["soak: memory in MB"]["met"]
    assert not goals["soak: files in the store"]["met"]


def test_a_soak_reports_the_slope_of_its_second_half(tmp_path: Path) -> None:
    findings = overhead.report(overhead.EXPERIMENT.quick, OVERHEAD)
    files = next(row for row in rows_of(findings, "A soak") if row["what"] == "files in the store")
    assert files["slope per 1,000 batches"] == pytest.approx(100.0)
    written(findings, tmp_path)


def test_parts_of_the_overhead_have_their_own_sides_and_rounds() -> None:
    trials = overhead.EXPERIMENT.full.trials()
    counts = {part: sum(trial.case.part == part for trial in trials) for part in overhead.SIDES_OF}
    assert counts == {"pass": 1, "long pass": 1, "soak": 1, "empty job": 1, "keys": 6, "window": 6, "rows": 6,
                      "full batches": 18, "small batches": 18}  # fmt: skip


def test_a_batch_is_late_by_the_commit_that_covers_all_its_rows() -> None:
    # batches of 10 rows complete at 1, 2 and 3 s; commits cover 10, then 15, then 30 rows
    assert latencies([1.0, 2.0, 3.0], 10, [(1.5, 10), (2.5, 15), (4.0, 30)]) == [0.5, 2.0, 1.0]
    assert latencies([1.0, 2.0], 10, [(1.5, 19)]) == [0.5]
    assert latencies([1.0], 10, []) == []


def test_inputs_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_inputs(tmp_path / name, seed, SHAPE)
    frames = {name: pl.read_parquet(tmp_path / name / "locations" / "*.parquet") for name in "abc"}
    assert frames["a"].equals(frames["b"])
    assert not frames["a"].equals(frames["c"])
    assert frames["a"].height == 120
    for kind in KINDS:
        changed = [path.stat().st_mtime for path in sorted((tmp_path / "a" / kind).iterdir())]
        assert changed == sorted(set(changed))


def test_plain_polars_computes_the_windows_by_their_definition(tmp_path: Path) -> None:
    write_inputs(tmp_path, 3, SHAPE)
    locations = pl.read_parquet(tmp_path / "locations" / "*.parquet").rows()
    reports = pl.read_parquet(tmp_path / "reports" / "*.parquet").rows()
    joined = windowed("joined", tmp_path).collect()
    start = datetime(2024, 1, 1)
    expected = set()
    for end in range(1, 13):
        for segment in range(4):
            within = [
                [row for row in rows if row[1] == segment and end - 10 <= (row[0] - start).total_seconds() < end]
                for rows in (locations, reports)
            ]
            if all(within):
                speed = sum(row[2] for row in within[0]) / len(within[0])
                expected.add((end, segment, speed, len(within[1])))
    got = {
        ((end - start).total_seconds(), segment, speed, count)
        for segment, speed, count, end in joined.select("segment", "speed", "reports", "window_end").iter_rows()
    }
    assert got == expected


def test_results_are_compared_up_to_the_last_window_of_all_sides() -> None:
    ends = [datetime(2024, 1, 1, 0, 0, second) for second in (1, 2, 3)]
    long = pl.DataFrame({"segment": [1, 1, 1], "speed": [1.0, 2.0, 3.0], "window_end": ends})
    assert peers.same_results({"long": long, "short": long[:2]}) == 2
    other = long.with_columns(pl.lit(2.0).alias("speed"))
    with pytest.raises(peers.DifferentResults):
        peers.same_results({"long": long, "other": other})
    with pytest.raises(peers.DifferentResults):
        peers.same_results({"long": long, "gap": long[[0, 2]]})


def test_a_side_says_its_rows_and_the_memory_of_its_tree(tmp_path: Path) -> None:
    write_inputs(tmp_path / "inputs", 1, SHAPE)
    steps: list[str] = []
    measured = run_side(
        "tenax_lab.sides.plain_polars",
        {"inputs": str(tmp_path / "inputs"), "work": str(tmp_path / "work"), "queries": ["means"], "repeats": 2},
        deadline_s=60,
        step=steps.append,
    )
    assert [row["query"] for row in measured.rows] == ["means", "means"]
    assert measured.peak_mb > 1
    assert steps == ["plain Polars, means"]


def test_a_side_that_fails_is_named_with_its_last_words() -> None:
    with pytest.raises(SideFailed, match="KeyError") as failed:
        run_side("tenax_lab.sides.plain_polars", {}, deadline_s=60)
    assert "\n" not in str(failed.value)


def test_a_side_that_does_not_end_is_ended() -> None:
    with pytest.raises(SideFailed, match="no end after"):
        run_side("http.server", {}, deadline_s=0)


def test_a_process_is_in_its_own_tree_and_holds_memory() -> None:
    assert os.getpid() in tree(os.getpid())
    assert os.getpid() in tree(os.getppid())
    assert memory_mb([os.getpid()]) > 1
    assert memory_mb([2**30]) == 0
