"""What is said of outputs through the loss of half of the nodes: tables, goals, pictures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from tenax.pictures.figures import Curve, Panel
from tenax_lab.failover_cases import (
    BLOCKING,
    EQUAL,
    GOING_ON,
    INTERVAL_S,
    LARGE,
    NODES,
    PASSIVE,
    REPLICAS,
    SHUFFLE_PARTITIONS,
    SIDES,
    STRUCTURED,
    Case,
)
from tenax_lab.failover_measures import Period, SideRun, percentile
from tenax_lab.findings import Cell, Claim, Findings, Table
from tenax_lab.lab import Plan
from tenax_lab.report import spread, table, value

GOAL_INTERVALS = 2
GOAL_RATIO = 10.0
PICTURE_S = (-5.0, 10.0)  # from so long before the kill to so long after the return
INPUT_LOOK, MARK_LOOK = 6, 4


def side_runs(frame: pl.DataFrame) -> list[SideRun]:
    """The runs of all sides under one case, side by side, by round."""
    runs = [
        SideRun.from_rows(rows) for rows in frame.filter(pl.col("side").is_not_null()).partition_by("side", "round")
    ]
    return sorted(runs, key=lambda each: (list(SIDES).index(each.side), each.number))


def report(plan: Plan[Case], frame: pl.DataFrame) -> Findings:
    """Tables, goals and pictures of a comparison."""
    runs = {case.state: side_runs(frame.filter(state=case.state)) for case in plan.cases}
    claims, panels = list[Claim](), list[Panel]()
    for case in plan.cases:
        own = runs[case.state]
        claims += _sooner(own) if case.state == LARGE.state else _prompt(own)
        panels += _panels(case, own)
    compared = value(frame.filter(what=EQUAL), pl.col("rows").min())
    return Findings(
        settings={
            "cluster": f"local-cluster[{NODES},2,1024] on all sides",
            "batch interval s": INTERVAL_S,
            **{name: text for case in plan.cases for name, text in _settings(case).items()},
        },
        tables=(_outages(runs), _first_outputs(runs), _latencies(runs)),
        claims=tuple(claims),
        remarks=tuple(_remarks(plan.cases, runs, int(compared))),
        panels=tuple(panels),
    )


def _settings(case: Case) -> dict[str, Cell]:
    shape = case.shape
    rows = f"{shape.batch_rows:,} rows a second, in {shape.partitions} files"
    keys = f", {shape.segments:,} keys" if shape.segments else ""
    backlog = f", the first {case.backlog} s at once" if case.backlog else ""
    kills = ", ".join(f"{each:g}" for each in case.kills_after_s)
    return {
        f"{case.state} state": case.query.sentence,
        f"{case.state} state, input": f"{rows}{keys}{backlog}",
        f"{case.state} state, killed": f"{kills} s after the first result, by round; away {case.away_s:g} s",
    }


def _outages(runs: Mapping[str, Sequence[SideRun]]) -> Table:
    rows = [
        {
            "state": state,
            "side": SIDES[each.side],
            "round": each.number,
            "state MB": round(each.state_mb),
            "usual": percentile(each.periods(whole=True)[Period.BEFORE], 50),
            "noticed": each.detection_s,
            "silent": each.silence_s(whole=False),
            "shown %": _percent(each.first_share()),
            "final again": each.silence_s(whole=True),
            "longest gap": each.longest_gap_s(),
            "up to date": each.back_s(),
            "partial": each.incomplete(),
            "tentative": each.tentative,
            "corrected": each.corrected,
            "restarts": each.restarts,
            "exact": "–" if each.exact is None else "yes" if each.exact else "NO",
        }
        for state, own in runs.items()
        for each in own
    ]
    title = "After the kill, in s: what readers of the results saw"
    return table(title, pl.DataFrame(rows, infer_schema_length=None), {name: name for name in rows[0]})


def _first_outputs(runs: Mapping[str, Sequence[SideRun]]) -> Table:
    """The first output of each side, and how many times later it comes than that of the tentative one."""
    rows: list[tuple[Cell, ...]] = []
    for state, own in runs.items():
        for side, name in SIDES.items():
            silences, times = list(_silences(own, side).values()), _times_later(own, side)
            if silences:
                middle = None if not times else statistics.median(times)
                between = "–" if not times else spread(times, ".1f")
                rows.append(
                    (state, name, len(silences), statistics.median(silences), spread(silences), middle, between)
                )
    columns = ("state", "side", "rounds", "first output s", "from to", "times tentative", "from to, times")
    return Table("The first output after the kill, of any kind: medians of rounds", columns, tuple(rows))


def _percent(share: float | None) -> Cell:
    return None if share is None else round(100 * share)


def _latencies(runs: Mapping[str, Sequence[SideRun]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for state, of_state in runs.items():
        for side, name in SIDES.items():
            own = [each for each in of_state if each.side == side]
            for period in Period:
                first, final = (
                    [latency_s for each in own for latency_s in each.periods(whole=whole)[period]]
                    for whole in (False, True)
                )
                figures = [percentile(latencies, percent) for latencies in (first, final) for percent in (50, 99)]
                rows.append((state, name, period.value, len(final), *figures))
    columns = ("state", "side", "outage", "seconds", "shown p50", "shown p99", "final p50", "final p99")
    return Table("Latency in s from when a second of input appeared until its results were shown", columns, tuple(rows))


def _prompt(runs: Sequence[SideRun]) -> Iterator[Claim]:
    """How soon outputs go on, and how that compares with Structured Streaming."""
    goal_s = GOAL_INTERVALS * INTERVAL_S
    theirs = _silences(runs, STRUCTURED)
    for side in GOING_ON:
        ours = list(_silences(runs, side).values())
        killed = max((each.killed for each in runs if each.side == side), default=0)
        if ours:
            yield Claim(
                f"{SIDES[side]}: the next output after {killed} of {NODES} nodes died",
                f"within {GOAL_INTERVALS} batch intervals ({goal_s:g} s)",
                max(ours) / INTERVAL_S,
                "batch intervals",
                f"the slowest of {_rounds(ours)}; goal {'met' if max(ours) <= goal_s else 'missed'}",
                "we aim at",
            )
    for side, name in SIDES.items():
        silences = _silences(runs, side) if side != STRUCTURED else {}
        ratios = [silence / theirs[number] for number, silence in silences.items() if number in theirs]
        if ratios:
            yield Claim(
                f"{name}: silence against Structured Streaming's",
                "shorter",
                statistics.median(ratios),
                "times theirs",
                f"median of {_rounds(ratios)}, {min(ratios):.2f} to {max(ratios):.2f}, sides in turn",
                "we aim at",
            )


def _sooner(runs: Sequence[SideRun]) -> Iterator[Claim]:
    """How much sooner outputs go on than all is recovered, here and by other ways."""
    for side in (BLOCKING, STRUCTURED, REPLICAS):
        times = _times_later(runs, side)
        if times:
            yield Claim(
                f"{SIDES[side]}: its first output, large state, over that of {SIDES[PASSIVE]}",
                f"at least {GOAL_RATIO:g} times" if side != REPLICAS else "no goal",
                statistics.median(times),
                "times",
                f"median of {_rounds(times)}, {spread(times, '.1f')}, sides in turn",
                "we aim at",
            )
    passive = [each for each in runs if each.side == PASSIVE]
    both = [(each.silence_s(whole=True), each.silence_s(whole=False)) for each in passive]
    own = [final / first for final, first in both if final is not None and first is not None]
    if own:
        yield Claim(
            "tentative outputs before all failed tasks are recovered (Su, Zhou 2016), large state",
            "up to 10 times sooner",
            max(own),
            "times sooner than final results of all partitions, at most",
            f"{_rounds(own)}, {spread(own, '.1f')}",
        )


def _silences(runs: Sequence[SideRun], side: str) -> dict[int, float]:
    """How long a side was silent, by round."""
    silences = {each.number: each.silence_s(whole=False) for each in runs if each.side == side}
    return {number: silence for number, silence in silences.items() if silence is not None}


def _times_later(runs: Sequence[SideRun], side: str) -> list[float]:
    """How many times later than the tentative side's the first output of a side came, round by round."""
    theirs, ours = _silences(runs, side), _silences(runs, PASSIVE)
    return [theirs[number] / ours[number] for number in theirs if number in ours]


