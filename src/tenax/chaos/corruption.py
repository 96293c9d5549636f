"""Random damage to single files of killed runs: the next start is exact, repairs it, or refuses it by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random

import polars as pl

from tenax.application.application import Application
from tenax.chaos.record import Recorder
from tenax.connectors.parquet import ParquetSink, read_committed
from tenax.control.instructions import Outcome as Ending
from tenax.engine.driver import Driver
from tenax.engine.session import Session
from tenax.errors import TenaxError
from tenax.model.settings import Settings
from tenax.takeover.verification import verify

STORE = "store"
OF_NO_USE = ("run", "events.jsonl", "events.old.jsonl")  # of a store: nothing is decided by them
SAID = 400  # characters of what was said


class Response(StrEnum):
    """How a start on a damaged store ended well."""

    EXACT = "exact"
    REPAIRED = "repaired"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Harmed:
    """What was done to which file, and how the run took it; `wrong` says what is wrong with that."""

    seed: int
    harm: str
    ending: str
    said: str
    wrong: str = ""


class Campaign:
    """A run that was killed, damaged again and again.

    - `root` holds its store (`store`) and the folders of all its results; a copy of it is put back before every trial.
    - What a start must lead to is what the undamaged run leads to, by rows: damage may change how batches are cut.
    """

    def __init__(self, application: Application, root: Path, settings: Settings, session: Session) -> None:
        self._application = application
        self._root = root
        self._settings = settings
        self._session = session
        self._copy = root.with_name(f"{root.name}-killed")
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(root, self._copy, ignore=shutil.ignore_patterns("run"), symlinks=True)
        self._run()
        self._expected = self._rows()

    def trial(self, seed: int) -> Harmed:
        """Damage one file, start, and judge."""
        shutil.rmtree(self._root)
        shutil.copytree(self._copy, self._root, symlinks=True)
        random = Random(seed)
        path, harm = damage(random, self._root)
        names = {path.name, path.parent.name, *self._application.sinks}
        try:
            self._run()
            problems = verify(self._root / STORE).problems
            if not problems:
                return self._judged(seed, harm, Response.EXACT, "")
            self._run()  # what was found is set aside by now, so it is made again
            left = verify(self._root / STORE).problems
            said = "; ".join(problem.what for problem in (left or problems))
            return _refused(seed, harm, said, names) if left else self._judged(seed, harm, Response.REPAIRED, said)
        except TenaxError as error:
            return _refused(seed, harm, " ".join(str(error).split()), names)

    def _run(self) -> None:
        driver = Driver(self._application, self._root / STORE, self._settings, Recorder(), self._session)
        stop = driver.run()
        if stop.outcome is not Ending.FINISHED:
            raise TenaxError(stop.reason)

    def _judged(self, seed: int, harm: str, ending: str, said: str) -> Harmed:
        rows_now = self._rows()
        wrong = [name for name, rows in self._expected.items() if not rows.equals(rows_now[name])]
        difference = f"output {', '.join(wrong)} differs" if wrong else ""
        return Harmed(seed, harm, ending, said[:SAID], difference)

    def _rows(self) -> Mapping[str, pl.DataFrame]:
        """All rows of all outputs: as the log has them, and as any reader of the folder sees them."""
        rows_of = {}
        for name, sink in self._application.sinks.items():
            assert isinstance(sink, ParquetSink)
            rows = read_committed(sink.folder)
            seen = [pl.read_parquet(path, use_pyarrow=True) for path in sorted(sink.folder.glob("*.parquet"))]
            visible = pl.concat(seen) if seen else pl.DataFrame()
            rows_of[name] = _sorted(rows)
            rows_of[f"{name}, as readers of its folder see it"] = _sorted(visible)
        return rows_of


def _refused(seed: int, harm: str, said: str, names: Collection[str]) -> Harmed:
    wrong = (
        "" if any(name in said for name in names) else "what is refused is named: the file, its folder or its output"
    )
    return Harmed(seed, harm, Response.REFUSED, said[:SAID], wrong)


def damage(random: Random, root: Path) -> tuple[Path, str]:
    """Do harm to one file of a run, any of those that count; which, and what."""
    kinds_of_files: dict[tuple[str, ...], list[Path]] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not path.is_symlink() and not (parts[0] == STORE and parts[1] in OF_NO_USE):
            kinds_of_files.setdefault(parts[:2] if len(parts) > 2 else parts, []).append(path)
    # first which kind of file: most of a store are segments
    path = random.choice(kinds_of_files[random.choice(sorted(kinds_of_files))])
    content = path.read_bytes()
    kinds: list[tuple[str, Callable[[], bytes | None]]] = [
        ("deleted", lambda: None),
        ("cut off", lambda: content[: random.randrange(max(1, len(content)))]),
        ("a byte changed", lambda: _flipped(random, content)),
        ("zeros", lambda: _zeroed(random, content)),
        ("lengthened", lambda: content + bytes(random.randrange(256) for _ in range(20))),
    ]
    lines = content.splitlines(keepends=True)
    if path.suffix == ".jsonl" and len(lines) > 2:
        place = random.randrange(1, len(lines) - 1)
        kinds += [
            ("a line missing", lambda: b"".join(lines[:place] + lines[place + 1 :])),
            ("a line doubled", lambda: b"".join(lines[: place + 1] + lines[place:])),
            (
                "two lines swapped",
                lambda: b"".join([*lines[:place], *lines[place + 1 : place - 1 : -1], *lines[place + 2 :]]),
            ),
            ("the last lines missing", lambda: b"".join(lines[:place])),
        ]
    kind, harmed = random.choice(kinds)
    after = harmed()
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    return path, f"{path.relative_to(root)}: {kind}"


def _flipped(random: Random, content: bytes) -> bytes:
    if not content:
        return b"x"
    place = random.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << random.randrange(8))]) + content[place + 1 :]


def _zeroed(random: Random, content: bytes) -> bytes:
    place = random.randrange(max(1, len(content)))
    return content[:place] + bytes(len(content[place : place + 64])) + content[place + 64 :]


def _sorted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort(rows.columns) if rows.width else rows
