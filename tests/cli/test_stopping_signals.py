"""Signals ask for an end once, and output without a reader is dropped."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tenax.cli import stopping as module
from tenax.cli.stopping import SIGNALS, interrupted_by_all, stopping


class Ended(Exception):
    """In place of the end of this process."""


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> None:
        raise Ended

    monkeypatch.setattr(module, "end_at_once", end)


def test_a_stop_is_asked_for_once_whatever_the_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    asked: list[str] = []
    with stopping() as stops:
        stops.call(lambda: asked.append("stop"))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        monkeypatch.setattr(module, "SAME_S", -1.0)
        with pytest.raises(Ended):
            signal.raise_signal(signal.SIGINT)
    assert asked == ["stop"]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_one_key_that_arrives_twice_is_one_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAME_S", 60.0)
    with stopping() as stops:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert stops.asked


def test_a_stop_asked_for_before_anybody_can_hear_it_is_heard_later() -> None:
    asked: list[str] = []
    with stopping() as stops:
        signal.raise_signal(signal.SIGTERM)
        stops.call(lambda: asked.append("stop"))
    assert asked == ["stop"]


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stopping() as stops:
            signal.raise_signal(signal.SIGHUP)
            assert not stops.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_commands_that_start_others_are_interrupted_by_every_signal() -> None:
    for number in SIGNALS:
        with pytest.raises(KeyboardInterrupt), interrupted_by_all():
            signal.raise_signal(number)


def test_output_whose_reader_has_left_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as broken, (tmp_path / "kept").open("w") as kept:
        monkeypatch.setattr(sys, "stdout", broken)
        monkeypatch.setattr(sys, "stderr", kept)
        os.close(reading)
        with stopping():
            for _ in range(3):
                print("x" * 100_000, flush=True)
            print("heard", file=sys.stderr)
        print("still", flush=True)
    assert (tmp_path / "kept").read_text() == "heard\n"
