"""All experiments by name, and how one is run; nothing is imported before it runs."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenax.errors import InvalidRequest
from tenax.model.topology import suggestion
from tenax_lab.results import Findings, Machine, NoProgress, Progress, Result

Run = Callable[[int, bool, Progress], Findings]
"""A run function: seed, quick, progress."""


def _of(module: str) -> Run:
    """The run function of a module, which is imported when it is called."""

    def run(seed: int, quick: bool, progress: Progress) -> Findings:
        found: Findings = importlib.import_module(f"tenax_lab.{module}").run(seed, quick, progress)
        return found

    return run


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
        _of("backups"),
    ),
    Experiment(
        "replicas-random",
        "Output fidelity over the replication ratio on random topologies",
        "paper 1, Figure 14",
        _of("replicas_random"),
    ),
    Experiment(
        "recovery-order",
        "Recovered priority over the recovery capacity on random queries",
        "paper 4, Figure 15",
        _of("recovery_order"),
    ),
    Experiment(
        "planner-scale",
        "Time and size that the planners reach",
        "paper 3, Table III, and the costs that the papers state",
        _of("planner_scale"),
    ),
    Experiment(
        "peers",
        "Throughput, latency and memory against Structured Streaming",
        "goals of ours; windows as in paper 1's Q2",
        _of("peers"),
    ),
    Experiment(
        "overhead",
        "What the engine costs beside the work itself",
        "goals of ours, on the topology of paper 1, Figure 6",
        _of("overhead"),
    ),
    Experiment(
        "failover",
        "Outputs through the loss of half of the nodes, beside Structured Streaming",
        "goals of ours; paper 1's claim of tentative outputs long before full recovery",
        _of("failover"),
    ),
    Experiment(
        "tentative-quality",
        "Predicted fidelity and completeness against the accuracy of tentative results",
        "paper 1, Figures 12 and 13",
        _of("tentative_quality"),
    ),
    Experiment(
        "recovery-bound",
        "Recovery after the loss of each node, predicted by the backup plan and measured",
        "paper 3, equations 3 and 4, on the topology of paper 1, Figure 6",
        _of("recovery_bound"),
    ),
    Experiment(
        "checkpoint-costs",
        "Bytes and time of checkpoints over their interval and the rate, by strategy",
        "paper 5, Figures 2, 3 and 4",
        _of("checkpoint_costs"),
    ),
    Experiment(
        "standby-costs",
        "Bytes sent by active and passive standbys over the rate",
        "paper 5, Figure 5",
        _of("standby_costs"),
    ),
    Experiment(
        "checkpoint-throughput",
        "Throughput that checkpoints cost while nothing fails",
        "goals of ours, on the chain of paper 5",
        _of("checkpoint_throughput"),
    ),
    Experiment(
        "recovery-delay",
        "From the loss of a node to new results: detection, redeployment, replay",
        "paper 5, Figures 6, 7 and 8",
        _of("recovery_delay"),
    ),
    Experiment(
        "recovery-techniques",
        "Recovery with active replicas, checkpoints and source replay, of one node and of all primaries",
        "paper 1, Figures 7 and 8",
        _of("recovery_techniques"),
    ),
    Experiment(
        "checkpoint-cpu",
        "Processor time of checkpoints over the time between them",
        "paper 1, Figure 9",
        _of("checkpoint_cpu"),
    ),
    Experiment(
        "partial-replication",
        "Outputs after the loss of all primaries with replicas for all, half and none of the tasks",
        "paper 1, Figure 10",
        _of("partial_replication"),
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
