"""The contracts of sources and sinks: opened and closed on copies, told what is released, staging plain data."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import ClassVar

import polars as pl
import pytest

import tenax as tx
from tenax.application.schemas import with_schemas
from tenax.batching.batches import BatchPlanner
from tenax.connectors.lifecycle import Connections, opened
from tenax.connectors.sink import stage
from tenax.control.versions import NO_PASS, PassId, Version
from tenax.engine.worker.orders import Failure, Order, Places, StepOrder
from tenax.engine.worker.sources import SourceComputation
from tenax.engine.worker.steps import Worker
from tenax.model.graph import TaskGraph
from tenax.operators.computation import NO_WATERMARK_US
from tenax.planning.levels import Layout
from tenax.store.store import Store

ROWS, ROWS_EACH = 40, 10


class Connected(tx.Source):
    """Whole numbers by a connection that cannot travel."""

    time, lateness_us, bounded = "ts", 0, True
    happened: ClassVar[list[str]] = []

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.connection: object = None

    def open(self) -> None:
        self.happened.append("open")
        self.connection = threading.Lock()

    def close(self) -> None:
        self.happened.append("close")
        self.connection = None

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:  # noqa: ARG002
        assert self.connection is not None
        first = position if isinstance(position, int) else 0
        end = min(ROWS, first + limits.rows)
        ranges = tuple([first + number, end, partitions] for number in range(partitions))
        return tx.Planned(ranges, end, end - first, ended=end == ROWS)

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:  # noqa: ARG002
        assert self.connection is not None
        assert isinstance(planned, list)
        first, end, step = planned
        return pl.DataFrame({"ts": pl.int_range(first, end, step, eager=True).cast(pl.Datetime("us"))})

    def released(self, position: tx.Json) -> None:
        assert self.connection is not None
        self.happened.append(f"released {position}")
        if self.refuses:
            raise ConnectionError("the table is locked")


@pytest.fixture(autouse=True)
def _nothing_happened() -> None:
    Connected.happened.clear()


def planned_by(folder: Path, source: tx.Source, messages: list[str]) -> BatchPlanner:
    topology = tx.Topology("numbers")
    topology.source("rows", source, partitions=2).output("out", tx.parquet(folder / "out"))
    store = Store.open(folder / "store", {})
    planner = BatchPlanner(topology.build(), store, tx.Limits(ROWS_EACH), 0.0, tell=messages.append)
    planner.log(1, 10, threading.Event())
    store.close()
    return planner


def test_the_driver_opens_a_copy_once_and_what_was_given_can_still_be_pickled(tmp_path: Path) -> None:
    source = Connected()
    planner = planned_by(tmp_path, source, [])
    assert Connected.happened == ["open"]
    assert pickle.loads(pickle.dumps(source)).connection is None
    planner.close()
    planner.close()
    assert Connected.happened == ["open", "close"]


def test_a_source_learns_up_to_where_the_run_never_asks_again(tmp_path: Path) -> None:
    messages: list[str] = []
    planner = planned_by(tmp_path, Connected(), messages)
    planner.forget_before(1, release=True)  # before the first batch there is nothing
    planner.forget_before(3, release=True)
    planner.forget_before(4)  # a run that keeps its log for a replay asks again
    assert Connected.happened == ["open", "released 20"]
    assert messages == []


def test_what_a_source_raises_when_it_is_released_is_said_once_and_harms_nobody(tmp_path: Path) -> None:
    messages: list[str] = []
    planner = planned_by(tmp_path, Connected(refuses=True), messages)
    planner.forget_before(2, release=True)
    planner.forget_before(3, release=True)
    assert Connected.happened == ["open", "released 10", "released 20"]
    assert len(messages) == 1
    assert (
        "source 'rows' was told what is never read again, and raised ConnectionError: the table is locked"
        in messages[0]
    )
    assert planner.batch(3).number == 3


def test_a_worker_opens_a_source_when_it_first_reads_and_closes_it_once() -> None:
    computation = SourceComputation(Connected())
    assert Connected.happened == []
    nothing = pl.DataFrame(schema={"ts": pl.Datetime("us")})
    for _ in range(2):
        made = computation.read(0, [0, 4, 2], NO_WATERMARK_US, nothing, None, ended=False)
        assert made.rows.height == 2
    computation.close()
    computation.close()
    assert Connected.happened == ["open", "close"]


def test_connections_are_closed_whatever_happens() -> None:
    with pytest.raises(KeyError), opened(Connected()):
        raise KeyError
    assert Connected.happened == ["open", "close"]
    connections = Connections({"a": Connected(), "b": Connected()})
    assert connections["a"] is connections["a"]
    connections.close()
    assert Connected.happened == ["open", "close"] * 2


class Strange(tx.Sink):
    """Returns whatever it is told to."""

    place = "nowhere"

    def __init__(self, data: object) -> None:
        self.data = data

    def write(self, output: str, partition: int, batch: int, pass_id: str, rows: pl.DataFrame) -> tx.Plain:  # noqa: ARG002
        return self.data  # type: ignore[return-value]

    def committer(self, output: str, store: Path, identity: str, epoch: int) -> tx.Committer:
        raise NotImplementedError


@pytest.mark.parametrize("data", [None, True, 1, 1.5, "name", b"rows", ["a", 1, None], {"a": [1, {"b": b"c"}]}, ()])
def test_plain_data_is_staged_with_what_it_is_the_result_of(data: tx.Plain) -> None:
    staged = stage(Strange(data), "out", 3, 7, "1.1", pl.DataFrame({"a": [1, 2]}))
    assert staged == tx.Staged("out", 3, 7, 2, data)
    assert staged.key == (7, 3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (threading.Lock(), "_thread.lock"),
        ([1, {"a": pl.DataFrame()}], "polars.dataframe.frame.DataFrame"),
        ({1: "a"}, "the key 1"),
        (float("nan"), "nan"),
        ({"a", "b"}, "builtins.set"),
    ],
)
def test_other_data_is_refused_with_the_sink_and_the_remedy(data: object, said: str) -> None:
    with pytest.raises(tx.InvalidSource) as refusal:
        stage(Strange(data), "out", 0, 1, "1.1", pl.DataFrame())
    assert f"found {said} from Strange.write: return what leads to it, such as a name" in str(refusal.value)


class Placeless(Strange):
    """Does not say where its results are."""


class Bare(tx.Source):
    """Says nothing of itself."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.NothingNew:  # noqa: ARG002
        return tx.NothingNew(ended=True)

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:
        raise NotImplementedError


