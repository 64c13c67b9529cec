"""docs/replica-behaviour.md is what replicas do: some lines in every run, all of them in the slow one."""

from __future__ import annotations

import pytest

from tests.integration.behaviour.corpus import CHEAP, SCENARIOS
from tests.integration.behaviour.page import COMMAND, PAGE, lines_of, measured, outcome_on, text
from tests.integration.behaviour.replicas import COLUMNS, OURS, outcome, subject

DELAYED = {
    "a group comes behind the next one": "a group comes behind the next one, and the connection ends there"
}
"""Lines at which replicas of MariaDB only seem to do better, and those that show it."""


def rank(words: str) -> int:
    """Of an outcome: 2 it goes on with all rows, 1 it stops or waits, 0 it has lost or keeps what is wrong."""
    if (
        "lost" in words
        or "not what the master has" in words
        or "twice" in words
        or "has not" in words
    ):
        return 0
    assert words.startswith("goes on") or "stops" in words or "tries again" in words, words
    return 2 if words.startswith("goes on") else 1


def test_the_page_has_every_scenario() -> None:
    page = PAGE.read_text("utf-8")
    assert lines_of(page).keys() == SCENARIOS.keys(), f"run {COMMAND}"


def test_our_relay_does_no_worse() -> None:
    page = PAGE.read_text("utf-8")
    worse = {
        says
        for says in SCENARIOS
        if rank(outcome_on(page, says, OURS))
        < max(rank(outcome_on(page, says, column)) for column in COLUMNS)
    }
    assert worse == DELAYED.keys()
    for says in DELAYED.values():
        assert all(rank(outcome_on(page, says, column)) == 1 for column in (*COLUMNS, OURS)), says


@pytest.mark.parametrize("column", ["11.8", OURS])
def test_some_lines(column: str) -> None:
    page = PAGE.read_text("utf-8")
    with subject(column) as replica:
        for says in CHEAP:
            assert outcome(SCENARIOS[says], replica) == outcome_on(page, says, column), says


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_page_is_what_replicas_do() -> None:
    assert PAGE.read_text("utf-8") == text(measured()), (
        f"run {COMMAND}, and look at what has changed"
    )
