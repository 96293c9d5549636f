"""The contract of a computation, tried on rows of its user: deterministic, pure, cheap, rebuilt where it says so."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tenax.application.traces import cause_of
from tenax.errors import BrokenContract, InvalidRequest
from tenax.model.durations import Span, microseconds
from tenax.operators.chunks import encode
from tenax.operators.computation import END_WATERMARK_US, NO_WATERMARK_US, Computation, State, StepInput
from tenax.operators.event_time import event_times
from tenax.testing.rescaling import check_rescaled

WORKERS = {"POLARS_MAX_THREADS": "1", "POLARS_NO_PARTITION": "1", "OPENBLAS_NUM_THREADS": "1"}  # as on nodes
CHILD = "tenax.testing.processes"
CHILD_DEADLINE_S = 600.0
LEAST_BATCHES = 16  # that tell how cost grows
WRITTEN_GROWTH = 1.6  # twice the input may write 2 × 1.6 as much; a state that is written anew each time, 2 × 2
CPU_GROWTH = 8.0  # of a step by the time the state is as large as it gets: scheduling noise stays far below
CPU_FLOOR_S = 0.005
REPEATS = 3


@dataclass(frozen=True, slots=True)
class ComputationCheck:
    """What was tried: so many batches, rows in and out, and from how many batches a state was rebuilt at most.

    `cost_judged` and `rescaled` say whether there was enough to judge the cost, and whether the state can be split.
    """

    batches: int
    rows_in: int
    rows_out: int
    rebuilt_from: int | None = None
    cost_judged: bool = False
    rescaled: bool = False


@dataclass(frozen=True, slots=True)
class Stepped:
    """States and outputs after every batch, and what each step wrote."""

    states: list[State]
    outputs: list[pl.DataFrame]
    written: list[int]


def check_computation(
    computation: Computation,
    rows: pl.DataFrame | Sequence[pl.DataFrame],
    *,
    time: str,
    lateness: Span = "0s",
    batches: int = 32,
    keys: Sequence[str] = (),
) -> ComputationCheck:
    """Step a computation through rows of yours, and raise `BrokenContract` where it breaks its contract.

        tx.testing.check_computation(Totals(), rows, time="ts")

    - `rows` are those of its input, or a list with those of each input; they are cut into so many `batches`. `time` is
      the column that the watermark follows, `lateness` behind it; after the last batch everything is complete.
    - Pure: a step changes neither frames nor state, and a name of a segment never stands for another content.
    - Deterministic to the byte: step for step, in two processes, and with a state that was read back from bytes.
    - Its cost follows the batch: what a step writes, and takes, does not grow with the state.
    - The columns that come out are those that `schema` derives from its inputs.
    - `stateless`, `bounded` (rebuilt from `oldest` on, it goes on alike), `any_batches`, `combined`: as it says.
    - `splits`, or `split` and `merge`: one task becomes three, then two, and the rows stay the same. `keys` are the
      columns by which its rows are shared, of a computation that does not name keys of its own.
    """
    if not isinstance(computation, Computation):
        raise InvalidRequest(f"check_computation takes a tx.Computation, found {type(computation).__name__}: pass one")
    frames = (rows,) if isinstance(rows, pl.DataFrame) else tuple(rows)
    inputs = cut(frames, time, microseconds(lateness), batches)
    stepped = followed(computation, inputs)
    judged = _check_cost(computation, inputs, stepped)
    rescaled = check_rescaled(computation, inputs, keys)
    rebuilt = _in_two_processes(computation, inputs)
    rows_out = sum(output.height for output in stepped.outputs)
    return ComputationCheck(len(inputs), sum(frame.height for frame in frames), rows_out, rebuilt, judged, rescaled)


def cut(frames: Sequence[pl.DataFrame], time: str, lateness_us: int, batches: int) -> list[StepInput]:
    """The rows in batches of equal length, with the watermark after each."""
    if not frames or not all(isinstance(frame, pl.DataFrame) for frame in frames) or not any(map(len, frames)):
        raise InvalidRequest("a computation is tried with rows, found none: pass a pl.DataFrame for each input")
    for number, frame in enumerate(frames, start=1):
        if frame.schema.get(time) != pl.Datetime("us"):
            raise InvalidRequest(
                f"the time column {time!r} of input {number} is a Datetime in microseconds, found "
                f"{frame.schema.get(time)}: cast it, or name another"
            )
    count = max(1, min(batches, max(frame.height for frame in frames)))
    highest = [NO_WATERMARK_US] * len(frames)
    inputs = []
    for number in range(count):
        parts = []
        for place, frame in enumerate(frames):
            first, last = frame.height * number // count, frame.height * (number + 1) // count
            parts.append(frame.slice(first, last - first))
            known = parts[-1].drop_nulls(time)
            if known.height:
                highest[place] = max(highest[place], int(event_times(known, time).max()) - lateness_us)
        watermark_us = END_WATERMARK_US if number == count - 1 else min(highest)
        inputs.append(StepInput(tuple(parts), watermark_us, number + 1))
    return inputs


def followed(computation: Computation, inputs: Sequence[StepInput]) -> Stepped:
    """Step through all batches; nothing that was given may change, and names of segments have one meaning."""
    stepped = Stepped([computation.initial()], [], [])
    contents = {name: encode(frame, 0) for name, frame in stepped.states[0].items()}
    columns = _schema(computation, inputs[0])
    for given in inputs:
        state = stepped.states[-1]
        before = [encode(frame, 0) for frame in given.frames], {name: encode(state[name], 0) for name in state}
        output = computation.step(state, given)
        after = [encode(frame, 0) for frame in given.frames], {name: encode(state[name], 0) for name in state}
        if before != after:
            what = "the frames" if before[0] != after[0] else "the state"
            _broken(
                computation,
                f"a step changes nothing it is given, found {what} changed in batch {given.batch}",
                "work on a copy (clone, with_columns), and return a new mapping",
            )
        written = 0
        for name, frame in output.state.items():
            content = encode(frame, 0)
            if contents.setdefault(name, content) != content:
                _broken(
                    computation,
                    f"the name of a segment stands for one content, found another under {name!r} in "
                    f"batch {given.batch}",
                    "put the batch into the name of what a step writes",
                )
            written += len(content) if name not in state else 0
        if computation.stateless and output.state:
            _broken(
                computation,
                f"stateless = True says that the state is empty, found {sorted(output.state)}",
                "leave it out",
            )
        if output.rows.height and output.rows.schema != columns:
            _broken(
                computation,
                f"columns are the same in every batch, found {dict(output.rows.schema)} in batch "
                f"{given.batch}, and {dict(columns)} by schema(...)",
                "cast what follows from the rows, or declare it by schema(self, inputs)",
            )
        stepped.states.append(output.state)
        stepped.outputs.append(output.rows)
        stepped.written.append(written)
    return stepped


def _schema(computation: Computation, given: StepInput) -> pl.Schema:
    """The columns of what comes out, as a topology derives them when it is built."""
    try:
        return computation.schema([frame.schema for frame in given.frames])
    except Exception as error:
        raise BrokenContract(
            f"{type(computation).__name__}: columns are known before it runs, found that a step without rows raises "
            f"{cause_of(error)}: give them for no rows, too, or declare them by schema(self, inputs)"
        ) from error


def _check_cost(computation: Computation, inputs: Sequence[StepInput], stepped: Stepped) -> bool:
    """Whether it could be judged: there are enough batches, and the state grows."""
    last = len(inputs) - 1  # the last batch completes everything: it has a cost of its own
    early, late = range(last // 8, last // 4 + 1), range(last * 3 // 4, last)
    sizes = [sum(frame.height for frame in state.values()) for state in stepped.states]
    if last < LEAST_BATCHES or sizes[last] < 2 * max(1, sizes[last // 4]):
        return False
    half = last // 2
    whole, first = sum(stepped.written[:last]), sum(stepped.written[:half])
    if first and whole > 2 * WRITTEN_GROWTH * first:
        _broken(
            computation,
            f"a step writes what follows from its batch, found {first:,} bytes of state in {half} "
            f"batches and {whole:,} in {last}",
            "write what has changed as a segment of its own",
        )
    cheap, dear = (statistics.median(_cpu_s(computation, stepped, inputs, at) for at in span) for span in (early, late))
    if dear > CPU_GROWTH * cheap + CPU_FLOOR_S:
        _broken(
            computation,
            f"the cost of a step follows its batch, found {1000 * cheap:.1f} ms with {sizes[early[0]]:,} "
            f"rows of state and {1000 * dear:.1f} ms with {sizes[last]:,}",
            "look up the keys of the batch alone",
        )
    return True


def _cpu_s(computation: Computation, stepped: Stepped, inputs: Sequence[StepInput], at: int) -> float:
    """The processor time of a step, at its best."""
    best = float("inf")
    for _ in range(REPEATS):
        began_s = clock.process_time()
        computation.step(stepped.states[at], inputs[at])
        best = min(best, clock.process_time() - began_s)
    return best


def _in_two_processes(computation: Computation, inputs: Sequence[StepInput]) -> int | None:
    """Let two processes, set up as workers are, judge the rest; the number of batches a state was rebuilt from."""
    from tenax.testing.shipping import packed

    with tempfile.TemporaryDirectory(prefix="tenax-testing-") as folder:
        path = Path(folder) / "computation"
        path.write_bytes(packed(computation, inputs))
        answers = [_asked(path, seed) for seed in ("1", "2")]
    for answer in answers:
        if "broken" in answer:
            _broken(computation, *answer["broken"])
    if answers[0]["digests"] != answers[1]["digests"]:
        pairs = zip(answers[0]["digests"], answers[1]["digests"], strict=True)
        batch = next(number for number, (mine, other) in enumerate(pairs, start=1) if mine != other)
        _broken(
            computation,
            f"a step gives the same bytes in every process, found others in batch {batch}",
            "use no sets, hash(), ids, clock or random numbers, and group_by(..., maintain_order=True)",
        )
    rebuilt: int | None = answers[0]["rebuilt_from"]
    return rebuilt


def _asked(path: Path, seed: str) -> dict[str, Any]:
    paths = os.pathsep.join(place or "." for place in sys.path)
    environment = {**os.environ, **WORKERS, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
    command = [sys.executable, "-m", CHILD, str(path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=CHILD_DEADLINE_S, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        raise BrokenContract(f"a computation travels to other processes, found that it cannot: {last[0]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _broken(computation: Computation, rule: str, remedy: str) -> None:
    raise BrokenContract(f"{type(computation).__name__}: {rule}: {remedy}")
