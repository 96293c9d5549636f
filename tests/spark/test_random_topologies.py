"""Random small topologies give what one computation over their whole input gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from spark.oracles import assert_equal
from spark.random_topologies import Maker
from spark.runs import finish, settings

from tenax.engine.session import Session


@pytest.mark.parametrize("seed", [1, 3, 5, 17])
def test_a_random_topology_gives_what_one_computation_over_all_rows_gives(
    seed: int, cluster: Session, tmp_path: Path
) -> None:
    application, outputs = Maker(seed, tmp_path / "out").make()
    batch_rows = random.Random(seed).choice((300, 1_000))
    shape = "\n".join(
        f"{operator.name} ({operator.parallelism}) <- {', '.join(stream.operator for stream in operator.inputs)}"
        for operator in application.topology.operators
    )
    print(f"seed {seed}, batches of {batch_rows} rows\n{shape}")
    results = finish(application, tmp_path / "store", settings(batch_rows), cluster)
    filled = {name: twin for name, twin in outputs.items() if twin.rows.height}
    assert {name for name, rows in results.items() if rows.height} == set(filled)
    assert_equal(
        {name: results[name] for name in filled},
        {name: twin.rows.select(twin.columns) for name, twin in filled.items()},
        {name: twin.keys for name, twin in filled.items()},
    )
