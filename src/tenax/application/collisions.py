"""Outputs that would write over each other, or into what a source reads, refused before anything runs."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenax.connectors.files import FileSource
from tenax.connectors.parquet import TENTATIVE_SUFFIX, ParquetSink, visible_name
from tenax.connectors.sink import Sink
from tenax.connectors.source import Source
from tenax.errors import InvalidTopology

ANY_DEPTH = "**"


def check_collisions(sources: Mapping[str, Source], sinks: Mapping[str, Sink]) -> None:
    """Refuse outputs whose names or folders collide, and such as a source would read; links are followed."""
    for name in sinks:
        if f"{name}{TENTATIVE_SUFFIX}" in sinks:
            raise InvalidTopology(
                f"tentative results of output {name!r} are called {name + TENTATIVE_SUFFIX!r}, found an output of that "
                "name: rename it"
            )
    folders = {name: sink for name, sink in sinks.items() if isinstance(sink, ParquetSink)}
    for (name, sink), (other, beside) in itertools.combinations(folders.items(), 2):
        for mine, theirs in itertools.product(_claimed(sink), _claimed(beside)):
            if _overlap(mine, theirs):
                raise InvalidTopology(
                    f"every output has folders of its own, found {mine} of output {name!r} and {theirs} of output "
                    f"{other!r}: choose folders that lie beside each other"
                )
    for (name, sink), (source, files) in itertools.product(folders.items(), sources.items()):
        if isinstance(files, FileSource):
            _check_input(name, sink, source, files)


def _check_input(output: str, sink: ParquetSink, source: str, files: FileSource) -> None:
    """Results are never among what a source reads, nor what it reads among the results."""
    root = files.root.resolve()
    for folder in _claimed(sink):
        above = root.is_relative_to(folder)
        within = folder.is_relative_to(root) and folder != root
        watched = not files.bounded and _has_wildcard(files.pattern)
        if above or (within and (watched or _matches(files.pattern, folder.relative_to(root), output))):
            raise InvalidTopology(
                f"results are apart from what sources read, found {folder} of output {output!r} and "
                f"{root / files.pattern} of source {source!r}: choose a folder beside it"
            )


def _claimed(sink: ParquetSink) -> tuple[Path, ...]:
    """The folders that a sink writes: final results, tentative ones, its log and what is staged."""
    return sink.folder.resolve(), sink.tentative.resolve(), sink.log.parent.resolve()


def _overlap(folder: Path, other: Path) -> bool:
    return folder.is_relative_to(other) or other.is_relative_to(folder)


def _has_wildcard(pattern: str) -> bool:
    return any(sign in pattern for sign in "*?[")


def _matches(pattern: str, folder: Path, output: str) -> bool:
    """Whether a result in a folder below a source's root would be among its files."""
    return _fits(pattern.split("/"), [*folder.parts, visible_name(output, 0, 1)])


def _fits(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    if not patterns or not parts:
        return not parts and all(pattern == ANY_DEPTH for pattern in patterns)
    if patterns[0] == ANY_DEPTH:
        return _fits(patterns[1:], parts) or _fits(patterns, parts[1:])
    hidden = parts[0].startswith(".") and not patterns[0].startswith(".")
    return not hidden and fnmatch.fnmatchcase(parts[0], patterns[0]) and _fits(patterns[1:], parts[1:])
