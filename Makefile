# Every target installs what it needs into .venv; `make` alone lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test chaos dist clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## create .venv with locked versions and the tenax command

$(STAMP): requirements.txt requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	-$(BIN)/tenax prepare
	@touch $(STAMP)

demo: setup  ## half of an embedded cluster is killed, outputs go on: live view, report
	$(BIN)/tenax demo

test: setup  ## lint, types, import contract and all tests, side by side
	$(BIN)/python tests/run_all.py

chaos: setup  ## tests that take their time, 25 random schedules of real faults, 100 damaged files, 23,000 simulated runs; about an hour
	$(BIN)/pytest -m long
	$(BIN)/python -m tenax.cli.soak

dist: setup  ## wheels of tenax, without the lab, and of the lab, in dist/
	rm -rf build/lib build/bdist.* dist
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist . ./src/tenax_lab
	rm -rf src/tenax_lab/build src/tenax_lab/*.egg-info
	@ls dist

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
