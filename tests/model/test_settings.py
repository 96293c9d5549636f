"""Settings are declared once: names are unique, checks follow from declarations, words and data agree with fields."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tenax.errors import InvalidRequest
from tenax.model.options import checked, options_of
from tenax.model.protection import OperatorProtection, Outputs, Protection, Recovery, Strategy
from tenax.model.settings import CONCERNS, RECORDS, Bounds, Settings, declared
from tenax.model.settings_table import BEGIN, END, tables

DOCUMENT = Path(__file__).parents[2] / "docs" / "running.md"


def test_every_setting_has_one_name() -> None:
    names = [each.name for record in RECORDS.values() for each in fields(record)]
    assert len(names) == len(set(names))
    assert list(CONCERNS) == names
    assert set(RECORDS) == {each.name for each in fields(Settings)}


@pytest.mark.parametrize("record", [*RECORDS.values(), OperatorProtection])
def test_every_setting_says_what_it_is_and_its_default_keeps_its_rule(record: type[Any]) -> None:
    for name, option in options_of(record).items():
        assert option.help.endswith("."), name
        assert option.kind.schema, name
        assert checked(name, option, option.default) == getattr(record(), name)
        if option.default is None:
            assert option.if_none


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"max_rows": 0}, "max_rows is a whole number of at least 1, found 0: write 100000"),
        ({"max_rows": True}, "found True"),
        ({"max_rows": "many"}, "max_rows is a whole number of at least 1, found 'many': write 100000"),
        ({"max_batches_ahead": 1}, "max_batches_ahead is a whole number of at least 2, found 1: write 17"),
        ({"follow_load": -0.1}, "follow_load is a number from 0 to 1, found -0.1: write 0.05"),
        ({"batch": 3}, "batch is a time of at least 0, found 3: write '1s'"),
        ({"batch": timedelta(seconds=-3)}, "batch is a time of at least 0, found datetime.timedelta"),
        ({"pass_deadline": "0s"}, "pass_deadline is a time above 0, found '0s': write '1m'"),
        ({"failure_every": "often"}, "failure_every is a time above 0, found 'often': write '1h'"),
        ({"order": "exac"}, "order is one of best-density, exact, dp, operator-centric, found 'exac': did you mean"),
        ({"strict_lateness": "yes"}, "strict_lateness is true or false, found 'yes': write true or leave it out"),
        ({"accept_changes": "speed"}, "accept_changes is a list of names, found 'speed': write ['speed']"),
        ({"standby": "active"}, "standby is said by operator, found 'active': write {'join': 'none'}"),
        ({"checkpoint": None}, "checkpoint is one of aligned"),
        ({"nodes": 2, "standby_nodes": 2}, "some nodes are not standby, found standby_nodes 2 of nodes 2: lower it"),
        ({"join_gap": 2}, "there is no setting 'join_gap': use one of replicas"),
    ],
)
def test_a_wrong_setting_is_one_line_with_rule_value_and_remedy(words: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        Settings.of(**words)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


OTHERS: dict[str, object] = {
    "replicas": ("a[0]", "b[*]"),
    "recovery_latency": "7s",
    "backups": ("a[0]", "b[*]"),
    "recovery": "blocking",
    "outputs": "hold",
    "order": "dp",
    "tentative_delay": "2s",
    "checkpoint_every": "3s",
    "checkpoint": "sweeping",
    "checkpoints": {"join": "none"},
    "failure_every": "1h",
    "standby": {"join": "passive"},
    "follow_load": 0.5,
    "storage_patience": "9s",
    "correlated_losses": 7,
    "cutover_lag": 8,
    "patience": 9,
    "max_outage_bytes": 10,
    "max_attempts": 11,
    "max_batches_per_pass": 2,
    "max_batches_ahead": 5,
    "max_unpublished": 6,
    "max_batches_per_round": 3,
    "pass_deadline": "12s",
    "measure_every": 13,
    "log_length": 14,
    "batch": "15ms",
    "max_rows": 16,
    "max_bytes": 17,
    "strict_lateness": True,
    "keep_batches": True,
    "nodes": 18,
    "master": "spark://127.0.0.1:7077",
    "pool": 2,
    "max_nodes": 24,
    "node_limit": 0.5,
    "racks": 3,
    "slots": 19,
    "standby_nodes": 1,
    "standby_slots": 20,
    "heartbeat": "21s",
    "missed": 22,
    "memory_mb": 512,
    "elastic": True,
    "policy": "threshold",
    "target": 0.5,
    "elastic_nodes": (3, 5),
    "cycles": 4,
    "period": "25s",
    "cooldown": "26s",
    "handover": "replay",
    "accept_changes": ("speed",),
    "upgrade": True,
    "drain": True,
    "replay": True,
}


def other(word: str) -> Settings:
    """Settings of which just this one is not as usual."""
    return Settings.of(**{word: OTHERS[word]})


@pytest.mark.parametrize("word", CONCERNS)
def test_every_setting_reaches_its_record_and_the_data_of_a_run_and_nothing_else(word: str) -> None:
    made, usual = other(word), Settings()
    changed = [
        (section, name)
        for section, record in RECORDS.items()
        for name in options_of(record)
        if getattr(getattr(made, section), name) != getattr(getattr(usual, section), name)
    ]
    assert changed == [(CONCERNS[word], word)]
    data, plain = made.to_data(), usual.to_data()
    assert list(data) == list(RECORDS)
    assert [list(said) for said in data.values()] == [list(options_of(record)) for record in RECORDS.values()]
    differing = [name for section in data for name in data[section] if data[section][name] != plain[section][name]]
    assert differing == [word]
    assert Settings.from_data(data) == made


def test_words_of_enumerations_are_their_members_and_spans_are_text() -> None:
    asked = Protection(
        recovery="blocking", outputs="hold", checkpoint="sweeping", checkpoint_every=timedelta(minutes=2)
    )
    assert (asked.recovery, asked.outputs, asked.checkpoint) == (Recovery.BLOCKING, Outputs.HOLD, Strategy.SWEEPING)
    assert asked.recovery is Recovery.BLOCKING
    assert (asked.checkpoint_every, asked.checkpoint_every_s) == ("2m", 120.0)
    assert asked == Protection(
        recovery=Recovery.BLOCKING, outputs=Outputs.HOLD, checkpoint=Strategy.SWEEPING, checkpoint_every="2m"
    )


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        ({}, (8, 17, 17, 8)),
        ({"checkpoint_every": 3}, (3, 7, 7, 3)),
        ({"checkpoint_every": "3s"}, (8, 17, 17, 8)),
        ({"max_batches_per_pass": 20}, (20, 41, 41, 20)),
        ({"max_batches_ahead": 5}, (4, 5, 9, 4)),
        ({"checkpoint_every": 3, "max_batches_per_pass": 5, "max_unpublished": 1}, (5, 11, 1, 5)),
        ({"max_batches_per_round": 2}, (8, 17, 17, 2)),
    ],
)
def test_bounds_that_are_left_open_follow_from_the_others(words: dict[str, Any], bounds: tuple[int, ...]) -> None:
    made = Settings.of(**words)
    names = ("max_batches_per_pass", "max_batches_ahead", "max_unpublished", "max_batches_per_round")
    assert tuple(getattr(made, name) for name in names) == bounds
    assert tuple(getattr(made.resolved().bounds, name) for name in names) == bounds


def test_batches_are_logged_while_a_pass_runs() -> None:
    with pytest.raises(
        InvalidRequest, match=r"max_batches_ahead is above max_batches_per_pass \(4\).*found 4: raise it"
    ):
        Bounds(max_batches_per_pass=4, max_batches_ahead=4)


def test_what_is_said_for_single_operators_is_added_and_all_else_replaced() -> None:
    first = Settings.of(checkpoints={"a": "none"}, standby={"b": "active"}, replicas=3)
    then = first.but(checkpoints={"c": "sweeping"}, replicas=1).protection
    assert (then.checkpoints, then.standby, then.replicas) == ({"a": "none", "c": "sweeping"}, {"b": "active"}, 1)


def test_the_tables_of_the_documentation_are_those_of_the_records() -> None:
    text = DOCUMENT.read_text()
    written = text[text.index(BEGIN) : text.index(END) + len(END)]
    assert written == tables(), "put what `python -m tenax.model.settings_table` prints into docs/running.md"
    for word in chain(CONCERNS, options_of(OperatorProtection)):
        hidden = word in CONCERNS and declared(word).hidden
        assert (f"| `{word}`" in written) is not hidden
