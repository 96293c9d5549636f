"""The lab is a distribution of its own beside the product, which does not know it."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from tenax.cli import experiment
from tenax.errors import InvalidRequest
from tenax_lab.registry import EXPERIMENTS, declared

ROOT = Path(__file__).parents[2]
LAB = ROOT / "src" / "tenax_lab"


def metadata(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_of_the_lab_is_in_its_distribution() -> None:
    tool = metadata(LAB)["tool"]
    assert isinstance(tool, dict)
    named = {package.replace(".", "/") for package in tool["setuptools"]["packages"]}
    assert named == {str(path.parent.relative_to(ROOT / "src")) for path in LAB.rglob("__init__.py")}


def test_the_lab_goes_with_the_product_of_its_version_and_needs_nothing_else() -> None:
    ours, products = metadata(LAB)["project"], metadata(ROOT)["project"]
    assert isinstance(ours, dict)
    assert isinstance(products, dict)
    assert ours["version"] == products["version"]
    assert set(ours["dependencies"]) <= {
        *products["dependencies"],
        f"tenax=={products['version'].rpartition('.')[0]}.*",
    }


def test_where_the_lab_is_not_installed_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InvalidRequest, match="found none: pip install tenax-lab") as refused:
        experiment.registry()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [entry.name for entry in EXPERIMENTS])
def test_every_experiment_declares_trials_that_differ_and_quick_ones_that_are_fewer(name: str) -> None:
    full, quick = (declared(name).plan(quick=quick).trials() for quick in (False, True))
    assert 0 < len(quick) <= len(full)
    for trials in (full, quick):
        assert len({tuple(trial.columns.items()) for trial in trials}) == len(trials)
        assert all(trial.label for trial in trials)
    assert {name for trial in quick for name in trial.columns} == {name for trial in full for name in trial.columns}
