"""The import contract: layers go downward, and only the engine knows Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_imports_go_downward() -> None:
    script = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_reading_a_topology_needs_neither_solver_nor_pictures() -> None:
    script = (
        "import sys, tenax.model.files, tenax.planning.fidelity\n"
        "heavy = {'ortools', 'matplotlib', 'pyspark', 'rich', 'typer', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
