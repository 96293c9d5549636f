"""Random topologies for tests, drawn by hypothesis so that failures shrink."""

from __future__ import annotations

from hypothesis import strategies as st

from tenax.model.topology import Input, Operator, Output, Partitioning, PerTask, Topology

NUMBERS = st.one_of(
    st.integers(0, 9).map(float),
    st.sampled_from([0.1, 0.25, 0.3, 1.5, 2.75]),
)


def fitting(before: int, after: int) -> list[Partitioning]:
    """The partitionings that two parallelisms allow."""
    kinds = [Partitioning.FULL]
    if before == after:
        kinds.append(Partitioning.ONE_TO_ONE)
    if before > after or 1 in (before, after):
        kinds.append(Partitioning.MERGE)
    if before < after or 1 in (before, after):
        kinds.append(Partitioning.SPLIT)
    return kinds


@st.composite
def topologies(draw: st.DrawFn, max_operators: int = 5, max_parallelism: int = 4) -> Topology:
    """Any valid topology: several sources and outputs, diamonds, skipped levels, joins, zero rates and weights."""
    operators: list[Operator] = []
    for number in range(draw(st.integers(1, max_operators))):
        parallelism = draw(st.integers(1, max_parallelism))
        before = draw(st.lists(st.sampled_from(operators), unique=True, max_size=3)) if operators else []
        inputs = tuple(
            Input(operator.name, draw(st.sampled_from(fitting(operator.parallelism, parallelism))))
            for operator in before
        )
        weights = draw(st.none() | st.lists(NUMBERS, min_size=parallelism, max_size=parallelism).filter(any))
        operators.append(
            Operator(
                f"o{number}",
                parallelism,
                inputs,
                weights=None if weights is None else tuple(weights),
                rate=1.0 if inputs else draw(per_task(parallelism)),
                selectivity=draw(NUMBERS) if inputs else 1.0,
                correlated=draw(st.booleans()),
                output=Output(draw(per_task(parallelism))) if draw(st.integers(0, 3)) == 0 else None,
                reprocess=draw(per_task(parallelism)),
                cost=draw(per_task(parallelism)),
                safe=draw(st.integers(0, 4)) == 0,
            )
        )
    return Topology("random", tuple(draw(st.permutations(operators))))


@st.composite
def per_task(draw: st.DrawFn, parallelism: int) -> PerTask:
    """One number, or one for each task."""
    if draw(st.booleans()):
        return draw(NUMBERS)
    return tuple(draw(st.lists(NUMBERS, min_size=parallelism, max_size=parallelism)))
