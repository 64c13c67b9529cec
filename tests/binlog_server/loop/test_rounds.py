"""Work that is done again and again."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
from binlog_storage.errors import StorageError

from binlog_server.loop.rounds import Rounds
from tests.binlog_server.lab import DEADLINE_S, until


async def test_errors_are_told_until_a_round_comes_to_a_good_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = [StorageError("a"), StorageError("a"), ValueError("b"), ValueError("b")]
    told: list[str] = []
    is_well = threading.Event()

    def call() -> None:
        told.append(rounds.why)
        if errors:
            raise errors.pop(0)
        is_well.set()

    rounds = Rounds("work", call, failure="not done", hanging="it hangs")
    running = asyncio.ensure_future(rounds.run(lambda: 0))
    await until(lambda: is_well.is_set() and rounds.since == 0)
    running.cancel()
    assert told[:5] == [
        "it hangs",
        "not done: a",
        "not done: a",
        "not done: ValueError('b')",
        "not done: ValueError('b')",
    ]
    assert [(one.message, one.levelno, bool(one.exc_info)) for one in caplog.records] == [
        ("not done: a", logging.ERROR, False),
        ("not done: ValueError('b')", logging.ERROR, True),
    ]


async def test_since_when() -> None:
    """Of the first round that did not come to a good end."""
    seen: list[float] = []
    goes_on = threading.Event()

    def call() -> None:
        seen.append(rounds.since)
        if len(seen) < 3:
            raise StorageError("no")
        goes_on.wait(DEADLINE_S)

    rounds = Rounds("work", call, failure="not done", hanging="it hangs")
    assert rounds.since == 0
    running = asyncio.ensure_future(rounds.run(lambda: 0))
    await until(lambda: len(seen) == 3)
    assert 0 < rounds.since <= time.monotonic()
    assert set(seen) == {rounds.since}
    goes_on.set()
    await until(lambda: rounds.since == 0 or rounds.since > seen[0])
    running.cancel()
