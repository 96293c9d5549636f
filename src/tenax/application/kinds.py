"""What the operators of an application are, by the words that its user has for them."""

from __future__ import annotations

from collections.abc import Mapping

from tenax.connectors.source import Source
from tenax.model.topology import Operator
from tenax.operators.computation import Computation
from tenax.operators.stateless import Stateless, verb_of

WORDS: Mapping[str, str] = {"Windows": "window", "Join": "join", "Top": "top", "Union": "union"}


def kind_of(operator: Operator, sources: Mapping[str, Source], computations: Mapping[str, Computation]) -> str:
    """Source or output, the verbs that made it, or the name of a user's own class."""
    if operator.name in sources:
        return "source"
    if operator.output is not None:
        return "output"
    computation = computations[operator.name]
    if isinstance(computation, Stateless):
        return ", ".join(verb_of(part) for part in computation.transformations)
    name = type(computation).__name__
    return WORDS.get(name, name) if type(computation).__module__.startswith("tenax.") else name


def box_label(
    operator: Operator,
    sources: Mapping[str, Source],
    computations: Mapping[str, Computation],
    keys: Mapping[tuple[str, str], tuple[str, ...]],
) -> str:
    """What a picture says of an operator below its name: its kind, and the keys that its rows are shared by."""
    kind = kind_of(operator, sources, computations)
    shared = list(dict.fromkeys(keys.get((stream.operator, operator.name), ()) for stream in operator.inputs))
    by = "; ".join(", ".join(columns) for columns in shared if columns)
    shown = "" if kind == "output" else kind  # a picture says that of outputs itself
    return f"{shown} by {by}".strip() if by else shown