def _rounds(values: Sequence[float]) -> str:
    return f"{len(values)} round{'s' * (len(values) > 1)}"


def _remarks(cases: Sequence[Case], runs: Mapping[str, Sequence[SideRun]], compared: int) -> list[str]:
    restarts = sum(each.restarts for own in runs.values() for each in own)
    away = " and ".join(f"{case.away_s:g}" for case in cases)
    return [
        "the kill is the same on all sides: executors are dealt out to two racks in the order of their ids, and both "
        "of rack 1 get SIGKILL at once; the limit of executors is lowered first, so that none is replaced, and raised "
        "to let them return",
        "an output counts when readers can see rows of a second that no output had before (with windows, a second of "
        "input completes those that end where it begins); `silent` is until any partition shows one, `final again` "
        "until all partitions do, final; `up to date` is when outputs are complete and as prompt as the slowest before "
        f"the kill, {away} s of which count; `usual` is the median latency in that time: a side that has not kept up "
        "with its input says nothing of an outage",
        "small state: the windowed mean asks least of Structured Streaming: one stateful operator, where the windowed "
        "join needs three of them to come back",
        "large state: a join by time keeps every row of the window once on all sides, and puts out a few rows each "
        "second; a window that slides would be rewritten by Structured Streaming as a whole with every slide. In Tenax "
        "the join is an operator of the experiment's own, in Polars",
        "what survives the nodes is read from disk: on one machine it would still be in memory, where no machine that "
        "takes over has it, so pages of the store and of the checkpoints are let go of as they are written",
        "`state MB` is what tasks of Tenax report, each counted once; in Structured Streaming the files of RocksDB, "
        "which are compressed (0 as long as it has written none)",
        "lost tasks of Tenax without a replica leave their keys out (partial) while the others stay final; results are "
        "tentative where tasks go on without some of their inputs",
        "replicas: the budget is all tasks but sources, which need none. Tenax stores a checkpoint every 10 batches; "
        "the kill comes between two of them, so that lost tasks have something to catch up with",
        "Structured Streaming: RocksDB with changelog checkpointing, append mode, no watermark delay, default trigger, "
        f"{SHUFFLE_PARTITIONS} shuffle partitions, Spark's own retries; should its query die, it is started again from "
        f"its checkpoint at once, which happened {restarts} times",
        f"final results were equal on all sides and in plain Polars: at least {compared:,} rows; `exact` is the "
        "oracle: the same batches run again without failures, compared to the byte",
    ]


