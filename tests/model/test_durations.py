"""Spans of time: text with units or `timedelta`, one as good as the other."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tenax.errors import InvalidRequest
from tenax.model.durations import Span, as_text, microseconds, span


@pytest.mark.parametrize(
    ("given", "expected_us"),
    [
        ("10s", 10_000_000),
        ("1m30s", 90_000_000),
        (timedelta(minutes=1, seconds=30), 90_000_000),
        (timedelta(milliseconds=250), 250_000),
        (timedelta(0), 0),
        (timedelta(weeks=1), 604_800_000_000),
    ],
)
def test_text_and_timedelta_are_the_same_spans(given: Span, expected_us: int) -> None:
    assert microseconds(given) == expected_us
    assert microseconds(as_text(given)) == expected_us
    assert microseconds(span(expected_us)) == expected_us


def test_text_stays_as_it_was_written() -> None:
    assert as_text("90s") == "90s"
    assert as_text(timedelta(seconds=90)) == "1m30s"


@pytest.mark.parametrize("wrong", [10, "ten", "10", "", None, timedelta(seconds=-1)])
def test_what_is_no_span_is_refused_with_the_value(wrong: Span) -> None:
    with pytest.raises(InvalidRequest, match="a span of time is"):
        microseconds(wrong)
