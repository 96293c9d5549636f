"""Arguments of topologies, checked at the call that was given them: one line with rule, value found and remedy."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence

import polars as pl

from tenax.connectors.sink import Sink
from tenax.connectors.source import Source
from tenax.errors import InvalidRequest
from tenax.model.topology import check_name
from tenax.operators.computation import Computation
from tenax.operators.custom import KeyedComputation

SHOWN = 60  # letters of a value that is not what it should be


def name(what: str, given: object) -> None:
    """A name that a topology or an operator can have."""
    if not isinstance(given, str):
        raise InvalidRequest(f"the name of {_a(what)} is text, found {shown(given)}: write it in quotes")
    check_name(what, given)


def count(what: str, given: object) -> None:
    """A whole number of at least 1."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidRequest(f"{what} is a whole number of at least 1, found {shown(given)}: write 1 or more")


def parallelism(what: str, given: object) -> tuple[int, int]:
    """How many tasks an operator has at first and at most: one number, or the fewest and the most as a pair."""
    if not isinstance(given, tuple):
        count(what, given)
        assert isinstance(given, int)
        return given, given
    if len(given) != 2 or not all(type(each) is int and each >= 1 for each in given) or given[0] > given[1]:
        raise InvalidRequest(
            f"{what} is a whole number of at least 1, or the fewest and the most, found {shown(given)}: write (1, 16)"
        )
    return given


def source(operator: str, given: object) -> None:
    """Where rows come from; one of a user's own says what everybody asks of it."""
    if isinstance(given, Source):
        for attribute, example in (("time", "'ts'"), ("lateness_us", "0"), ("bounded", "True")):
            if not hasattr(given, attribute):
                raise InvalidRequest(
                    f"source {operator!r}: a source has {attribute!r}, found none in {type(given).__name__}: write "
                    f"self.{attribute} = {example} in its __init__"
                )
        return
    remedy = "pass tx.files(...) or one of the generators"
    if isinstance(given, str):
        remedy = f"write tx.files({given!r}, time=...)"
    elif callable(given):
        remedy = "call it, and pass what it returns"
    raise InvalidRequest(f"source {operator!r} reads a tenax source, found {shown(given)}: {remedy}")


def sink(output: str, given: object) -> None:
    """Where results go; one of a user's own says where that is."""
    if isinstance(given, Sink):
        if not hasattr(given, "place"):
            raise InvalidRequest(
                f"output {output!r}: a sink has 'place', found none in {type(given).__name__}: write self.place = "
                "'...', which says where its results are"
            )
        return
    remedy = "pass tx.parquet(folder), tx.console() or tx.callback(function)"
    if isinstance(given, str):
        remedy = f"write tx.parquet({given!r})"
    elif inspect.isfunction(given) and given.__module__.startswith("tenax."):
        remedy = f"call it: tx.{given.__name__}(...)"
    elif callable(given):
        remedy = "write tx.callback(...) around a function"
    raise InvalidRequest(f"output {output!r} goes to a tenax sink, found {shown(given)}: {remedy}")


def expressions(verb: str, given: Sequence[object], *, example: str, columns: bool = False) -> None:
    """Polars expressions, or the names of columns where these will do."""
    for argument in given:
        if isinstance(argument, pl.Expr) or (columns and isinstance(argument, str)):
            continue
        remedy = f"write {verb}({example})"
        if isinstance(argument, str):
            remedy = f"write pl.col({argument!r}), as in {verb}({example})"
        elif isinstance(argument, list | tuple):
            remedy = f"leave the brackets out, as in {verb}({example})"
        elif callable(argument):
            remedy = "use map(function) for a function of whole frames"
        kinds = "Polars expressions or names of columns" if columns else "Polars expressions"
        raise InvalidRequest(f"{verb} takes {kinds}, found {shown(argument)}: {remedy}")


def function(given: object) -> None:
    """A function of one frame."""
    if isinstance(given, pl.Expr) or not callable(given):
        remedy = "use with_columns(...) or select(...)" if isinstance(given, pl.Expr) else "pass a function of a frame"
        raise InvalidRequest(f"map takes a function, found {shown(given)}: {remedy}")
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # of a builtin nothing is known
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise InvalidRequest(
            f"map calls its function with one frame, found {shown(given)}{signature}, for which {error}: "
            "take one argument"
        ) from None


