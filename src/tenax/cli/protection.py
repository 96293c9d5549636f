"""How a protection plan is printed for people."""

from __future__ import annotations

from tenax.cli import render
from tenax.model.plans import ProtectionPlan


def print_protection(plan: ProtectionPlan, scheduling_s: float | None = None) -> None:
    """A protection plan for people: what is protected, what it promises, what it costs."""
    backups, replicas = plan.backups, plan.replicas
    interval = "unknown: give checkpoint and failures_per_day in the cluster file (--domains)"
    if plan.checkpoint_interval_s is not None:
        interval = f"every {render.seconds(plan.checkpoint_interval_s)} (Young)"
    out = render.console()
    out.print(
        render.facts(
            f"Protection of {plan.topology}",
            [
                ("backups", f"{len(backups.backups)}: {render.short(backups.backups)}"),
                ("", render.proof(backups.optimal, f"not proven: at least {backups.bound}")),
                ("replicas", f"{len(replicas.replicas)}: {render.short(replicas.replicas)}"),
                ("", render.proof(replicas.optimal, f"not proven: at most {render.number(replicas.bound)}")),
                ("checkpoints", interval),
            ],
        )
    )
    worst = max(plan.recovery_latency_s.values())
    out.print()
    out.print(
        render.facts(
            "Promises",
            [
                ("one task lost", f"back within {render.seconds(worst)}; {render.seconds(plan.latency_s)} asked for"),
                *scheduling_facts(scheduling_s),
                ("all but replicas lost", f"outputs keep fidelity {render.number(replicas.fidelity)}"),
            ],
        )
    )
    _print_domains(plan)
    cost = plan.cost
    share = "" if cost.checkpoint_share is None else f"; checkpoints take {render.percent(cost.checkpoint_share)}"
    out.print()
    out.print(
        render.facts(
            "Cost without failures",
            [
                ("backups", f"{render.number(cost.retained_per_s)} tuples/s retained"),
                ("replicas", f"{render.number(cost.replicated_per_s)} tuples/s processed twice{share}"),
            ],
        )
    )


def scheduling_facts(scheduling_s: float | None) -> list[tuple[str, str]]:
    """What recovery takes beside steps, if that was measured."""
    return [] if scheduling_s is None else [("scheduling", f"{render.seconds(scheduling_s)} on top, as measured")]


def _print_domains(plan: ProtectionPlan) -> None:
    out = render.console()
    if plan.placement is None:
        out.print("[dim]Loss of a node, rack or zone: name them in a cluster file (--domains).[/dim]")
        return
    rows = []
    for promise in plan.domains:
        late = promise.recovery_latency_s > plan.latency_s
        latency = render.seconds(promise.recovery_latency_s)
        rows.append(
            (
                f"{promise.domain.kind} {promise.domain.name}",
                str(len(promise.lost)),
                f"[yellow]{latency}, above the bound[/yellow]" if late else latency,
                render.number(promise.fidelity),
            )
        )
    out.print()
    out.print(
        render.table("When a domain is lost", ("domain", "tasks lost", "all back after", "fidelity until then"), rows)
    )
    out.print()
    where: dict[str, list[str]] = {}
    for task, node in plan.placement.replicas.items():
        where.setdefault(node, []).append(str(task))
    held: dict[str, int] = {}
    for node in plan.placement.primaries.values():
        held[node] = held.get(node, 0) + 1
    nodes = sorted({*held, *where})
    places = [(node, str(held.get(node, 0)), ", ".join(where.get(node, [])) or "-") for node in nodes]
    out.print(render.table("Places", ("node", "tasks", "replicas of"), places))
