"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_LINES = 500


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    long = [path for path in tracked("*.py") if len(path.read_text().splitlines()) > MAX_LINES]
    assert long == []


def test_every_module_opens_with_one_sentence() -> None:
    for path in tracked("src/*.py"):
        first = path.read_text().split("\n", 1)[0]
        assert re.fullmatch(r'"""[A-Z`].*', first), f"{path} opens with {first!r}"


def test_versions_are_pinned() -> None:
    for path in tracked("requirements*.txt"):
        for line in path.read_text().splitlines():
            assert re.fullmatch(r"#.*|-r requirements\.txt|[\w.-]+==[\w.]+", line), f"{path.name}: {line}"


def test_no_address_of_a_registry_or_path_of_a_machine_is_written_down() -> None:
    forbidden = re.compile(r"(pypi\.org|pythonhosted|debian\.org|npmjs|/home/\w+|/work/)")
    for path in tracked("*"):
        if (
            path.is_file()
            and path.suffix in {".py", ".md", ".txt", ".toml", ".yaml", ".json", ""}
            and path != Path(__file__)
        ):
            assert not forbidden.search(path.read_text(errors="ignore")), path


def test_files_are_not_named_after_papers_or_tickets() -> None:
    for path in tracked("*"):
        assert not re.search(r"paper|issue|ticket|fig\d", path.name), path


def test_no_planner_reads_a_clock_or_draws_at_random() -> None:
    for path in [*tracked("src/tenax/planning/*.py"), *tracked("src/tenax/control/*.py")]:
        assert not re.search(r"^\s*(import|from) (time|random|datetime)\b", path.read_text(), re.M), path
        assert "np.random" not in path.read_text(), path


def test_readme_commands_are_make_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"setup", "demo", "test"} <= targets
    assert named <= targets