def test_what_everybody_asks_of_a_source_or_sink_is_missed_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = tx.Topology("numbers")
    with pytest.raises(tx.TenaxError, match=r"a source has 'time', found none in Bare: write self.time = 'ts' in its"):
        topology.source("bare", Bare())
    stream = topology.source("rows", Connected())
    monkeypatch.delattr(Strange, "place")
    with pytest.raises(tx.TenaxError, match=r"a sink has 'place', found none in Placeless: write self.place = "):
        stream.output("out", Placeless(None))


class Away(Connected):
    """Its place is away."""

    def plan(self, position: tx.Json, partitions: int, limits: tx.Limits, now_us: int) -> tx.Planned | tx.NothingNew:
        if isinstance(position, int) and position > ROWS_EACH:
            raise tx.SourceFailed("the table is locked")
        return super().plan(position, partitions, limits, now_us)

    def read(self, partition: int, planned: tx.Json) -> pl.DataFrame:  # noqa: ARG002
        raise tx.SourceFailed("the table is locked")


def test_a_source_that_is_away_is_named_and_counts_as_storage_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(tx.SourceFailed, match=r"source 'rows': the table is locked"):
        planned_by(tmp_path, Away(), [])
    topology = tx.Topology("numbers")
    topology.source("rows", Away()).output("out", tx.parquet(tmp_path / "out"))
    built = with_schemas(topology.build(), {"rows": pl.Schema({"ts": pl.Datetime("us")})})
    graph = TaskGraph(built.topology)
    steps = tuple(
        StepOrder(task, 0, Version(graph.task(task), 0, NO_PASS), highest_us=NO_WATERMARK_US)
        for task in range(len(graph))
    )
    laid = Layout(("here",), dict.fromkeys(range(len(graph)), (0,)), (tuple(range(len(graph.operators))),))
    order = Order("run", PassId(1, 1), 1, 1, laid, steps, ranges={"rows": (([0, 4, 1],),)})
    worker = Worker(built, Places(tmp_path, tmp_path), "here")
    [answer] = worker.run(order, 0, 0, [])
    assert answer.failures == [Failure("storage", "source 'rows'", "rows[0]", 1, "the table is locked")]
