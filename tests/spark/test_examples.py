"""Every example application gives what one computation over its whole input gives, however it is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from spark import oracles
from spark.oracles import Results
from spark.runs import example, finish, settings, whole_input

import tenax as tx
from tenax.api.results import in_order
from tenax.engine.session import Session


@dataclass(frozen=True)
class Case:
    """A small run of an example: what `build` gets, its oracle, and the keys of its outputs."""

    options: Mapping[str, float | str]
    width: str
    oracle: Callable[[dict[str, pl.DataFrame]], Results]
    keys: Mapping[str, Sequence[str]]


CASES = {
    "traffic": Case(
        {"rows": 8_000, "reports": 500, "rate": 1_000, "users": 2_000, "segments": 20, "length": "3s"},
        "parallelism",
        lambda given: oracles.traffic(given["locations"], given["reports"], 3),
        {"speed": ["segment"], "jams": ["segment", "incident"]},
    ),
    "top_pages": Case(
        {"rows": 8_000, "rate": 1_000, "servers": 8, "pages": 300, "count": 10, "length": "3s"},
        "parallelism",
        lambda given: oracles.top_pages(given["requests"], 10, 3),
        {"top": ["page"]},
    ),
    "hashtags": Case(
        {"rows": 20_000, "rate": 1_000, "hashtags": 40},
        "parallelism",
        lambda given: oracles.hashtags(given["tweets"]),
        {f"o{number}": ["hashtag"] for number in range(15)},
    ),
    "elements": Case(
        {"rows": 6_000, "rate": 1_000},
        "parallelism",
        lambda given: oracles.elements(given["pe1"], groups=16, operators=5),
        {"pe8": ["sequence"]},
    ),
    "window_tree": Case(
        {"rows": 24_000, "rate": 1_000, "sensors": 16},
        "sources",
        lambda given: oracles.window_tree(given["sources"], 16),
        {"tree": ["sensor"]},
    ),
}


@pytest.mark.parametrize(("width", "batch_share"), [(1, 0.3), (2, 0.15)])
@pytest.mark.parametrize("name", CASES)
def test_an_example_gives_what_one_computation_over_all_rows_gives(
    name: str, width: int, batch_share: float, cluster: Session, tmp_path: Path
) -> None:
    case = CASES[name]
    options = {**case.options, case.width: width, "folder": str(tmp_path / "out")}
    application = example(name, **options)
    batch_rows = int(float(case.options["rows"]) * batch_share)
    results = finish(application, tmp_path / "store", settings(batch_rows), cluster)
    whole = whole_input(application)
    oracles.assert_equal(results, case.oracle(whole), case.keys)
    stepped = tx.testing.run(application, whole, batch_rows=batch_rows)
    assert stepped.keys() == results.keys()
    for output, rows in stepped.items():  # without Spark it is the same, but for the last digits of floats
        assert_frame_equal(in_order(results[output]), rows, rel_tol=1e-9)
