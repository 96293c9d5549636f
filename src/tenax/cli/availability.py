"""The availability of queries in words: by output, the worst first, and not more of them than people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenax.cli import render
from tenax.model.tasks import Task

SHOWN_OUTPUTS = 5

Numbers = Mapping[str, float | None]
"""What is known of a query, by name."""


@dataclass(frozen=True, slots=True)
class OutputAvailability:
    """The queries of an output: in which part of a run their results were about as early as before a loss.

    - `mean` and `worst` are by final results, `worst` that of `worst_task`; the others by what was shown.
    - `first_final_s` and `first_shown_s` are the longest times from a loss to the first result of a new batch.
    """

    output: str
    queries: int
    mean: float
    worst: float
    worst_task: Task
    mean_shown: float
    worst_shown: float
    first_final_s: float | None
    first_shown_s: float | None

    @property
    def text(self) -> str:
        """In a sentence."""
        which = "" if self.queries == 1 else f" ({self.worst_task} {render.percent(self.worst)})"
        shown = f", {render.percent(self.mean_shown)} with tentative ones" if self.mean_shown != self.mean else ""
        words = f"available {render.percent(self.mean)} of the time by final results{which}{shown}"
        if self.first_final_s is not None:
            words += f"; first final one at most {render.seconds(self.first_final_s)} after a loss"
        if self.first_shown_s is not None and self.first_shown_s != self.first_final_s:
            words += f", first shown {render.seconds(self.first_shown_s)}"
        return words


def numbers(queries: object) -> dict[str, Numbers]:
    """What events have under `queries`, by output task: numbers, or nothing."""
    known: dict[str, Numbers] = {}
    for name, values in queries.items() if isinstance(queries, Mapping) else ():
        known[str(name)] = {
            str(key): float(number) if isinstance(number, int | float) else None for key, number in values.items()
        }
    return known


def by_output(queries: Mapping[str, Numbers]) -> list[OutputAvailability]:
    """Every output of which something is known, the worst first; `queries` is as events have it."""
    outputs: dict[str, list[tuple[Task, Numbers]]] = {}
    for name, known in queries.items():
        if known["run_availability"] is not None:
            outputs.setdefault(Task.parse(name).operator, []).append((Task.parse(name), known))
    all_known = [_of_output(output, each) for output, each in outputs.items()]
    return sorted(all_known, key=lambda output: (output.worst, output.mean, output.output))


def facts(queries: Mapping[str, Numbers]) -> list[tuple[str, str]]:
    """What a summary says once nodes were lost; nothing before."""
    if not any(_was_hit(known) for known in queries.values()):
        return []
    outputs = by_output(queries)
    said = [(f"queries of {output.output}", output.text) for output in outputs[:SHOWN_OUTPUTS]]
    more = len(outputs) - SHOWN_OUTPUTS
    return [*said, ("queries of others", f"{more} more, none less available than these")] if more > 0 else said


def _was_hit(known: Numbers) -> bool:
    return known["first_final_s"] is not None or known["waits_s"] is not None


def _of_output(output: str, queries: list[tuple[Task, Numbers]]) -> OutputAvailability:
    final = {task: known["run_availability"] or 0.0 for task, known in queries}
    shown = [known["run_availability_shown"] or 0.0 for _, known in queries]
    worst = min(final, key=lambda task: (final[task], task))
    return OutputAvailability(
        output,
        len(queries),
        sum(final.values()) / len(final),
        final[worst],
        worst,
        sum(shown) / len(shown),
        min(shown),
        _longest(known["first_final_s"] for _, known in queries),
        _longest(known["first_shown_s"] for _, known in queries),
    )


def _longest(times_s: Iterable[float | None]) -> float | None:
    return max((at_s for at_s in times_s if at_s is not None), default=None)
