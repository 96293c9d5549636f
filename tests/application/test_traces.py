"""Of an error in users' code the place and the traceback are told, without the frames of what runs it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tenax.application.traces import MAX_CAUSE, cause_of, place_of, trace_of, with_sources
from tenax.errors import InvalidRequest
from tenax.operators.computation import NO_WATERMARK_US, StepInput
from tenax.operators.stateless import Stateless, map_frames, with_columns

HERE = Path(__file__)
ROWS = pl.DataFrame({"v": [1, 0]})


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(HERE.read_text().splitlines(), start=1) if line.endswith(text))


def divided(value: int) -> int:
    return 10 // value  # here


def raising(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=divided(rows["v"][1]))  # above it


def reraising(rows: pl.DataFrame) -> pl.DataFrame:
    try:
        return raising(rows)
    except ZeroDivisionError as error:
        raise ValueError("a row\ncannot be") from error  # the second


def parsing(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(w=pl.lit(json.loads("{")))  # a library


def raised(computation: Stateless) -> BaseException:
    with pytest.raises(Exception) as raised:  # whichever it is
        computation.step({}, StepInput((ROWS,), NO_WATERMARK_US, 1))
    assert raised.tb is not None
    return raised.value.with_traceback(raised.tb.tb_next)  # without this frame, which is no worker's


def test_the_frames_are_those_of_the_user_with_their_lines() -> None:
    error = raised(map_frames(raising))
    assert place_of(error) == f"{HERE}, line {line_of('# here')}"
    assert with_sources(trace_of(error)).splitlines() == [
        "Traceback of your code, most recent call last:",
        f'  File "{HERE}", line {line_of("# above it")}, in raising',
        '    return rows.with_columns(w=divided(rows["v"][1]))  # above it',
        f'  File "{HERE}", line {line_of("# here")}, in divided',
        "    return 10 // value  # here",
        "ZeroDivisionError: integer division or modulo by zero",
    ]


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
def test_a_function_within_an_expression_is_found() -> None:
    error = raised(with_columns(pl.col("v").map_elements(divided, return_dtype=pl.Int64)))
    assert place_of(error) == f"{HERE}, line {line_of('# here')}"
    assert cause_of(error) == "ZeroDivisionError: integer division or modulo by zero"
    assert "polars" not in trace_of(error)


def test_what_caused_an_error_comes_before_it() -> None:
    error = raised(map_frames(reraising))
    assert cause_of(error) == "ValueError: a row cannot be"
    assert place_of(error) == f"{HERE}, line {line_of('# the second')}"
    first, second = trace_of(error).split("\nwhich caused:\n")
    assert first.endswith("ZeroDivisionError: integer division or modulo by zero")
    assert second.endswith("ValueError: a row\ncannot be")


def test_the_place_is_the_users_and_the_trace_goes_on_into_libraries() -> None:
    error = raised(map_frames(parsing))
    assert place_of(error) == f"{HERE}, line {line_of('# a library')}"
    assert "decoder.py" in trace_of(error)


def test_without_code_of_the_users_there_is_no_place() -> None:
    error = raised(with_columns(pl.col("w") + 1))
    assert (place_of(error), trace_of(error)) == ("", "")
    assert cause_of(error).startswith('ColumnNotFoundError: unable to find column "w"; valid columns: ["v"]')


def test_errors_of_tenax_explain_themselves_and_long_ones_are_cut() -> None:
    assert cause_of(InvalidRequest("a rule, found 3: write 4")) == "a rule, found 3: write 4"
    assert cause_of(KeyError()) == "KeyError"
    assert len(cause_of(ValueError("x" * 10_000))) == MAX_CAUSE
    assert with_sources('  File "/no/such.py", line 3, in f') == '  File "/no/such.py", line 3, in f'
