"""Sessions beside each other: answers, locks, tables and binlog are those of the model, and so is what a crash
leaves."""

from __future__ import annotations

import random

import pytest

from tests.binlog_server.lab import within
from tests.binlog_server.tables.histories import History, SqlChecker
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.tables import CLASSIC

HISTORIES = (0, 14)
"""In the second one UPDATEs leave rows as they are, and others wait for these."""
STEPS = 70
STATES = 25
RANDOM = 40  # in each test of the slow suite


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("seed", HISTORIES)
async def test_histories(seed: int) -> None:
    rng = random.Random(seed)
    async with History(rng) as history:
        await within(history.play(STEPS), 120)
    checker = SqlChecker(history, rng)
    checker.run(STATES)
    print(f"history {seed}: {history.counts}; {checker.states} disk states")
    assert checker.states >= STATES // 2


async def test_a_history_beside_a_traditional_binlog() -> None:
    rng = random.Random(1)
    async with History(rng, options=CLASSIC) as history:
        await within(history.play(STEPS // 2), 120)
    checker = SqlChecker(history, rng)
    checker.run(STATES)
    assert checker.states >= STATES // 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(100))
async def test_random_in_full(number: int, rng: random.Random) -> None:
    """Each of them by a seed that is told, so that it can be played again."""
    for at in range(RANDOM):
        seed = rng.getrandbits(32)
        print(f"seed {seed}")
        own = random.Random(seed)
        async with History(own, options=own.choice((OPTIONS, CLASSIC))) as history:
            await within(history.play(2 * STEPS), 600)
        if not at % 4:
            SqlChecker(history, own).run(4 * STATES)
