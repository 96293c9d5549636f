"""A process of its own that steps a computation as a worker would, and says what came out: `python -m`, by checks."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tenax.api.results import in_order
from tenax.operators.chunks import decode, encode
from tenax.operators.computation import Computation, State, StepInput, StepOutput
from tenax.testing.shipping import unpacked

REBUILT = 8  # batches after which a state is lost and rebuilt

Broken = tuple[str, str]
"""The rule with what was found, and the remedy."""


class _Breaks(Exception):
    """A rule is broken."""


def main(path: Path) -> dict[str, object]:
    """The digests of all steps, or the rule that is broken."""
    computation, inputs = unpacked(path)
    try:
        outputs = _repeated(computation, inputs)
        rebuilt_from = _rebuilt(computation, inputs, outputs) if computation.bounded else None
        if computation.any_batches:
            _check_cuts(computation, inputs, outputs)
    except _Breaks as broken:
        return {"broken": list(broken.args)}
    return {"digests": [_digest(output) for output in outputs], "rebuilt_from": rebuilt_from}


def _repeated(computation: Computation, inputs: Sequence[StepInput]) -> list[StepOutput]:
    """Every step again, from a state that was read back, and from what producers may send in place of their rows."""
    outputs: list[StepOutput] = []
    state = computation.initial()
    for given in inputs:
        output = computation.step(state, given)
        digest = _digest(output)
        if _digest(computation.step(state, given)) != digest:
            raise _Breaks(
                f"a step gives the same bytes for the same input, found others when batch {given.batch} was repeated",
                "read no clock, draw nothing at random, keep nothing in attributes",
            )
        restored = {name: decode(encode(frame, 0))[0] for name, frame in state.items()}
        if _digest(computation.step(restored, given)) != digest:
            raise _Breaks(
                f"a state is all in its segments, found another result of batch {given.batch} from one that was read "
                "back",
                "keep what a step needs in the state, in types that Arrow has",
            )
        sent = tuple(computation.combined(number, frame) for number, frame in enumerate(given.frames))
        if _digest(computation.step(state, StepInput(sent, given.watermark_us, given.batch))) != digest:
            raise _Breaks(
                f"a step takes rows or what combined makes of them, found other results of batch {given.batch}",
                "combine only what the step would combine in the same order",
            )
        outputs.append(output)
        state = output.state
    return outputs


def _rebuilt(computation: Computation, inputs: Sequence[StepInput], outputs: Sequence[StepOutput]) -> int:
    """Lose the state after some batches, rebuild it from the oldest that it depends on, and go on alike."""
    longest = 0
    places = sorted({max(1, len(inputs) * number // REBUILT) for number in range(1, REBUILT)})
    for lost in places:
        first = max(1, min(computation.oldest(outputs[lost - 1].state, lost) - 1, lost))
        longest = max(longest, lost - first + 1)
        state: State = computation.initial()
        for given in inputs[first - 1 : lost]:
            frames = given.frames
            if given.batch == first > 1:  # of the batch before the oldest, the watermark alone counts
                frames = tuple(frame.clear() for frame in frames)
            state = computation.step(state, StepInput(frames, given.watermark_us, given.batch)).state
        for given, expected in zip(inputs[lost:], outputs[lost:], strict=True):
            output = computation.step(state, given)
            if encode(output.rows, 0) != encode(expected.rows, 0):
                raise _Breaks(
                    f"bounded = True says that a state follows from the batches since oldest, found others in batch "
                    f"{given.batch} after it was lost after {lost} and rebuilt from {first} on",
                    "let oldest say an older batch, or leave bounded out",
                )
            state = output.state
    return longest


def _check_cuts(computation: Computation, inputs: Sequence[StepInput], outputs: Sequence[StepOutput]) -> None:
    """The same rows in one batch."""
    frames = tuple(pl.concat([given.frames[place] for given in inputs]) for place in range(len(inputs[0].frames)))
    whole = computation.step(computation.initial(), StepInput(frames, inputs[-1].watermark_us, 1)).rows
    cut = pl.concat([output.rows for output in outputs])
    if encode(in_order(whole), 0) != encode(in_order(cut), 0):
        raise _Breaks(
            f"any_batches = True says that cuts do not show, found other rows ({whole.height}) of one batch than of "
            f"{len(inputs)} ({cut.height})",
            "leave it out",
        )


def _digest(output: StepOutput) -> str:
    """Of the rows and the whole state."""
    digest = hashlib.sha256(encode(output.rows, 0))
    for name in sorted(output.state):
        digest.update(name.encode() + encode(output.state[name], 0))
    return digest.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
