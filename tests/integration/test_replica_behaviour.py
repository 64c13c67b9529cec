"""docs/replica-behaviour.md is what replicas do: some lines in every run, all of them in the slow one."""

from __future__ import annotations

import pytest

from tests.integration.behaviour.corpus import CHEAP, SCENARIOS
from tests.integration.behaviour.page import COMMAND, PAGE, lines_of, measured, outcome_on, text
from tests.integration.behaviour.replicas import OURS, outcome, subject


def test_the_page_has_every_scenario() -> None:
    page = PAGE.read_text("utf-8")
    assert lines_of(page).keys() == SCENARIOS.keys(), f"run {COMMAND}"


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
