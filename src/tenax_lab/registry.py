"""All experiments by name, and how one is run; nothing is imported before it runs."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenax.errors import InvalidRequest
from tenax.model.topology import suggestion
from tenax_lab.findings import Machine, Result
from tenax_lab.lab import Experiment, NoProgress, Progress, observe_and_report

if TYPE_CHECKING:
    from tenax.engine.session import Session


@dataclass(frozen=True, slots=True)
class Entry:
    """A named, reproducible run of a figure: its module declares an `EXPERIMENT`."""

    name: str
    summary: str
    figure: str

    @property
    def module(self) -> str:
        """Where it is declared."""
        return f"tenax_lab.{self.name.replace('-', '_')}"


# fmt: off
EXPERIMENTS = (
    Entry("backups", "Backups and recovery latency over the latency bound",
          "Li et al. 2017, Figures 7 and 8 and Table III"),
    Entry("replicas-random", "Output fidelity over the replication ratio on random topologies",
          "Su, Zhou 2016, Figure 14"),
    Entry("recovery-order", "Recovered priority over the recovery capacity on random queries",
          "Su, Zhou 2021, Figure 15"),
    Entry("query-recovery",
          "Queries through the loss of nodes whose capacity is missed, by what recovery goes",
          "Su, Zhou 2021, Figures 11 to 14"),
    Entry("repeated-losses", "Latency through losses that follow each other: source replay and checkpoints",
          "Su, Zhou 2021, Figure 9"),
    Entry("lost-capacity",
          "Latency when the nodes that are left cannot do all the work, beside Structured Streaming",
          "Su, Zhou 2021, Figure 10"),
    Entry("planner-scale", "Time and size that the planners reach",
          "Li et al. 2017, Table III, and the costs that the papers state"),
    Entry("peers", "Throughput, latency and memory against Structured Streaming",
          "goals of ours; windows as in Su, Zhou 2016, Q2"),
    Entry("overhead", "What the engine costs beside the work itself",
          "goals of ours, on the topology of Su, Zhou 2016, Figure 6"),
    Entry("failover", "Outputs through the loss of half of the nodes, beside Structured Streaming",
          "goals of ours; Su, Zhou 2016, claim of tentative outputs long before full recovery"),
    Entry("tentative-quality", "Predicted fidelity and completeness against the accuracy of tentative results",
          "Su, Zhou 2016, Figures 12 and 13"),
    Entry("recovery-bound", "Recovery after the loss of each node, predicted by the backup plan and measured",
          "Li et al. 2017, equations 3 and 4, on the topology of Su, Zhou 2016, Figure 6"),
    Entry("checkpoint-costs", "Bytes and time of checkpoints over their interval and the rate, by strategy",
          "Gu et al. 2009, Figures 2, 3 and 4"),
    Entry("standby-costs", "Bytes sent by active and passive standbys over the rate",
          "Gu et al. 2009, Figure 5"),
    Entry("checkpoint-throughput", "Throughput that checkpoints cost while nothing fails",
          "goals of ours, on the chain of Gu et al. 2009"),
    Entry("recovery-delay", "From the loss of a node to new results: detection, redeployment, replay",
          "Gu et al. 2009, Figures 6, 7 and 8"),
    Entry("recovery-techniques",
          "Recovery with active replicas, checkpoints and source replay, of one node and of all primaries",
          "Su, Zhou 2016, Figures 7 and 8"),
    Entry("checkpoint-cpu", "Processor time of checkpoints over the time between them",
          "Su, Zhou 2016, Figure 9"),
    Entry("partial-replication",
          "Outputs after the loss of all primaries with replicas for all, half and none of the tasks",
          "Su, Zhou 2016, Figure 10"),
    Entry("adaptive-batches", "Speed of a backlog and latency without one, over the rows of a batch",
          "goals of ours"),
    Entry("elasticity", "A rescale under load, a step of the rate and a day with nodes that come and go",
          "goals of ours; a fixed number of nodes and Structured Streaming beside it"),
    Entry("scale-out", "Recovery and scale-out with states that are replayed or read from checkpoints",
          "Chang, Li, Xu, Figures 4 to 7"),
)
# fmt: on


def experiment(name: str) -> Entry:
    """The experiment of that name."""
    for entry in EXPERIMENTS:
        if entry.name == name:
            return entry
    raise InvalidRequest(f"unknown experiment {name!r}{suggestion(name, (entry.name for entry in EXPERIMENTS))}")


def declared(name: str) -> Experiment[Any]:
    """What the module of an experiment declares."""
    module = importlib.import_module(experiment(name).module)
    declaration: Experiment[Any] = module.EXPERIMENT
    return declaration


def run_experiment(
    name: str,
    *,
    out: Path,
    seed: int = 1,
    quick: bool = False,
    progress: Progress | None = None,
    session: Session | None = None,
    nodes: int = 0,
) -> Result:
    """Run an experiment and write `<out>/<name>/` with table.txt, result.json and figure.png.

    A `session` that is given, with so many `nodes`, is used as it is; else those experiments that need a cluster start
    one of their own.
    """
    entry = experiment(name)
    start = time.perf_counter()
    observations, findings = observe_and_report(
        declared(name),
        name,
        seed=seed,
        quick=quick,
        progress=NoProgress() if progress is None else progress,
        session=session,
        nodes=nodes,
    )
    seconds = time.perf_counter() - start
    circumstances = entry.name, entry.summary, entry.figure, seed, quick, Machine.here(), seconds
    result = Result(*circumstances, findings, observations)
    result.write(out / entry.name)
    return result
