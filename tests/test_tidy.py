"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tenax"
MAX_LINES = 500
NO_NAMES = {"one", "found", "told"}  # they say nothing of what they hold
FOLDERS_OF_THEIR_OWN = {"spark", "lab"}  # tests that start Spark; tests of src/tenax_lab


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
        assert path.name == "papers.md" or not re.search(r"paper|issue|ticket|fig\d", path.name), path


def test_papers_are_cited_by_author_and_year() -> None:
    for path in tracked("*"):
        if path.suffix in {".py", ".md", ".yaml", ".toml"}:
            cited = re.search(r"\bpapers? [1-5]\b", path.read_text(), re.I)
            assert not cited, f"{path}: {cited and cited.group()}; docs/papers.md says who wrote it"


def test_names_say_what_they_hold() -> None:
    for path in tracked("*.py"):
        name = str(path.relative_to(ROOT))
        assert [f"{name}:{line}: {word}" for word, line in names_in(path) if word in NO_NAMES] == []


def names_in(path: Path) -> list[tuple[str, int]]:
    """The names that a file gives to variables, arguments, attributes, functions and classes."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.append((name, node.lineno))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append((name, node.lineno))
    return names


def test_tests_stand_where_what_they_test_stands() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in tracked("tests/*.py")} - {Path()}
    strays = [
        str(folder)
        for folder in folders
        if folder.parts[0] not in FOLDERS_OF_THEIR_OWN and not (PACKAGE / folder).is_dir()
    ]
    assert strays == []


def test_the_map_of_the_code_names_what_there_is() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = []
    for line in text.splitlines():
        folders = [ROOT, PACKAGE]
        for name in re.findall(r"`([\w./*-]+(?:/|\.\w+))`", line):
            places = [folder for folder in folders if list(folder.glob(name))]
            if not places:
                missing.append(name)
            else:
                folders.append((places[0] / name).parent if "." in name else places[0] / name)
    assert missing == []


def test_every_package_has_a_row_in_the_map_of_the_code() -> None:
    rows = [line for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines() if line.startswith("|")]
    packages = {path.parent.relative_to(PACKAGE) for path in tracked("src/tenax/*__init__.py")} - {Path()}
    assert [str(package) for package in sorted(packages) if not any(f"`{package}/" in row for row in rows)] == []


def test_no_planner_reads_a_clock_or_draws_at_random() -> None:
    for path in [*tracked("src/tenax/planning/*.py"), *tracked("src/tenax/control/*.py")]:
        assert not re.search(r"^\s*(import|from) (time|random|datetime)\b", path.read_text(), re.M), path
        assert "np.random" not in path.read_text(), path


def test_readme_commands_are_make_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"setup", "demo", "test"} <= targets
    assert named <= targets
