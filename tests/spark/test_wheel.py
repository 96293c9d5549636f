"""What `make dist` builds, installed where nothing of this checkout can be seen, runs an application."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from spark.runs import committed

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src")
DEADLINE_S = 240.0

# rows (1) --> total (1) --> totals (1)
APPLICATION = """
import polars as pl
import tenax as tx

topology = tx.Topology("totals")
rows = topology.source("rows", tx.files("rows.csv", time="ts", follow=False))
totals = rows.key_by("key").window("1m").aggregate(pl.col("n").sum(), name="total")
totals.output("totals", tx.parquet("totals"))
"""


def run(words: Sequence[str | Path], folder: Path, code: int = 0) -> str:
    """What a command says that ends as it must; it sees neither this checkout nor the session of this process."""
    hidden = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: what was built before is not in it."""
    source = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, source)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", "dist", "."]
    run([sys.executable, "-m", "pip", *build], source)
    (built,) = (source / "dist").glob("*.whl")
    return built


def test_a_wheel_holds_the_product_and_not_the_lab(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"tenax"}
    shipped = [path for kind in ("*.py", "*.yaml", "py.typed") for path in (ROOT / "src" / "tenax").rglob(kind)]
    assert {str(path.relative_to(ROOT / "src")) for path in shipped} <= names


def test_a_wheel_installed_into_an_empty_environment_runs_an_application(wheel: Path, tmp_path: Path) -> None:
    environment, python = tmp_path / "environment", tmp_path / "environment" / "bin" / "python"
    run([sys.executable, "-m", "venv", "--without-pip", environment], tmp_path)
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "--python", python, *install, wheel], tmp_path)
    # What it depends on lies in this environment; of a folder that is named so, .pth files are not read: so the
    # editable install of this checkout, which is such a file, is not seen.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    place = run([python, "-c", "import tenax; print(tenax.__file__)"], tmp_path)
    assert Path(place.strip()).is_relative_to(environment)
    refused = run([environment / "bin" / "tenax", "experiment", "list"], tmp_path, code=2)
    assert "experiments are in the package tenax_lab, found none" in refused

    (tmp_path / "app.py").write_text(APPLICATION)
    rows = [f"2024-01-01T00:00:{second:02d},{second % 2},{second}" for second in range(10)]
    (tmp_path / "rows.csv").write_text("\n".join(["ts,key,n", *rows]) + "\n")
    run([environment / "bin" / "tenax", "run", "app.py", "--nodes", "1", "--store", "store"], tmp_path)
    totals = committed(tmp_path / "totals").sort("key").select("key", "n")
    assert totals.equals(pl.DataFrame({"key": [0, 1], "n": [20, 25]}))
