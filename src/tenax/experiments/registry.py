"""All experiments by name, and how one is run; nothing is imported before it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenax.errors import InvalidRequest
from tenax.experiments.results import Findings, Machine, NoProgress, Progress, Result
from tenax.model.topology import suggestion

Run = Callable[[int, bool, Progress], Findings]
"""A run function: seed, quick, progress."""


def _backups(seed: int, quick: bool, progress: Progress) -> Findings:
    from tenax.experiments import backups

    return backups.run(seed, quick, progress)


def _replicas_random(seed: int, quick: bool, progress: Progress) -> Findings:
    from tenax.experiments import replicas_random

    return replicas_random.run(seed, quick, progress)


def _recovery_order(seed: int, quick: bool, progress: Progress) -> Findings:
    from tenax.experiments import recovery_order

    return recovery_order.run(seed, quick, progress)


def _planner_scale(seed: int, quick: bool, progress: Progress) -> Findings:
    from tenax.experiments import planner_scale

    return planner_scale.run(seed, quick, progress)


def _peers(seed: int, quick: bool, progress: Progress) -> Findings:
    from tenax.experiments import peers

    return peers.run(seed, quick, progress)


def _overhead(seed: int, quick: bool, progress: Progress) -> Findings:
    from tenax.experiments import overhead

    return overhead.run(seed, quick, progress)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named, reproducible run of a figure."""

    name: str
    summary: str
    figure: str
    run: Run


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "backups",
        "Backups and recovery latency over the latency bound",
        "paper 3, Figures 7 and 8 and Table III",
        _backups,
    ),
    Experiment(
        "replicas-random",
        "Output fidelity over the replication ratio on random topologies",
        "paper 1, Figure 14",
        _replicas_random,
    ),
    Experiment(
        "recovery-order",
        "Recovered priority over the recovery capacity on random queries",
        "paper 4, Figure 15",
        _recovery_order,
    ),
    Experiment(
        "planner-scale",
        "Time and size that the planners reach",
        "paper 3, Table III, and the costs that the papers state",
        _planner_scale,
    ),
    Experiment(
        "peers",
        "Throughput, latency and memory against Structured Streaming",
        "goals of ours; windows as in paper 1's Q2",
        _peers,
    ),
    Experiment(
        "overhead",
        "What the engine costs beside the work itself",
        "goals of ours, on the topology of paper 1, Figure 6",
        _overhead,
    ),
)


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    for one in EXPERIMENTS:
        if one.name == name:
            return one
    raise InvalidRequest(f"unknown experiment {name!r}{suggestion(name, (one.name for one in EXPERIMENTS))}")


def run_experiment(
    name: str, *, out: Path, seed: int = 1, quick: bool = False, progress: Progress | None = None
) -> Result:
    """Run an experiment and write `<out>/<name>/` with table.txt, result.json and figure.png."""
    chosen = experiment(name)
    start = time.perf_counter()
    findings = chosen.run(seed, quick, NoProgress() if progress is None else progress)
    seconds = time.perf_counter() - start
    result = Result(chosen.name, chosen.summary, chosen.figure, seed, quick, Machine.here(), seconds, findings)
    result.write(out / chosen.name)
    return result
