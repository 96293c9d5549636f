"""Clusters: domains, and what a cluster file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenax.errors import InvalidFile
from tenax.model.cluster import Cluster, Domain, DomainKind, Node
from tenax.model.cluster_files import read_cluster
from tenax.model.tasks import Task


def test_domains_are_zones_then_racks_then_nodes() -> None:
    # east: r1 (a, b), r2 (c)     west: d
    cluster = Cluster(
        (Node("a", "r1", "east"), Node("b", "r1", "east"), Node("c", "r2", "east"), Node("d", zone="west"))
    )
    assert cluster.domains == (
        Domain("east", DomainKind.ZONE, ("a", "b", "c")),
        Domain("west", DomainKind.ZONE, ("d",)),
        Domain("r1", DomainKind.RACK, ("a", "b")),
        Domain("r2", DomainKind.RACK, ("c",)),
        *(Domain(name, DomainKind.NODE, (name,)) for name in "abcd"),
    )
    assert cluster.nodes[3].domain(DomainKind.RACK) == "d"


def test_a_cluster_file_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("""
checkpoint: 0.5
failures_per_day: {a: 0.1, r1: 0.02}
nodes:
  - {name: a, rack: r1, zone: z, slots: 4}
  - {name: b}
placement: {"s[0]": a}
""")
    assert read_cluster(path) == Cluster(
        (Node("a", "r1", "z", 4), Node("b")), {Task("s", 0): "a"}, {"a": 0.1, "r1": 0.02}, 0.5
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes: []", "at least one node"),
        ("nodes: [{name: a}, {name: a}]", "node names are unique, found 'a' twice"),
        ("nodes: [{name: a, rack: r, zone: y}, {name: b, rack: r, zone: z}]", "a rack stands in one zone, found 'r'"),
        ("nodes: [{name: a, rack: a}]", "a name stands for one domain, found 'a' as node and rack"),
        ("nodes: [{name: a, slots: 0}]", "slots must be at least 1, found 0"),
        ("nodes: [{name: a, rak: r}]", "unknown key 'rak': did you mean 'rack'?"),
        ("nodes: [{name: a}]\nplacement: {'s[0]': b}", "placement of s[0]: unknown node 'b'"),
        ("nodes: [{name: a}]\nplacement: {s: a}", "written operator[index], found 's'"),
        ("nodes: [{name: a}]\nfailures_per_day: {b: 1}", "unknown domain 'b'"),
        ("nodes: [{name: a}]\nfailures_per_day: {a: -1}", "at least 0, found -1"),
        ("nodes: [{name: a}]\ncheckpoint: 0", "greater than 0, found 0"),
        ("nodes: [{name: a}]\ncheckpoint: .inf", "finite number, found inf"),
    ],
)
def test_a_wrong_cluster_file_gets_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InvalidFile) as caught:
        read_cluster(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
