"""Topologies as notebooks draw them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tenax.api.streams import Topology
from tenax.application.kinds import box_label
from tenax.errors import TenaxError
from tenax.model import topology as model
from tenax.model.graph import TaskGraph


def topology_svg(topology: Topology) -> str | None:
    """A topology as SVG, for a page: without what belongs to a file of its own. None while it cannot be drawn."""
    from tenax.pictures.topology import draw_topology

    operators = topology._operators
    kinds = {
        name: box_label(operator, topology._sources, topology._computations, topology._keys)
        for name, operator in operators.items()
    }
    with tempfile.TemporaryDirectory(prefix="tenax-picture-") as folder:
        path = Path(folder) / "topology.svg"
        try:
            graph = TaskGraph(model.Topology(topology.name, tuple(operators.values())))
            draw_topology(graph, path, title=topology.name, kinds=kinds)
        except TenaxError:
            return None
        text = path.read_text()
    return text[text.index("<svg") :]
