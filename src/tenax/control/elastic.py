"""Elasticity in a run: periods of passes are looked at one after the other, and rescales follow from them.

Periods end with passes, by the times that these report: where nothing runs nothing is decided.
"""

from __future__ import annotations

from dataclasses import replace

from tenax.control.events import PassFinished, RescaleAsked
from tenax.control.notices import LoadJudged
from tenax.control.placement.capacity import in_use
from tenax.control.rescaling import rescale_asked
from tenax.control.run import Run
from tenax.control.state import Period, RunState
from tenax.model.topology_versions import Target
from tenax.planning.scaling import Keep, Rescale
from tenax.planning.scaling.policy import CAUGHT_UP, Decision, Observation, Scope, decide

RISEN = 1.2  # times the mean: more than the ends of passes are off by


def observed(run: Run, state: RunState, event: PassFinished) -> RunState:
    """After a live pass: at the end of a period, what it asks for."""
    asked = run.settings.elastic
    if not asked.elastic or state.wrap_up is not None or state.logs.ended:
        return state
    period = state.period
    if not period.ends_s:
        return replace(state, period=replace(period, begun_s=event.at_s, ends_s=event.at_s + asked.period_s))
    homes = {run.tasks[number]: task.primary.node for number, task in enumerate(state.tasks) if task.primary}
    rows = period.rows + sum(
        report.rows
        for report in event.reports
        if run.is_source[run.number[report.version.task]] and homes.get(report.version.task) == report.node
    )
    if event.at_s < period.ends_s:
        return replace(state, period=replace(period, rows=rows))
    seen = _observation(run, state, rows, event.at_s)
    scope = Scope(asked, run.groups, run.settings.batches.batch_s)
    watch, decision = decide(period.watch, scope, seen)
    state = replace(
        state,
        period=Period(watch, event.at_s, event.at_s + asked.period_s),
        pending=(*state.pending, _judged(decision, seen)),
    )
    if not isinstance(decision, Rescale):
        return state
    nodes = decision.shape.nodes
    target = Target(decision.changed, None if nodes == seen.nodes else nodes, decision.reason)
    learned = rescale_asked(state, RescaleAsked(target))
    return learned if isinstance(learned, RunState) else state


def _observation(run: Run, state: RunState, rows: int, at_s: float) -> Observation:
    load, begun_s = state.load, state.period.begun_s
    taken_per_s = rows / (at_s - begun_s) if at_s > begun_s else 0.0
    backlog = float(state.logs.logged - state.finished)
    whole = len(load.tasks) == len(run.graph)
    return Observation(
        at_s,
        run.graph,
        max(1, len(in_use(run, state))),
        tuple(task.rows for task in load.tasks) if whole else (0.0,) * len(run.graph),
        tuple(task.busy_s for task in load.tasks) if whole else (0.0,) * len(run.graph),
        load.rows,
        taken_per_s,
        _arriving(state, taken_per_s, backlog),
        backlog=backlog,
        fixed_s=load.fixed_s,
        moving_s=load.moving_s,
        steady=state.outage is None and state.rescaling is None and not state.placement.moving,
        measured=whole and load.is_settled,
    )


def _arriving(state: RunState, taken_per_s: float, backlog: float) -> float | None:
    """How fast rows come; None if that is not known.

    What is measured of that is a mean over some ten batches. A run that keeps up takes what comes: if that was a good
    deal more in this period, the rate has gone up, and the mean would say so too late.
    """
    mean = state.load.arrival.known_since(state.period.begun_s)
    keeps_up = max(backlog, state.period.watch.backlog) <= CAUGHT_UP
    return taken_per_s if mean is not None and keeps_up and taken_per_s > mean * RISEN else mean


def _judged(decision: Decision, seen: Observation) -> LoadJudged:
    """What was decided, with the numbers that decided it."""
    numbers = {
        "taken_per_s": round(seen.taken_per_s, 3),
        "backlog": seen.backlog,
        "nodes": float(seen.nodes),
    }
    if seen.arrival_per_s is not None:
        numbers["arrival_per_s"] = round(seen.arrival_per_s, 3)
    if isinstance(decision, Keep | Rescale):
        numbers |= {"pass_s": round(decision.now.pass_s, 4), "bound_s": round(decision.bound_s, 4)}
    if isinstance(decision, Rescale):
        numbers |= {"pass_s_after": round(decision.after.pass_s, 4), "nodes_after": float(decision.shape.nodes)}
    outcome = str(decision.direction) if isinstance(decision, Rescale) else type(decision).__name__.lower()
    return LoadJudged(outcome, decision.reason, numbers)
