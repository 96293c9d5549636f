"""Results are an ordinary folder: whoever reads Parquet reads them, with nothing of Tenax at hand."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
from pyspark.sql import SparkSession
from spark.oracles import top_pages
from spark.runs import example, finish, settings, whole_input

from tenax.engine.session import Session


def test_polars_spark_and_duckdb_read_the_folder_of_a_finished_run_alike(cluster: Session, tmp_path: Path) -> None:
    application = example(
        "top_pages", rows=8_000, rate=1_000, servers=8, pages=300, count=10, length="3s", folder=str(tmp_path / "out")
    )
    finish(application, tmp_path / "store", settings(1_500), cluster)
    expected = top_pages(whole_input(application)["requests"], 10, 3)["top"]
    folder = str(tmp_path / "out" / "top")

    polars = pl.read_parquet(folder)
    sql = SparkSession(cluster.context).sql(f"SELECT count(*), sum(views), max(window_end) FROM parquet.`{folder}`")
    duck = duckdb.connect().execute(f"SELECT count(*), sum(views), max(window_end) FROM '{folder}/*.parquet'")
    seen_by = {
        "polars": (polars.height, polars["views"].sum(), polars["window_end"].max()),
        "spark": tuple(sql.collect()[0]),
        "duckdb": duck.fetchone(),
    }
    wanted = (expected.height, expected["views"].sum(), expected["window_end"].max())
    assert seen_by == dict.fromkeys(seen_by, wanted)
