"""The report of a run under failures: one HTML file with its picture, its figures and its story."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenax.chaos.record import Moment, What, names
from tenax.cli.outages import Outages
from tenax.pictures.timeline import History, Landmark, NodeBar, Result, timeline_svg

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { padding: .6rem 1rem; border-left: 5px solid; font-weight: 600; }
.good { border-color: #00785a; background: #d3efe6; } .bad { border-color: #c8330a; background: #fbdcd1; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; } td { padding: .2rem 1.2rem .2rem 0; vertical-align: top; }
td:first-child { color: #5f6b7a; white-space: nowrap; }
"""


@dataclass(frozen=True, slots=True)
class Account:
    """What a report tells: the verdict first, then the picture, figures by name, and what happened when."""

    title: str
    about: str
    verdict: str
    held: bool
    figures: tuple[tuple[str, str], ...]
    story: tuple[tuple[float, str], ...]
    history: History


def history(outages: Outages, moments: Iterable[Moment], title: str, ended_s: float) -> History:
    """What the picture shows of a run that was followed; its time begins when the nodes were there."""
    begin_s = min((life.joined_s for life in outages.nodes.values()), default=0.0)
    results = tuple(
        Result(
            publication.output,
            publication.at_s - begin_s,
            publication.kind.value,
            publication.quality,
            publication.latency_s,
        )
        for publication in outages.publications
    )
    faults = [moment for moment in moments if moment.what is What.FAULT and moment.detail["kind"] != "return"]
    hit_s = {name: fault.at_s for fault in faults for name in names(fault.detail.get("nodes"))}
    missing = tuple((begin - begin_s, (end or ended_s) - begin_s) for begin, end in outages.outages)
    return History(
        title,
        max(1.0, ended_s - begin_s),
        results,
        _node_bars(outages, begin_s, hit_s),
        tuple(_landmarks(outages, faults, begin_s)),
        missing,
    )


def _landmarks(outages: Outages, faults: Sequence[Moment], begin_s: float) -> list[Landmark]:
    landmarks = []
    for fault in faults:
        count = len(names(fault.detail.get("nodes")))
        landmarks.append(Landmark(fault.at_s - begin_s, f"{count} node{'s' * (count != 1)} killed", is_fault=True))
    late = (life for life in outages.nodes.values() if life.joined_s > begin_s)
    landmarks += [Landmark(life.joined_s - begin_s, f"{life.label} joins") for life in late]
    landmarks += [Landmark(end_s - begin_s, "all tasks back") for _, end_s in outages.outages if end_s is not None]
    return landmarks


def _node_bars(outages: Outages, begin_s: float, hit_s: Mapping[str, float]) -> tuple[NodeBar, ...]:
    """Nodes in rows, by rack; a node that comes takes the row of one that is gone, of its rack if there is one."""
    rows: list[tuple[str, float | None]] = []  # the rack of each row, and until when it is taken; none: for ever
    placed: list[tuple[int, str, float, float | None]] = []
    for name, life in outages.nodes.items():
        lost_s = None if life.lost_s is None else hit_s.get(name, life.lost_s)
        rack = life.rack or ""
        free = [at for at, row in enumerate(rows) if row[1] is not None and row[1] <= life.joined_s]
        of_rack = [at for at in free if rows[at][0] == rack]
        row = (of_rack or free or [len(rows)])[0]
        if row == len(rows):
            rows.append((rack, lost_s))
        else:
            rows[row] = (rows[row][0], lost_s)
        placed.append((row, life.label, life.joined_s - begin_s, None if lost_s is None else lost_s - begin_s))
    order = sorted(range(len(rows)), key=lambda at: (rows[at][0], at))
    of_each_rack: dict[str, int] = {}
    named: dict[int, str] = {}
    for at in order:
        rack = rows[at][0]
        of_each_rack[rack] = of_each_rack.get(rack, 0) + 1
        named[at] = f"{rack or 'place'} · {of_each_rack[rack]}"
    bars = sorted(placed, key=lambda bar: order.index(bar[0]))
    return tuple(NodeBar(named[row], label, came_s, gone_s) for row, label, came_s, gone_s in bars)


def write_report(account: Account, path: Path) -> None:
    """Write one self-contained file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(account), encoding="utf-8")


def page(account: Account) -> str:
    """The report as a page that needs no other file."""
    title = html.escape(account.title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>\n'
        f"<h1>{title}</h1>\n<p>{html.escape(account.about)}</p>\n"
        f'<p class="verdict {"good" if account.held else "bad"}">{html.escape(account.verdict)}</p>\n'
        f"{timeline_svg(account.history)}\n"
        f"<h2>Figures</h2>\n{_table(account.figures)}\n"
        f"<h2>What happened</h2>\n{_table((f'{at_s:.1f} s', text) for at_s, text in account.story)}\n</body></html>\n"
    )


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = (f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(lines)}</table>"
