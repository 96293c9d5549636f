"""The choice among candidate queries as a mixed-integer program, for two solvers.

Maximise the priority of the chosen queries, where each chosen query pulls its groups in and the groups fit the
capacity. Solvers are imported where they are used: loading them takes longer than planning a small outage.
"""

from __future__ import annotations

import math

import numpy as np

from tenax.model.graph import Bools, Ints
from tenax.planning.recovery.outage import Candidates

MILLISECONDS = 1000


def find(candidates: Candidates, capacity: int, start: Bools, time_limit_s: float) -> tuple[Bools, float]:
    """SCIP: a good choice quickly and a bound, both within the tolerance of floats. It may exceed the capacity by it.

    Much faster than CP-SAT on hundreds of queries, which finds the last improvements late.
    """
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

    solver = pywraplp.Solver.CreateSolver("SCIP")
    own_cost, shared = _split(candidates)
    scale = float(candidates.cost.mean())  # near 1, where the tolerance is meant for
    query = [solver.BoolVar("") for _ in range(len(candidates))]
    within = solver.Constraint(-solver.infinity(), capacity / scale)
    goal = solver.Objective()
    goal.SetMaximization()
    for variable, cost, priority in zip(query, own_cost.tolist(), candidates.priority.tolist(), strict=True):
        within.SetCoefficient(variable, cost / scale)
        goal.SetCoefficient(variable, float(priority))
    group = [solver.NumVar(0.0, 1.0, "") for _ in shared]
    for variable, number in zip(group, shared.tolist(), strict=True):
        within.SetCoefficient(variable, int(candidates.cost[number]) / scale)
        for user in np.flatnonzero(candidates.needs[:, number]).tolist():
            pulls = solver.Constraint(-solver.infinity(), 0.0)
            pulls.SetCoefficient(query[user], 1.0)
            pulls.SetCoefficient(variable, -1.0)
    pulled = candidates.needs[start][:, shared].any(axis=0)
    solver.SetHint(query + group, np.concatenate([start, pulled]).astype(np.float64).tolist())
    solver.SetTimeLimit(max(1, math.ceil(time_limit_s * MILLISECONDS)))
    status = solver.Solve()
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return start, math.inf
    chosen = np.array([variable.solution_value() > 0.5 for variable in query], dtype=np.bool_)
    return chosen, float(goal.BestBound())


def prove(candidates: Candidates, capacity: int, start: Bools, time_limit_s: float) -> tuple[Bools, float]:
    """CP-SAT: a choice and a bound in whole numbers, so that its proof is one. One worker, so that it is repeatable."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    own_cost, shared = _split(candidates)
    query = [model.new_bool_var("") for _ in range(len(candidates))]
    group = [model.new_bool_var("") for _ in shared]
    pulled = candidates.needs[start][:, shared].any(axis=0)
    for variable, value in zip(query + group, np.concatenate([start, pulled]).tolist(), strict=True):
        model.add_hint(variable, value)
    for variable, number in zip(group, shared.tolist(), strict=True):
        for user in np.flatnonzero(candidates.needs[:, number]).tolist():
            model.add_implication(query[user], variable)
    costs = own_cost.tolist() + candidates.cost[shared].tolist()
    model.add(cp_model.LinearExpr.weighted_sum(query + group, costs) <= capacity)
    model.maximize(cp_model.LinearExpr.weighted_sum(query, candidates.priority.tolist()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 2  # the relaxation is what prunes: without it 20 s prove nothing
    solver.parameters.max_time_in_seconds = time_limit_s
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start, math.inf
    chosen = np.array([solver.boolean_value(variable) for variable in query], dtype=np.bool_)
    return chosen, float(math.floor(solver.best_objective_bound))


def _split(candidates: Candidates) -> tuple[Ints, Ints]:
    """What each query costs for itself alone, and the numbers of the groups that several need."""
    users = candidates.needs.sum(axis=0)
    own = users == 1
    return candidates.needs[:, own] @ candidates.cost[own], np.flatnonzero(users > 1)