def _panels(case: Case, runs: Sequence[SideRun]) -> tuple[Panel, ...]:
    """The first round: all sides together, each alone, and how old outputs were."""
    first = {each.side: each for each in reversed(runs)}
    first = {side: first[side] for side in SIDES}
    return (
        _together(case, first),
        *(_alone(case, side_run) for side_run in first.values()),
        _ages(case, first),
    )


def _together(case: Case, first: Mapping[str, SideRun]) -> Panel:
    curves = [
        Curve(SIDES[side], *_stairs(side_run, whole=False), look=look)
        for look, (side, side_run) in enumerate(first.items())
    ]
    return _panel(f"All sides, {case.state} state: the newest output of any kind", first[STRUCTURED], curves)


def _alone(case: Case, side_run: SideRun) -> Panel:
    curves = [
        Curve("final, complete", *_stairs(side_run, whole=True), look=0),
        Curve("shown: partial or tentative", *_open(side_run), look=1, dashed=True),
    ]
    return _panel(f"{SIDES[side_run.side]}, {case.state} state", side_run, [curve for curve in curves if curve.x])


def _panel(title: str, side_run: SideRun, curves: Sequence[Curve]) -> Panel:
    begin_s, end_s = _span(side_run)
    appeared = Curve("input", (begin_s, end_s), (begin_s, end_s), INPUT_LOOK)
    return Panel(
        title,
        "seconds since the kill",
        "newest second of input shown, 0 is the kill",
        (appeared, *curves, *_marks(side_run, begin_s, end_s)),
    )


def _marks(side_run: SideRun, low: float, high: float) -> tuple[Curve, ...]:
    """Upright lines at the kill and at the return."""
    back_s = side_run.returned_s - side_run.killed_s
    return (
        Curve("2 of 4 nodes killed", (0.0, 0.0), (low, high), MARK_LOOK),
        Curve("nodes may return", (back_s, back_s), (low, high), MARK_LOOK, dashed=True),
    )


def _span(side_run: SideRun) -> tuple[float, float]:
    return PICTURE_S[0], side_run.returned_s - side_run.killed_s + PICTURE_S[1]


def _stairs(side_run: SideRun, *, whole: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The newest second shown over time, from edge to edge; both counted from the kill, on the clock of the input."""
    begin_s, end_s = _span(side_run)
    newest = {output.at_s: output.second for output in side_run.advances(whole=whole)}  # of each moment, the last
    steps = [
        (at_s - side_run.killed_s, side_run.appeared_s[second] - side_run.killed_s) for at_s, second in newest.items()
    ]
    points = [(begin_s, y) for x, y in steps if x < begin_s][-1:]
    for x, y in steps:
        if begin_s <= x <= end_s:
            points += [(x, points[-1][1]), (x, y)] if points else [(x, y)]
    if points and steps[-1][0] > end_s:
        points.append((end_s, points[-1][1]))
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _open(side_run: SideRun) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The outputs that were not complete and final when they were shown."""
    begin_s, end_s = _span(side_run)
    points = [
        (output.at_s - side_run.killed_s, side_run.appeared_s[output.second] - side_run.killed_s)
        for output in side_run.advances(whole=False)
        if not output.whole and begin_s <= output.at_s - side_run.killed_s <= end_s
    ]
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _ages(case: Case, first: Mapping[str, SideRun]) -> Panel:
    curves = []
    highest = 0.0
    for look, (side, side_run) in enumerate(first.items()):
        begin_s, end_s = _span(side_run)
        oldest: dict[float, float] = {}
        for at_s, age_s in side_run.latencies(whole=False).values():
            oldest[at_s - side_run.killed_s] = max(age_s, oldest.get(at_s - side_run.killed_s, 0.0))
        points = [(x, y) for x, y in oldest.items() if begin_s <= x <= end_s]
        highest = max([highest, *(y for _, y in points)])
        curves.append(Curve(SIDES[side], tuple(x for x, _ in points), tuple(y for _, y in points), look))
    return Panel(
        f"Latency, {case.state} state: the oldest second in each output",
        "seconds since the kill",
        "seconds from input to output",
        (*curves, *_marks(first[STRUCTURED], 0.0, highest)),
    )
