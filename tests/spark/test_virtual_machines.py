"""A virtual machine that is started ahead is taken by the next session, or ended without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tenax.engine import virtual_machine
from tenax.engine.processes import marked
from tenax.engine.scratch import MARK

SOURCES = Path(__file__).parents[2] / "src"
TENAX = [sys.executable, "-c", "from tenax.cli.main import main; main()"]
SCRATCH_IN = "TMPDIR"


def test_one_that_is_not_needed_ends_with_all_that_it_keeps() -> None:
    virtual_machine.start_ahead()
    virtual_machine.start_ahead()  # there is one at a time
    [machine] = virtual_machine._ahead
    folder = machine.scratch.folder
    assert marked(MARK, str(folder)) == [machine.process.pid]
    virtual_machine.end_ahead()
    assert machine.process.poll() is not None
    assert not folder.exists()
    assert virtual_machine.taken_ahead() is None


def test_one_that_has_died_is_not_taken() -> None:
    virtual_machine.start_ahead()
    [machine] = virtual_machine._ahead
    machine.process.kill()
    machine.process.wait()
    assert virtual_machine.taken_ahead() is None
    assert not machine.scratch.folder.exists()


def test_a_session_takes_the_one_that_was_started_ahead_and_keeps_its_log(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tenax.engine.virtual_machine import start_ahead, _ahead\n"
        "start_ahead()\n"
        "assert 'pyspark' not in sys.modules and 'polars' not in sys.modules\n"
        "ahead = _ahead[0].process.pid\n"
        "from tenax.engine.session import Session\n"
        "from tenax.model.settings import ClusterSettings\n"
        "session = Session(Path('cluster'), ClusterSettings(nodes=1))\n"
        "assert session._gateway._gateway.proc.pid == ahead and not _ahead\n"
        "assert session.context.parallelize([1, 2], 1).count() == 2\n"
        "session.stop()\n"
        "assert sorted(path.name for path in Path('cluster').iterdir()) == ['spark', 'spark.log']\n"
        "print('taken')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "taken\n"), done.stderr


def test_a_command_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), SCRATCH_IN: str(tmp_path)}
    done = subprocess.run(
        [*TENAX, "run", "nowhere.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tenax: nowhere.py: no such file")
    assert list(tmp_path.iterdir()) == []
