"""No power cut leaves tables and binlog of two different steps, an undo that is not finished, or a lock for ever."""

from __future__ import annotations

import random

import pytest

from tests.storage.crash.tables import TableChecker, commits_and_snapshots, played

HISTORIES = 8
STATES = 250
STATES_SLOW = 4000


@pytest.mark.by_turns(8)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_random(number: int, rng: random.Random) -> None:
    checker = TableChecker(played(rng, 120), rng)
    checker.run(STATES)
    print(
        f"history {number}: {checker.states} disk states, {checker.in_recovery} of them left by a crash in recovery; "
        f"{checker.undone} steps undone"
    )
    assert checker.states >= STATES // 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(20))
def test_random_in_full(number: int, rng: random.Random) -> None:
    checker = TableChecker(played(rng, 300), rng)
    checker.run(STATES_SLOW)
    assert checker.states >= STATES_SLOW // 2


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_commits_and_snapshots(times: int, rng: random.Random) -> None:
    checker = TableChecker(commits_and_snapshots(rng), rng)
    checker.run(times * STATES)
    print(f"{checker.states} disk states")
