"""Serialization of an application for its nodes, once per run; what cannot be pickled is named."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import cloudpickle

from tenax.application.application import Application
from tenax.errors import InvalidTopology

CLOUDPICKLE = "cloudpickle"


def pack(value: object) -> bytes:
    """A value as bytes; functions and classes that nodes do not have travel with it."""
    with functions_of_expressions():
        packed: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return packed


@contextmanager
def functions_of_expressions() -> Iterator[None]:
    """Let expressions with Python functions (`map_elements`) be pickled meanwhile, and like all other functions.

    Polars looks for a package of that name to pickle them. The one that comes with Spark knows which modules travel by
    value, and is there; to unpickle, nothing but it is needed.
    """
    before = sys.modules.get(CLOUDPICKLE)
    sys.modules[CLOUDPICKLE] = cloudpickle
    try:
        yield
    finally:
        if before is None:
            del sys.modules[CLOUDPICKLE]
        else:
            sys.modules[CLOUDPICKLE] = before


def check_shippable(application: Application) -> None:
    """Refuse an application that cannot travel, naming the operator or sink and the cause.

    All at once first: what several operators share is packed once, and most applications have nothing to blame.
    """
    cause = _refusal(application)
    if cause is None:
        return
    parts: dict[str, object] = {f"source {name!r}": source for name, source in application.sources.items()}
    parts |= {f"operator {name!r}": computation for name, computation in application.computations.items()}
    parts |= {f"the sink of output {name!r}": sink for name, sink in application.sinks.items()}
    refusals = ((name, _refusal(part)) for name, part in parts.items())
    name, why = next(((name, why) for name, why in refusals if why is not None), ("the application", cause))
    raise InvalidTopology(
        f"{name}: functions travel to the nodes with all that they use, found what cannot be pickled ({why}): "
        "make it inside the function"
    )


def _refusal(value: object) -> str | None:
    """Why a value cannot be packed; None if it can."""
    try:
        pack(value)
    except Exception as error:  # pickling runs whatever code the value's classes bring along
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None
