"""What travels in tests: values as they are shipped to nodes, a computation and its input for another process."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

from tenax.operators.chunks import decode, encode
from tenax.operators.computation import Computation, StepInput


def shipped(value: object) -> bytes:
    """A value as it is sent to nodes."""
    from tenax.engine.shipping import pack  # Spark is loaded when it is needed

    return pack(value)


def packed(computation: Computation, inputs: Sequence[StepInput]) -> bytes:
    """Both as bytes; the module of the computation travels with it, unless it is of Tenax."""
    from pyspark import cloudpickle

    from tenax.engine.shipping import pack

    module = sys.modules[type(computation).__module__]
    own = module.__name__ != "__main__" and not module.__name__.startswith("tenax.")
    if own:
        cloudpickle.register_pickle_by_value(module)
    try:
        chunks = [([encode(frame, 0) for frame in given.frames], given.watermark_us, given.batch) for given in inputs]
        return pack((computation, chunks))
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)


def unpacked(path: Path) -> tuple[Computation, list[StepInput]]:
    """What `packed` has made."""
    computation, chunks = pickle.loads(path.read_bytes())  # written by the process that has started this one
    return computation, [
        StepInput(tuple(decode(chunk)[0] for chunk in frames), watermark_us, batch)
        for frames, watermark_us, batch in chunks
    ]
