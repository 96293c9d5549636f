"""How figures are declared and observed: the order of trials, the frame of observations, reports by column."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import polars as pl
import pytest
from watching import Watched

from tenax.model.settings import ClusterSettings
from tenax.pictures.figures import Panel
from tenax_lab import lab
from tenax_lab.findings import Claim, Findings
from tenax_lab.lab import Bench, Experiment, InvalidObservation, Plan, Row, Trial, frame, plain_fields
from tenax_lab.report import claim_of_ratios, curves, ratios, table, value, wide, yes_no


@dataclass(frozen=True, slots=True)
class Case:
    """A size, and something that is no value of a column."""

    size: int
    spec: tuple[int, ...] = ()


PLAN = Plan(
    (Case(1), Case(2)), ("ours", "theirs"), rounds=2, applies=lambda case, side: (case.size, side) != (2, "theirs")
)


def measure(bench: Bench, _: Plan[Case], trial: Trial[Case]) -> Iterator[Row]:
    """Theirs takes twice as long, and every row knows which it is."""
    for number in range(2):
        yield {"seconds": (2.0 if trial.side == "theirs" else 1.0) * trial.case.size + bench.seed, "number": number}


def report(_: Plan[Case], observed: pl.DataFrame) -> Findings:
    """One of each."""
    slower = claim_of_ratios(
        "theirs over ours", "more", ratios(observed, "seconds", "theirs", "ours", ["size", "round"])
    )
    drawn = curves(observed, "size", "seconds", band="range")
    return Findings({}, (table("All", observed, {"size": "size"}),), tuple(slower), (), (Panel("p", "x", "y", drawn),))


EXPERIMENT = Experiment(PLAN, PLAN, measure, report, prepare=lambda bench, _: [{"what": "warm-up", "seed": bench.seed}])


def observed(tmp_path: Path) -> pl.DataFrame:
    return EXPERIMENT.observe("demo", PLAN, Bench(0, tmp_path), Watched())


def test_every_other_round_takes_the_sides_in_the_opposite_order() -> None:
    order = [(trial.round, trial.case.size, trial.side) for trial in PLAN.trials()]
    first = [(1, 1, "ours"), (1, 1, "theirs"), (1, 2, "ours")]
    assert order == [*first, (2, 1, "theirs"), (2, 1, "ours"), (2, 2, "ours")]


def test_an_observation_begins_with_its_experiment_its_case_its_side_and_its_round(tmp_path: Path) -> None:
    rows = observed(tmp_path)
    assert rows.height == 1 + 2 * len(PLAN.trials())
    assert set(rows.columns) == {"experiment", "what", "seed", "size", "side", "round", "seconds", "number"}
    assert rows["experiment"].unique().to_list() == ["demo"]
    assert rows.filter(what="warm-up").select("size", "side", "round").row(0) == (None, None, None)
    assert plain_fields(Case(3, (1, 2))) == {"size": 3}


def test_progress_counts_trials_and_the_preparation(tmp_path: Path) -> None:
    progress = Watched()
    EXPERIMENT.observe("demo", PLAN, Bench(0, tmp_path), progress)
    assert len(progress.labels) == progress.steps == 1 + len(PLAN.trials())
    assert progress.labels[1:3] == ["ours, size 1", "theirs, size 1"]


class StartedSession:
    """Stands for a cluster, to count how often one is started and stopped."""

    log: ClassVar[list[str]] = []

    def __init__(self, _folder: Path, cluster: ClusterSettings) -> None:
        self.log.append(f"{cluster.nodes} nodes, {cluster.heartbeat}")

    def stop(self) -> None:
        self.log.append("stopped")


def test_trials_share_a_cluster_until_one_asks_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenax.engine.session.Session", StartedSession)
    monkeypatch.setattr(StartedSession, "log", [])
    bench = Bench(0, tmp_path)
    for cluster in (
        ClusterSettings(4),
        ClusterSettings(4, standby_nodes=2, standby_slots=3),  # what nodes may hold is not the cluster's
        ClusterSettings(4, node_limit=0.1),
        ClusterSettings(4, heartbeat="60s"),
        ClusterSettings(2, heartbeat="60s"),
    ):
        bench.session(cluster)
        assert bench.nodes == cluster.nodes
    bench.close()
    starts = ["4 nodes, 5s", "4 nodes, 60s", "2 nodes, 60s"]
    assert StartedSession.log == [step for start in starts for step in (start, "stopped")]


def test_a_trial_of_which_nothing_was_observed_is_refused(tmp_path: Path) -> None:
    silent = Experiment(PLAN, PLAN, lambda _bench, _plan, _trial: [], report)
    with pytest.raises(InvalidObservation, match="found nothing of ours, size 1"):
        silent.observe("demo", PLAN, Bench(0, tmp_path), Watched())


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_a_measure_that_is_no_number_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidObservation, match="a measure is a finite number"):
        frame([{"seconds": 1.0}, {"seconds": seconds}])


def test_columns_that_some_rows_lack_are_null_there_and_numbers_may_be_whole_in_some() -> None:
    rows = frame([{"a": 1}, {"a": 1.5, "b": "x"}, {"b": None, "c": True}])
    assert rows.rows() == [(1.0, None, None), (1.5, "x", None), (None, None, True)]


def test_ratios_pair_what_is_alike_and_leave_out_what_has_no_partner(tmp_path: Path) -> None:
    rows = observed(tmp_path).filter(number=0)
    assert ratios(rows, "seconds", "theirs", "ours", ["size", "round"]) == [2.0, 2.0]
    assert ratios(rows, "seconds", "theirs", "none", ["size"]) == []
    assert claim_of_ratios("more", "2", []) == []
    assert claim_of_ratios("more", "2", [1.0, 3.0]) == [Claim("more", "2", 2.0, "×", "median of 2 pairs, 1.00 to 3.00")]


def test_sides_stand_beside_each_other_in_a_wide_frame() -> None:
    rows = frame([{"x": 1, "side": "b", "y": 1.0}, {"x": 1, "side": "a", "y": 2.0}, {"x": 2, "side": "a", "y": 4.0}])
    assert wide(rows, pl.col("y") * 10, by=["x"]).to_dicts() == [
        {"x": 1, "b": 10.0, "a": 20.0},
        {"x": 2, "b": None, "a": 40.0},
    ]


def test_a_curve_has_the_middle_of_each_place_and_a_band_of_its_spread() -> None:
    rows = frame({"x": x, "side": side, "y": float(y)} for side in "ab" for x, y in ((2, 5), (1, 1), (1, 4), (1, 3)))
    first, second = curves(rows, "x", "y", labels={"a": "first"}, band="range")
    assert (first.label, first.x, first.y, first.spread) == ("first", (1.0, 2.0), (3.0, 5.0), ((1.0, 4.0), (5.0, 5.0)))
    assert (second.label, second.look) == ("b", 1)
    (only,) = curves(rows, "x", "y", looks=["c", "b"])
    assert (only.label, only.look, only.spread) == ("b", 1, ())


def test_a_claim_without_observations_is_no_claim() -> None:
    with pytest.raises(ValueError, match="found none"):
        value(frame([{"a": None}]).cast(pl.Float64), pl.col("a").max())


def test_columns_of_a_table_are_written_as_they_are_read() -> None:
    made = table("t", frame([{"a": 1, "b_s": 2.0}]), "a | seconds = b_s | twice the a = double", double=2 * pl.col("a"))
    assert (made.columns, made.rows) == (("a", "seconds", "twice the a"), ((1, 2.0, 2),))


def test_truths_are_written_as_people_read_them() -> None:
    rows = frame([{"exact": True}, {"exact": False}, {"exact": None}])
    assert table("t", rows, {"exact": yes_no("exact")}).rows == (("yes",), ("NO",), (None,))


def test_the_example_of_the_readme_is_a_figure() -> None:
    text = (Path(lab.__file__).parent / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    module = ModuleType("example_figure")
    sys.modules[module.__name__] = module  # where a dataclass looks for its annotations
    try:
        exec(compile(example, "README.md", "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    declaration: Experiment[Plan[object]] = module.EXPERIMENT
    for plan in (declaration.full, declaration.quick):
        rows = [{**trial.columns, "batch_s": 2.0 if trial.side == "with" else 1.0} for trial in plan.trials()]
        findings = declaration.report(plan, frame(rows))
        assert [claim.ours for claim in findings.claims] == [2.0]
        assert len(findings.tables[0].rows) == len(plan.cases) * len(plan.sides)
