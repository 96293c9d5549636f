"""Random edits of random applications: refused in one line, or admitted with the states that are kept as they were."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from takeover.stores import BATCH, Totals, left, newest, recorded

from tenax.api.streams import Stream, Topology
from tenax.application.application import Application
from tenax.application.scaling import rescaled
from tenax.connectors.parquet import parquet
from tenax.connectors.workloads import elements
from tenax.control.versions import NO_PASS, Version
from tenax.errors import TenaxError
from tenax.model.graph import TaskGraph
from tenax.store import cuts, records
from tenax.store.store import Store
from tenax.store.topology_versions import read_versions
from tenax.takeover.admission import admitted

KINDS = ("filter", "totals", "window")


@dataclass(frozen=True)
class Node:
    """An operator: what it computes, with which parameter, in how many tasks, and whose rows it gets."""

    name: str
    kind: str
    parameter: int
    tasks: int
    reads: str

    @property
    def has_state(self) -> bool:
        return self.kind != "filter"


@st.composite
def applications(draw: st.DrawFn) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 4))):
        nodes.append(drawn(draw, f"o{number}", ["keyed", *(node.name for node in nodes)]))
    return tuple(nodes)


def drawn(draw: st.DrawFn, name: str, before: Sequence[str]) -> Node:
    return Node(
        name,
        draw(st.sampled_from(KINDS)),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.sampled_from(before)),
    )


@st.composite
def edited(draw: st.DrawFn, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The same with some edits; operators stay behind those whose rows they get."""
    now = list(nodes)
    for number in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(now)))
        before = ["keyed", *(node.name for node in now[:place])]
        match draw(st.sampled_from(["add", "drop", "change", "rewire", "insert"])):
            case "add":
                now.insert(place, drawn(draw, f"n{number}", before))
            case "insert" if place < len(now):
                now.insert(place, replace(drawn(draw, f"n{number}", before), reads=now[place].reads))
                now[place + 1] = replace(now[place + 1], reads=f"n{number}")
            case "drop" if place < len(now) and len(now) > 1:
                gone = now.pop(place)
                now = [replace(node, reads=gone.reads) if node.reads == gone.name else node for node in now]
            case "change" if place < len(now):
                now[place] = replace(now[place], parameter=draw(st.integers(1, 2)))
            case "rewire" if place < len(now):
                now[place] = replace(now[place], reads=draw(st.sampled_from(before)))
    return tuple(now)


def built(nodes: Sequence[Node], folder: Path) -> Application:
    """Every operator has an output of its own, so that all of them may be dropped."""
    topology = Topology("t")
    rows = topology.source("rows", elements(rate=100), partitions=2)
    streams: dict[str, Stream] = {"keyed": rows.with_columns((pl.col("sequence") % 5).alias("key"), name="keyed")}
    for node in nodes:
        read = streams[node.reads]
        match node.kind:
            case "filter":
                stream = read.filter(pl.col("value") > node.parameter, name=node.name)
            case "totals":
                stream = read.key_by("key").apply(Totals(node.parameter), name=node.name, parallelism=node.tasks)
            case _:
                total = pl.col("value").sum().alias("value")
                window = read.key_by("key").window(f"{node.parameter}s")
                stream = window.aggregate(total, name=node.name, parallelism=node.tasks)
        streams[node.name] = stream
        stream.output(f"{node.name}-out", parquet(folder / f"{node.name}-out"))
    return topology.build()


def same(nodes: Sequence[Node], others: Sequence[Node], name: str) -> bool:
    """Whether an operator computes the same of the same operators' rows, which have the same columns."""
    ours, theirs = ({node.name: node for node in each} for each in (nodes, others))
    if name not in ours or name not in theirs:
        return False
    mine, other = (replace(each[name], tasks=0) for each in (ours, theirs))
    return mine == other and windowed(ours, mine.reads) == windowed(theirs, other.reads)


def windowed(nodes: dict[str, Node], name: str) -> bool:
    """Whether the rows of an operator are those of windows."""
    return name in nodes and (nodes[name].kind == "window" or windowed(nodes, nodes[name].reads))


def why_not(store: Path, application: Application) -> str:
    """Why an upgrade is refused; nothing if it is not."""
    try:
        admitted(application, store, application.fingerprint(), (), upgrade=True)
    except TenaxError as error:
        return str(error)
    return ""


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_random_edits_are_refused_in_one_line_or_keep_the_states_of_what_is_unchanged(data: st.DataObject) -> None:
    before = data.draw(applications())
    after = data.draw(edited(before))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = built(before, folder), built(after, folder)
        published = BATCH + data.draw(st.sampled_from([0, 0, 1]))
        store = left(folder, old, published=published)
        line = why_not(store, new)
        assert "\n" not in line
        if line:
            assert published > BATCH, f"after a good end all of this can be right: {line}"
            assert "let the old code run once more until it ends in good order" in line
            return
        changes = recorded(store, new, upgrade=True)
        states = [node.name for node in after if node.has_state]
        kept = {name for name in states if same(before, after, name)}
        assert set(changes.emptied) == {node.name for node in before if node.name in states} - kept
        assert admitted(new, store, new.fingerprint(), ()).words == (), "it is remembered"
        opened = Store.open(store, changes.fingerprint, admitted=True)
        checkpoint = newest(opened)
        opened.close()
        versions = read_versions(store)
        graph = TaskGraph((rescaled(new, versions[-1]) if versions else new).topology)
        tasks = graph.tasks(range(len(graph)))
        cut = cuts.from_record(checkpoint.number, records.mapping(checkpoint.notes))
        applied, segments = changes.applied(cut, checkpoint.segments, tasks)
        for point in applied.points:
            operator = point.task.operator
            assert isinstance(point, Version)
            assert point.batch == BATCH
            if operator in kept:
                assert segments[point.task] == checkpoint.segments[point.task]
                assert point in cut.points
            elif operator in states:
                assert (segments[point.task], point.pass_id) == ((), NO_PASS)
        for operator in kept:  # all of a state is there: as many tasks as it lies in
            assert sum(task.operator == operator for task in tasks) == old.topology.operator(operator).parallelism
