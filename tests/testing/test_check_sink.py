"""`tx.testing.check_sink` accepts sinks that keep their contract, and catches those that do not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tenax as tx

Content = dict[str, Any]
TABLE = {"a": pl.Int64, "b": pl.String}


def rows(key: tuple[int, int], tentative: bool) -> pl.DataFrame:
    batch, partition = key
    return pl.DataFrame({"a": [batch, partition], "b": ["tentative" if tentative else "final", None]}, schema=TABLE)


class Table:
    """A database in a file: all of it is written at once, under a name of its own first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Content:
        empty: Content = {"epoch": 0, "run": None, "final": {}, "tentative": {}}
        content: Content = json.loads(self.path.read_text()) if self.path.exists() else empty
        return content

    def write(self, content: Content) -> None:
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(content))
        partial.replace(self.path)


class JsonSink(tx.Sink):
    """Results in a JSON file: epoch, run and all rows of it in one rename."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:  # noqa: ARG002
        return rows.write_json()

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> tx.Committer:  # noqa: ARG002
        return JsonCommitter(Table(self.path), identity, epoch)

    def survey(self, output: str, store: Path, *, read: bool = False) -> tx.Survey:  # noqa: ARG002
        return tx.Survey(frozenset(self.results("").final))

    def results(self, output: str) -> tx.Results:  # noqa: ARG002
        content = Table(self.path).read()
        final, tentative = (_frames(content[kind]) for kind in ("final", "tentative"))
        return tx.Results(final, tentative)


def _frames(results: object) -> dict[tuple[int, int], pl.DataFrame]:
    assert isinstance(results, dict)
    return {
        (int(key.split(".")[0]), int(key.split(".")[1])): pl.read_json(data.encode(), schema=TABLE)
        for key, data in results.items()
    }


class JsonCommitter(tx.Committer):
    """Reads all, changes it, writes all."""

    def __init__(self, table: Table, identity: str, epoch: int) -> None:
        self.table = table
        self.epoch = epoch
        content = table.read()
        if content["run"] not in (None, identity):
            raise tx.ConflictingResults(f"a file belongs to one run, found that of {content['run']}: use another")
        if int(str(content["epoch"])) >= epoch:
            raise tx.EpochLost("a newer driver has it")
        table.write({**content, "epoch": epoch, "run": identity})

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        content = self._mine()
        for result in staged:
            key = f"{batch}.{result.partition}"
            known = content["final"].get(key)
            if known is not None and len(json.loads(known)) != result.rows:
                raise tx.ConflictingResults("a final result does not change")
            content["final"][key] = result.data if known is None else known
            content["tentative"].pop(key, None)
        self.table.write(content)

    def show(self, batch: int, staged: Sequence[tx.Staged], quality: float) -> None:  # noqa: ARG002
        content = self._mine()
        for result in staged:
            if not self.is_committed(batch, result.partition):
                content["tentative"][f"{batch}.{result.partition}"] = result.data
        self.table.write(content)

    def is_committed(self, batch: int, partition: int) -> bool:
        return (batch, partition) in _frames(self.table.read()["final"])

    def last_batch(self, partition: int) -> int:
        return max((batch for batch, number in _frames(self.table.read()["final"]) if number == partition), default=0)

    @property
    def highest(self) -> int:
        return max((batch for batch, _ in _frames(self.table.read()["final"])), default=0)

    def _mine(self) -> Content:
        content = self.table.read()
        if content["epoch"] != self.epoch:
            raise tx.EpochLost("a newer driver has it")
        return content


def test_a_sink_with_transactions_of_its_own_is_accepted() -> None:
    tx.testing.check_sink(lambda folder: JsonSink(folder / "results.json"), rows=rows)


def test_parquet_files_keep_it() -> None:
    tx.testing.check_sink(lambda folder: tx.parquet(folder / "results"), deaths=25)


def test_a_function_that_ignores_what_it_knows_keeps_it(tmp_path: Path) -> None:
    seen: dict[Path, dict[str, dict[tuple[int, int], pl.DataFrame]]] = {}

    def make(folder: Path) -> tx.Sink:
        got = seen.setdefault(folder, {"final": {}, "tentative": {}})

        def deliver(batch: int, partition: int, frame: pl.DataFrame) -> None:
            got["final"][batch, partition] = frame

        def preview(batch: int, partition: int, frame: pl.DataFrame, quality: float) -> None:
            got["tentative"][batch, partition] = frame

        sink = tx.callback(deliver, preview)
        sink.folder = folder  # type: ignore[attr-defined]
        return sink

    def results(sink: tx.Sink, output: str) -> tx.Results:
        got = seen[sink.folder]  # type: ignore[attr-defined]
        return tx.Results(
            got["final"], {key: rows for key, rows in got["tentative"].items() if key not in got["final"]}
        )

    tx.testing.check_sink(make, results=results, rows=rows, deaths=40)  # a function is not told of no rows


class Appending(JsonCommitter):
    """Adds rows to what is there, whatever is there."""

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        content = self._mine()
        for result in staged:
            key = f"{batch}.{result.partition}"
            known = json.loads(str(content["final"].get(key, "[]")))
            content["final"][key] = json.dumps(known + json.loads(str(result.data)))
            content["tentative"].pop(key, None)
        self.table.write(content)


class Halfway(JsonCommitter):
    """Writes down that a result counts, and then the result."""

    def __init__(self, table: Table, identity: str, epoch: int) -> None:
        super().__init__(table, identity, epoch)
        self.log = Table(table.path.with_suffix(".log"))

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        self._mine()
        log = self.log.read()
        known = log["final"]
        assert isinstance(known, dict)
        self.log.write({**log, "final": {**known, **{f"{batch}.{each.partition}": "[]" for each in staged}}})
        super().commit(batch, staged)

    def last_batch(self, partition: int) -> int:
        return max((batch for batch, number in _frames(self.log.read()["final"]) if number == partition), default=0)


class Careless(JsonCommitter):
    """Does not look whether a newer driver has the file."""

    def _mine(self) -> Content:
        return self.table.read()


class OneByOne(JsonCommitter):
    """Believes that an epoch is taken over by knowing it."""

    def __init__(self, table: Table, identity: str, epoch: int) -> None:
        self.table, self.epoch = table, epoch
        content = table.read()
        if content["run"] not in (None, identity):
            raise tx.ConflictingResults("a file belongs to one run")
        table.write({**content, "epoch": epoch, "run": identity})


class Uncorrected(JsonCommitter):
    """Leaves tentative results where they are."""

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        shown = dict(self._mine()["tentative"])
        super().commit(batch, staged)
        self.table.write({**self._mine(), "tentative": shown})


class Forgetful(JsonCommitter):
    """Knows only what it has committed itself."""

    def __init__(self, table: Table, identity: str, epoch: int) -> None:
        super().__init__(table, identity, epoch)
        self.known: set[tuple[int, int]] = set()

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        super().commit(batch, staged)
        self.known |= {(batch, each.partition) for each in staged}

    def is_committed(self, batch: int, partition: int) -> bool:
        return (batch, partition) in self.known


class Unmoved(JsonCommitter):
    """Takes other rows for the same result."""

    def commit(self, batch: int, staged: Sequence[tx.Staged]) -> None:
        content = self._mine()
        content["final"] |= {f"{batch}.{each.partition}": each.data for each in staged}
        for each in staged:
            content["tentative"].pop(f"{batch}.{each.partition}", None)
        self.table.write(content)


class Torn(JsonCommitter):
    """Writes the file where it is, so that a death leaves half of it."""

    def __init__(self, table: Table, identity: str, epoch: int) -> None:
        super().__init__(TornTable(table.path), identity, epoch)


class TornTable(Table):
    def write(self, content: Content) -> None:
        text = json.dumps(content)
        with self.path.open("w") as file:
            file.write(text[: len(text) // 2])
            file.flush()
            file.write(text[len(text) // 2 :])


def made(committer: Callable[[Table, str, int], tx.Committer]) -> Callable[[Path], tx.Sink]:
    class Planted(JsonSink):
        def committer(self, output: str, store: Path, identity: str, epoch: int) -> tx.Committer:  # noqa: ARG002
            return committer(Table(self.path), identity, epoch)

    return lambda folder: Planted(folder / "results.json")


@pytest.mark.parametrize(
    ("committer", "rule"),
    [
        (Appending, "a final result has the rows that were written, once and in their order"),
        (Halfway, "after a death before line"),
        (Careless, "commit() of the older driver is refused with tx.EpochLost, found that it was done"),
        (OneByOne, "an older epoch does not take over with tx.EpochLost, found that it was done"),
        (Uncorrected, "what is not tentative is not seen as such"),
        (Forgetful, "is_committed() tells which final results count, found False"),
        (Unmoved, "a final result with another number of rows is refused with tx.ConflictingResults"),
        (Torn, "the next driver takes over and goes on, found JSONDecodeError"),
    ],
)
def test_a_committer_that_breaks_a_rule_is_told_which(
    committer: Callable[[Table, str, int], tx.Committer], rule: str
) -> None:
    with pytest.raises(tx.testing.BrokenContract) as broken:
        tx.testing.check_sink(made(committer), rows=rows)
    assert rule in str(broken.value)
    assert "\n" not in str(broken.value)


class Showing(JsonSink):
    """Makes results visible when they are staged."""

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:
        table = Table(self.path)
        content = table.read()
        assert isinstance(content["final"], dict)
        table.write({**content, "final": {**content["final"], f"{batch}.{partition}": rows.write_json()}})
        return super().write(output, partition, batch, pass_id, rows)


class Untravelled(JsonSink):
    """Cannot be pickled."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lock = threading.Lock()


class Strange(JsonSink):
    """Stages an object of its own."""

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:  # noqa: ARG002
        return rows  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("sink", "rule"),
    [
        (Showing, "with all of it staged: what is not final is not seen as such"),
        (Untravelled, "a sink travels to the nodes pickled, found TypeError"),
        (Strange, "a sink stages plain data"),
    ],
)
def test_a_sink_that_breaks_a_rule_is_told_which(sink: Callable[[Path], tx.Sink], rule: str) -> None:
    with pytest.raises(tx.TenaxError) as broken:
        tx.testing.check_sink(lambda folder: sink(folder / "results.json"), rows=rows)
    assert rule in str(broken.value)


def test_a_sink_that_cannot_be_read_back_cannot_be_checked() -> None:
    with pytest.raises(tx.TenaxError, match=r"found CallbackSink without results\(\)"):
        tx.testing.check_sink(lambda _: tx.callback(print))