def schema(verb: str, given: object) -> pl.Schema:
    """Columns and their types, as a user declares them."""
    remedy = f"write {verb}(..., schema={{'ts': pl.Datetime('us'), 'speed': pl.Float64}})"
    if not isinstance(given, Mapping) or not given:
        raise InvalidRequest(f"a schema has the columns and their types, found {shown(given)}: {remedy}")
    for column_name, kind in given.items():
        whole = isinstance(kind, pl.DataType) or (isinstance(kind, type) and issubclass(kind, pl.DataType))
        if not isinstance(column_name, str) or not whole:
            raise InvalidRequest(
                f"a schema has names and Polars types, found {shown(kind)} for {column_name!r}: {remedy}"
            )
    return pl.Schema(given)


def computation(given: object) -> None:
    """An operator of a user's own."""
    if not isinstance(given, Computation):
        remedy = "pass an instance of your own tx.Computation or tx.KeyedComputation"
        if isinstance(given, type):
            remedy = f"make one: {given.__name__}()"
        elif callable(given):
            remedy = "use map(function) for a function of frames"
        raise InvalidRequest(f"apply takes a tx.Computation, found {shown(given)}: {remedy}")
    if isinstance(given, KeyedComputation):
        kind, keys = type(given).__name__, getattr(given, "keys", None)
        if not isinstance(keys, tuple | list) or not keys or not all(isinstance(key, str) for key in keys):
            raise InvalidRequest(
                f"{kind}.keys is a tuple of the names of its key columns, found {shown(keys)}: write keys = ('page',)"
            )
        schema = getattr(given, "state_schema", None)
        if not isinstance(schema, Mapping) or any(key not in schema for key in keys):
            raise InvalidRequest(
                f"{kind}.state_schema is a pl.Schema that has its keys {tuple(keys)}, found {shown(schema)}: add them"
            )


def columns(verb: str, given: Collection[object], least: int = 1) -> None:
    """Names of columns, each by itself."""
    if len(given) < least:
        raise InvalidRequest(f"{verb} takes at least {least} column, found none: name one")
    for argument in given:
        if not isinstance(argument, str):
            remedy = "name columns in quotes"
            if isinstance(argument, pl.Expr):
                remedy = "name a column; what is not there yet is made by with_columns(...) before"
            elif isinstance(argument, list | tuple):
                remedy = f"leave the brackets out, as in {verb}('a', 'b')"
            raise InvalidRequest(f"{verb} takes names of columns, found {shown(argument)}: {remedy}")


def column_list(what: str, given: object) -> None:
    """A list of names of columns; a bare text would be taken letter by letter."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        remedy = f"write [{given!r}]" if isinstance(given, str) else "write ['segment', 'window']"
        raise InvalidRequest(f"{what} is a list of columns, found {shown(given)}: {remedy}")
    columns(what, given)


def column(what: str, given: object) -> None:
    """The name of one column."""
    if not isinstance(given, str):
        raise InvalidRequest(f"{what} is the name of a column, found {shown(given)}: write it in quotes")


def priority(output: str, tasks: int, given: object) -> None:
    """How much an output matters: a number, or a list of one for each of its tasks."""
    numbers: Sequence[object] = given if isinstance(given, list | tuple) else (given,)
    for each in numbers:
        if isinstance(each, bool) or not isinstance(each, int | float) or not math.isfinite(each) or each < 0:
            raise InvalidRequest(
                f"the priority of output {output!r} is a number of at least 0, or a list of one per task, found "
                f"{shown(each)}: write 1.0"
            )
    if numbers is given and len(numbers) != tasks:
        raise InvalidRequest(
            f"the priorities of output {output!r} are one per task ({tasks}), found {len(numbers)}: write as many, or "
            "one number for all"
        )


def shown(given: object) -> str:
    """A value and its kind on one line, for messages."""
    if isinstance(given, type):
        return f"the class {given.__name__}"
    if inspect.isroutine(given):
        return "a lambda" if given.__name__ == "<lambda>" else f"the function {given.__name__}"
    if isinstance(given, pl.Expr):
        return f"the expression {_short(str(given))}"
    if given is None:
        return "None"
    return f"{type(given).__name__} {_short(repr(given))}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _a(what: str) -> str:
    return f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
